//! `pstrain bench`: the speed of this machine.

use serde::Serialize;

use crate::args::{BenchArgs, CrowdArgs};
use crate::bench::{self, Figure};
use crate::exit::Ending;
use crate::messages;

/// Output of `--json`.
#[derive(Serialize)]
struct View<'a> {
    figures: &'a [Figure],
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Ending> {
    let figures = bench::measure(args)?;
    args.form.print(&View { figures: &figures }, || bench::show(&figures, messages::width()))?;
    Ok(Ending::Done)
}

/// Plays the workers of a server that is being measured.
pub(crate) fn crowd(args: &CrowdArgs) -> anyhow::Result<Ending> {
    bench::play(args)?;
    Ok(Ending::Done)
}
