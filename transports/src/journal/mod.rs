//! What a server must not forget: its state at some time and its inputs since, on the disk.
//!
//! A server is a function of its inputs. With each of them in a [`Log`] before anybody sees an
//! effect of it, a server that begins anew is brought to where the last one was by being handed them
//! again, and no worker has ever been told anything that it does not know. With [`Checkpoints`] that
//! need not be all inputs since the beginning. With checkpoints alone a server begins anew from the
//! last of them, as another run: what came after it is lost as a whole.

mod checkpoint;
mod checkpoints;
mod disk;
mod folder;
mod inputs;
mod log;

use pstrain_core::id::PeerId;
use pstrain_core::node::{Effect, Event, Input, Node, Outbox, Server, decode_input};
use pstrain_core::time::Time;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use checkpoints::{Beside, Checkpoints};
pub use disk::{Disk, Files, replace};
pub use folder::{FolderError, Found, StateFolder};
pub use inputs::{Inputs, replay};
pub use log::{Log, LogError, Opened};

use crate::driver::{Begin, Journal};

/// Keeps a server's inputs in a log, and begins that anew after each checkpoint.
#[derive(Debug)]
pub struct InputLog<B, D> {
    inputs: Inputs,
    checkpoints: Checkpoints<B, D>,
}

impl<B, D> InputLog<B, D> {
    /// Keeps inputs in `log`; `warn` is told once when it cannot be written, and once when it can be
    /// again.
    #[must_use]
    pub const fn new(log: Log, checkpoints: Checkpoints<B, D>, warn: fn(&str)) -> Self {
        Self { inputs: Inputs::new(log, warn), checkpoints }
    }

    /// The checkpoints that go with it.
    pub const fn checkpoints(&mut self) -> &mut Checkpoints<B, D> {
        &mut self.checkpoints
    }
}

impl<B: FnMut() -> Beside, D: Disk> Journal<Server> for InputLog<B, D> {
    fn append(&mut self, now: Time, input: &Input) {
        self.inputs.keep(now, input);
    }

    fn commit(&mut self) {
        self.inputs.settle();
    }

    fn rest(&mut self, now: Time, server: &mut Server) {
        // Inputs without effects wait for the next that has some.
        if self.checkpoints.is_due(now, Some(&self.inputs.log)) {
            self.inputs.settle();
            self.checkpoints.rest(now, server, Some(&mut self.inputs.log));
        }
    }

    fn end(&mut self, now: Time, _server: &mut Server) {
        self.checkpoints.settle(now);
    }
}

/// Keeps checkpoints of a server and no inputs: effects wait for nothing.
#[derive(Debug)]
pub struct Snapshots<B, D>(Checkpoints<B, D>);

impl<B, D> Snapshots<B, D> {
    /// Keeps these.
    #[must_use]
    pub const fn new(checkpoints: Checkpoints<B, D>) -> Self {
        Self(checkpoints)
    }

    /// The checkpoints.
    pub const fn checkpoints(&mut self) -> &mut Checkpoints<B, D> {
        &mut self.0
    }
}

impl<B: FnMut() -> Beside, D: Disk> Journal<Server> for Snapshots<B, D> {
    const KEEPS: bool = false;

    fn append(&mut self, _now: Time, _input: &Input) {}

    fn commit(&mut self) {}

    fn rest(&mut self, now: Time, server: &mut Server) {
        if self.0.is_due(now, None) {
            self.0.rest(now, server, None);
        }
    }

    /// How a run ended is worth keeping whatever the time.
    fn end(&mut self, now: Time, server: &mut Server) {
        self.0.take_now(now, server);
    }
}

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
    server: &mut Server,
    mut report: impl FnMut(Time, Event),
) -> Result<Recovered, LogError> {
    let mut now = found.checkpoint.as_ref().map_or(Time::ZERO, |checkpoint| checkpoint.now);
    let (mut outbox, mut inputs, mut last) = (Outbox::new(), 0, None);
    for number in &found.logs {
        let has_successor = found.logs.last() != Some(number);
        let opened = Log::open(&folder.log(*number), has_successor, |record| {
            let (at, input) = decode_input(record).map_err(|error| error.to_string())?;
            now = at;
            server.handle(at, input, &mut outbox);
            for effect in outbox.drain(..) {
                if let Effect::Report(event) = effect {
                    report(at, event);
                }
            }
            Ok(())
        })?;
        inputs += opened.records;
        last = Some(opened);
    }
    let (log, torn) = last.map_or((None, 0), |Opened { log, torn, .. }| (Some(log), torn));
    let begin = if found.checkpoint.is_none() && inputs == 0 {
        Begin::start()
    } else {
        let why = || "the server began anew".to_owned();
        let gone = |peer: PeerId| Input::Disconnected { peer, why: why() };
        let gone = server.peers().into_iter().map(gone);
        // Whoever was silent while there was no server is not to blame.
        Begin { effects: server.unanswered(), inputs: gone.chain([Input::Overslept]).collect() }
    };
    Ok(Recovered { log, begin, now, inputs, torn })
}
