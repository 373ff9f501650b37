//! Independent account of assigned mini-batches: which were assigned in which epoch, returned
//! unapplied, or became part of an update. For jobs whose scheduler assigns work to any worker.

use std::collections::BTreeSet;

use pstrain_compute::id::{BatchId, PartId};
use pstrain_policy::job::{Job, OnLoss, WorkSpec};

/// A mini-batch, its epoch first: cards sort by epoch.
type Card = (u64, PartId, BatchId);

/// All mini-batches of a job whose scheduler may assign any of them to any worker.
#[derive(Clone, Debug)]
pub(super) struct Deck {
    /// True if the epochs follow one another and returned mini-batches are assigned first.
    in_order: bool,
    /// Mini-batches in an epoch of each part.
    batches: Vec<u64>,
    epochs: u64,
    /// Mini-batches that were assigned at least once.
    given: BTreeSet<Card>,
    /// Mini-batches that returned unapplied and were not assigned again.
    again: BTreeSet<Card>,
    /// Mini-batches that became part of an update, or were left out.
    finished: BTreeSet<Card>,
}

impl Deck {
    /// The mini-batches of `job` if a scheduler assigns them, from parts with `rows` examples each.
    pub(super) fn new(job: &Job, rows: &[u64]) -> Option<Self> {
        let in_order = matches!(job.work, WorkSpec::Shards { .. });
        if !in_order && job.membership.on_loss != OnLoss::Reassign {
            return None;
        }
        assert_eq!(rows.len(), job.parts() as usize, "rows of other parts");
        let batches = rows.iter().map(|rows| rows.div_ceil(job.batch_size.into())).collect();
        let (given, again, finished) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Some(Self { in_order, batches, epochs: job.budget.epochs.into(), given, again, finished })
    }

    fn card(&self, part: PartId, batch: BatchId) -> Card {
        (batch.0 / self.batches[part.0 as usize], part, batch)
    }

    fn all(&self) -> usize {
        (self.batches.iter().sum::<u64>() * self.epochs) as usize
    }

    /// Records an assignment: of a returned mini-batch, or else of one that was never assigned.
    /// With `in_order` a returned one must go first, and an epoch begins only after all earlier
    /// epochs were assigned.
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

    /// A mini-batch returned unapplied.
    pub(super) fn take_back(&mut self, part: PartId, batch: BatchId) {
        let card = self.card(part, batch);
        assert!(self.again.insert(card), "{card:?} came back twice");
    }

    /// A mini-batch became part of an update, or is left out.
    pub(super) fn finish(&mut self, part: PartId, batch: BatchId) {
        let card = self.card(part, batch);
        assert!(self.finished.insert(card), "{card:?} was applied twice");
    }

    /// True if nothing is left to assign.
    pub(super) fn is_empty(&self) -> bool {
        self.again.is_empty() && self.given.len() == self.all()
    }

    /// The budget was reached: every mini-batch must have been applied, or left out.
    pub(super) fn check_finished(&self) {
        assert_eq!(self.finished.len(), self.all(), "mini-batches were never applied");
    }
}
