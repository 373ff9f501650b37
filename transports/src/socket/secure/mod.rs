//! Security layer between a socket and its frames: none, TLS 1.3 with certificates on both sides,
//! or Noise with a shared key.
//!
//! A [`Layer`] holds no socket: bytes from the peer go in, plain bytes come out, and output waits
//! until it is taken. It releases no bytes before both sides have proved their identity, or
//! that they hold the key, so frames of an unauthenticated peer are never decoded.

#[cfg(any(feature = "psk", feature = "tls"))]
mod files;
#[cfg(feature = "psk")]
mod noise;
#[cfg(feature = "tls")]
mod tls;

use std::io::{self, IoSlice, Write};
use std::path::Path;

use pstrain_roles::node::DialFault;
use pstrain_wire::identity::Identity;

use super::stream::Stream;

/// Security of a transport's connections.
#[derive(Debug, Default)]
pub struct Security(Mode);

#[derive(Debug, Default)]
enum Mode {
    /// Plain text within this machine: loopback addresses, and Unix sockets between processes of
    /// the same user or root.
    #[default]
    Local,
    /// Plain text with any peer.
    Insecure,
    #[cfg(feature = "tls")]
    Tls(Box<tls::Tls>),
    #[cfg(feature = "psk")]
    Psk(noise::Key),
}

/// Who may read a private or shared key, apart from the process that uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyAccess {
    /// No other user.
    #[default]
    Owner,
    /// The group of a file that root owns, for a process that does not run as root: Kubernetes
    /// (`fsGroup`) and systemd (`LoadCredential`) provide secrets this way. Every member of the
    /// group can read the key.
    RootsGroup,
}

/// Error of the security setup, which names the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SecurityError(String);

/// Error of a connection that cannot continue.
#[derive(Debug)]
pub(super) struct Broken {
    /// The reason, in words.
    pub(super) why: String,
    /// The prospect of another attempt, if the connection was dialled.
    pub(super) fault: DialFault,
}

impl Broken {
    /// Another attempt would fail in the same way.
    pub(super) const fn permanent(why: String) -> Self {
        Self { why, fault: DialFault::Permanent }
    }

    /// The other end does not fit, or its bytes were damaged on the way.
    #[cfg(any(feature = "psk", feature = "tls"))]
    const fn mismatch(why: String) -> Self {
        Self { why, fault: DialFault::Mismatch }
    }
}

/// The node that is dialled, and what its certificate must be for.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "for TLS"))]
pub(super) enum Callee<'a> {
    /// A server with this host name.
    Server(&'a str),
    /// Another worker. Its certificate has no host name: the node checks which worker it is.
    Worker,
}

impl From<String> for Broken {
    fn from(why: String) -> Self {
        Self { why, fault: DialFault::Temporary }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}

impl Security {
    /// Plain text within this machine: loopback addresses, and Unix sockets between processes of
    /// the same user or root. Other connections are not made, or are dropped.
    #[must_use]
    pub const fn local() -> Self {
        Self(Mode::Local)
    }

    /// Plain text with any peer: every host that can reach the address can read, change and join.
    #[must_use]
    pub const fn insecure() -> Self {
        Self(Mode::Insecure)
    }

    /// TLS 1.3 with the certificates in `folder`: `ca.pem`, `node.pem`, `node.key`, and optionally
    /// `revoked.pem`. `access` says who may be able to read `node.key`.
    ///
    /// # Errors
    /// [`SecurityError`] names the file and its error, or says that this build has no TLS.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "for TLS"))]
    pub fn tls(folder: &Path, access: KeyAccess) -> Result<Self, SecurityError> {
        #[cfg(feature = "tls")]
        return Ok(Self(Mode::Tls(Box::new(tls::Tls::load(folder, access)?))));
        #[cfg(not(feature = "tls"))]
        Err(SecurityError(format!(
            "{}: this build has no TLS; build it with the feature `tls`",
            folder.display()
        )))
    }

    /// Noise with the key in `file`, which all participants share. `access` says who may be able to
    /// read it.
    ///
    /// # Errors
    /// [`SecurityError`] names the file and its error, or says that this build has no shared keys.
    #[cfg_attr(not(feature = "psk"), expect(unused_variables, reason = "for shared keys"))]
    pub fn psk(file: &Path, access: KeyAccess) -> Result<Self, SecurityError> {
        #[cfg(feature = "psk")]
        return Ok(Self(Mode::Psk(noise::Key::load(file, access)?)));
        #[cfg(not(feature = "psk"))]
        Err(SecurityError(format!(
            "{}: this build knows no shared keys; build it with the feature `psk`",
            file.display()
        )))
    }

    /// Returns the identity that this side proves: `Anyone` without a certificate.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        match &self.0 {
            #[cfg(feature = "tls")]
            Mode::Tls(tls) => tls.identity(),
            _ => Identity::Anyone,
        }
    }

    /// True if connections with other machines are forbidden.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self.0, Mode::Local)
    }

    /// Reloads changed files. Returns the error, if there is one.
    pub(super) fn refresh(&mut self) -> Option<SecurityError> {
        match &mut self.0 {
            Mode::Local | Mode::Insecure => None,
            #[cfg(feature = "tls")]
            Mode::Tls(tls) => tls.refresh().err(),
            #[cfg(feature = "psk")]
            Mode::Psk(_) => None,
        }
    }

    /// Returns the layer for an accepted connection.
    pub(super) fn accepted(&self) -> Result<Layer, Broken> {
        Ok(match &self.0 {
            Mode::Local | Mode::Insecure => Layer::Plain,
            #[cfg(feature = "tls")]
            Mode::Tls(tls) => Layer::Tls(Box::new(tls.accepted()?)),
            #[cfg(feature = "psk")]
            Mode::Psk(key) => Layer::Noise(Box::new(key.layer(false)?)),
        })
    }

    /// Returns the layer for a connection to `callee`.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "for TLS"))]
    pub(super) fn dialled(&self, callee: Callee<'_>) -> Result<Layer, Broken> {
        Ok(match &self.0 {
            Mode::Local | Mode::Insecure => Layer::Plain,
            #[cfg(feature = "tls")]
            Mode::Tls(tls) => Layer::Tls(Box::new(tls.dialled(callee)?)),
            #[cfg(feature = "psk")]
            Mode::Psk(key) => Layer::Noise(Box::new(key.layer(true)?)),
        })
    }
}

/// The security layer of one connection.
#[derive(Debug)]
pub(super) enum Layer {
    Plain,
    #[cfg(feature = "tls")]
    Tls(Box<tls::TlsLayer>),
    #[cfg(feature = "psk")]
    Noise(Box<noise::NoiseLayer>),
}

/// Reason for a stream that ended during its handshake.
pub(super) const UNPROVED: &str = "closed by the peer before both had proved who they are; run \
    both with --tls, or both with --psk";

impl Layer {
    /// True once both sides have authenticated: only then do plain bytes pass.
    pub(super) const fn is_open(&self) -> bool {
        match self {
            Self::Plain => true,
            #[cfg(feature = "tls")]
            Self::Tls(layer) => layer.is_open(),
            #[cfg(feature = "psk")]
            Self::Noise(layer) => layer.is_open(),
        }
    }

    /// True if the bytes on the wire are plain bytes.
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Returns why a peer that was dialled may have closed `stream` without sending a byte. One
    /// with another security, or another key, answers.
    pub(super) const fn unanswered(&self, stream: &Stream) -> &'static str {
        match (self, stream) {
            (Self::Plain, Stream::Unix(_)) => {
                "closed by the peer without a word; run both as one user"
            }
            _ => "closed by the peer without a word",
        }
    }

    /// Returns the identity that the peer has proved.
    pub(super) const fn identity(&self) -> Identity {
        match self {
            #[cfg(feature = "tls")]
            Self::Tls(layer) => layer.identity(),
            _ => Identity::Anyone,
        }
    }

    /// Processes bytes from the peer, and passes plain bytes to `take`.
    #[cfg_attr(
        not(any(feature = "psk", feature = "tls")),
        expect(clippy::needless_pass_by_ref_mut, reason = "plain text waits for nothing")
    )]
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Broken> {
        match self {
            Self::Plain => {
                take(bytes);
                Ok(())
            }
            #[cfg(feature = "tls")]
            Self::Tls(layer) => layer.receive(bytes, take),
            #[cfg(feature = "psk")]
            Self::Noise(layer) => layer.receive(bytes, take),
        }
    }

    /// True if output is waiting to be sent.
    pub(super) fn has_output(&self) -> bool {
        match self {
            Self::Plain => false,
            #[cfg(feature = "tls")]
            Self::Tls(layer) => layer.has_output(),
            #[cfg(feature = "psk")]
            Self::Noise(layer) => layer.has_output(),
        }
    }

    /// Sends waiting output, as far as the system takes it.
    #[cfg_attr(
        not(any(feature = "psk", feature = "tls")),
        expect(
            unused_variables,
            clippy::needless_pass_by_ref_mut,
            reason = "plain text waits for nothing"
        )
    )]
    pub(super) fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        while self.has_output() {
            let sent: io::Result<usize> = match self {
                Self::Plain => Ok(0),
                #[cfg(feature = "tls")]
                Self::Tls(layer) => layer.write_to(stream),
                #[cfg(feature = "psk")]
                Self::Noise(layer) => layer.write_to(stream),
            };
            match sent {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends plain bytes. Returns how many of them were taken.
    pub(super) fn write(
        &mut self,
        stream: &mut Stream,
        parts: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if matches!(self, Self::Plain) {
            return stream.write_vectored(parts);
        }
        self.flush(stream)?;
        if self.has_output() {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        let taken = match self {
            Self::Plain => 0,
            #[cfg(feature = "tls")]
            Self::Tls(layer) => layer.send(parts)?,
            #[cfg(feature = "psk")]
            Self::Noise(layer) => layer.send(parts)?,
        };
        self.flush(stream)?;
        Ok(taken)
    }

    /// Sends the closing message of the protocol, or the refusal of a handshake, if it has one.
    pub(super) fn close(&mut self, stream: &mut Stream) {
        match self {
            Self::Plain => {}
            #[cfg(feature = "tls")]
            Self::Tls(layer) => layer.close(),
            #[cfg(feature = "psk")]
            Self::Noise(layer) => layer.close(),
        }
        // Ignore a failure: the peer learns of the end from the end of the stream.
        self.flush(stream).unwrap_or_default();
    }
}
