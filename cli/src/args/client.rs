//! Arguments of the commands that talk to a running job.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pstrain_transports::{Address, AddressError};

use super::time::nonzero_time;
use super::{ADDRESS, Form, SecurityArgs};
use crate::keys::Keys;

/// The server that a client asks.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoteArgs {
    /// Address of the server: HOST:PORT, unix:PATH or a run's --out
    ///
    /// Of several servers: server 1. A `pstrain run` with --out listens in that folder.
    #[arg(default_value = ADDRESS, value_parser = address_or_folder)]
    pub(crate) address: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
}

/// The address at which a run with its results in `folder` can be watched.
pub(crate) fn in_folder(folder: &Path) -> Address {
    Address::Unix(folder.join("socket"))
}

fn address_or_folder(text: &str) -> Result<Address, String> {
    let folder = Path::new(text);
    if !folder.is_dir() {
        return text.parse().map_err(|error: AddressError| error.to_string());
    }
    let address = in_folder(folder);
    match &address {
        Address::Unix(socket) if !socket.exists() => Err(String::from(
            "no run listens in that folder: its run has ended, is of `pstrain server` or `pstrain \
             simulate`, or its path is too long for a socket; name the address of a server: \
             HOST:PORT or unix:PATH",
        )),
        _ => Ok(address),
    }
}

impl RemoteArgs {
    /// Where the server is, and how it proves what it is.
    pub(crate) const fn way(&self) -> (&Address, &SecurityArgs) {
        (&self.address, &self.security)
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: RemoteArgs,
    #[command(flatten)]
    pub(crate) form: Form,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    #[command(flatten)]
    pub(crate) server: RemoteArgs,
    /// Range of keys: A..B (without B), A.., ..B; without it all keys
    #[arg(long, value_name = "A..B")]
    pub(crate) keys: Option<Keys>,
    /// Write the values that are not 0 to this file
    ///
    /// Each has a line `KEY VALUE`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[cfg(feature = "top")]
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) server: RemoteArgs,
    /// Time between two requests
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = nonzero_time)]
    pub(crate) interval: humantime::Duration,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    pub(crate) server: RemoteArgs,
    #[command(subcommand)]
    pub(crate) command: ControlCommand,
    #[command(flatten)]
    pub(crate) form: Form,
    /// How long to wait until it has taken effect
    ///
    /// After a timeout the command may still take effect.
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        default_value = "1m",
        value_parser = nonzero_time
    )]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Changes a setting, once the gradients under way have been applied under the old one
    Set {
        /// consistency, in-flight, staleness, max-staleness or participation
        key: String,
        /// The value, as in a job file
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Ends the run in order, as Ctrl-C at the server does
    ///
    /// The gradients under way come back and count, and all processes of the run end with code 3.
    /// Waits until the server has written its results.
    Stop,
    /// Removes one of several servers, once the others have taken over its keys
    LeaveServer {
        /// Number of the server; not 1, which coordinates
        server: u32,
    },
}
