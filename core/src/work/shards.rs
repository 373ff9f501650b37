//! The shard queue: the data are cut into many parts, and whoever is free takes the next.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Dealer, Share, Task, Weights, set_rows};
use crate::consistency::Cohort;
use crate::id::{BatchId, PartId, Version, WorkerId};
use crate::job::Job;
use crate::rng::Stream;

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
#[derive(Debug)]
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
#[derive(Clone, Copy, Debug)]
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
}
