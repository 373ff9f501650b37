//! Partial gradients: what a slow worker has finished counts, and another does the rest.

use alloc::vec;
use alloc::vec::Vec;

use super::{Dealer, Task};
use crate::consistency::Cohort;
use crate::id::{BatchId, PartId, Version, WorkerId};

/// In each round worker `i` computes partitions `i`, `i + 1`, ... (`tasks` of them, counted round),
/// and sends each gradient when it is ready. The round is covered once there is one of each
/// partition; a second one adds nothing.
///
/// The result does not depend on who was first, since the gradient of a partition in a round is
/// the same whoever computes it. With one task each it is BSP.
///
/// Ozfatura, Gunduz, Ulukus, *Speeding up distributed gradient descent by utilizing non-persistent
/// stragglers*, ISIT 2019: multi-message communication, uncoded, cyclic order.
#[derive(Debug)]
pub(super) struct Partial {
    tasks: u32,
    /// How many of its tasks each worker was given, and on which version.
    given: Vec<(Version, u32)>,
    /// Which partitions are in the open round.
    arrived: Vec<bool>,
    /// How many are not.
    missing: usize,
}

impl Partial {
    pub(super) fn new(workers: u32, tasks: u32) -> Self {
        let workers = workers as usize;
        Self {
            tasks,
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

    /// The number of the task that `worker` computes next on `version`.
    fn next(&self, worker: WorkerId, version: Version) -> Option<u32> {
        let &(last, count) = self.given.get(worker.0 as usize)?;
        let first = if last == version { count } else { 0 };
        (first..self.tasks).find(|&number| !self.has_arrived(self.part(worker, number)))
    }
}

impl Dealer for Partial {
    fn deal(&mut self, worker: WorkerId, version: Version, _next: BatchId) -> Option<Task> {
        let number = self.next(worker, version)?;
        *self.given.get_mut(worker.0 as usize)? = (version, number + 1);
        Some(Task { part: self.part(worker, number), batch: BatchId(version.0) })
    }

    fn has(&self, worker: WorkerId, version: Version) -> bool {
        self.next(worker, version).is_some()
    }

    fn wants(&self, _worker: WorkerId, task: Task) -> bool {
        !self.has_arrived(task.part)
    }

    fn took(&mut self, _worker: WorkerId, task: Task) {
        if let Some(arrived) = self.arrived.get_mut(task.part.0 as usize)
            && !core::mem::replace(arrived, true)
        {
            self.missing -= 1;
        }
    }

    fn left(&mut self, worker: WorkerId) {
        if let Some((_, count)) = self.given.get_mut(worker.0 as usize) {
            *count = 0;
        }
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

    fn updated(&mut self) {
        self.arrived.fill(false);
        self.missing = self.arrived.len();
    }
}
