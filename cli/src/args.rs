//! The command line: commands and their arguments.

mod bench;
#[cfg(feature = "cert")]
mod cert;
mod client;
mod compute;
mod data;
#[cfg(feature = "pictures")]
mod experiment;
mod output;
mod parse;
mod records;
mod security;
mod server;
mod shell;
mod size;
#[cfg(test)]
mod tests;
mod threads;
mod time;
mod worker;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pstrain_transports::Address;
use pstrain_wire::PROTOCOL;

use crate::exit;
use crate::job::JobFlags;

pub(crate) use bench::{BenchArgs, BenchPart, CrowdArgs, CrowdSize};
#[cfg(feature = "cert")]
pub(crate) use cert::{CertArgs, CertCommand, NodeArgs};
#[cfg(feature = "top")]
pub(crate) use client::TopArgs;
pub(crate) use client::{ControlArgs, ControlCommand, PullArgs, StatusArgs, in_folder};
pub(crate) use compute::{
    CheckArgs, ComputeArgs, ComputeCommand, DescribeArgs, ProcessArgs, ServeArgs,
};
pub(crate) use data::{DataArgs, DataCommand};
#[cfg(feature = "pictures")]
pub(crate) use experiment::{ExperimentArgs, ExperimentCommand, ExperimentRunArgs, ValidateArgs};
pub(crate) use output::{Form, LogArgs, Output};
pub(crate) use parse::parse;
pub(crate) use records::{EvalArgs, ReplayArgs};
pub(crate) use security::SecurityArgs;
pub(crate) use server::{Durability, GroupPosition, ServerArgs, StateArgs};
pub(crate) use shell::quoted;
pub(crate) use threads::{ThreadsArgs, share_of_cores};
pub(crate) use time::Every;
pub(crate) use worker::{ListenFor, WorkerArgs};

/// Where a server listens, and where workers and clients look for it, unless an address is given.
pub(crate) const ADDRESS: &str = "127.0.0.1:7070";

/// Release, protocol, target and commit of this build.
fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let [release, target, build] =
            [env!("CARGO_PKG_VERSION"), env!("PSTRAIN_TARGET"), env!("PSTRAIN_BUILD")];
        format!("{release} (protocol {PROTOCOL}, {target}, {build})")
    });
    &TEXT
}

/// Data-parallel training across slow, uneven networks.
#[derive(Debug, Parser)]
#[command(name = "pstrain", version = version(), after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trains with a whole cluster in this process: one server and its workers
    Run(RunArgs),
    /// Trains with a whole cluster in virtual time, over modelled links
    Simulate(SimulateArgs),
    /// Serves the parameters of a job to the workers that connect
    Server(Box<ServerArgs>),
    /// Computes gradients for a server
    Worker(WorkerArgs),
    /// Prints the state of a running job: which workers it waits for, and since when
    Status(StatusArgs),
    /// Prints statistics of the parameters of a running job, or writes the parameters to a file
    Pull(PullArgs),
    /// Explains the speed of a running job: which workers wait for which, and where the time goes
    Why(StatusArgs),
    /// Shows a running job live: its curve, its workers, and which workers hold up the others
    #[cfg(feature = "top")]
    Top(TopArgs),
    /// Changes how a running job waits for its workers, removes a server, or ends the run
    Control(ControlArgs),
    /// Evaluates a trained model on a data file
    Eval(EvalArgs),
    /// Recomputes the parameters of a past run from its order of updates
    Replay(ReplayArgs),
    /// Checks and serves compute processes, which have a model and data of your own
    Compute(ComputeArgs),
    /// Describes data, makes synthetic data, shows the parts of a partition
    Data(DataArgs),
    /// Measures this machine, so that training times of different machines can be compared
    Calibrate(CalibrateArgs),
    /// Measures the speed of this machine: steps, push-pulls, a server, simulated runs
    Bench(BenchArgs),
    /// Plays the workers of `bench server`, which starts this command
    #[command(hide = true)]
    Crowd(CrowdArgs),
    /// Makes keys and certificates: a CA, certificates for its nodes, or a pre-shared key
    #[cfg(feature = "cert")]
    Cert(CertArgs),
    /// Runs published experiments and your own sweeps: grids, repetitions, pictures, claims
    #[cfg(feature = "pictures")]
    Experiment(ExperimentArgs),
    /// Compares virtual time with shaped links and, where possible, with tc netem
    #[cfg(feature = "pictures")]
    Validate(ValidateArgs),
    /// Prints a completion script for a shell
    #[cfg(feature = "shell")]
    Completions(CompletionsArgs),
    /// Writes the manual pages
    #[cfg(feature = "shell")]
    Man(ManArgs),
}

/// The job: settings from a file, overruled by the environment, overruled by flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobArgs {
    /// Job file (TOML) with the settings below
    ///
    /// Its keys are the settings without their dashes.
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
    /// Print the resolved job and stop
    ///
    /// Each setting is printed with the place that it comes from.
    #[arg(long)]
    pub(crate) print_job: bool,
    #[command(flatten)]
    pub(crate) flags: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Transport: memory, unix or tcp
    ///
    /// Between the workers of this process and its server: messages handed over in memory, Unix
    /// sockets, or TCP over the loopback address [default: memory, or unix for several servers that
    /// keep a state].
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        hide_possible_values = true,
        help_heading = "Network"
    )]
    pub(crate) transport: Option<Transport>,
    #[command(flatten)]
    pub(crate) threads: ThreadsArgs,
    /// Where clients reach the run: HOST:PORT or unix:PATH
    ///
    /// status, why, top and control ask there. A run with --out listens at a Unix socket in that
    /// folder by default: `pstrain why DIR`.
    #[arg(long, value_name = "ADDRESS", help_heading = "Network")]
    pub(crate) listen: Option<Address>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Messages handed over in memory
    Memory,
    /// A Unix socket
    Unix,
    /// TCP over the loopback address
    Tcp,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) form: Form,
}

#[cfg(feature = "shell")]
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(feature = "shell")]
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder to write the pages to
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
