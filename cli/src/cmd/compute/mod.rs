//! `pstrain compute`: compute processes.

mod check;
mod probes;
mod serve;

use crate::args::{ComputeArgs, ComputeCommand};
use crate::exit::Ending;

pub(crate) fn run(args: &ComputeArgs) -> anyhow::Result<Ending> {
    match &args.command {
        ComputeCommand::Check(args) => check::run(args),
        ComputeCommand::Serve(args) => serve::run(args),
    }
}
