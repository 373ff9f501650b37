//! The `pstrain` command: settings, commands, records, tables, progress.
//!
//! A library, so that a program can add models and data formats of its own and keep every command:
//! see [`Program`]. The binary `pstrain` is such a program that adds none.

mod args;
mod bench;
mod calibration;
mod cmd;
mod digest;
#[cfg(feature = "pictures")]
mod document;
mod durable;
mod energy;
mod exit;
#[cfg(feature = "pictures")]
mod experiment;
mod figures;
mod fold;
mod job;
mod keys;
mod links;
mod messages;
mod metric_text;
#[cfg(feature = "metrics")]
mod metrics;
mod parent;
#[cfg(feature = "pictures")]
mod picture;
mod process;
mod progress;
mod pulse;
mod rank;
mod record;
mod results;
mod security;
mod served;
mod signals;
mod simulate;
mod start;
#[cfg(feature = "pictures")]
mod statistics;
mod table;
mod tensors;
#[cfg(test)]
mod tests;
#[cfg(feature = "top")]
mod top;
mod troubles;
#[cfg(feature = "pictures")]
mod validate;
mod wait_text;
mod why;

use std::process::ExitCode;

use pstrain_compute::model::{self, ModelKind};
use pstrain_data::{Format, formats};
use pstrain_transports::WallClock;
use pstrain_transports::process::kill_all;

use crate::args::Command;
use crate::exit::Ending;

pub use pstrain_compute as compute;
pub use pstrain_data as data;

/// The command `pstrain`, with models and data formats that a program adds.
///
/// All nodes of a job must be the same program: a server with a model of its own needs workers that
/// have it, too.
#[derive(Clone, Debug, Default)]
pub struct Program {
    models: Vec<ModelKind>,
    formats: Vec<Format>,
}

impl Program {
    /// The command as it is.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model, by its word of the setting `model`.
    #[must_use]
    pub fn model(mut self, kind: ModelKind) -> Self {
        self.models.push(kind);
        self
    }

    /// Adds a data format, by its word of the settings `data` and `evaluation-data`.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.formats.push(format);
        self
    }

    /// Runs the command of the process's arguments; returns its exit code.
    ///
    /// # Panics
    /// If a model or format has the name of another, or on a second call in a process.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let clock = WallClock::start();
        model::register(self.models);
        formats::register(self.formats);
        match args::parse() {
            Ok(cli) => {
                let ended = command(cli.command, clock);
                kill_all();
                exit::code(ended)
            }
            Err(code) => code,
        }
    }
}

/// Runs a command.
fn command(command: Command, clock: WallClock) -> anyhow::Result<Ending> {
    match command {
        Command::Run(args) => cmd::run::run(&args, clock),
        Command::Simulate(args) => cmd::simulate::run(&args),
        Command::Server(args) => cmd::server::run(&args, clock),
        Command::Worker(args) => cmd::worker::run(&args),
        Command::Status(args) => cmd::status::run(&args),
        Command::Pull(args) => cmd::pull::run(&args),
        Command::Why(args) => cmd::why::run(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args),
        Command::Control(args) => cmd::control::run(&args),
        Command::Eval(args) => cmd::eval::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Data(args) => cmd::data::run(&args),
        Command::Calibrate(args) => cmd::calibrate::run(&args),
        Command::Compute(args) => cmd::compute::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Crowd(args) => cmd::bench::crowd(&args),
        #[cfg(feature = "cert")]
        Command::Cert(args) => cmd::cert::run(&args),
        #[cfg(feature = "pictures")]
        Command::Experiment(args) => cmd::experiment::run(&args),
        #[cfg(feature = "pictures")]
        Command::Validate(args) => cmd::validate::run(&args),
        #[cfg(feature = "shell")]
        Command::Completions(args) => cmd::shell::completions(&args),
        #[cfg(feature = "shell")]
        Command::Man(args) => cmd::shell::man(&args),
    }
}
