//! One face for TCP and Unix streams.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, BorrowedFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use pstrain_wire::TcpFigures;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::door::Origin;
use super::tcp_info;
use crate::address::Address;

/// A connected, or connecting, stream.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Begins to connect. A host with several addresses is tried at the next one with each
    /// `attempt`. With `only_here` it must be this machine.
    pub(super) fn connect(address: &Address, attempt: usize, only_here: bool) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp(host) => {
                let found = Address::resolve(host)?;
                let found = found[attempt % found.len()];
                if only_here && !is_here(found.ip()) {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, elsewhere()));
                }
                Self::Tcp(TcpStream::connect(found)?)
            }
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
        })
    }

    /// Where the other end is.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Tcp(stream) => {
                stream.peer_addr().map_or(Origin::Here, |address| Origin::Host(address.ip()))
            }
            Self::Unix(_) => Origin::Here,
        }
    }

    /// Whether the other end is on this machine, and of the same user or root where that can be
    /// known; if not, what it is.
    pub(super) fn check_here(&self) -> Result<(), String> {
        match self {
            Self::Tcp(stream) => match stream.peer_addr() {
                Ok(address) if !is_here(address.ip()) => Err(elsewhere()),
                _ => Ok(()),
            },
            #[cfg(target_os = "linux")]
            Self::Unix(stream) => {
                let own = rustix::process::geteuid();
                match rustix::net::sockopt::socket_peercred(stream) {
                    Ok(peer) if peer.uid == own || peer.uid.is_root() => Ok(()),
                    Ok(peer) => Err(format!(
                        "it is of user {}, this process of user {}; run both as one user, or use \
                         --tls or --psk",
                        peer.uid.as_raw(),
                        own.as_raw()
                    )),
                    Err(error) => Err(format!("whose it is cannot be known: {error}")),
                }
            }
            // Elsewhere the mode of the socket's file is what keeps others out.
            #[cfg(not(target_os = "linux"))]
            Self::Unix(_) => Ok(()),
        }
    }

    /// Sends small messages at once instead of waiting for more to go with them.
    pub(super) fn without_delay(self) -> Self {
        if let Self::Tcp(stream) = &self {
            // A system that cannot do this is slower and just as correct.
            stream.set_nodelay(true).unwrap_or_default();
        }
        self
    }

    /// Whether a connect under way has succeeded.
    pub(super) fn is_connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Self::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Self::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    /// Tells the peer that nothing more will come.
    pub(super) fn finish(&self) {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
        .unwrap_or_default();
    }

    /// Whether the peer has closed it, and nothing is left to be read.
    pub(super) fn has_ended(&self) -> bool {
        let mut byte = [0; 1];
        match rustix::net::recv(self, &mut byte, RecvFlags::PEEK) {
            Ok((_, length)) => length == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }

    /// What the kernel knows of it, if it is TCP and the system says so.
    pub(super) fn tcp_figures(&self) -> Option<TcpFigures> {
        match self {
            Self::Tcp(stream) => tcp_info::figures(stream),
            Self::Unix(_) => None,
        }
    }

    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(parts),
            Self::Unix(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_here(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn elsewhere() -> String {
    String::from(
        "it is another machine, and plain text is for this one only; use --tls FOLDER or --psk \
         FILE, or --insecure to let everybody read and change what is sent",
    )
}
