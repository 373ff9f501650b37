//! One face for TCP and Unix streams.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};

use pstrain_core::protocol::TcpFigures;

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
    /// `attempt`.
    pub(super) fn connect(address: &Address, attempt: usize) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp(host) => {
                let found = Address::resolve(host)?;
                Self::Tcp(TcpStream::connect(found[attempt % found.len()])?)
            }
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
        })
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

    pub(super) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(parts),
            Self::Unix(stream) => stream.write_vectored(parts),
        }
    }
}
