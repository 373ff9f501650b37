//! Everybody for themselves.

use super::{Dealer, Task};
use crate::id::{BatchId, Version, WorkerId};

/// Each worker goes through its own partition, one mini-batch after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own;

impl Dealer for Own {
    fn deal(&mut self, worker: WorkerId, _version: Version, next: BatchId) -> Option<Task> {
        Some(Task::own(worker, next))
    }
}
