//! A node whose inputs are all kept, from the first on.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use pstrain_core::id::PeerId;
use pstrain_core::node::{Effect, Event, Input, Node, Outbox, decode_input, encode_input};
use pstrain_core::time::Time;

use super::Recovered;
use super::log::{Log, LogError, Opened};
use crate::driver::{Begin, Journal};

/// How long after a commit that failed the next is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps a node's inputs in a log.
pub struct Inputs {
    pub(super) log: Log,
    head: Vec<u8>,
    /// Told once when the log cannot be written, and once when it can be again.
    warn: fn(&str),
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Inputs {
    /// Keeps inputs in `log`.
    #[must_use]
    pub const fn new(log: Log, warn: fn(&str)) -> Self {
        Self { log, head: Vec::new(), warn }
    }

    pub(super) fn keep(&mut self, now: Time, input: &Input) {
        self.head.clear();
        if let Some(payload) = encode_input(now, input, &mut self.head) {
            self.log.append(&[&self.head, payload.as_slice()]);
        }
    }

    /// While the disk is full nothing is acknowledged, and nothing more is read.
    pub(super) fn settle(&mut self) {
        let mut failed = false;
        while let Err(error) = self.log.commit() {
            if !failed {
                (self.warn)(&format!("{error}; nothing is acknowledged until it can be"));
            }
            failed = true;
            thread::sleep(PAUSE);
        }
        if failed {
            (self.warn)("the log can be written again");
        }
    }
}

impl<N> Journal<N> for Inputs {
    fn append(&mut self, now: Time, input: &Input) {
        self.keep(now, input);
    }

    fn commit(&mut self) {
        self.settle();
    }
}

/// Hands `node`, which is new, all inputs of the log at `path` again, and `report` what it says of
/// them. All its connections are gone then, and it is told so first of all.
///
/// # Errors
/// [`LogError`] if the log cannot be read, or has what is no input.
pub fn replay<N: Node>(
    path: &Path,
    node: &mut N,
    mut report: impl FnMut(Time, Event),
) -> Result<Recovered, LogError> {
    let (mut outbox, mut now) = (Outbox::new(), Time::ZERO);
    let (mut connected, mut done) = (BTreeSet::<PeerId>::new(), Vec::new());
    let opened = Log::open(path, false, |record| {
        let (at, input) = decode_input(record).map_err(|error| error.to_string())?;
        now = at;
        match &input {
            Input::Connected(peer, _) | Input::Dialled(peer, _) => drop(connected.insert(*peer)),
            Input::Disconnected { peer, .. } => drop(connected.remove(peer)),
            _ => {}
        }
        node.handle(at, input, &mut outbox);
        for effect in outbox.drain(..) {
            match effect {
                Effect::Report(event) => report(at, event),
                Effect::Close(peer) => drop(connected.remove(&peer)),
                // It is the last thing a node says, and says it again.
                Effect::Done(_) => done.push(effect),
                _ => {}
            }
        }
        Ok(())
    })?;
    let Opened { log, records: inputs, torn } = opened;
    let begin = if inputs == 0 {
        Begin::start()
    } else {
        let why = || "the server began anew".to_owned();
        let gone = connected.into_iter().map(|peer| Input::Disconnected { peer, why: why() });
        // A dial that was under way is as good as one that failed.
        let dial = Input::DialFailed { why: why(), permanent: false };
        Begin { effects: done, inputs: gone.chain([dial, Input::Overslept]).collect() }
    };
    Ok(Recovered { log: Some(log), begin, now, inputs, torn })
}
