//! `pstrain pull`: the parameters of a key range of a running job, or their statistics.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use pstrain_compute::params::KeyRange;
use pstrain_transports::Address;
use pstrain_wire::range::{PullRange, RangeHeader, RangeOf, Statistics};
use pstrain_wire::{Message, PROTOCOL_VERSION};
use serde::Serialize;

use super::{client, status};
use crate::args::{PullArgs, SecurityArgs};
use crate::exit::Ending;
use crate::links::refuse_link;

/// Statistics of a range, as `--json` prints them.
#[derive(Serialize)]
struct View {
    version: u64,
    begin: u64,
    end: u64,
    /// Number of keys of the model.
    total: u64,
    #[serde(flatten)]
    statistics: Statistics,
}

pub(crate) fn run(args: &PullArgs) -> anyhow::Result<Ending> {
    if let Some(path) = &args.out {
        refuse_link(path)?;
    }
    let way = args.server.way();
    let keys = args.keys.unwrap_or_default().range(|| total(way, args.timeout))?;
    let answer = ask(way, args.timeout, keys, args.out.is_some())?;
    if let Some(path) = &args.out {
        write(path, &answer)
            .with_context(|| format!("cannot write the parameters to {}", path.display()))?;
    }
    let RangeHeader { version, keys, total, statistics, .. } = answer.header;
    let (begin, end) = (keys.begin(), keys.end());
    let view = View { version: version.0, begin, end, total, statistics };
    args.form.print(&view, || show(&view))?;
    Ok(Ending::Done)
}

fn show(View { version, begin, end, total, statistics }: &View) -> String {
    let Statistics { count, non_zeros, l1, l2, min, max } = statistics;
    format!(
        "version   {version}\nkeys      [{begin}, {end}) of {total}\ncount     {count}\nnot 0     \
         {non_zeros}\nl1        {l1}\nl2        {l2}\nmin       {min}\nmax       {max}\n"
    )
}

/// Number of keys of the model.
fn total(way: (&Address, &SecurityArgs), timeout: humantime::Duration) -> anyhow::Result<u64> {
    Ok(ask(way, timeout, None, false)?.header.total)
}

fn ask(
    way: (&Address, &SecurityArgs),
    timeout: humantime::Duration,
    keys: Option<KeyRange>,
    values: bool,
) -> anyhow::Result<RangeOf> {
    let pull = PullRange { protocol_max: PROTOCOL_VERSION, keys, values };
    let question = Message::PullRange(pull);
    let answer = |message| match message {
        Message::RangeOf(answer) => Some(answer),
        _ => None,
    };
    client::ask_slow(way, timeout, &question, answer, || status::waits(way))
}

/// Writes a line for each value that is not 0.
fn write(path: &Path, answer: &RangeOf) -> anyhow::Result<()> {
    let values = answer.non_zeros().context("the server sent values in no known form")?;
    let RangeHeader { version, keys, total, .. } = &answer.header;
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "# version {version}, keys {keys} of {total}; all others are 0")?;
    for (key, value) in values {
        writeln!(file, "{key} {value}")?;
    }
    Ok(file.flush()?)
}
