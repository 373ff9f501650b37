//! TCP and Unix listeners behind one type.

use std::io;
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

use super::stream::Stream;
use crate::address::Address;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener, std::net::SocketAddr),
    /// With the identity of the socket file, which this listener must remove.
    Unix(UnixListener, PathBuf, Option<(u64, u64)>),
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => {
                let mut failed = None;
                for address in Address::resolve(host)? {
                    match listen_tcp(address) {
                        Ok(listener) => {
                            let address = listener.local_addr()?;
                            return Ok(Self::Tcp(TcpListener::from_std(listener), address));
                        }
                        Err(error) => failed = Some(error),
                    }
                }
                Err(failed.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
            }
            Address::Unix(path) => {
                let socket = Address::socket(path)?;
                remove_stale(path)?;
                let listener = UnixListener::bind_addr(&socket)?;
                Ok(Self::Unix(listener, path.clone(), identity(path)))
            }
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener, _) => registry.register(listener, token, Interest::READABLE),
            Self::Unix(listener, ..) => registry.register(listener, token, Interest::READABLE),
        }
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(listener, _) => registry.deregister(listener),
            Self::Unix(listener, ..) => registry.deregister(listener),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener, _) => Stream::Tcp(listener.accept()?.0).without_delay(),
            Self::Unix(listener, ..) => Stream::Unix(listener.accept()?.0),
        })
    }

    pub(super) fn address(&self) -> Address {
        match self {
            Self::Tcp(_, address) => Address::Tcp(address.to_string()),
            Self::Unix(_, path, _) => Address::Unix(path.clone()),
        }
    }
}

fn listen_tcp(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted server must not wait until the system forgets its old connections.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Removes the socket file of a server that no longer runs. Leaves a socket that answers, and any
/// file that is not a socket.
fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Returns device and inode, which distinguish the file at `path` from a later one with its name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path, own) = self
            && own.is_some()
            && identity(path) == *own
        {
            // If another process removes the file at this moment, the result is the same.
            std::fs::remove_file(path).unwrap_or_default();
        }
    }
}
