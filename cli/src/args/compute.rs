//! Arguments of compute processes.

use clap::{Args, Subcommand};
use pstrain_transports::Address;
use pstrain_transports::process::ProcessAddress;

use super::JobArgs;
use super::time::nonzero_time;

#[derive(Debug, Args)]
pub(crate) struct ComputeArgs {
    #[command(subcommand)]
    pub(crate) command: ComputeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ComputeCommand {
    /// Checks a compute process: its answers, its gradient against finite differences of its loss,
    /// and its speed
    Check(CheckArgs),
    /// Prints the description of a compute process, for a server on a machine that cannot run it:
    /// `pstrain server --process description:FILE`
    Describe {
        /// The process: a shell command, or unix:PATH where it listens
        #[arg(value_name = "COMMAND|unix:PATH")]
        process: ProcessAddress,
    },
    /// Serves a model of pstrain as a compute process, on standard input and output: an example,
    /// and a test, of the protocol
    Serve(ServeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The process: a shell command, or unix:PATH where it listens
    #[arg(value_name = "COMMAND|unix:PATH")]
    pub(crate) process: ProcessAddress,
    /// Rows of a mini-batch
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 32,
        value_parser = clap::value_parser!(u32).range(2..)
    )]
    pub(crate) batch_size: u32,
    /// The seed of rows and coordinates
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long the process may take for an answer
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Listen at this Unix socket instead, for any number of workers
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) listen: Option<Address>,
}

/// The compute process of a worker.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProcessArgs {
    /// The compute process that has the model and the data: a shell command, unix:PATH where it
    /// listens, or - if it started this worker and speaks on its standard input and output
    #[arg(long, value_name = "COMMAND|unix:PATH|-", conflicts_with = "data")]
    pub(crate) process: Option<ProcessAddress>,
    /// How often a compute process that fails is started again until it has answered
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "process")]
    pub(crate) process_restarts: u32,
    /// How long a compute process may take for an answer before it is started again
    #[arg(long, value_name = "DURATION", requires = "process", value_parser = nonzero_time)]
    pub(crate) process_timeout: Option<humantime::Duration>,
}
