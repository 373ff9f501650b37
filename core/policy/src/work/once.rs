//! For tests: who was given what, and that nothing is done twice.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Dealer;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::task::Task;

/// Part and mini-batch.
pub(super) type Given = (u32, u64);

/// What `worker` is given next.
pub(super) fn deal(dealer: &mut impl Dealer, worker: u32) -> Option<Given> {
    let task = dealer.deal(WorkerId(worker), Version(0))?;
    Some((task.part.0, task.batch.0))
}

/// What workers do with what they are given.
#[derive(Default)]
pub(super) struct Course {
    under_way: BTreeMap<u32, Vec<Given>>,
    done: BTreeSet<Given>,
    /// All that was ever given out.
    pub(super) given: BTreeSet<Given>,
}

impl Course {
    /// `worker` brings all that it has.
    pub(super) fn bring(&mut self, worker: u32) {
        self.done.extend(self.under_way.remove(&worker).into_iter().flatten());
    }

    /// `worker` is given more.
    pub(super) fn ask(&mut self, dealer: &mut impl Dealer, worker: u32) -> Option<Given> {
        let given = deal(dealer, worker)?;
        self.under_way.entry(worker).or_default().push(given);
        self.given.insert(given);
        Some(given)
    }

    /// `worker` goes without bringing what it has.
    pub(super) fn leave(&mut self, dealer: &mut impl Dealer, worker: u32) {
        for (part, batch) in self.under_way.remove(&worker).into_iter().flatten() {
            let (part, batch) = (PartId(part), BatchId(batch));
            dealer.put_back(WorkerId(worker), Task { part, batch, examples: 0 });
        }
        dealer.left(WorkerId(worker));
    }

    /// Checks that nothing is under way twice, or again.
    pub(super) fn check(&self) {
        let mut held = BTreeSet::new();
        for task in self.under_way.values().flatten() {
            assert!(held.insert(task), "two do the same: {task:?}");
            assert!(!self.done.contains(task), "done before: {task:?}");
        }
    }

    /// Mini-batches that were brought.
    pub(super) fn done(&self) -> u64 {
        self.done.len() as u64
    }
}
