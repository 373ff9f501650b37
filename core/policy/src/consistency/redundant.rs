//! Rounds with redundant computation.

use super::{Admission, Cohort, Consistency, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};

/// BSP whose round closes once the received gradients cover all partitions, no matter which workers
/// sent them: gradient coding and partial gradients.
///
/// Invariant: an update equals the update of BSP with all workers, up to rounding, each gradient
/// computed on the version just before it. A late worker is told to start the next round.
#[derive(Clone, Copy, Debug)]
pub struct Redundant {
    tasks: u32,
}

impl Redundant {
    /// Creates rounds in which each worker sends up to `tasks` gradients.
    #[must_use]
    pub const fn new(tasks: u32) -> Self {
        Self { tasks }
    }
}

impl Consistency for Redundant {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        fresh_only(cohort, base)
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        if cohort.is_covered() { Closing::Everything } else { Closing::NotYet }
    }

    /// Changes once per round. `may_start` keeps its default: a worker starts if it has something
    /// to compute for the round.
    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.version().0
    }

    /// A worker sends up to this many gradients per round. `in_rounds` keeps its default: a worker
    /// that joins may be exactly the missing one, so it counts at once.
    fn window(&self) -> u32 {
        self.tasks
    }

    fn cancels(&self) -> bool {
        true
    }
}
