//! `pstrain bench`: how fast is it on this machine?

use crate::args::BenchArgs;
use crate::exit::Ending;
use crate::{bench, messages};

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Ending> {
    let figures = bench::measure(args)?;
    messages::result(&if args.json {
        serde_json::json!({ "figures": figures }).to_string()
    } else {
        bench::show(&figures)
    })?;
    Ok(Ending::Done)
}
