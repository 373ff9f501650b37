//! Blocks of keys: which update a gradient is for decides which block it is of.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::{Dealer, Share, Task, Weights};
use crate::consistency::Cohort;
use crate::id::{BatchId, Version, WorkerId};
use crate::saved::{Archive, SavedError};

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

    fn renew(&mut self, _worker: WorkerId, _task: Task, _version: Version) -> Option<Task> {
        None
    }

    fn wants(&self, _worker: WorkerId, _task: Task, _version: Version) -> bool {
        true
    }

    fn took(&mut self, _worker: WorkerId, _task: Task) {}

    fn put_back(&mut self, _worker: WorkerId, _task: Task) {}

    fn is_covered(&self) -> bool {
        false
    }

    fn is_stuck(&self, _members: &Cohort) -> bool {
        false
    }

    fn set_rows(&mut self, _worker: WorkerId, _rows: &[u64]) -> Result<(), String> {
        Ok(())
    }

    fn weights(&self, _gradients: &[Share]) -> Option<Weights> {
        None
    }

    fn updated(&mut self, _members: &Cohort) {}

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
