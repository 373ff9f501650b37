//! The shard queue: the data are divided into many parts, and a free worker takes the next.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Assigner;
use super::parts::{Gate, Parts};
use crate::job::Job;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::task::Task;

/// Every worker has all parts. A free worker takes the next shard of the epoch's queue, a random
/// order of the parts, and goes through it in mini-batches; fast workers thus do more. If the queue
/// is empty it takes the later half of the largest remaining shard, until every mini-batch of the
/// epoch has been assigned; then the next epoch's queue starts. No worker is idle, and two epochs
/// overlap only by the mini-batches under way.
///
/// Mini-batch `k` of a part with `b` of them has the number `e b + k` in epoch `e`, and each number
/// is assigned once. A mini-batch that was not completed goes to the next free worker, before
/// anything else. There are no tasks beyond the last epoch of the budget: at the end each
/// mini-batch of each epoch has been applied exactly once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shards {
    shuffle: Stream,
    parts: Parts,
    /// The epoch after the queue's epoch.
    next_epoch: u64,
    /// Shards of the epoch that no worker holds.
    queue: VecDeque<Span>,
    /// The unassigned rest of each worker's shard.
    held: Vec<Option<Span>>,
    /// Mini-batches that were assigned and not completed: epoch, part, number.
    again: BTreeSet<(u64, PartId, BatchId)>,
    /// Number of mini-batches of all epochs that were never assigned.
    left: u64,
    gate: Gate,
}

/// A non-empty range of unassigned mini-batches of one part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Span {
    part: PartId,
    begin: u64,
    end: u64,
}

impl Span {
    const fn left(&self) -> u64 {
        self.end - self.begin
    }
}

impl Shards {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            shuffle: Stream::new(job.seed).fork("shards", 0),
            parts: Parts::new(job),
            next_epoch: 0,
            queue: VecDeque::new(),
            held: vec![None; job.membership.workers as usize],
            again: BTreeSet::new(),
            left: 0,
            gate: Gate::default(),
        }
    }

    /// Returns the span that a worker without a shard continues with.
    fn take(&mut self) -> Option<Span> {
        self.queue.pop_front().or_else(|| self.split()).or_else(|| {
            self.begin_epoch();
            self.queue.pop_front()
        })
    }

    /// Splits off the later half of the span with the most mini-batches left.
    fn split(&mut self) -> Option<Span> {
        let longer = |most: &Option<Span>, span: &Option<Span>| {
            let left = |span: &Option<Span>| span.map_or(0, |span| span.left());
            left(span) > left(most)
        };
        // On a tie the first span is split.
        let held = self.held.iter_mut();
        let longest = held.reduce(|most, span| if longer(most, span) { span } else { most })?;
        let whole = (*longest)?;
        let middle = whole.begin + whole.left() / 2;
        *longest = (middle > whole.begin).then_some(Span { end: middle, ..whole });
        Some(Span { begin: middle, ..whole })
    }

    /// Fills the queue with the shards of the next epoch, if there is one.
    fn begin_epoch(&mut self) {
        let epoch = self.next_epoch;
        if epoch >= self.parts.epochs() {
            return;
        }
        self.next_epoch += 1;
        let mut parts: Vec<PartId> = (0..self.parts.len()).map(PartId).collect();
        self.shuffle.fork("epoch", epoch).rng().shuffle(&mut parts);
        let span = |part| {
            let batches = self.parts.batches(part);
            Span { part, begin: epoch * batches, end: (epoch + 1) * batches }
        };
        self.queue = parts.into_iter().map(span).filter(|span| span.left() > 0).collect();
    }
}

impl Assigner for Shards {
    fn assign(&mut self, worker: WorkerId, _version: Version) -> Option<Task> {
        let task = |part, batch| Some(Task { part, batch, examples: 0 });
        if let Some((_, part, batch)) = self.again.pop_first() {
            return task(part, batch);
        }
        let index = worker.0 as usize;
        let own = self.held.get_mut(index)?.take();
        let Some(Span { part, begin, end }) = own.or_else(|| self.take()) else {
            self.gate.refuse();
            return None;
        };
        let rest = Span { part, begin: begin + 1, end };
        self.held[index] = (rest.left() > 0).then_some(rest);
        self.left -= 1;
        task(part, BatchId(begin))
    }

    fn put_back(&mut self, _worker: WorkerId, task: Task) {
        let Some(epoch) = task.batch.0.checked_div(self.parts.batches(task.part)) else {
            unreachable!("part {} has no mini-batch", task.part)
        };
        self.again.insert((epoch, task.part, task.batch));
        self.gate.open();
    }

    fn left(&mut self, worker: WorkerId) {
        let span = self.held.get_mut(worker.0 as usize).and_then(Option::take);
        self.queue.extend(span);
    }

    fn gate(&self) -> u64 {
        self.gate.times()
    }

    fn is_used_up(&self) -> bool {
        self.left == 0 && self.again.is_empty() && self.next_epoch == self.parts.epochs()
    }

    fn extend(&mut self, epochs: u64) {
        let more = self.parts.extend(epochs);
        if self.next_epoch > 0 {
            let parts = (0..self.parts.len()).map(PartId);
            self.left += more * parts.map(|part| self.parts.batches(part)).sum::<u64>();
        }
        self.gate.open();
    }

    fn set_rows(&mut self, _worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        self.parts.set(0, rows, "shards")?;
        // Once the first epoch has begun, `left` counts down and must not be reset.
        if self.next_epoch == 0 {
            let parts = (0..self.parts.len()).map(PartId);
            self.left = parts.map(|part| self.parts.in_all(part)).sum();
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

    fn shards(workers: usize, rows: &[u64], epochs: u64) -> Shards {
        let mut shards = Shards {
            shuffle: Stream::new(1),
            parts: Parts::of(rows, epochs),
            next_epoch: 0,
            queue: VecDeque::new(),
            held: vec![None; workers],
            again: BTreeSet::new(),
            left: 0,
            gate: Gate::default(),
        };
        shards.set_rows(WorkerId(0), rows).unwrap();
        shards
    }

    #[test]
    fn a_worker_goes_through_its_shard_and_then_through_half_of_anothers() {
        let mut shards = shards(3, &[32, 32], 2);
        let (first, _) = assign(&mut shards, 0).unwrap();
        let second = 1 - first;
        assert_eq!(assign(&mut shards, 1), Some((second, 0)));
        assert_eq!(assign(&mut shards, 0), Some((first, 1)));
        // The second worker has 7 left, of which 4 go to the third worker.
        assert_eq!(assign(&mut shards, 2), Some((second, 4)));
        assert_eq!(assign(&mut shards, 1), Some((second, 1)));
        assert_eq!(assign(&mut shards, 2), Some((second, 5)));
        // Mini-batches that were put back come first, and the shard of a departed worker is queued.
        shards.put_back(WorkerId(1), Task { part: PartId(second), batch: BatchId(1), examples: 0 });
        shards.left(WorkerId(1));
        assert_eq!(assign(&mut shards, 0), Some((second, 1)));
        for batch in 2..8 {
            assert_eq!(assign(&mut shards, 0), Some((first, batch)));
        }
        assert_eq!(assign(&mut shards, 0), Some((second, 2)));
        assert_eq!(assign(&mut shards, 0), Some((second, 3)));
        assert_eq!(assign(&mut shards, 0), Some((second, 7)));
        assert_eq!(assign(&mut shards, 2), Some((second, 6)));
        // The first mini-batch of the next epoch.
        let (_, batch) = assign(&mut shards, 2).unwrap();
        assert_eq!(batch, 8);
    }

    #[test]
    fn shards_must_be_all_there_is() {
        let mut shards = shards(2, &[5, 6], 1);
        let told = shards.set_rows(WorkerId(1), &[5, 5]).unwrap_err();
        assert_eq!(told, "10 rows in all shards, where the job has 11");
        assert!(shards.set_rows(WorkerId(1), &[6, 5]).is_err());
        assert!(shards.set_rows(WorkerId(1), &[5, 6]).is_ok());
    }

    #[test]
    fn the_order_of_shards_is_drawn_for_each_epoch() {
        let mut shards = shards(1, &[4; 20], 3);
        let mut epoch =
            || -> Vec<u32> { (0..20).map(|_| assign(&mut shards, 0).unwrap().0).collect() };
        let orders = [epoch(), epoch(), epoch()];
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..20).collect::<Vec<u32>>());
        }
        assert_eq!(assign(&mut shards, 0), None);
        assert!(shards.is_used_up());
    }

    proptest! {
        /// A worker that asks gets a task until all epochs are done, while workers leave, and each
        /// mini-batch is done once, the epochs one after another.
        #[test]
        fn each_mini_batch_is_done_once(
            rows in prop::collection::vec(1_u64..40, 1..9),
            steps in prop::collection::vec((0_u32..4, 0..10), 0..600),
        ) {
            let mut shards = shards(4, &rows, 2);
            let batches = |part: u32| rows[part as usize].div_ceil(4);
            let all = 2 * (0..rows.len() as u32).map(batches).sum::<u64>();
            let mut course = Course::default();
            let finish = (0..4).cycle().map(|worker| (worker, 0)).take(8 * all as usize);
            for (worker, what) in steps.into_iter().chain(finish) {
                match what {
                    0..5 => {
                        course.bring(worker);
                        let before = course.given.len() as u64;
                        match course.ask(&mut shards, worker) {
                            Some((part, batch)) => {
                                let epoch = batch / batches(part);
                                prop_assert!(epoch == 0 || before >= all / 2);
                            }
                            None => prop_assert_eq!(before, all),
                        }
                    }
                    5..9 => drop(course.ask(&mut shards, worker)),
                    _ => course.leave(&mut shards, worker),
                }
                course.check();
            }
            prop_assert_eq!(course.done(), all);
            prop_assert!(shards.is_used_up());
        }
    }
}
