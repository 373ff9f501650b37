//! Mini-batches that are dealt out, kept a second time: which of which epochs were given out, came
//! back in vain, and became part of an update.

use std::collections::BTreeSet;

use pstrain_compute::id::{BatchId, PartId};
use pstrain_policy::job::{Job, OnLoss, WorkSpec};

/// A mini-batch by its epoch.
type Card = (u64, PartId, BatchId);

/// All mini-batches of a job whose workers have all data.
#[derive(Clone, Debug)]
pub(super) struct Deck {
    /// Whether one epoch follows another, and what came back goes first.
    in_order: bool,
    /// Mini-batches of each shard.
    batches: Vec<u64>,
    epochs: u64,
    /// Those that were ever given out.
    given: BTreeSet<Card>,
    /// Those that came back in vain and were not given out since.
    again: BTreeSet<Card>,
    applied: BTreeSet<Card>,
}

impl Deck {
    /// The mini-batches of `job`, if they are dealt out, of parts with so many `rows`.
    pub(super) fn new(job: &Job, rows: &[u64]) -> Option<Self> {
        let in_order = matches!(job.work, WorkSpec::Shards { .. });
        if !in_order && job.membership.on_loss != OnLoss::Reassign {
            return None;
        }
        assert_eq!(rows.len(), job.parts() as usize, "rows of other parts");
        let batches = rows.iter().map(|rows| rows.div_ceil(job.batch_size.into())).collect();
        let (given, again, applied) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Some(Self { in_order, batches, epochs: job.budget.epochs.into(), given, again, applied })
    }

    fn card(&self, part: PartId, batch: BatchId) -> Card {
        (batch.0 / self.batches[part.0 as usize], part, batch)
    }

    fn all(&self) -> usize {
        (self.batches.iter().sum::<u64>() * self.epochs) as usize
    }

    /// Somebody was given a mini-batch: one that came back in vain if there is any, and otherwise
    /// one that nobody was ever given, of an epoch before which nothing is left to give.
    pub(super) fn give(&mut self, part: PartId, batch: BatchId) {
        let card = self.card(part, batch);
        if let Some(first) = self.again.first().filter(|_| self.in_order) {
            assert_eq!(card, *first, "it came back and has to go first");
        }
        if self.again.remove(&card) {
            return;
        }
        assert!(card.0 < self.epochs, "{card:?} is beyond the budget");
        let before = self.batches.iter().sum::<u64>() * card.0;
        let is_next = !self.in_order || self.given.len() as u64 >= before;
        assert!(is_next, "{card:?} before the last epoch was given out");
        assert!(self.given.insert(card), "{card:?} was given out twice");
    }

    /// A mini-batch came back in vain.
    pub(super) fn take_back(&mut self, part: PartId, batch: BatchId) {
        let card = self.card(part, batch);
        assert!(self.again.insert(card), "{card:?} came back twice");
    }

    /// A mini-batch became part of an update.
    pub(super) fn apply(&mut self, part: PartId, batch: BatchId) {
        let card = self.card(part, batch);
        assert!(self.applied.insert(card), "{card:?} was applied twice");
    }

    /// Whether there is nothing to give out.
    pub(super) fn is_empty(&self) -> bool {
        self.again.is_empty() && self.given.len() == self.all()
    }

    /// The budget was reached.
    pub(super) fn finish(&self) {
        assert_eq!(self.applied.len(), self.all(), "mini-batches were never applied");
    }
}
