//! Arguments of `pstrain worker`.

use std::str::FromStr;

use clap::Args;
use pstrain_compute::id::WorkerId;
use pstrain_transports::Address;

use super::time::nonzero_time;
use super::{ADDRESS, Form, LogArgs, ProcessArgs, SecurityArgs, ThreadsArgs};
use crate::rank::RankOf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Worker")]
pub(crate) struct WorkerArgs {
    /// Address of the server: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub(crate) server: Address,
    /// Listen for other workers, if the job has no server
    ///
    /// For a job with another architecture than `server`, whose workers reduce their gradients
    /// among themselves: HOST:PORT or unix:PATH, at which they reach this one, or `none` if they
    /// cannot. Messages between two workers that cannot reach each other go by way of the meeting
    /// point.
    #[arg(long, value_name = "ADDRESS|none", conflicts_with = "rank")]
    pub(crate) listen: Option<ListenFor>,
    /// Address at which other workers reach this one
    ///
    /// [default: the address of --listen]
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    pub(crate) advertise: Option<Address>,
    /// This worker's data: PATH, synthetic or server
    ///
    /// A file or folder, `synthetic` if the job's data are synthetic, or `server` to receive them
    /// from the server. Without it: the job's data, if they need no file.
    #[arg(long, value_name = "PATH|FORMAT|server")]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) threads: ThreadsArgs,
    /// Worker id to ask for: 1, 2, ...
    ///
    /// Without it the server chooses one.
    #[arg(long)]
    pub(crate) id: Option<WorkerId>,
    /// Take the rank that the launching engine gave
    ///
    /// Rank 0 is worker 1. A job whose number of workers is not the number that the engine started
    /// is refused.
    #[arg(long, value_enum, value_name = "auto|ENGINE", conflicts_with = "id")]
    pub(crate) rank: Option<RankOf>,
    /// A name for tables and messages
    ///
    /// [default: host name and process id]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long the server may be silent
    ///
    /// The lease of the job counts from the moment at which the worker knows it.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = nonzero_time)]
    pub(crate) lease: humantime::Duration,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) form: Form,
    /// Print errors only
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
}

/// Where a worker listens for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenFor {
    Nowhere,
    At(Address),
}

impl FromStr for ListenFor {
    type Err = <Address as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self::Nowhere) } else { text.parse().map(Self::At) }
    }
}
