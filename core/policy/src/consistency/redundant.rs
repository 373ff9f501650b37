//! Rounds in which more is computed than is needed.

use super::{Admission, Cohort, Consistency, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};

/// BSP where the round is over once what has come covers all partitions, whoever it came from:
/// gradient coding and partial gradients.
///
/// Invariant: an update is the one that BSP with all workers would make, up to rounding, each
/// gradient computed on the version just before it. Who is late is told to begin the next round.
#[derive(Clone, Copy, Debug)]
pub struct Redundant {
    tasks: u32,
}

impl Redundant {
    /// Rounds in which each worker sends up to `tasks` gradients.
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

    /// Whoever has something to compute for the round.
    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.version().0
    }

    /// A newcomer may be just the one who is missing, so it counts at once.
    fn window(&self) -> u32 {
        self.tasks
    }

    fn cancels(&self) -> bool {
        true
    }
}
