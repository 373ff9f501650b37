//! `pstrain pull`: the parameters of a key range of a running job, or what there is to say of them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;
use pstrain_core::params::KeyRange;
use pstrain_core::protocol::range::{PullRange, RangeHeader, RangeOf, Statistics};
use pstrain_core::protocol::{Message, PROTOCOL_VERSION};
use serde::Serialize;

use super::{client, status};
use crate::args::PullArgs;
use crate::exit::Ending;
use crate::messages;

/// Keys as they are typed: `A..B`, `A..`, `..B` or `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    begin: u64,
    /// None up to the last.
    end: Option<u64>,
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no key range: use A..B, with A below B (B is not in it)");
        let (begin, end) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let begin = if begin.is_empty() { 0 } else { number(begin)? };
        let end = if end.is_empty() { None } else { Some(number(end)?) };
        if end.is_some_and(|end| end <= begin) {
            return Err(wrong());
        }
        Ok(Self { begin, end })
    }
}

/// What is said of a range, as `--json` prints it.
#[derive(Serialize)]
struct View {
    version: u64,
    begin: u64,
    end: u64,
    /// Keys of the model.
    total: u64,
    #[serde(flatten)]
    statistics: Statistics,
}

pub(crate) fn run(args: &PullArgs) -> anyhow::Result<Ending> {
    let keys = match args.keys {
        Some(Keys { begin: 0, end: None }) | None => None,
        Some(Keys { begin, end: Some(end) }) => Some(KeyRange::new(begin, end)?),
        // How many there are the server alone knows.
        Some(Keys { begin, end: None }) => {
            let all = ask(args, None, false)?.header.total;
            Some(KeyRange::new(begin, all)?)
        }
    };
    let answer = ask(args, keys, args.out.is_some())?;
    if let Some(path) = &args.out {
        write(path, &answer)
            .with_context(|| format!("cannot write the parameters to {}", path.display()))?;
    }
    let RangeHeader { version, keys, total, statistics, .. } = answer.header;
    let (begin, end) = (keys.begin(), keys.end());
    if args.json {
        let view = View { version: version.0, begin, end, total, statistics };
        messages::result(&serde_json::to_string(&view)?)?;
        return Ok(Ending::Done);
    }
    let Statistics { count, non_zeros, l1, l2, min, max } = statistics;
    messages::result(&format!(
        "version   {version}\nkeys      [{begin}, {end}) of {total}\ncount     {count}\nnot 0     \
         {non_zeros}\nl1        {l1}\nl2        {l2}\nmin       {min}\nmax       {max}\n"
    ))?;
    Ok(Ending::Done)
}

fn ask(args: &PullArgs, keys: Option<KeyRange>, values: bool) -> anyhow::Result<RangeOf> {
    let pull = PullRange { protocol_max: PROTOCOL_VERSION, keys, values };
    let question = Message::PullRange(pull);
    let answer = |message| match message {
        Message::RangeOf(answer) => Some(answer),
        _ => None,
    };
    let address = (&args.address, &args.security);
    client::ask_for_long(address, args.timeout, &question, answer, || waits(args))
}

/// Why the parameters are not there, if the server says anything.
fn waits(args: &PullArgs) -> Option<String> {
    let status = status::at_once((&args.address, &args.security))?;
    Some(match &status.wait {
        Some(wait) => format!("it waits {}", status::waiting(wait)),
        None => {
            "it runs, and does not wait for anybody: it has much to do, or its link is slow".into()
        }
    })
}

/// Writes the keys that are not 0, a line each, with their values, which are read back as they were.
fn write(path: &Path, answer: &RangeOf) -> anyhow::Result<()> {
    let values = answer.non_zeros().context("the server sent values in no known form")?;
    let RangeHeader { version, keys, total, .. } = &answer.header;
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "# version {version}, keys {keys} of {total}; those that are not here are 0")?;
    for (key, value) in values {
        writeln!(file, "{key} {value}")?;
    }
    file.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!("3..9".parse(), Ok(Keys { begin: 3, end: Some(9) }));
        assert_eq!("3..".parse(), Ok(Keys { begin: 3, end: None }));
        assert_eq!("..".parse(), Ok(Keys { begin: 0, end: None }));
        for wrong in ["", "3", "9..3", "3..3", "a..b", "1...4"] {
            assert!(wrong.parse::<Keys>().unwrap_err().contains("A..B"), "{wrong}");
        }
    }
}
