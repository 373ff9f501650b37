//! Arguments of `pstrain cert`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pstrain_compute::id::WorkerId;

use super::Form;

#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Makes a CA: the key that signs the certificates of a lab. Keep its folder off the nodes
    Ca {
        /// The new folder
        folder: PathBuf,
        /// Days until its certificate expires
        #[arg(long, value_name = "DAYS", default_value_t = 3650)]
        days: u32,
    },
    /// Makes the folder that a node gives to --tls: a key, its certificate and the CA's
    Node(NodeArgs),
    /// Revokes a certificate: adds it to revoked.pem of the CA; copy that file to the nodes
    Revoke {
        /// The folder of the CA
        ca: PathBuf,
        /// The certificate: node.pem of the node's folder
        certificate: PathBuf,
    },
    /// Makes a pre-shared key, for --psk
    Psk {
        /// The new file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The folder of the CA
    pub(crate) ca: PathBuf,
    /// The new folder
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) role: RoleArgs,
    /// Days until the certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    pub(crate) days: u32,
}

/// The role that the certificate allows.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RoleArgs {
    /// For a server that is dialled by these names
    ///
    /// Names and addresses; `localhost` for a Unix socket.
    #[arg(long, value_name = "HOST", num_args = 1..)]
    pub(crate) server: Vec<String>,
    /// For the worker with this number, or any worker
    ///
    /// Without a number it is for any worker.
    #[arg(long, value_name = "NUMBER", num_args = 0..=1)]
    pub(crate) worker: Option<Option<WorkerId>>,
    /// For a client, which may ask for the status and change the job
    #[arg(long)]
    pub(crate) client: bool,
}
