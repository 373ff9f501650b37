//! Arguments of `pstrain bench`, and of the hidden command `crowd` that it starts.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Form;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Parts to measure; all if none is named
    #[arg(value_enum)]
    pub(crate) what: Vec<BenchPart>,
    /// Measure for minutes instead of half a minute
    ///
    /// More rounds, push-pulls of 100 MB, 10,000 workers.
    #[arg(long)]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Size of a crowd of workers, and the load that it puts on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub(crate) struct CrowdSize {
    /// Workers that connect
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) workers: u32,
    /// Workers that push; the others stay idle
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) busy: u32,
    /// Pushes of all workers together
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) pushes: u32,
}

/// Arguments of `crowd`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CrowdArgs {
    /// Address of the server
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) crowded: CrowdSize,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BenchPart {
    /// Gradient and update of a mini-batch, on one thread
    Step,
    // Before the parts that need more memory: this one reports the peak memory of the process.
    /// A push at a server of up to 1,000 workers (10,000 with --long), which run in a process of
    /// their own
    Server,
    /// A push-pull over TCP, Unix sockets and memory, compared with a bare exchange of the same
    /// bytes
    Transport,
    /// A push-pull over TCP with a shared key and with TLS, compared with one in plain text
    Secure,
    /// Runs in virtual time, compared with their gradient computations alone
    Simulate,
}
