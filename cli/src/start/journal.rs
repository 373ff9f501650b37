//! A node with its journal: which nodes keep what.

use pstrain_compute::time::Time;
use pstrain_roles::node::{Replica, Server};
use pstrain_transports::Begin;
use pstrain_transports::journal::{Checkpoints, Companion, Files, InputLog, Log, Snapshots};

use crate::durable::State;
use crate::messages;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::record::Recorder;
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
    pub(super) begin: Begin,
    /// Time of the run at which it begins.
    pub(super) now: Time,
    /// Receives the time of commits.
    #[cfg(feature = "metrics")]
    pub(super) metrics: Option<Metrics>,
}

impl<S> Life<S> {
    /// The life of a new node.
    pub(super) fn new(machine: Machine<S>) -> Self {
        Self {
            machine,
            begin: Begin::start(),
            now: Time::ZERO,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
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

/// The companions of a server's checkpoints: the positions of its records.
pub(super) fn companions(recorder: &Recorder) -> Companions {
    let recorder = recorder.clone();
    Box::new(move || recorder.keep())
}
