//! Blocks of keys: which update a gradient is for decides which block it is of.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::Dealer;
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;

/// The mini-batch has the number of the update that its gradient becomes part of, and so has the
/// block. Everybody so computes the same block for the same update, whoever was away before.
///
/// Li et al., OSDI 2014, algorithm 3.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Blocked {
    /// The update that the next gradient is for.
    due: Version,
}

impl Dealer for Blocked {
    fn due(&mut self, update: Version) {
        self.due = update;
    }

    fn deal(&mut self, worker: WorkerId, _version: Version) -> Option<Task> {
        Some(Task::own(worker, BatchId(self.due.0)))
    }

    /// Whoever takes its place is told by the update that it is for.
    fn put_back(&mut self, _worker: WorkerId, _task: Task) {}

    fn set_rows(&mut self, _worker: WorkerId, _rows: &[u64]) -> Result<(), String> {
        Ok(())
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
