//! TLS 1.3 with certificates on both sides, through rustls and ring.
//!
//! In TLS 1.3 a dialler learns whether the server has accepted its certificate only from what the
//! server sends afterwards. So the server sends one byte once it has accepted it, and the dialler
//! considers the connection open when that byte arrives.

mod certificates;

use std::io::{self, BufRead, IoSlice, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;

use pstrain_wire::identity::Identity;
use rustls::{AlertDescription, CertificateError, ClientConnection, Connection, ServerConnection};

use super::super::stream::Stream;
use super::{Broken, Callee};

pub(super) use certificates::Tls;

/// Maximum bytes of a peer before authentication: enough for some certificates.
const MOST_HANDSHAKE_BYTES: usize = 32 * 1024;
/// Limit of encrypted bytes that wait to be sent.
const AHEAD_BYTES: usize = 256 * 1024;
/// Byte with which a server confirms the dialler's certificate.
const TAKEN: u8 = 1;

#[derive(Debug)]
pub(in super::super) struct TlsLayer {
    connection: Connection,
    identity: Identity,
    is_open: bool,
    /// Bytes received before the layer was open.
    received: usize,
}

impl Tls {
    pub(super) fn accepted(&self) -> Result<TlsLayer, Broken> {
        let connection = ServerConnection::new(Arc::clone(self.for_accepted())).map_err(broken)?;
        Ok(TlsLayer::new(connection.into()))
    }

    pub(super) fn dialled(&self, callee: Callee<'_>) -> Result<TlsLayer, Broken> {
        let (config, name) = match callee {
            Callee::Server(host) => {
                let name = host.to_owned().try_into().map_err(|_invalid| {
                    Broken::permanent(format!("{host:?} is no name that a certificate can have"))
                })?;
                (self.to_servers(), name)
            }
            // rustls requires a name, which is neither checked nor sent.
            Callee::Worker => (self.to_workers(), Ipv4Addr::UNSPECIFIED.into()),
        };
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(broken)?;
        Ok(TlsLayer::new(connection.into()))
    }
}

impl TlsLayer {
    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(AHEAD_BYTES));
        Self { connection, identity: Identity::Anyone, is_open: false, received: 0 }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) const fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn receive(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Broken> {
        if !self.is_open {
            self.received += bytes.len();
            if self.received > MOST_HANDSHAKE_BYTES {
                return Err(String::from("its handshake is far too long").into());
            }
        }
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes)? == 0 {
                return Ok(()); // the peer has sent a closing message
            }
            self.connection.process_new_packets().map_err(broken)?;
            if self.is_open || self.opens()? {
                self.hand_out(take);
            }
        }
        Ok(())
    }

    /// Opens the layer if both sides have authenticated. Returns whether it is open.
    fn opens(&mut self) -> Result<bool, Broken> {
        if self.connection.is_handshaking() {
            return Ok(false);
        }
        let proved = self.connection.peer_certificates().and_then(<[_]>::first);
        let proved = proved.ok_or_else(|| Broken::from(String::from("it has no certificate")))?;
        self.identity = certificates::identity(proved)?;
        if let Connection::Server(_) = &self.connection {
            self.connection.writer().write_all(&[TAKEN])?;
            self.is_open = true;
        } else if let Some(first) = self.connection.reader().fill_buf().ok().and_then(<[_]>::first)
        {
            if *first != TAKEN {
                return Err(Broken::mismatch("it is no pstrain of this release".into()));
            }
            self.connection.reader().consume(1);
            self.is_open = true;
        }
        Ok(self.is_open)
    }

    fn hand_out(&mut self, take: &mut dyn FnMut(&[u8])) {
        while let Ok(plain) = self.connection.reader().into_first_chunk()
            && !plain.is_empty()
        {
            let length = plain.len();
            take(plain);
            self.connection.reader().consume(length);
        }
    }

    pub(super) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(parts)
    }

    pub(super) fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    pub(super) fn write_to(&mut self, stream: &mut Stream) -> io::Result<usize> {
        self.connection.write_tls(stream)
    }

    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

/// Returns the error in words that suggest a remedy.
fn broken(error: rustls::Error) -> Broken {
    use rustls::Error;
    match &error {
        Error::InvalidCertificate(error) => Broken::permanent(of_certificate(error)),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::NoCertificatesPresented => Broken::permanent("it has no certificate".into()),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            Broken::mismatch("it does not speak TLS; is it run with --tls?".into())
        }
        error => Broken::mismatch(format!("TLS: {error}")),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => {
            "its certificate has expired; make it a new one with `pstrain cert node`".into()
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "its certificate is not valid yet; is the clock right on both machines?".into()
        }
        E::Revoked => {
            "its certificate was revoked; make it a new one with `pstrain cert node`".into()
        }
        E::UnknownIssuer | E::BadSignature => {
            "its certificate is of another CA; both sides need the same ca.pem".into()
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => format!(
            "its certificate is for another name ({error}); dial it by a name it has, or make it \
             one with `pstrain cert node ... --server HOST`"
        ),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "its certificate is not for a server: a worker or a client answers there; dial a \
             server, or make it a certificate with `pstrain cert node ... --server HOST`"
                .into()
        }
        error => format!("its certificate cannot be taken: {error}"),
    }
}

/// Returns the server's opinion of this side's certificate, as its alert expresses it.
fn of_alert(alert: AlertDescription) -> Broken {
    let why = match alert {
        // TLS has one alert for both cases.
        AlertDescription::CertificateExpired => {
            "that it is not valid now: it has expired (make a new one with `pstrain cert node`), \
             or is not valid yet (is the clock right on both machines?)"
        }
        AlertDescription::CertificateRevoked => "that it was revoked",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => "that it is of another CA",
        AlertDescription::CertificateRequired => "that there is none",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "that it cannot take it: it may be for another name than it was dialled by"
        }
        alert => {
            return Broken::mismatch(format!("it broke off with the TLS alert {alert:?}"));
        }
    };
    Broken::permanent(format!("it refuses this side's certificate and says {why}"))
}
