//! What servers say to one another about checkpoints of all of them, where those are all that is
//! kept.
//!
//! A run that goes back to a checkpoint is another run. All runs that came of one another so have
//! the same origin: the number of the first.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::CheckpointId;

/// Checkpoints that a server says it has, at most.
pub const MOST_CHECKPOINTS: usize = 16;

/// What a server that takes checkpoints has on its disk, for the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDisk {
    /// The origin of the runs that they are of; none if there are none, and it follows none.
    pub origin: Option<u64>,
    /// Which it can go back to, at most [`MOST_CHECKPOINTS`].
    pub checkpoints: Vec<CheckpointId>,
    /// The one that it has gone back to, until it follows a run from there.
    pub at: Option<CheckpointId>,
}

impl OnDisk {
    /// Whether a server that has this can go back to `checkpoint`: it can always begin anew.
    #[must_use]
    pub fn can_go_back_to(&self, checkpoint: CheckpointId) -> bool {
        checkpoint.number == 0 || self.checkpoints.contains(&checkpoint)
    }
}

/// The coordinator to a server: go back to this checkpoint, and come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoBack {
    /// Which.
    pub checkpoint: CheckpointId,
}

/// A server to the coordinator: its part of this checkpoint of the run is on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The number of the checkpoint.
    pub number: u64,
}
