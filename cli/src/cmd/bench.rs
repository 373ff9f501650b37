//! `pstrain bench`: how fast is it on this machine?

use crate::args::BenchArgs;
use crate::exit::Ending;
use crate::{bench, messages};

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Ending> {
    let figures = bench::measure(args)?;
    messages::result(&if args.json {
        serde_json::to_string(&figures)?
    } else {
        bench::show(&figures)
    })?;
    Ok(Ending::Done)
}
