//! A node that begins anew and is handed its inputs again.

use std::collections::BTreeSet;
use std::path::Path;

use pstrain_core::id::PeerId;
use pstrain_core::node::{Durable, Effect, Event, Input, Node, Outbox, decode_input};
use pstrain_core::time::Time;

use super::folder::{Found, StateFolder};
use super::log::{Log, LogError, Opened};
use crate::driver::Begin;

/// Why nobody is connected to a server that begins anew.
const ANEW: &str = "the server began anew";

/// A server that was handed its inputs again.
#[derive(Debug)]
pub struct Recovered {
    /// The newest log, ready for what comes next; none where there is none.
    pub log: Option<Log>,
    /// How the server begins.
    pub begin: Begin,
    /// The time of its last input; it must be handed none before.
    pub now: Time,
    /// Inputs it was handed.
    pub inputs: u64,
    /// Bytes that were never committed, which were cut off.
    pub torn: u64,
}

/// Hands a node the inputs of logs, and takes note of what the driver of the node that was must have
/// known.
struct Retelling<'a, N, R> {
    node: &'a mut N,
    report: R,
    /// The time of the last input.
    now: Time,
    /// Connections that these inputs have opened and that are open.
    open: BTreeSet<PeerId>,
    /// The last thing that the node said, if it has finished.
    done: Option<Effect>,
}

impl<N: Node, R: FnMut(Time, Event)> Retelling<'_, N, R> {
    /// Hands in the log at `path`, whose last bytes may be torn unless it `has_successor`.
    fn tell(&mut self, path: &Path, has_successor: bool) -> Result<Opened, LogError> {
        let mut outbox = Outbox::new();
        Log::open(path, has_successor, |record| {
            let (at, input) = decode_input(record).map_err(|error| error.to_string())?;
            self.now = at;
            match &input {
                Input::Connected(peer, _) | Input::Dialled(peer, _) => {
                    self.open.insert(*peer);
                }
                Input::Disconnected { peer, .. } => {
                    self.open.remove(peer);
                }
                _ => {}
            }
            self.node.handle(at, input, &mut outbox);
            for effect in outbox.drain(..) {
                match effect {
                    Effect::Report(event) => (self.report)(at, event),
                    Effect::Close(peer) => {
                        self.open.remove(&peer);
                    }
                    Effect::Done(_) => self.done = Some(effect),
                    _ => {}
                }
            }
            Ok(())
        })
    }
}

/// A dial that was under way is as good as one that failed.
fn dial_failed() -> Input {
    Input::DialFailed { why: ANEW.to_owned(), permanent: false }
}

/// What a node that begins anew is told first of all: its connections are gone, and whoever was
/// silent meanwhile is not to blame.
fn cut_off(peers: impl IntoIterator<Item = PeerId>, dial: Option<Input>) -> Vec<Input> {
    let gone = peers.into_iter().map(|peer| Input::Disconnected { peer, why: ANEW.to_owned() });
    gone.chain(dial).chain([Input::Overslept]).collect()
}

/// Hands `server`, which is as the checkpoint that was `found` says, all inputs since again, and
/// `report` what it says of them.
///
/// All its connections are gone then, and it is told so first of all.
///
/// # Errors
/// [`LogError`] if a log cannot be read, or has what is no input.
pub fn recover(
    folder: &StateFolder,
    found: &Found,
    server: &mut impl Durable,
    report: impl FnMut(Time, Event),
) -> Result<Recovered, LogError> {
    let now = found.checkpoint.as_ref().map_or(Time::ZERO, |checkpoint| checkpoint.now);
    let mut retelling = Retelling { node: server, report, now, open: BTreeSet::new(), done: None };
    let (mut inputs, mut last) = (0, None);
    for number in &found.logs {
        let has_successor = found.logs.last() != Some(number);
        let opened = retelling.tell(&folder.log(*number), has_successor)?;
        inputs += opened.records;
        last = Some(opened);
    }
    let (log, torn) = last.map_or((None, 0), |Opened { log, torn, .. }| (Some(log), torn));
    let Retelling { node: server, now, .. } = retelling;
    let begin = if found.checkpoint.is_none() && inputs == 0 {
        Begin::start()
    } else {
        // The server knows connections, too, that are older than these inputs.
        let dial = server.is_dialling().then(dial_failed);
        Begin { effects: server.unanswered(), inputs: cut_off(server.peers(), dial) }
    };
    Ok(Recovered { log, begin, now, inputs, torn })
}

/// Hands `node`, which is new, all inputs of the log at `path` again, and `report` what it says of
/// them. All its connections are gone then, and it is told so first of all.
///
/// # Errors
/// [`LogError`] if the log cannot be read, or has what is no input.
pub fn replay<N: Node>(
    path: &Path,
    node: &mut N,
    report: impl FnMut(Time, Event),
) -> Result<Recovered, LogError> {
    let (now, open) = (Time::ZERO, BTreeSet::new());
    let mut retelling = Retelling { node, report, now, open, done: None };
    let Opened { log, records: inputs, torn } = retelling.tell(path, false)?;
    let Retelling { open, done, now, .. } = retelling;
    let begin = if inputs == 0 {
        Begin::start()
    } else {
        let dial = dial_failed();
        // What a node says last it says again.
        Begin { effects: done.into_iter().collect(), inputs: cut_off(open, Some(dial)) }
    };
    Ok(Recovered { log: Some(log), begin, now, inputs, torn })
}
