//! Parameters that members have sent, until they are evaluated.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use pstrain_compute::id::{Version, WorkerId};

/// Versions of which parameters are kept: neighbors in a graph may be as many updates apart as
/// there are workers between them.
const MOST_VERSIONS: usize = 8;

/// Parameters by version and worker.
#[derive(Debug, Default)]
pub(super) struct Models(BTreeMap<Version, BTreeMap<WorkerId, Arc<Vec<f32>>>>);

impl Models {
    /// A worker has sent its parameters.
    pub(super) fn insert(&mut self, worker: WorkerId, version: Version, values: Arc<Vec<f32>>) {
        self.0.entry(version).or_default().insert(worker, values);
        if self.0.len() > MOST_VERSIONS {
            self.0.pop_first();
        }
    }

    /// Drops the parameters of a worker that is gone: the next one with its id has others.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.0.values_mut().for_each(|models| drop(models.remove(&worker)));
    }

    /// Drops versions that no group has any more.
    pub(super) fn go_back_to(&mut self, version: Version) {
        self.0.retain(|kept, _| *kept <= version);
    }

    /// Takes the parameters of `version`, of all workers that have sent theirs, if these are enough
    /// by `is_whole`. Drops earlier ones.
    pub(super) fn take(
        &mut self,
        version: Version,
        is_whole: impl FnOnce(&BTreeMap<WorkerId, Arc<Vec<f32>>>) -> bool,
    ) -> Option<BTreeMap<WorkerId, Arc<Vec<f32>>>> {
        self.0.retain(|kept, _| *kept >= version);
        self.0.get(&version).filter(|models| is_whole(models))?;
        self.0.remove(&version)
    }
}
