//! Where a server listens.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// An address: `HOST:PORT`, `tcp://HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or IP address with a port.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no address: use HOST:PORT (for example 192.168.1.10:7070 or [::1]:7070) or \
             unix:PATH",
            self.0
        )
    }
}

impl std::error::Error for AddressError {}

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
    /// The IP addresses behind a TCP address.
    pub(crate) fn resolve(host: &str) -> std::io::Result<Vec<SocketAddr>> {
        let found: Vec<SocketAddr> = host.to_socket_addrs()?.collect();
        if found.is_empty() {
            let what = format!("{host} has no address");
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, what));
        }
        Ok(found)
    }

    /// Whether it stands for all addresses of a machine, so that nobody can dial it.
    #[must_use]
    pub fn is_unspecified(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp(host) => Self::resolve(host)
                .is_ok_and(|found| found.iter().any(|address| address.ip().is_unspecified())),
        }
    }

    /// Whether only this machine can reach it. A host name that cannot be resolved is not.
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
        assert!("127.0.0.1:1".parse::<Address>().unwrap().is_local());
        assert!(!"0.0.0.0:1".parse::<Address>().unwrap().is_local());
    }
}
