//! `pstrain push`: values for a key range of a running job.

use std::cell::Cell;
use std::path::Path;

use anyhow::bail;
use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;
use pstrain_wire::range::{MOST_PART_KEYS, PartDue, PushRange, PushRule, RangePart};
use pstrain_wire::{Message, PROTOCOL_VERSION};
use serde::Serialize;

use super::client::{Reply, request};
use super::range::Values;
use super::{pull, status};
use crate::args::PushArgs;
use crate::exit::Ending;

/// Output of `--json`.
#[derive(Serialize)]
struct View {
    /// The first version of the parameters with the values.
    version: Version,
    begin: u64,
    end: u64,
    how: PushRule,
    /// Number of keys for which the file has a value.
    values: usize,
}

pub(crate) fn run(args: &PushArgs) -> anyhow::Result<Ending> {
    let allowed = args.keys.unwrap_or_default();
    let values = Values::of_file(&args.from, allowed)?;
    let way = args.server.way();
    let keys = allowed.range(|| pull::total(way, args.timeout))?;
    let how = if args.set { PushRule::Set } else { PushRule::Add };
    let question = Message::PushRange(PushRange { protocol_max: PROTOCOL_VERSION, keys, how });
    let (all, sent) = (Cell::new(keys), Cell::new(false));
    let hear = |message| match message {
        Message::PartDue(due) => {
            let part = part(&values, &args.from, due)?;
            all.set(Some(due.keys));
            sent.set(due.part.end() == due.keys.end());
            Ok(Reply::Send(Message::RangePart(part)))
        }
        Message::RangePushed(result) => Ok(Reply::Answer(result)),
        _ => Ok(Reply::Nothing),
    };
    let result = request(way, args.timeout, &question, hear, || status::waits(way));
    let result = result.map_err(|error| match sent.get() {
        true => error.context(
            "whether the values were pushed is not known: those that are there become part of the \
             parameters all the same, and pstrain pull says what these are",
        ),
        false => error,
    })?;
    let (version, keys) = match (result, all.get()) {
        (Ok(version), Some(keys)) => (version, keys),
        (Ok(_), None) => bail!("{}: it asked for no values", args.server.address),
        (Err(why), _) => bail!("{}: {why}", args.server.address),
    };
    tell(args, keys, how, version, values.count())
}

fn tell(
    args: &PushArgs,
    keys: KeyRange,
    how: PushRule,
    version: Version,
    values: usize,
) -> anyhow::Result<Ending> {
    let view = View { version, begin: keys.begin(), end: keys.end(), how, values };
    let from = args.from.display();
    args.form.print(&view, || match how {
        PushRule::Add => {
            format!(
                "{values} values of {from} are added to keys {keys} from version {version} on\n"
            )
        }
        PushRule::Set => {
            format!("keys {keys} are those of {from}, {values} values, from version {version} on\n")
        }
    })?;
    Ok(Ending::Done)
}

/// The part of the values that the server asks for.
fn part(values: &Values, path: &Path, due: PartDue) -> anyhow::Result<RangePart> {
    let PartDue { part, keys } = due;
    if !keys.contains(part) || part.len() > MOST_PART_KEYS {
        bail!("the server asked for the values of keys {part} of {keys} at once");
    }
    values.check(path, keys)?;
    Ok(RangePart::new(part, &values.of(part)))
}
