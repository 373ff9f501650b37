//! What a server must not forget: its inputs, in order, on the disk.
//!
//! A server is a function of its inputs. With each of them in a [`Log`] before anybody sees an
//! effect of it, a server that begins anew is brought to where the last one was by being handed them
//! again, and no worker has ever been told anything that it does not know.

mod log;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use pstrain_core::id::{PeerId, Version};
use pstrain_core::node::{Effect, Event, Input, Node, Outbox, decode_input, encode_input};
use pstrain_core::time::Time;

pub use log::{Log, LogError, Opened};

use crate::driver::{Begin, Journal};

/// How long after a commit that failed the next is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps a server's inputs in a log.
pub struct InputLog<W> {
    log: Log,
    head: Vec<u8>,
    /// Told once when the log cannot be written, and once when it can be again.
    warn: W,
}

impl<W> fmt::Debug for InputLog<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputLog").field("log", &self.log).finish_non_exhaustive()
    }
}

impl<W: FnMut(&str)> InputLog<W> {
    /// Keeps inputs in `log`.
    #[must_use]
    pub const fn new(log: Log, warn: W) -> Self {
        Self { log, head: Vec::new(), warn }
    }
}

impl<W: FnMut(&str)> Journal for InputLog<W> {
    fn append(&mut self, now: Time, input: &Input) {
        self.head.clear();
        if let Some(payload) = encode_input(now, input, &mut self.head) {
            self.log.append(&[&self.head, payload.as_slice()]);
        }
    }

    /// While the disk is full nothing is acknowledged, and nothing more is read.
    fn commit(&mut self) {
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

/// A node that was handed its inputs again.
#[derive(Debug)]
pub struct Recovered {
    /// The log, ready for what comes next.
    pub log: Log,
    /// How the node begins.
    pub begin: Begin,
    /// The time of its last input; it must be handed none before.
    pub now: Time,
    /// Inputs it was handed.
    pub inputs: u64,
    /// Bytes that were never committed, which were cut off.
    pub torn: u64,
}

/// Hands `node` all inputs of the log at `path` again, and `report` what it says of them.
///
/// All its connections are gone then, and it is told so first of all.
///
/// # Errors
/// [`LogError`] if the log cannot be read, or has what is no input.
pub fn recover<N: Node>(
    path: &Path,
    node: &mut N,
    mut report: impl FnMut(Time, Event),
) -> Result<Recovered, LogError> {
    let mut outbox = Outbox::new();
    let mut connected = BTreeSet::<PeerId>::new();
    let mut asked = Vec::new();
    let mut now = Time::ZERO;
    let opened = Log::open(path, |record| {
        let (at, input) = decode_input(record).map_err(|error| error.to_string())?;
        now = at;
        match &input {
            Input::Connected(peer, _) => {
                connected.insert(*peer);
            }
            Input::Disconnected { peer, .. } => {
                connected.remove(peer);
            }
            Input::Evaluated(evaluated) => {
                let version = evaluated.point.version;
                asked.retain(|effect| !is_evaluation_of(effect, version));
            }
            _ => {}
        }
        node.handle(at, input, &mut outbox);
        for effect in outbox.drain(..) {
            match effect {
                Effect::Report(event) => report(at, event),
                Effect::Close(peer) => {
                    connected.remove(&peer);
                }
                // It is the last thing a node says, and says it again.
                Effect::Evaluate(_) | Effect::Done(_) => asked.push(effect),
                _ => {}
            }
        }
        Ok(())
    })?;
    let why = || "the server began anew".to_owned();
    let gone = connected.into_iter().map(|peer| Input::Disconnected { peer, why: why() });
    // Whoever was silent while there was no server is not to blame.
    let inputs = gone.chain([Input::Overslept]).collect();
    let Opened { log, records, torn } = opened;
    let begin = Begin { effects: asked, inputs };
    Ok(Recovered { log, begin, now, inputs: records, torn })
}

fn is_evaluation_of(effect: &Effect, version: Version) -> bool {
    matches!(effect, Effect::Evaluate(evaluate) if evaluate.point.version == version)
}
