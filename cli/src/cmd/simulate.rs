//! `pstrain simulate`: a whole cluster in virtual time.

use std::sync::Arc;

use pstrain_wire::worker::EndReason;

use super::server::{Host, gather};
use crate::args::SimulateArgs;
use crate::exit::{self, Ending, Failed};
use crate::record::LEADERLESS;
use crate::simulate::{DataCache, Virtual};

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Ending> {
    let Some(layers) = gather(&args.job)? else { return Ok(Ending::Done) };
    let run = Virtual::resolve(&layers, &DataCache::default())?;
    let server = run.server()?;
    let data = Arc::clone(&run.data);
    let host = Host::new(server, Arc::new(data.into()), &layers.to_toml(), &args.output, false)?;
    let (host, reason): (Host, Option<EndReason>) = host.simulate(&run)?;
    host.finish("virtual", &args.output)?;
    let gone = || Failed(format!("the run ended early: {LEADERLESS}")).into();
    reason.ok_or_else(gone).and_then(exit::of_reason)
}
