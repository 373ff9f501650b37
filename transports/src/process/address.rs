//! Addresses of compute processes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the compute process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessAddress {
    /// A shell command, which pstrain runs: it speaks on its standard input and output.
    Command(String),
    /// A process that listens at this Unix socket. pstrain neither starts nor ends it.
    Socket(PathBuf),
    /// The process that started pstrain: it speaks on pstrain's standard input and output.
    Parent,
    /// No process, but the description of one in this file: for a server on a machine that cannot
    /// run it.
    Description(PathBuf),
    /// No process, but the description of one, in JSON.
    Described(String),
    /// No process: the first worker describes its own, for a server.
    Worker,
}

impl FromStr for ProcessAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (prefix, path) = text.split_once(':').unwrap_or((text, ""));
        match (text.trim(), prefix) {
            ("", _) => Err("give a command, unix:PATH, or - for the parent process".into()),
            ("-", _) => Ok(Self::Parent),
            ("worker", _) => Ok(Self::Worker),
            (json, _) if json.starts_with('{') => Ok(Self::Described(json.into())),
            (_, "unix" | "description") if path.is_empty() => {
                Err(format!("{prefix}: needs a path after it"))
            }
            (_, "unix") => Ok(Self::Socket(path.into())),
            (_, "description") => Ok(Self::Description(path.into())),
            _ => Ok(Self::Command(text.into())),
        }
    }
}

impl fmt::Display for ProcessAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.write_str(command),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Parent => f.write_str("-"),
            Self::Description(path) => write!(f, "description:{}", path.display()),
            Self::Described(json) => f.write_str(json),
            Self::Worker => f.write_str("worker"),
        }
    }
}
