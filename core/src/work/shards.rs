//! The shard queue: the data are cut into many parts, and whoever is free takes the next.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Dealer, Share, Task, Weights, set_rows};
use crate::consistency::Cohort;
use crate::id::{BatchId, PartId, Version, WorkerId};
use crate::job::Job;
use crate::rng::Stream;
use crate::saved::{Archive, SavedError};

/// Every worker has all parts. A free worker takes the next shard of the epoch's queue, a random
/// order of the parts, and goes through it in mini-batches; so the fast do more. Where the queue is
/// empty it takes the later half of what is left of the shard that most is left of, until no
/// mini-batch of the epoch is left to give out; then the next epoch's queue begins. So nobody is
/// idle, and two epochs overlap by no more than what is under way.
///
/// Mini-batch `k` of a part with `b` of them has the number `e b + k` in epoch `e`, and each number
/// is given out once. What does not come back, or to no use, is given to whoever is free next,
/// before anything else. There is nothing beyond the last epoch of the budget: at the end each
/// mini-batch of each epoch has been applied exactly once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shards {
    shuffle: Stream,
    batch_size: u64,
    epochs: u64,
    /// Examples of all parts together.
    all_rows: u64,
    /// Examples of each part; 0 until a worker has said.
    rows: Vec<u64>,
    /// The epoch after that of the queue.
    next_epoch: u64,
    /// Shards of the epoch that nobody holds.
    queue: VecDeque<Span>,
    /// What each worker has still to be given of its shard.
    held: Vec<Option<Span>>,
    /// Mini-batches that were given out and did not come back, or not to any use: epoch, part,
    /// number.
    again: BTreeSet<(u64, PartId, BatchId)>,
    /// Mini-batches of all epochs that were never given out.
    left: u64,
    /// Whether somebody found nothing to do.
    refused: bool,
    gate: u64,
}

/// Mini-batches of one part that are to be given out; never none.
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
            batch_size: job.batch_size.into(),
            epochs: job.budget.epochs.into(),
            all_rows: job.data.train.rows,
            rows: vec![0; job.parts() as usize],
            next_epoch: 0,
            queue: VecDeque::new(),
            held: vec![None; job.membership.workers as usize],
            again: BTreeSet::new(),
            left: 0,
            refused: false,
            gate: 0,
        }
    }

    /// Mini-batches in a pass over `part`.
    fn batches(&self, part: PartId) -> u64 {
        self.rows.get(part.0 as usize).map_or(0, |rows| rows.div_ceil(self.batch_size))
    }

    /// What a worker without a shard goes on with.
    fn take(&mut self) -> Option<Span> {
        self.queue.pop_front().or_else(|| self.split()).or_else(|| {
            self.begin_epoch();
            self.queue.pop_front()
        })
    }

    /// The later half of the shard that most is left of.
    fn split(&mut self) -> Option<Span> {
        let longer = |most: &Option<Span>, span: &Option<Span>| {
            let left = |span: &Option<Span>| span.map_or(0, |span| span.left());
            left(span) > left(most)
        };
        // Of several, the first.
        let held = self.held.iter_mut();
        let longest = held.reduce(|most, span| if longer(most, span) { span } else { most })?;
        let whole = (*longest)?;
        let middle = whole.begin + whole.left() / 2;
        *longest = (middle > whole.begin).then_some(Span { end: middle, ..whole });
        Some(Span { begin: middle, ..whole })
    }

    /// Puts the shards of the next epoch into the queue, if there is one.
    fn begin_epoch(&mut self) {
        let epoch = self.next_epoch;
        if epoch >= self.epochs {
            return;
        }
        self.next_epoch += 1;
        let mut parts: Vec<PartId> = (0..self.rows.len() as u32).map(PartId).collect();
        self.shuffle.fork("epoch", epoch).rng().shuffle(&mut parts);
        let span = |part| {
            let batches = self.batches(part);
            Span { part, begin: epoch * batches, end: (epoch + 1) * batches }
        };
        self.queue = parts.into_iter().map(span).filter(|span| span.left() > 0).collect();
    }
}

impl Dealer for Shards {
    fn deal(&mut self, worker: WorkerId, _version: Version) -> Option<Task> {
        let task = |part, batch| Some(Task { part, batch, examples: 0 });
        if let Some((_, part, batch)) = self.again.pop_first() {
            return task(part, batch);
        }
        let index = worker.0 as usize;
        let own = self.held.get_mut(index)?.take();
        let Some(Span { part, begin, end }) = own.or_else(|| self.take()) else {
            self.refused = true;
            return None;
        };
        let rest = Span { part, begin: begin + 1, end };
        self.held[index] = (rest.left() > 0).then_some(rest);
        self.left -= 1;
        task(part, BatchId(begin))
    }

    fn renew(&mut self, _worker: WorkerId, _task: Task, _version: Version) -> Option<Task> {
        None
    }

    fn wants(&self, _worker: WorkerId, _task: Task, _version: Version) -> bool {
        true
    }

    fn took(&mut self, _worker: WorkerId, _task: Task) {}

    fn put_back(&mut self, _worker: WorkerId, task: Task) {
        let Some(epoch) = task.batch.0.checked_div(self.batches(task.part)) else { return };
        self.again.insert((epoch, task.part, task.batch));
        if core::mem::take(&mut self.refused) {
            self.gate += 1;
        }
    }

    fn left(&mut self, worker: WorkerId) {
        let span = self.held.get_mut(worker.0 as usize).and_then(Option::take);
        self.queue.extend(span);
    }

    fn gate(&self) -> u64 {
        self.gate
    }

    fn is_used_up(&self) -> bool {
        self.left == 0 && self.again.is_empty() && self.next_epoch == self.epochs
    }

    fn is_covered(&self) -> bool {
        false
    }

    fn is_stuck(&self, _members: &Cohort) -> bool {
        false
    }

    fn set_rows(&mut self, _worker: WorkerId, rows: &[u64]) -> Result<(), String> {
        let all = rows.iter().fold(0_u64, |all, &rows| all.saturating_add(rows));
        if all != self.all_rows {
            let wanted = self.all_rows;
            return Err(alloc::format!("{all} rows in all shards, where the job has {wanted}"));
        }
        for (part, &rows) in (0..).map(PartId).zip(rows) {
            set_rows(&mut self.rows, part, rows)?;
        }
        if self.next_epoch == 0 {
            let batches = (0..self.rows.len() as u32).map(|part| self.batches(PartId(part)));
            self.left = batches.sum::<u64>() * self.epochs;
        }
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

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn shards(workers: usize, rows: &[u64], epochs: u64) -> Shards {
        let mut shards = Shards {
            shuffle: Stream::new(1),
            batch_size: 4,
            epochs,
            all_rows: rows.iter().sum(),
            rows: vec![0; rows.len()],
            next_epoch: 0,
            queue: VecDeque::new(),
            held: vec![None; workers],
            again: BTreeSet::new(),
            left: 0,
            refused: false,
            gate: 0,
        };
        shards.set_rows(WorkerId(0), rows).unwrap();
        shards
    }

    fn deal(shards: &mut Shards, worker: u32) -> Option<(u32, u64)> {
        let task = shards.deal(WorkerId(worker), Version(0))?;
        Some((task.part.0, task.batch.0))
    }

    #[test]
    fn a_worker_goes_through_its_shard_and_then_through_half_of_anothers() {
        let mut shards = shards(3, &[32, 32], 2);
        let (first, _) = deal(&mut shards, 0).unwrap();
        let second = 1 - first;
        assert_eq!(deal(&mut shards, 1), Some((second, 0)));
        assert_eq!(deal(&mut shards, 0), Some((first, 1)));
        // The second has 7 left of which 4 go to the third worker.
        assert_eq!(deal(&mut shards, 2), Some((second, 4)));
        assert_eq!(deal(&mut shards, 1), Some((second, 1)));
        assert_eq!(deal(&mut shards, 2), Some((second, 5)));
        // What comes back goes first, and the shard of one who is gone to whoever is free.
        shards.put_back(WorkerId(1), Task { part: PartId(second), batch: BatchId(1), examples: 0 });
        shards.left(WorkerId(1));
        assert_eq!(deal(&mut shards, 0), Some((second, 1)));
        for batch in 2..8 {
            assert_eq!(deal(&mut shards, 0), Some((first, batch)));
        }
        assert_eq!(deal(&mut shards, 0), Some((second, 2)));
        assert_eq!(deal(&mut shards, 0), Some((second, 3)));
        assert_eq!(deal(&mut shards, 0), Some((second, 7)));
        assert_eq!(deal(&mut shards, 2), Some((second, 6)));
        // The next epoch's first.
        let (_, batch) = deal(&mut shards, 2).unwrap();
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
            || -> Vec<u32> { (0..20).map(|_| deal(&mut shards, 0).unwrap().0).collect() };
        let orders = [epoch(), epoch(), epoch()];
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..20).collect::<Vec<u32>>());
        }
        assert_eq!(deal(&mut shards, 0), None);
        assert!(shards.is_used_up());
    }

    proptest! {
        /// Whoever asks is given something until all epochs are done, whoever goes meanwhile, and
        /// everything is done once, the epochs one after another.
        #[test]
        fn each_mini_batch_is_done_once(
            rows in prop::collection::vec(1_u64..40, 1..9),
            steps in prop::collection::vec((0_u32..4, 0..10), 0..600),
        ) {
            let mut shards = shards(4, &rows, 2);
            let batches = |part: u32| rows[part as usize].div_ceil(4);
            let all = 2 * (0..rows.len() as u32).map(batches).sum::<u64>();
            let mut under_way: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
            let mut done = BTreeSet::new();
            let mut given = BTreeSet::new();
            let finish = (0..4).cycle().map(|worker| (worker, 0)).take(8 * all as usize);
            for (worker, what) in steps.into_iter().chain(finish) {
                let own = under_way.entry(worker).or_default();
                match what {
                    0..5 => {
                        done.extend(own.drain(..));
                        match deal(&mut shards, worker) {
                            Some((part, batch)) => {
                                own.push((part, batch));
                                let epoch = batch / batches(part);
                                prop_assert!(epoch == 0 || given.len() as u64 >= all / 2);
                                given.insert((part, batch));
                            }
                            None => prop_assert_eq!(given.len() as u64, all),
                        }
                    }
                    5..9 => own.extend(deal(&mut shards, worker).inspect(|&task| {
                        given.insert(task);
                    })),
                    _ => {
                        for (part, batch) in own.drain(..) {
                            let (part, batch) = (PartId(part), BatchId(batch));
                            shards.put_back(WorkerId(worker), Task { part, batch, examples: 0 });
                        }
                        shards.left(WorkerId(worker));
                    }
                }
                let mut held: Vec<_> = under_way.values().flatten().collect();
                let count = held.len();
                held.sort_unstable();
                held.dedup();
                prop_assert_eq!(held.len(), count, "two do the same");
                prop_assert!(held.iter().all(|task| !done.contains(*task)), "done before");
            }
            prop_assert_eq!(done.len() as u64, all);
            prop_assert!(shards.is_used_up());
        }
    }
}
