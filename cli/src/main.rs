//! `pstrain`: what a person types and sees.

mod args;
mod cmd;
mod exit;
mod job;
mod messages;
mod progress;
mod record;
mod signals;
mod simulate;
mod table;

use std::process::ExitCode;

use clap::Parser;
use pstrain_transports::WallClock;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let clock = WallClock::start();
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Run(args) => cmd::run::run(&args, clock),
        Command::Simulate(args) => cmd::simulate::run(&args),
        Command::Server(args) => cmd::server::run(&args, clock),
        Command::Worker(args) => cmd::worker::run(&args),
        Command::Status(args) => cmd::status::run(&args),
        Command::Eval(args) => cmd::eval::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Data(args) => cmd::data::run(&args),
        Command::Completions(args) => cmd::shell::completions(&args),
        Command::Man(args) => cmd::shell::man(&args),
    };
    exit::code(done)
}
