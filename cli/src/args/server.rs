//! Arguments of `pstrain server`, and of all that keep a state.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use pstrain_compute::id::ServerId;
use pstrain_roles::node::Replicate;
use pstrain_transports::Address;
use pstrain_wire::group::Place;
use serde::{Deserialize, Serialize};

use super::time::{Every, nonzero_time, time_or_never};
use super::{ADDRESS, JobArgs, LogArgs, Output, SecurityArgs};

/// Form in which gradients are replicated to a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Replicated {
    /// Each push, as it arrives.
    Pushes,
    /// The combined gradient of a round, once the round closes.
    Updates,
}

impl From<Replicated> for Replicate {
    fn from(replicated: Replicated) -> Self {
        match replicated {
            Replicated::Pushes => Self::Pushes,
            Replicated::Updates => Self::Updates,
        }
    }
}

/// State that survives a crash of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// Nothing.
    None,
    /// The state at the last checkpoint.
    Checkpoint,
    /// Everything that was acknowledged.
    Log,
}

/// Position of a server in its group; never the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupPosition {
    pub(crate) server: ServerId,
    pub(crate) servers: u32,
}

impl From<GroupPosition> for Place {
    fn from(GroupPosition { server, servers }: GroupPosition) -> Self {
        Self::First { server, servers }
    }
}

impl FromStr for GroupPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(server, servers)| {
            Some((server.parse::<u32>().ok()?, servers.parse::<u32>().ok()?))
        });
        match numbers {
            Some((server, servers)) if (2..=servers).contains(&server) => {
                Ok(Self { server: ServerId(server - 1), servers })
            }
            Some((1, _)) => {
                Err("server 1 coordinates: start it with the job, and servers = M".into())
            }
            _ => Err("use K/M, such as 2/4 for the second of four servers".into()),
        }
    }
}

/// What survives a crash, and where it is kept.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Durability")]
pub(crate) struct StateArgs {
    /// What survives a crash
    ///
    /// Of the server or its machine. none: nothing. checkpoint: what was there at the last
    /// checkpoint; all that came since is lost, as a whole, and workers join as new ones; several
    /// servers take theirs together, when the first says so, and must all have this. It costs next
    /// to nothing. log: all that was acknowledged, since every input is on the disk before an
    /// answer to it leaves; each answer waits for the disk.
    #[arg(
        long,
        value_name = "NAME",
        hide_possible_values = true,
        default_value = "none",
        requires_ifs = [("log", "state"), ("checkpoint", "state")]
    )]
    pub(crate) durability: Durability,
    /// New folder for the state
    ///
    /// --durability checkpoint and log need it.
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Period of checkpoints
    ///
    /// How often the whole state is written to --state, while training continues. A crash loses all
    /// work since then under --durability checkpoint; under log a resumed server reads it again,
    /// and the log becomes that long (a log of 64 MiB that is 8 times the state does not wait so
    /// long).
    #[arg(
        long, value_name = "TIME", default_value = "30s", requires = "state", value_parser = nonzero_time
    )]
    pub(crate) checkpoint_every: humantime::Duration,
    /// Continue the run that is kept in this folder
    ///
    /// The run is kept there from then on, too; the job, the durability and the results folder stay
    /// as they are, but --epochs may be raised.
    #[arg(
        long,
        value_name = "DIR",
        group = "recorded",
        conflicts_with_all = ["durability", "state", "checkpoint_every", "job", "print_job"]
    )]
    pub(crate) resume: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Where to listen: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub(crate) listen: Address,
    /// Be server K of the M servers of a job
    ///
    /// Server 1 coordinates and sends the job.
    #[arg(
        long,
        value_name = "K/M",
        groups = ["follows", "announced"],
        conflicts_with_all = ["job", "print_job", "out"]
    )]
    pub(crate) shard: Option<GroupPosition>,
    /// Join a running job as an additional server
    ///
    /// The longest key range of the other servers is cut in half, and this server takes the upper
    /// half.
    #[arg(
        long,
        groups = ["follows", "announced"],
        conflicts_with_all = ["job", "print_job", "out"]
    )]
    pub(crate) join: bool,
    /// Address of server 1, for --shard and --join
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS, requires = "follows")]
    pub(crate) coordinator: Address,
    /// Be the standby of the server at this address
    ///
    /// Both have the same job. The standby replicates the state of the server, and leads in its
    /// place once it is gone and half of the workers have lost it, too. From then on the server
    /// acknowledges only what both have. The standby refers workers and clients to this address, so
    /// give one that workers can reach.
    #[arg(
        long,
        value_name = "ADDRESS",
        group = "announced",
        conflicts_with_all = ["shard", "join", "resume"]
    )]
    pub(crate) standby_of: Option<Address>,
    /// Address at which workers reach this server
    ///
    /// For --shard, --join and --standby-of [default: the address of --listen].
    #[arg(long, value_name = "ADDRESS", requires = "announced")]
    pub(crate) advertise: Option<Address>,
    /// Form in which gradients go to a standby
    ///
    /// updates: the combined gradient of each round, once the round closes, so that k pushes cost
    /// the traffic of one. pushes: each push, as it arrives [default: updates].
    #[arg(
        long,
        value_name = "NAME",
        hide_possible_values = true,
        conflicts_with_all = ["shard", "join"]
    )]
    pub(crate) replicate: Option<Replicated>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    /// Serve the run's numbers to Prometheus
    ///
    /// They are at http://HOST:PORT/metrics.
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "HOST:PORT", help_heading = "Output")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// How often to say how the run is doing
    ///
    /// The line has updates, loss, accuracy, and which workers are there and awaited; 0s or never
    /// turns it off [default: 1m, but never on a terminal that shows the progress].
    #[arg(
        long,
        help_heading = "Output",
        value_name = "TIME|never",
        value_parser = time_or_never,
        conflicts_with_all = ["shard", "join", "quiet"]
    )]
    pub(crate) log_every: Option<Every>,
    #[command(flatten)]
    pub(crate) output: Output,
}
