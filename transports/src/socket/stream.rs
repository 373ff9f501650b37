//! TCP and Unix streams behind one type.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, BorrowedFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use pstrain_wire::TcpFigures;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::pending::Origin;
use super::tcp_info;
use crate::address::Address;

/// A stream that is connected or connecting.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Begins to connect. Each `attempt` tries the next address of a host with several. With
    /// `only_here` the address must be on this machine.
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
            Address::Unix(path) => Self::Unix(UnixStream::connect_addr(&Address::socket(path)?)?),
        })
    }

    /// Returns the origin of the other end.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Tcp(stream) => {
                stream.peer_addr().map_or(Origin::Here, |address| Origin::Host(address.ip()))
            }
            Self::Unix(_) => Origin::Here,
        }
    }

    /// Checks that the other end is on this machine, and, where the system can tell, of the same
    /// user or root. The error says what it is instead.
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
            // On other systems the mode of the socket file keeps other users out.
            #[cfg(not(target_os = "linux"))]
            Self::Unix(_) => Ok(()),
        }
    }

    /// Disables Nagle's algorithm: small messages are sent at once.
    pub(super) fn without_delay(self) -> Self {
        if let Self::Tcp(stream) = &self {
            // Ignore a failure: without the option the connection is slower, but correct.
            stream.set_nodelay(true).unwrap_or_default();
        }
        self
    }

    /// True if a pending connect has succeeded.
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

    /// Closes this side for sending.
    pub(super) fn finish(&self) {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
        .unwrap_or_default();
    }

    /// True if the peer has closed, and nothing is left to read.
    pub(super) fn has_ended(&self) -> bool {
        let mut byte = [0; 1];
        match rustix::net::recv(self, &mut byte, RecvFlags::PEEK) {
            Ok((_, length)) => length == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }

    /// Returns the kernel's statistics of a TCP connection, if the system has them.
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
