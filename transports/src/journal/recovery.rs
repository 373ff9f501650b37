//! Recovery of a node after a restart, by replay of its inputs.

use std::path::Path;

use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Durable, Effect, Event, Input, Outbox, decode_input};

use super::folder::{Found, StateFolder};
use super::log::{Log, LogError, Opened};
use crate::driver::Begin;

/// Reason why the connections of a restarted server are gone.
const RESTARTED: &str = "the server started a new run";

/// A server whose inputs have been replayed.
#[derive(Debug)]
pub struct Recovered {
    /// The newest log, ready to append; `None` if there are no logs.
    pub log: Option<Log>,
    /// Pending effects and first inputs of the server.
    pub begin: Begin,
    /// Time of the last input; no later input may have an earlier time.
    pub now: Time,
    /// Number of replayed inputs.
    pub inputs: u64,
    /// Bytes that were cut off because they were never committed.
    pub torn: u64,
}

/// Replays logs to a node, and collects the effects that the driver before the restart had seen.
struct Replay<'a> {
    node: &'a mut dyn Durable,
    report: &'a mut dyn FnMut(Time, Event),
    /// Time of the last input.
    now: Time,
    /// The node's last `Done` effect, if it has finished.
    done: Option<Effect>,
}

impl Replay<'_> {
    /// Replays one log, whose last bytes may be torn unless it `has_successor`.
    fn tell(
        &mut self,
        (path, mark): (&Path, u64),
        has_successor: bool,
    ) -> Result<Opened, LogError> {
        let mut outbox = Outbox::new();
        Log::open(path, mark, has_successor, |record| {
            let (at, input) = decode_input(record).map_err(|error| error.to_string())?;
            self.now = at;
            if matches!(input, Input::Extend(_)) {
                self.done = None; // it goes on
            }
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

/// Returns how a server continues after a complete replay. Its unanswered effects are repeated. Its
/// connections are gone, a pending dial counts as failed, and `Overslept` keeps peers that were
/// silent during the restart from being blamed.
#[must_use]
pub fn goes_on(server: &dyn Durable, done: Option<Effect>) -> Begin {
    let gone = |peer| Input::Disconnected { peer, why: RESTARTED.to_owned() };
    let failed = Input::DialFailed { why: RESTARTED.to_owned(), fault: DialFault::Temporary };
    let dial = server.is_dialling().then_some(failed);
    let inputs = server.peers().into_iter().map(gone).chain(dial).chain([Input::Overslept]);
    let mut effects = server.unanswered();
    // A node that had finished finishes again with the same result.
    if !effects.iter().any(|effect| matches!(effect, Effect::Done(_))) {
        effects.extend(done);
    }
    Begin { effects, inputs: inputs.collect() }
}

/// Replays to `server`, restored from the checkpoint in `found`, all inputs since, and passes the
/// events it reports to `report`. The first inputs in [`Recovered::begin`] tell the server that all
/// its connections are gone.
///
/// # Errors
/// [`LogError`] if a log cannot be read, or contains a record that is not an input.
pub fn recover(
    folder: &StateFolder,
    found: &Found,
    server: &mut dyn Durable,
    mut report: impl FnMut(Time, Event),
) -> Result<Recovered, LogError> {
    let now = found.checkpoint.as_ref().map_or(Time::ZERO, |checkpoint| checkpoint.now);
    let mut retelling = Replay { node: server, report: &mut report, now, done: None };
    let (mut inputs, mut last) = (0, None);
    for number in &found.logs {
        let has_successor = found.logs.last() != Some(number);
        let opened = retelling.tell((&folder.log(*number), folder.mark(*number)), has_successor)?;
        inputs += opened.records;
        last = Some(opened);
    }
    let (log, torn) = last.map_or((None, 0), |Opened { log, torn, .. }| (Some(log), torn));
    let Replay { node: server, now, done, .. } = retelling;
    let begin = if found.checkpoint.is_none() && inputs == 0 {
        Begin::start()
    } else {
        goes_on(server, done)
    };
    Ok(Recovered { log, begin, now, inputs, torn })
}
