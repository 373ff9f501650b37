//! Assigner for updates of blocks of keys: the update determines the block.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::Assigner;
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;

/// The number of a mini-batch is the number of the update that its gradient becomes part of, which
/// also determines the block. All workers thus compute the same block for the same update, even
/// after an absence.
///
/// Li et al., OSDI 2014, algorithm 3.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Blocked {
    /// The update that the next gradient belongs to.
    due: Version,
}

impl Assigner for Blocked {
    fn due(&mut self, update: Version) {
        self.due = update;
    }

    fn assign(&mut self, worker: WorkerId, _version: Version) -> Option<Task> {
        Some(Task::own(worker, BatchId(self.due.0)))
    }

    /// Does nothing: [`Assigner::due`] determines the mini-batch that a replacement computes.
    fn put_back(&mut self, _worker: WorkerId, _task: Task) {}

    fn leave_out(&mut self, _worker: WorkerId, _task: Task) -> bool {
        false
    }

    fn set_rows(&mut self, _worker: WorkerId, _rows: &[u64]) -> Result<(), String> {
        Ok(())
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
