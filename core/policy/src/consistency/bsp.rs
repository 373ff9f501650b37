//! Bulk-synchronous parallel.

use super::{Admission, Cohort, Consistency, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::named::Word;

pub(super) const WORD: Word = Word::new("bsp", &[], "all workers wait for all");

/// BSP: every member contributes once to each update, and no worker starts the next iteration
/// before it.
///
/// Invariant: an update has exactly one contribution of every member that counts at its close, each
/// computed on the version just before it; the measured staleness is always 0.
///
/// Valiant 1990; as a parameter server: Li et al., OSDI 2014, section 3.4 (sequential).
#[derive(Clone, Copy, Debug, Default)]
pub struct Bsp;

impl Consistency for Bsp {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        fresh_only(cohort, base)
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        if cohort.members_owing() == 0 { Closing::Everything } else { Closing::NotYet }
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        under_way == 0 && !cohort.contributed(worker)
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.version().0
    }

    fn in_rounds(&self) -> bool {
        true
    }
}
