//! What the coordinator of several servers decides, for the others to follow.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::range::{How, RangePart};
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
    /// Whose it is.
    pub worker: WorkerId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The push it came with.
    pub sequence: Sequence,
    /// The mini-batch it was computed from.
    pub task: Task,
    /// The iteration it is a part of.
    pub clock: Clock,
    /// The version it was computed on.
    pub base: Version,
    /// Examples it is the mean of.
    pub samples: u32,
    /// When its parameters were given out.
    pub granted: Time,
}

impl Contribution {
    /// Where its values may be merged with others.
    pub const fn place(&self) -> (WorkerId, PartId) {
        (self.worker, self.task.part)
    }
}

/// A decision of the coordinator. All servers follow all of them, in order: so a gradient becomes
/// part of an update on every server or on none, and the parameters that a worker is given are of
/// one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    /// A worker has a new incarnation.
    Admit {
        /// Which.
        worker: WorkerId,
        /// The incarnation.
        incarnation: Incarnation,
    },
    /// Nothing more comes of what a worker has pushed, or was given.
    Forget {
        /// Which.
        worker: WorkerId,
    },
    /// A worker's partition has so many examples.
    Rows {
        /// Which.
        worker: WorkerId,
        /// Examples.
        rows: u64,
    },
    /// A worker is given the current parameters.
    Give {
        /// Which.
        worker: WorkerId,
        /// The permissions that come with them; their keys are each server's own.
        headers: Vec<ParametersHeader>,
    },
    /// A gradient becomes part of the open round.
    Gather {
        /// Which.
        contribution: Contribution,
        /// What it is multiplied with, if it is longer than a worker's may be.
        factor: Option<f32>,
    },
    /// A gradient is thrown away.
    Drop {
        /// Whose.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
    },
    /// What waits for the update on `version` is kept as few vectors as can be.
    Merge {
        /// The current version.
        version: Version,
    },
    /// The next version of the parameters is made. Where that goes by something that is known once
    /// all keys are looked at, every server says what its part of that is, and goes on with
    /// [`Self::Found`].
    Close {
        /// Of what.
        closing: Closing,
        /// The oldest iteration of the cohort.
        oldest: Option<Clock>,
        /// The current version.
        version: Version,
        /// What each gradient counts, if not what the mode says; in the order of the update.
        weights: Option<Vec<f32>>,
    },
    /// What came of the parts of all servers.
    Found(Found),
    /// The open round is thrown away.
    Discard,
    /// Another mode begins.
    Mode(Box<Mode>),
    /// The coordinator wants the current parameters. Whoever has none of the keys has nothing to
    /// send.
    Show {
        /// Their version.
        version: Version,
        /// Of which keys.
        keys: KeyRange,
    },
    /// `auto` looks at the current parameters.
    Look(Look),
    /// What it has looked at is forgotten.
    ForgetLooks,
    /// The parameters that it can go back to become the current ones; the optimiser begins anew.
    GoBack,
    /// The coordinator has all parameters of a version that it wanted.
    Seen {
        /// The version.
        version: Version,
    },
    /// Keys shall move. Whoever has them sends what there is to know of them now; until
    /// [`Self::Map`] all keys are where they were.
    Cut {
        /// Which keys, from whom to whom.
        moves: Vec<Move>,
    },
    /// They do not move: what was sent is of no use.
    Stay,
    /// From now on the keys are where this says; what moved has come.
    Map(KeyMap),
    /// Everybody keeps the state that it has now.
    Checkpoint {
        /// The number of the checkpoint.
        number: u64,
        /// The oldest that may still be gone back to.
        oldest: u64,
    },
    /// Values that a client has pushed become part of the parameters. Whoever has none of the keys
    /// has nothing to do.
    PushRange {
        /// What becomes of the parameters.
        how: How,
        /// The values of some of the keys; those of the others follow.
        part: RangePart,
    },
}

impl Decision {
    /// Bytes of values in it: where there are many of them, fewer decisions are in one message.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::PushRange { part, .. } => part.encoded.bytes.len(),
            _ => 0,
        }
    }
}
