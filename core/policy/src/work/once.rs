//! Test helpers that check that no mini-batch is computed twice.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Assigner;
use pstrain_compute::id::{BatchId, PartId, Version, WorkerId};
use pstrain_compute::task::Task;

/// Part and mini-batch.
pub(super) type Given = (u32, u64);

/// Assigns the next mini-batch of `worker`.
pub(super) fn assign(assigner: &mut impl Assigner, worker: u32) -> Option<Given> {
    let task = assigner.assign(WorkerId(worker), Version(0))?;
    Some((task.part.0, task.batch.0))
}

/// Simulated workers with their assigned and completed mini-batches.
#[derive(Default)]
pub(super) struct Course {
    under_way: BTreeMap<u32, Vec<Given>>,
    done: BTreeSet<Given>,
    /// All mini-batches that were ever assigned.
    pub(super) given: BTreeSet<Given>,
}

impl Course {
    /// Completes all mini-batches of `worker`.
    pub(super) fn bring(&mut self, worker: u32) {
        self.done.extend(self.under_way.remove(&worker).into_iter().flatten());
    }

    /// Assigns `worker` another mini-batch.
    pub(super) fn ask(&mut self, assigner: &mut impl Assigner, worker: u32) -> Option<Given> {
        let given = assign(assigner, worker)?;
        self.under_way.entry(worker).or_default().push(given);
        self.given.insert(given);
        Some(given)
    }

    /// Removes `worker`, whose mini-batches are put back.
    pub(super) fn leave(&mut self, assigner: &mut impl Assigner, worker: u32) {
        for (part, batch) in self.under_way.remove(&worker).into_iter().flatten() {
            let (part, batch) = (PartId(part), BatchId(batch));
            assigner.put_back(WorkerId(worker), Task { part, batch, examples: 0 });
        }
        assigner.left(WorkerId(worker));
    }

    /// Checks that no mini-batch is assigned twice at a time, or again after completion.
    pub(super) fn check(&self) {
        let mut held = BTreeSet::new();
        for task in self.under_way.values().flatten() {
            assert!(held.insert(task), "two do the same: {task:?}");
            assert!(!self.done.contains(task), "done before: {task:?}");
        }
    }

    /// Number of completed mini-batches.
    pub(super) fn done(&self) -> u64 {
        self.done.len() as u64
    }
}
