//! A node that begins anew and is handed its inputs again.

use std::path::Path;

use pstrain_compute::time::Time;
use pstrain_roles::node::{Durable, Effect, Event, Input, Node, Outbox, decode_input};

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

/// Hands a node the inputs of logs, and takes note of what the driver of the node that was must
/// have known.
struct Retelling<'a, N, R> {
    node: &'a mut N,
    report: R,
    /// The time of the last input.
    now: Time,
    /// The last thing that the node said, if it has finished.
    done: Option<Effect>,
}

impl<N: Node, R: FnMut(Time, Event)> Retelling<'_, N, R> {
    /// Hands in a log, whose last bytes may be torn unless it `has_successor`.
    fn tell(
        &mut self,
        (path, mark): (&Path, u64),
        has_successor: bool,
    ) -> Result<Opened, LogError> {
        let mut outbox = Outbox::new();
        Log::open(path, mark, has_successor, |record| {
            let (at, input) = decode_input(record).map_err(|error| error.to_string())?;
            self.now = at;
            self.node.handle(at, input, &mut outbox);
            for effect in outbox.drain(..) {
                match effect {
                    Effect::Report(event) => (self.report)(at, event),
                    Effect::Done(_) => self.done = Some(effect),
                    _ => {}
                }
            }
            Ok(())
        })
    }
}

/// How a server begins that has been told all: what it asked for is asked for again. Its
/// connections are gone, a dial that was under way is as good as one that failed, and whoever was
/// silent meanwhile is not to blame.
#[must_use]
pub fn goes_on(server: &impl Durable, done: Option<Effect>) -> Begin {
    let gone = |peer| Input::Disconnected { peer, why: ANEW.to_owned() };
    let failed = Input::DialFailed { why: ANEW.to_owned(), permanent: false };
    let dial = server.is_dialling().then_some(failed);
    let inputs = server.peers().into_iter().map(gone).chain(dial).chain([Input::Overslept]);
    let mut effects = server.unanswered();
    // What a node says last it says again.
    if !effects.iter().any(|effect| matches!(effect, Effect::Done(_))) {
        effects.extend(done);
    }
    Begin { effects, inputs: inputs.collect() }
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
    let mut retelling = Retelling { node: server, report, now, done: None };
    let (mut inputs, mut last) = (0, None);
    for number in &found.logs {
        let has_successor = found.logs.last() != Some(number);
        let opened = retelling.tell((&folder.log(*number), folder.mark(*number)), has_successor)?;
        inputs += opened.records;
        last = Some(opened);
    }
    let (log, torn) = last.map_or((None, 0), |Opened { log, torn, .. }| (Some(log), torn));
    let Retelling { node: server, now, done, .. } = retelling;
    let begin = if found.checkpoint.is_none() && inputs == 0 {
        Begin::start()
    } else {
        goes_on(server, done)
    };
    Ok(Recovered { log, begin, now, inputs, torn })
}
