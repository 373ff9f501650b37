//! `pstrain bench`: the speed of this machine.

use crate::args::{BenchArgs, CrowdArgs};
use crate::exit::Ending;
use crate::{bench, messages};

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Ending> {
    let figures = bench::measure(args)?;
    messages::result(&if args.json {
        serde_json::json!({ "figures": figures }).to_string()
    } else {
        bench::show(&figures, messages::width())
    })?;
    Ok(Ending::Done)
}

/// Plays the workers of a server that is being measured.
pub(crate) fn crowd(args: &CrowdArgs) -> anyhow::Result<Ending> {
    bench::play(args)?;
    Ok(Ending::Done)
}
