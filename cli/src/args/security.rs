//! Arguments for the security of connections.

use std::path::PathBuf;

use clap::Args;

/// Security of connections. Without any of these flags, only this machine can connect, in plain
/// text.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct SecurityArgs {
    /// Use TLS 1.3 with the certificates of a folder
    ///
    /// Both sides have certificates. `pstrain cert` makes the folder, with ca.pem, node.pem,
    /// node.key and, if there is one, revoked.pem.
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with_all = ["psk", "insecure"])]
    pub(crate) tls: Option<PathBuf>,
    /// Encrypt with the pre-shared key of a file
    ///
    /// `pstrain cert psk` makes the file.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) psk: Option<PathBuf>,
    /// Accept a key file that its group can read
    ///
    /// The file (node.key, or the file of --psk) belongs to root then, as Kubernetes (fsGroup) and
    /// systemd provide secrets: all members of that group can read it.
    #[arg(long, global = true)]
    pub(crate) group_readable_key: bool,
    /// Allow plain text with other machines
    ///
    /// All who reach them can read and change the traffic and take part in the run.
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
}
