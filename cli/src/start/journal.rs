//! A node with its journal: which nodes keep what.

use std::mem;

use pstrain_compute::time::Time;
use pstrain_roles::node::{Durable, NodeError, Replica, Server};
use pstrain_transports::journal::{Checkpoints, Companion, Files, InputLog, Log, Snapshots};
use pstrain_transports::{Begin, Mailbox, Services, Transport, drive, drive_from};
use pstrain_wire::worker::EndReason;

use crate::durable::State;
use crate::messages;
#[cfg(feature = "metrics")]
use crate::metrics::{Metrics, TimedJournal};
use crate::signals::Drain;

/// Returns what belongs to a server's state in its checkpoints: the position of its records.
pub(crate) type Companions = Box<dyn FnMut() -> Companion>;

/// A node and its journal; `S` is a coordinating server or a shard.
pub(crate) enum Machine<S> {
    /// Keeps nothing and takes no standby: the server of a run in one process.
    Alone(S),
    /// Keeps checkpoints, which it may go back to, and takes no standby.
    Checkpointed(S, Snapshots<Companions, Files>),
    /// A server that may have a standby, or a standby. Keeps nothing.
    Replica(Replica),
    /// The same with a log of its inputs.
    Logged(Replica, InputLog<Companions, Files>),
}

/// A node from its opening to its end, or until it goes back to a checkpoint.
pub(crate) struct Life<S> {
    pub(crate) machine: Machine<S>,
    begin: Begin,
    /// Time at which it begins.
    now: Time,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
}

impl<S: Durable> Life<S> {
    /// The life of a new node.
    pub(super) fn new(machine: Machine<S>) -> Self {
        Self::resumed(machine, Begin::start(), Time::ZERO)
    }

    /// The life of a restored node.
    pub(super) const fn resumed(machine: Machine<S>, begin: Begin, now: Time) -> Self {
        Self {
            machine,
            begin,
            now,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// The time of the run at which it begins.
    pub(super) const fn begins(&self) -> Time {
        self.now
    }

    /// Reports the time of commits to `metrics`.
    #[cfg(feature = "metrics")]
    pub(super) fn set_metrics(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    /// Drives the node until it has finished.
    pub(super) fn drive(
        &mut self,
        transport: &mut impl Transport,
        services: &mut impl Services,
        drain: &Drain,
    ) -> anyhow::Result<Result<EndReason, NodeError>> {
        let mailbox = Mailbox::new(transport);
        drain.turn_to(mailbox.handle())?;
        let begin = mem::replace(&mut self.begin, Begin::start());
        Ok(match &mut self.machine {
            Machine::Alone(node) => drive(node, transport, services, &mailbox),
            Machine::Replica(node) => drive(node, transport, services, &mailbox),
            Machine::Checkpointed(node, journal) => {
                drive_from(node, transport, services, &mailbox, journal, begin)
            }
            Machine::Logged(node, journal) => {
                #[cfg(feature = "metrics")]
                let journal =
                    &mut TimedJournal::new(journal, self.metrics.as_ref().map(Metrics::commits));
                drive_from(node, transport, services, &mailbox, journal, begin)
            }
        }?)
    }
}

impl Machine<Server> {
    /// The coordinating server, if this process has one.
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Alone(server) | Self::Checkpointed(server, _) => Some(server),
            Self::Replica(replica) | Self::Logged(replica, _) => replica.server(),
        }
    }
}

impl State {
    /// The checkpoints of a node that continues from this state.
    pub(super) fn checkpoints(self, companions: Companions) -> Checkpoints<Companions, Files> {
        let Self { folder, checkpoint_every, found, now } = self;
        Checkpoints::new(folder, Files, (checkpoint_every, now), &found, companions, messages::warn)
    }

    /// The log of such a node, which a drain gives up if it cannot be written.
    pub(super) fn log(
        self,
        log: Log,
        companions: Companions,
        drain: Drain,
    ) -> InputLog<Companions, Files> {
        let log = InputLog::new(log, self.checkpoints(companions), messages::warn);
        log.until(move || drain.is_asked())
    }
}
