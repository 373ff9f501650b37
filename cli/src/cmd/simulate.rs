//! `pstrain simulate`: a whole cluster in virtual time.

use std::sync::Arc;

use crate::args::SimulateArgs;
use crate::exit::{self, Ending, Failed};
use crate::job::Resolved;
use crate::record::Ended;
use crate::simulate::{DataCache, Virtual};
use crate::start::{Training, gather};

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Ending> {
    let Some(layers) = gather(&args.job, args.output.form)? else { return Ok(Ending::Done) };
    let run = Virtual::resolve(&layers, &DataCache::default())?;
    let (job, data) = (run.job.clone(), Arc::clone(&run.data).into());
    let resolved = Resolved { job, data, arithmetic: run.arithmetic.clone() };
    let training = Training::in_process(&layers, resolved, args.output.clone())?;
    let (finished, reason) = training.simulate(&run)?;
    finished.finish("virtual")?;
    let gone = || Failed(format!("the run ended early: {}", Ended::Leaderless)).into();
    reason.ok_or_else(gone).and_then(exit::of_reason)
}
