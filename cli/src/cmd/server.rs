//! `pstrain server`: serves the parameters of a job.

use pstrain_transports::WallClock;

use crate::args::ServerArgs;
use crate::exit::Ending;
use crate::messages;
use crate::start::{Plan, open, report, serve};

pub(crate) fn run(args: &ServerArgs, clock: WallClock) -> anyhow::Result<Ending> {
    messages::log_as(args.log.form);
    let Some(plan) = Plan::of(args)? else { return Ok(Ending::Done) };
    let opened = open(plan)?;
    let served = serve(opened, clock)?;
    report(served)
}
