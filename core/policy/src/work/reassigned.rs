//! Partitions of absent workers, computed by the present ones.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Assigner;
use super::parts::{Gate, Parts};
use crate::job::Job;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;

/// Each worker goes through its own partition. Partitions of absent workers are open to all: a
/// worker that has completed an epoch of its own continues with the rest of that epoch in an open
/// partition, so that no partition falls behind. A worker that comes back resumes its own partition
/// where the others are in it. If no open partition has work left, a worker helps another with its
/// partition, so that no worker is idle before all mini-batches have been assigned.
///
/// Mini-batch `k` of a partition with `b` of them has the number `e b + k` in epoch `e`, and each
/// number is assigned once. A mini-batch that was not completed is assigned again, before others of
/// its partition. There are no tasks beyond the last epoch of the budget: at the end each
/// mini-batch of each epoch has been applied exactly once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reassigned {
    parts: Parts,
    partitions: Vec<Partition>,
    gate: Gate,
}

/// Assignment state of a partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Partition {
    /// True if its worker is present.
    is_manned: bool,
    /// The first mini-batch that was never assigned.
    next: BatchId,
    /// Mini-batches that were assigned and not completed.
    again: BTreeSet<BatchId>,
    /// Number of mini-batches that were assigned to other workers.
    others: u64,
}

/// The part of the data that is the partition of worker `index`.
const fn part(index: usize) -> PartId {
    PartId(index as u32)
}

impl Reassigned {
    pub(super) fn new(job: &Job) -> Self {
        let workers = job.membership.workers as usize;
        Self {
            parts: Parts::new(job),
            partitions: alloc::vec![Partition::default(); workers],
            gate: Gate::default(),
        }
    }

    /// Returns the mini-batch of a partition to assign next, if the budget has one left.
    fn first(&self, index: usize) -> Option<BatchId> {
        let Partition { next, again, .. } = self.partitions.get(index)?;
        let fresh = (next.0 < self.parts.in_all(part(index))).then_some(*next);
        again.first().copied().or(fresh)
    }

    /// Returns the partition that a worker continues with: the one furthest behind that is open to
    /// it, its own first. If there is none, the partition with the most mini-batches left.
    fn choose(&self, own: usize) -> Option<usize> {
        let epoch =
            |index: usize| self.first(index)?.0.checked_div(self.parts.batches(part(index)));
        let is_open = |&index: &usize| index == own || !self.partitions[index].is_manned;
        let open = (0..self.partitions.len()).filter(is_open);
        let behind = open.filter_map(|index| Some((epoch(index)?, index != own, index))).min();
        behind.map(|(_, _, index)| index).or_else(|| {
            let left = |index: usize| {
                let Partition { next, again, .. } = &self.partitions[index];
                let fresh = (self.parts.in_all(part(index))).saturating_sub(next.0);
                fresh + again.len() as u64
            };
            // `max_by_key` returns the last maximum, so reverse the order to get the first.
            let rest = (0..self.partitions.len()).rev().map(|index| (left(index), index));
            rest.max_by_key(|(left, _)| *left).filter(|(left, _)| *left > 0).map(|(_, index)| index)
        })
    }
}

impl Assigner for Reassigned {
    fn assign(&mut self, worker: WorkerId, _version: Version) -> Option<Task> {
        let own = worker.0 as usize;
        let Some(index) = self.choose(own) else {
            self.gate.refuse();
            return None;
        };
        let batch = self.first(index)?;
        let partition = self.partitions.get_mut(index)?;
        if !partition.again.remove(&batch) {
            partition.next = BatchId(batch.0 + 1);
        }
        partition.others += u64::from(index != own);
        Some(Task { part: part(index), batch, examples: 0 })
    }

    fn put_back(&mut self, _worker: WorkerId, task: Task) {
        if let Some(partition) = self.partitions.get_mut(task.part.0 as usize) {
            partition.again.insert(task.batch);
        }
        self.gate.open();
    }

    fn left(&mut self, worker: WorkerId) {
        if let Some(partition) = self.partitions.get_mut(worker.0 as usize) {
            partition.is_manned = false;
        }
    }

    fn reassigned(&self, worker: WorkerId) -> u64 {
        self.partitions.get(worker.0 as usize).map_or(0, |partition| partition.others)
    }

    fn gate(&self) -> u64 {
        self.gate.times()
    }

    fn is_used_up(&self) -> bool {
        (0..self.partitions.len()).all(|index| self.first(index).is_none())
    }

    fn extend(&mut self, epochs: u64) {
        self.parts.extend(epochs);
        self.gate.open();
    }

    fn set_rows(&mut self, worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        self.parts.set(worker.0, rows, "partitions")?;
        if let Some(partition) = self.partitions.get_mut(worker.0 as usize) {
            partition.is_manned = true;
        }
        Ok(())
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::once::{Course, assign};
    use super::*;

    /// Creates partitions with `rows` examples each, all of whose workers are present.
    fn partitions(rows: &[u64], epochs: u64) -> Reassigned {
        let mut assigner = Reassigned {
            parts: Parts::of(rows, epochs),
            partitions: alloc::vec![Partition::default(); rows.len()],
            gate: Gate::default(),
        };
        for worker in 0..rows.len() {
            come(&mut assigner, rows, worker as u32);
        }
        assigner
    }

    fn come(assigner: &mut Reassigned, rows: &[u64], worker: u32) {
        let mut own = rows.to_vec();
        own.rotate_left(worker as usize);
        assigner.set_rows(WorkerId(worker), &own).unwrap();
    }

    #[test]
    fn a_partition_without_its_worker_is_done_by_the_others_and_given_back() {
        let rows = [8, 8, 8];
        let mut assigner = partitions(&rows, 3);
        assert_eq!(assign(&mut assigner, 2), Some((2, 0)));
        assigner.put_back(WorkerId(2), Task { part: PartId(2), batch: BatchId(0), examples: 0 });
        assigner.left(WorkerId(2));
        // First its own epoch, then the rest of that epoch of the absent worker.
        let first: Vec<_> = (0..3).map(|_| assign(&mut assigner, 0).unwrap()).collect();
        assert_eq!(first, [(0, 0), (0, 1), (2, 0)]);
        let second: Vec<_> = (0..4).map(|_| assign(&mut assigner, 1).unwrap()).collect();
        assert_eq!(second, [(1, 0), (1, 1), (2, 1), (1, 2)]);
        assert_eq!(assigner.reassigned(WorkerId(2)), 2);
        come(&mut assigner, &rows, 2);
        assert_eq!(assign(&mut assigner, 2), Some((2, 2)));
        assert_eq!(assign(&mut assigner, 0), Some((0, 2)));
        assert_eq!(assign(&mut assigner, 0), Some((0, 3)));
        assert_eq!(assign(&mut assigner, 0), Some((0, 4)), "that of the other is its own again");
    }

    #[test]
    fn while_all_are_there_each_has_its_own_to_the_last_epoch() {
        let mut assigner = partitions(&[8, 12], 2);
        let own: Vec<_> = (0..4).map(|_| assign(&mut assigner, 0).unwrap()).collect();
        assert_eq!(own, [(0, 0), (0, 1), (0, 2), (0, 3)]);
        // Its own partition is done, and it helps.
        assert_eq!(assign(&mut assigner, 0), Some((1, 0)));
        assert_eq!(assign(&mut assigner, 1), Some((1, 1)));
    }

    #[test]
    fn partitions_must_be_all_there_is() {
        let mut assigner = partitions(&[5, 6], 1);
        let told = assigner.set_rows(WorkerId(1), &[5, 5]).unwrap_err();
        assert_eq!(told, "10 rows in all partitions, where the job has 11");
        assert!(assigner.set_rows(WorkerId(1), &[5, 6]).is_err(), "its own come first");
    }

    proptest! {
        /// A worker that asks gets a task until all epochs are done, while workers come and go, and
        /// each mini-batch is done once.
        #[test]
        fn each_mini_batch_is_done_once(
            rows in prop::collection::vec(1_u64..40, 4),
            steps in prop::collection::vec((0_u32..4, 0..11), 0..600),
        ) {
            let mut assigner = partitions(&rows, 2);
            let all = 2 * rows.iter().map(|rows| rows.div_ceil(4)).sum::<u64>();
            let mut course = Course::default();
            let finish = (0..4).cycle().map(|worker| (worker, 0)).take(8 * all as usize);
            for (worker, what) in steps.into_iter().chain(finish) {
                match what {
                    0..9 => {
                        if what < 5 {
                            course.bring(worker);
                        }
                        if course.ask(&mut assigner, worker).is_none() {
                            prop_assert_eq!(course.given.len() as u64, all);
                        }
                    }
                    9 => come(&mut assigner, &rows, worker),
                    _ => course.leave(&mut assigner, worker),
                }
                course.check();
            }
            prop_assert_eq!(course.done(), all);
            prop_assert!(assigner.is_used_up());
        }
    }
}
