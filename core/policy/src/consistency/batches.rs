//! Updates from so many gradients, whoever they are of: K-batch-sync, which is Rennala SGD, and
//! K-batch-async.

use super::{Admission, Cohort, Consistency, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};

/// Whether `gradients` are there, or all that the budget asks for. Unlike a quorum this does not
/// shrink with the membership, for one worker can fill it alone; but what is there is used when
/// nobody is left to add to it.
fn filled(cohort: &Cohort, gradients: u32) -> Closing {
    let full = cohort.contributions() >= gradients as usize;
    if full || cohort.is_spent() || cohort.is_empty() {
        Closing::Everything
    } else {
        Closing::NotYet
    }
}

/// K-batch-sync: an update is made of the first K gradients on the current version, whoever they
/// are of; a worker goes on at once on the same version. At the update everybody begins anew, and
/// what was computed on the version before is dropped.
///
/// Invariant: an update has exactly K contributions (fewer only when nobody is left or the budget
/// asks for fewer), each computed on the version just before it. One fast worker may give all of
/// them: more gradients are then less noise, but not other data.
///
/// Dutta et al., AISTATS 2018; as Rennala SGD, Tyurin and Richtarik, NeurIPS 2023.
#[derive(Clone, Copy, Debug)]
pub struct KBatchSync {
    gradients: u32,
}

impl KBatchSync {
    /// K-batch-sync with updates of so many gradients.
    #[must_use]
    pub const fn new(gradients: u32) -> Self {
        Self { gradients }
    }
}

impl Consistency for KBatchSync {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        fresh_only(cohort, base)
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        filled(cohort, self.gradients)
    }

    fn cancels(&self) -> bool {
        true
    }
}

/// K-batch-async, or buffered: an update is made of K gradients, whoever they are of and however
/// stale; nobody waits, and nothing is dropped.
///
/// Invariant: an update has exactly K contributions (fewer only when nobody is left or the budget
/// asks for fewer). With N
/// always-busy workers the mean staleness tends to (N - 1) / K or less. With K = 1 it is ASP.
///
/// Dutta et al., AISTATS 2018; as n-softsync, Zhang et al., IJCAI 2016; with a buffer in federated
/// learning, Nguyen et al., AISTATS 2022 (FedBuff).
#[derive(Clone, Copy, Debug)]
pub struct Buffered {
    gradients: u32,
}

impl Buffered {
    /// K-batch-async with updates of so many gradients.
    #[must_use]
    pub const fn new(gradients: u32) -> Self {
        Self { gradients }
    }
}

impl Consistency for Buffered {
    fn closes(&self, cohort: &Cohort) -> Closing {
        filled(cohort, self.gradients)
    }
}
