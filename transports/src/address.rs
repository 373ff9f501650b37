//! Addresses at which servers listen.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Time limit of a trial dial.
const TRIAL: Duration = Duration::from_secs(1);

/// An address: `HOST:PORT`, `tcp://HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or IP address with a port.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address: use HOST:PORT (for example 192.168.1.10:7070 or [::1]:7070) or unix:PATH"
)]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(String::from(text));
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(error()) } else { Ok(Self::Unix(path.into())) };
        }
        let host = text.strip_prefix("tcp://").unwrap_or(text);
        match host.rsplit_once(':') {
            Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(String::from(host)))
            }
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Resolves the host of a TCP address to its IP addresses.
    pub(crate) fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
        let unknown = |error: io::Error| {
            let what = format!(
                "no address of {host} is to be found here ({error}); give its IP address, or add \
                 the name to /etc/hosts"
            );
            io::Error::new(error.kind(), what)
        };
        let found: Vec<SocketAddr> = host.to_socket_addrs().map_err(unknown)?.collect();
        if found.is_empty() {
            let what = format!("{host} has no address");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        Ok(found)
    }

    /// The host name that a certificate must have: without the port, and `localhost` for a Unix
    /// socket.
    pub(crate) fn host(&self) -> &str {
        let Self::Tcp(host) = self else { return "localhost" };
        let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
    }

    /// True if both addresses lead to the same endpoint. A name in `other` that cannot be resolved
    /// is a different endpoint.
    ///
    /// # Errors
    /// If the host name of `self` cannot be resolved.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        Ok(match (self, other) {
            (Self::Tcp(host), Self::Tcp(other)) => {
                let (found, others) = (Self::resolve(host)?, Self::resolve(other));
                others.is_ok_and(|others| others.iter().any(|it| found.contains(it)))
            }
            (Self::Tcp(host), Self::Unix(_)) => Self::resolve(host).map(|_| false)?,
            (Self::Unix(_), _) => self == other,
        })
    }

    /// The socket at `path`.
    ///
    /// # Errors
    /// If the operating system takes no path of that length.
    pub(crate) fn socket(path: &Path) -> io::Result<unix::SocketAddr> {
        unix::SocketAddr::from_pathname(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => io::Error::new(
                error.kind(),
                format!(
                    "a path of {} bytes is too long for a socket: choose a shorter one",
                    path.as_os_str().len()
                ),
            ),
            _ => error,
        })
    }

    /// Connects and disconnects at once; waits at most one second for each resolved TCP address.
    ///
    /// # Errors
    /// If no server listens there, or the address cannot be reached.
    pub fn try_dial(&self) -> io::Result<()> {
        match self {
            Self::Unix(path) => unix::UnixStream::connect_addr(&Self::socket(path)?).map(drop),
            Self::Tcp(host) => {
                let mut last = Ok(());
                for address in Self::resolve(host)? {
                    last = TcpStream::connect_timeout(&address, TRIAL).map(drop);
                    if last.is_ok() {
                        break;
                    }
                }
                last
            }
        }
    }

    /// True if the address stands for all addresses of a machine, so that a client cannot dial it.
    #[must_use]
    pub fn is_unspecified(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp(host) => Self::resolve(host)
                .is_ok_and(|found| found.iter().any(|address| address.ip().is_unspecified())),
        }
    }

    /// True if only this machine can reach the address; false if its host name cannot be resolved.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(host) => Self::resolve(host)
                .is_ok_and(|found| found.iter().all(|address| address.ip().is_loopback())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_this_machine_does_not_know_is_named_with_a_cure() {
        let told = Address::resolve("no..name:7070").unwrap_err().to_string();
        assert!(told.starts_with("no address of no..name:7070 is to be found here ("), "{told}");
        assert!(told.ends_with("give its IP address, or add the name to /etc/hosts"), "{told}");
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let tcp = |host: &str| Ok(Address::Tcp(host.into()));
        assert_eq!("gw:7070".parse(), tcp("gw:7070"));
        assert_eq!("tcp://[::1]:7070".parse(), tcp("[::1]:7070"));
        assert_eq!("unix:/run/ps".parse(), Ok(Address::Unix("/run/ps".into())));
        assert_eq!("unix:///run/ps".parse(), Ok(Address::Unix("/run/ps".into())));
        for bad in ["", "gw", ":7070", "gw:", "gw:70700", "unix:", "gw:x"] {
            let error = bad.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
        let parse = |text: &str| text.parse::<Address>().unwrap();
        assert!(parse("127.0.0.1:1").is_same(&parse("tcp://127.0.0.1:1")).unwrap());
        assert!(!parse("127.0.0.1:1").is_same(&parse("127.0.0.1:2")).unwrap());
        assert!(!parse("unix:/run/ps").is_same(&parse("127.0.0.1:2")).unwrap());
        assert!("127.0.0.1:1".parse::<Address>().unwrap().is_local());
        assert!(!"0.0.0.0:1".parse::<Address>().unwrap().is_local());
    }
}
