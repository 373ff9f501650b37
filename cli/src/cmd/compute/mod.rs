//! `pstrain compute`: compute processes.

mod check;
mod probes;
mod serve;

use pstrain_transports::process::ProcessAddress;

use crate::args::{ComputeArgs, ComputeCommand};
use crate::exit::Ending;
use crate::messages;
use crate::process::ComputeProcess;

pub(crate) fn run(args: &ComputeArgs) -> anyhow::Result<Ending> {
    match &args.command {
        ComputeCommand::Check(args) => check::run(args),
        ComputeCommand::Describe { process } => describe(process.clone()),
        ComputeCommand::Serve(args) => serve::run(args),
    }
}

fn describe(address: ProcessAddress) -> anyhow::Result<Ending> {
    let description = ComputeProcess::new(address, 0, None).describe()?;
    messages::result(&(serde_json::to_string(&description)? + "\n"))?;
    Ok(Ending::Done)
}
