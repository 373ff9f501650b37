//! The arguments of `pstrain bench`, and of the crowd that it starts.

use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What is measured; all of it if nothing is named
    #[arg(value_enum)]
    pub(crate) what: Vec<BenchWhat>,
    /// More rounds, 100 MB, 10,000 workers: minutes instead of half a one
    #[arg(long)]
    pub(crate) long: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// A crowd of workers, and what it does to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub(crate) struct Crowded {
    /// Workers that connect
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) workers: u32,
    /// Those of them that push
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) busy: u32,
    /// Pushes of all together
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) pushes: u32,
}

/// What `crowd` is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct CrowdArgs {
    /// Where the server is
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) crowded: Crowded,
}

/// A part of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BenchWhat {
    /// Gradient and update of a mini-batch, on one thread
    Step,
    // Before what takes more memory, since it tells how much it takes.
    /// A push at a server of up to 1,000 workers (10,000 with --long), which are a process of their
    /// own
    Server,
    /// A push-pull over TCP, Unix sockets and memory, beside bare ones of the same bytes
    Transport,
    /// Runs in virtual time, beside their gradients alone
    Simulate,
}
