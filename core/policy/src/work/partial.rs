//! Partial gradients: finished partitions of a slow worker count, and others compute the rest.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Assigner, set_rows};
use crate::consistency::Cohort;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;

/// In each round worker `i` computes partitions `i`, `i + 1`, ... (`tasks` of them, cyclically),
/// and sends each gradient when it is ready. The round is covered once a gradient of each partition
/// has arrived; duplicates are ignored.
///
/// The result does not depend on which worker was first, because the gradient of a partition in a
/// round is the same on all workers. With one task per worker it is BSP.
///
/// Ozfatura, Gunduz, Ulukus, *Speeding up distributed gradient descent by utilizing non-persistent
/// stragglers*, ISIT 2019: multi-message communication, uncoded, cyclic order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Partial {
    tasks: u32,
    /// Examples of each partition; 0 until a worker has reported it.
    rows: Vec<u64>,
    /// For each worker, the bit set of its tasks that were assigned, and the version they belong
    /// to.
    given: Vec<(Version, u64)>,
    /// The partitions whose gradients are in the open round.
    arrived: Vec<bool>,
    /// Number of partitions whose gradients are missing.
    missing: usize,
}

impl Partial {
    pub(super) fn new(workers: u32, tasks: u32) -> Self {
        let workers = workers as usize;
        Self {
            tasks,
            rows: vec![0; workers],
            given: vec![(Version(0), 0); workers],
            arrived: vec![false; workers],
            missing: workers,
        }
    }

    fn part(&self, worker: WorkerId, number: u32) -> PartId {
        PartId(((u64::from(worker.0) + u64::from(number)) % self.arrived.len() as u64) as u32)
    }

    fn has_arrived(&self, part: PartId) -> bool {
        self.arrived.get(part.0 as usize).is_some_and(|arrived| *arrived)
    }

    /// Returns the bit set of the tasks that `worker` was assigned on `version`.
    fn given(&self, worker: WorkerId, version: Version) -> u64 {
        let given = self.given.get(worker.0 as usize);
        given.filter(|(last, _)| *last == version).map_or(0, |&(_, given)| given)
    }
}

impl Assigner for Partial {
    fn assign(&mut self, worker: WorkerId, version: Version) -> Option<Task> {
        let given = self.given(worker, version);
        let number = (0..self.tasks).find(|&number| {
            given >> number & 1 == 0 && !self.has_arrived(self.part(worker, number))
        })?;
        *self.given.get_mut(worker.0 as usize)? = (version, given | 1 << number);
        Some(Task { part: self.part(worker, number), batch: BatchId(version.0), examples: 0 })
    }

    fn renew(&mut self, worker: WorkerId, task: Task, version: Version) -> Option<Task> {
        if task.batch.0 == version.0 { None } else { self.assign(worker, version) }
    }

    fn wants(&self, _worker: WorkerId, task: Task, version: Version) -> bool {
        task.batch.0 == version.0 && !self.has_arrived(task.part)
    }

    fn took(&mut self, _worker: WorkerId, task: Task) {
        if let Some(arrived) = self.arrived.get_mut(task.part.0 as usize)
            && !core::mem::replace(arrived, true)
        {
            self.missing -= 1;
        }
    }

    fn put_back(&mut self, worker: WorkerId, task: Task) {
        let number = (0..self.tasks).find(|&number| self.part(worker, number) == task.part);
        if let Some((version, given)) = self.given.get_mut(worker.0 as usize)
            && let Some(number) = number
            && version.0 == task.batch.0
        {
            *given &= !(1 << number);
        }
    }

    fn leave_out(&mut self, worker: WorkerId, task: Task) -> bool {
        self.put_back(worker, task);
        false
    }

    fn is_covered(&self) -> bool {
        self.missing == 0
    }

    fn is_stuck(&self, members: &Cohort) -> bool {
        let mut within_reach = self.arrived.clone();
        for worker in members.workers() {
            for number in 0..self.tasks {
                if let Some(part) = within_reach.get_mut(self.part(worker, number).0 as usize) {
                    *part = true;
                }
            }
        }
        within_reach.contains(&false)
    }

    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        for (number, &rows) in (0..self.tasks).zip(rows) {
            let part = self.part(worker, number);
            set_rows(&mut self.rows, part, rows)?;
        }
        Ok(())
    }

    fn updated(&mut self, _members: &Cohort) {
        self.arrived.fill(false);
        self.missing = self.arrived.len();
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
