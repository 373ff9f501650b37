//! Decisions of the coordinator, which the other servers of the job follow.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::range::RangePart;
use crate::worker::ParametersHeader;
use pstrain_compute::id::{Clock, Incarnation, PartId, Sequence, Version, WorkerId};
use pstrain_compute::params::{KeyMap, KeyRange, Move};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::aggregate::Found;
use pstrain_policy::auto::Look;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;

/// An accepted gradient without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// The worker that computed it.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The sequence number of its push.
    pub sequence: Sequence,
    /// The mini-batch it was computed from.
    pub task: Task,
    /// The worker's iteration.
    pub clock: Clock,
    /// The version of the parameters that it was computed on.
    pub base: Version,
    /// Number of examples whose gradients it is the mean of.
    pub samples: u32,
    /// When the parameters that it was computed on were granted.
    pub granted: Time,
}

impl Contribution {
    /// Returns the merge key: values of contributions with the same key may be merged.
    pub const fn place(&self) -> (WorkerId, PartId) {
        (self.worker, self.task.part)
    }
}

/// A decision of the coordinator. All servers follow all decisions in the same order. So a gradient
/// becomes part of an update on every server or on none, and all key ranges of the parameters that
/// a worker receives have the same version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    /// A worker has a new incarnation.
    Admit {
        /// The worker.
        worker: WorkerId,
        /// The new incarnation.
        incarnation: Incarnation,
    },
    /// The server drops all state of what a worker has pushed and received so far.
    Forget {
        /// The worker.
        worker: WorkerId,
    },
    /// Sets the number of examples of a worker's partition.
    Rows {
        /// The worker.
        worker: WorkerId,
        /// Number of examples.
        rows: u64,
    },
    /// The server sends a worker the current parameters.
    Give {
        /// The worker.
        worker: WorkerId,
        /// The permissions to push that come with them. Each server fills in its own key range.
        headers: Vec<ParametersHeader>,
    },
    /// A gradient becomes part of the open round.
    Gather {
        /// The gradient.
        contribution: Contribution,
        /// Scale that clips the gradient, if it exceeds the limit for a worker.
        factor: Option<f32>,
    },
    /// A gradient is discarded.
    Drop {
        /// The worker.
        worker: WorkerId,
        /// The sequence number of the push.
        sequence: Sequence,
    },
    /// Contributions that wait for the update on `version` are merged into as few vectors as
    /// possible.
    Merge {
        /// The current version.
        version: Version,
    },
    /// The open round closes: the next version of the parameters is made. In a two-phase update,
    /// which needs a norm or distances over all keys, every server first sends its part of the sums
    /// ([`Measured`](crate::group::Measured)), and applies the update at [`Self::Found`].
    Close {
        /// Which contributions become the update.
        closing: Closing,
        /// The oldest iteration of the cohort.
        oldest: Option<Clock>,
        /// The current version.
        version: Version,
        /// Weights of the gradients in the order of the update, if the mode does not give them.
        weights: Option<Vec<f32>>,
    },
    /// The result of the sums over all servers.
    Found(Found),
    /// The open round is discarded.
    Discard,
    /// Another mode starts.
    Mode(Box<Mode>),
    /// The coordinator requests the current parameters. A server that has none of the keys sends
    /// nothing.
    Show {
        /// The version of the parameters.
        version: Version,
        /// The requested keys.
        keys: KeyRange,
    },
    /// `auto` measures the current parameters.
    Look(Look),
    /// The measurements of `auto` are discarded.
    ForgetLooks,
    /// The parameters that `auto` saved for a rollback become the current ones; the optimiser
    /// restarts.
    GoBack,
    /// The coordinator has received all requested parameters of a version. The servers drop the
    /// copies that they kept to send again.
    Seen {
        /// The version.
        version: Version,
    },
    /// Keys are to move between servers. Each server that has some of them sends their state as of
    /// now. Until [`Self::Map`] all keys stay where they are.
    Cut {
        /// The key ranges, each with its old and its new server.
        moves: Vec<Move>,
    },
    /// The move is cancelled: the state that was sent is discarded.
    Stay,
    /// The new key map takes effect. The state of all keys that moved has arrived.
    Map(KeyMap),
    /// Every server saves its current state.
    Checkpoint {
        /// The number of the checkpoint.
        number: u64,
        /// The number of the oldest checkpoint that a rollback may still need.
        oldest: u64,
    },
    /// A part of the initial parameters; further decisions carry the rest. A server that has none
    /// of the keys does nothing.
    Initial(RangePart),
    /// The run is stopped on request: no log keeps this decision or a later one, so that all
    /// servers resume from before it.
    Pause,
}

impl Decision {
    /// The worker that the decision is about, if it is about one.
    #[must_use]
    pub const fn worker(&self) -> Option<WorkerId> {
        match self {
            Self::Admit { worker, .. }
            | Self::Forget { worker }
            | Self::Rows { worker, .. }
            | Self::Give { worker, .. }
            | Self::Drop { worker, .. } => Some(*worker),
            Self::Gather { contribution, .. } => Some(contribution.worker),
            _ => None,
        }
    }

    /// Bytes of values in the decision. Large decisions reduce the number that fit in one message.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Initial(part) => part.encoded.bytes.len(),
            _ => 0,
        }
    }
}
