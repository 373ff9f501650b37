//! Arguments of compute processes.

use clap::{Args, Subcommand};
use pstrain_transports::Address;
use pstrain_transports::process::ProcessAddress;

use super::time::nonzero_time;
use super::{Form, JobArgs};

#[derive(Debug, Args)]
pub(crate) struct ComputeArgs {
    #[command(subcommand)]
    pub(crate) command: ComputeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ComputeCommand {
    /// Checks a compute process: its answers, its gradient, its speed
    ///
    /// The gradient is compared with finite differences of the loss.
    Check(CheckArgs),
    /// Prints the description of a compute process
    ///
    /// A server on a machine that cannot run the process takes the description from a file:
    /// `pstrain server --process description:FILE`. It is a table on a terminal, and JSON in a file
    /// or a pipe.
    Describe(DescribeArgs),
    /// Serves a model of pstrain as a compute process, on stdin and stdout
    ///
    /// It is an example, and a test, of the protocol.
    Serve(ServeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// The process: a shell command, or unix:PATH where it listens
    #[arg(value_name = "COMMAND|unix:PATH")]
    pub(crate) process: ProcessAddress,
    #[command(flatten)]
    pub(crate) form: Form,
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
    #[command(flatten)]
    pub(crate) form: Form,
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
#[command(next_help_heading = "Worker")]
pub(crate) struct ProcessArgs {
    /// The compute process with the model and the data
    ///
    /// A shell command, unix:PATH where it listens, or - if it started this worker and speaks on
    /// its standard input and output.
    #[arg(long, value_name = "COMMAND|unix:PATH|-", conflicts_with = "data")]
    pub(crate) process: Option<ProcessAddress>,
    /// Restarts of a compute process that fails
    ///
    /// The number counts from its last answer. A process that ends before its first answer is not
    /// started again.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "process")]
    pub(crate) process_restarts: u32,
    /// How long it may take for an answer
    ///
    /// A compute process that takes longer is started again.
    #[arg(long, value_name = "DURATION", requires = "process", value_parser = nonzero_time)]
    pub(crate) process_timeout: Option<humantime::Duration>,
}
