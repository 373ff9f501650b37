//! Updates from a fixed number of gradients of any workers: K-batch-sync, which is Rennala SGD, and
//! K-batch-async.

use super::spec::GATHERED;
use super::{Admission, Cohort, Consistency, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::named::{Number, Word};

pub(super) const K_BATCH_SYNC: Word = Word::new(
    "k-batch-sync",
    &[Number::whole("K", GATHERED)],
    "updates of the first K fresh gradients",
);
pub(super) const BUFFERED: Word = Word::new(
    "buffered",
    &[Number::whole("K", GATHERED)],
    "updates of the first K gradients, stale or not",
);

/// Closes the update if there are `gradients` contributions, or all that the budget asks for.
/// Unlike a quorum the number does not shrink with the membership, because one worker can fill it
/// alone. If no members are left, the existing contributions are used.
fn filled(cohort: &Cohort, gradients: u32) -> Closing {
    let full = cohort.contributions() >= gradients as usize;
    if full || cohort.is_spent() || cohort.is_empty() {
        Closing::Everything
    } else {
        Closing::NotYet
    }
}

/// K-batch-sync: an update is made of the first K gradients on the current version, from any
/// workers; a worker continues at once on the same version. After the update all workers start on
/// the next version, and gradients on the previous version are dropped.
///
/// Invariant: an update has exactly K contributions (fewer only if no members are left or the
/// budget asks for fewer), each computed on the version just before it. One fast worker may
/// contribute all of them: more gradients then reduce noise, but do not add other data.
///
/// Dutta et al., AISTATS 2018; as Rennala SGD, Tyurin and Richtarik, NeurIPS 2023.
#[derive(Clone, Copy, Debug)]
pub struct KBatchSync {
    gradients: u32,
}

impl KBatchSync {
    /// Creates K-batch-sync with updates of `gradients` gradients.
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

/// K-batch-async, or buffered: an update is made of K gradients of any workers and any staleness;
/// no worker waits, and no gradient is dropped.
///
/// Invariant: an update has exactly K contributions (fewer only if no members are left or the
/// budget asks for fewer). With N always-busy workers the mean staleness tends to (N - 1) / K or
/// less. With K = 1 it is ASP.
///
/// Dutta et al., AISTATS 2018; as n-softsync, Zhang et al., IJCAI 2016; with a buffer in federated
/// learning, Nguyen et al., AISTATS 2022 (FedBuff).
#[derive(Clone, Copy, Debug)]
pub struct Buffered {
    gradients: u32,
}

impl Buffered {
    /// Creates K-batch-async with updates of `gradients` gradients.
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
