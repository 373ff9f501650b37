//! The workers that wait for parameters.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;

/// Waiting workers, sorted by id. A `Vec`: unlike a `BTreeSet` it does not allocate per push.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Waiting(Vec<WorkerId>);

impl Waiting {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        self.0.binary_search(&worker).is_ok()
    }

    pub(super) fn insert(&mut self, worker: WorkerId) {
        if let Err(place) = self.0.binary_search(&worker) {
            self.0.insert(place, worker);
        }
    }

    pub(super) fn remove(&mut self, worker: WorkerId) {
        if let Ok(place) = self.0.binary_search(&worker) {
            self.0.remove(place);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = WorkerId> {
        self.0.iter().copied()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
