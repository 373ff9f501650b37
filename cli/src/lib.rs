//! The `pstrain` command: settings, commands, records, tables, progress.
//!
//! A library, so that cargo compiles it while its dependencies still compile (a binary waits for
//! them), and only once for binary and tests.

mod args;
mod bench;
mod calibration;
mod cmd;
mod digest;
mod durable;
mod exit;
#[cfg(feature = "pictures")]
mod experiment;
#[cfg(feature = "pictures")]
mod html;
mod job;
mod keys;
mod links;
mod messages;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "pictures")]
mod picture;
mod progress;
mod pulse;
mod rank;
mod record;
mod security;
mod served;
mod signals;
mod simulate;
mod start;
#[cfg(feature = "pictures")]
mod statistics;
mod table;
#[cfg(feature = "top")]
mod top;
mod troubles;
#[cfg(feature = "pictures")]
mod validate;
mod wait_text;
mod why;

use std::process::ExitCode;

use clap::Parser;
use pstrain_transports::WallClock;

use crate::args::{Cli, Command};

/// Runs the command of the process's arguments; returns its exit code.
#[must_use]
pub fn run() -> ExitCode {
    let clock = WallClock::start();
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Run(args) => cmd::run::run(&args, clock),
        Command::Simulate(args) => cmd::simulate::run(&args),
        Command::Server(args) => cmd::server::run(&args, clock),
        Command::Worker(args) => cmd::worker::run(&args),
        Command::Status(args) => cmd::status::run(&args),
        Command::Pull(args) => cmd::pull::run(&args),
        Command::Push(args) => cmd::push::run(&args),
        Command::Why(args) => cmd::why::run(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args),
        Command::Control(args) => cmd::control::run(&args),
        Command::Eval(args) => cmd::eval::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Data(args) => cmd::data::run(&args),
        Command::Calibrate(args) => cmd::calibrate::run(&args),
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
    };
    exit::code(done)
}
