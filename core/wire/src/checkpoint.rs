//! Messages between servers about checkpoints of the whole group, where checkpoints are the only
//! state that the servers keep (`--durability checkpoint`).
//!
//! A rollback to a checkpoint starts a new run. All runs that descend from one another by rollbacks
//! share an origin: the number of the first run.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::CheckpointId;

/// Maximum number of checkpoints that a server may announce.
pub const MOST_CHECKPOINTS: usize = 16;

/// Checkpoints on the disk of a server, as it announces them to the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDisk {
    /// The origin of their runs; none if the server has no checkpoint and follows no run.
    pub origin: Option<u64>,
    /// Checkpoints that the server can go back to, at most [`MOST_CHECKPOINTS`].
    pub checkpoints: Vec<CheckpointId>,
    /// The checkpoint that the server has gone back to, until it follows a run from there.
    pub at: Option<CheckpointId>,
}

impl OnDisk {
    /// True if the server can go back to `checkpoint`. It can always restart from the beginning.
    #[must_use]
    pub fn can_go_back_to(&self, checkpoint: CheckpointId) -> bool {
        checkpoint.number == 0 || self.checkpoints.contains(&checkpoint)
    }
}

/// Coordinator to server: go back to this checkpoint, then connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoBack {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}

/// Server to coordinator: its part of this checkpoint of the run is on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The number of the checkpoint.
    pub number: u64,
}
