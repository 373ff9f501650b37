//! Updates from a fixed number of different workers: K-sync, also known as backup workers, and
//! K-async.

use super::spec::GATHERED;
use super::{Admission, Cohort, Consistency, MOST_GATHERED, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::named::{Number, Word};

pub(super) const K_SYNC: Word = Word::new(
    "k-sync",
    &[Number::whole("K", GATHERED)],
    "updates of the first fresh gradients of K workers",
);
pub(super) const BACKUP: Word = Word::new(
    "backup",
    &[Number::whole("B", 0..=MOST_GATHERED as u64)],
    "updates of the first fresh gradients of all workers but B",
);
pub(super) const K_ASYNC: Word = Word::new(
    "k-async",
    &[Number::whole("K", GATHERED)],
    "updates of the first gradients of K workers, stale or not",
);

/// Number of different workers that an update waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// This number, or all that can contribute if they are fewer.
    Of(u32),
    /// All but this number, but at least one.
    AllBut(u32),
}

impl Quorum {
    /// Returns true if enough workers have contributed. A worker that contributed and left is
    /// included in the total, because its contribution counts; a departure can thus not block the
    /// update forever.
    fn is_met(self, cohort: &Cohort) -> bool {
        let there = cohort.within_reach();
        let needed = match self {
            Self::Of(workers) => there.min(workers as usize),
            Self::AllBut(workers) => there.saturating_sub(workers as usize).max(1),
        };
        cohort.contributors() >= needed
    }
}

/// K-sync: an update is made of the first K gradients, of different workers, on the current
/// version; all others are dropped, and all workers start on the next version.
///
/// Backup workers are the same policy with K counted from the other end: the update does not wait
/// for the last B of N members.
///
/// Invariant: an update has exactly K contributions of different workers, fewer only if fewer can
/// contribute, each computed on the version just before it; no gradient outlives its round. If K is
/// the number of members, or without backup workers, it is BSP.
///
/// The gradients of a worker that is always among the last are always dropped, and its data never
/// count: fatal if its data differ from the other workers' data. This policy does nothing for such
/// a worker, and `share` participation cannot weigh gradients that never arrive in time. If workers
/// are permanently slow, rather than now and then, K-async, Malenia or Ringleader keep their data.
///
/// Dutta et al., AISTATS 2018 (K-sync); Chen et al., 2016 (backup workers).
#[derive(Clone, Copy, Debug)]
pub struct KSync {
    quorum: Quorum,
}

impl KSync {
    /// K-sync with this quorum.
    #[must_use]
    pub const fn new(quorum: Quorum) -> Self {
        Self { quorum }
    }
}

impl Consistency for KSync {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        fresh_only(cohort, base)
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        if self.quorum.is_met(cohort) { Closing::Everything } else { Closing::NotYet }
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

    fn cancels(&self) -> bool {
        true
    }
}

/// K-async: an update is made of K gradients of different workers, of any staleness; a worker that
/// contributed waits for it, and the others continue undisturbed.
///
/// Invariant: an update has exactly K contributions of different workers, fewer only if fewer can
/// contribute, and no gradient is dropped. With K = 1 it is ASP.
///
/// Dutta et al., AISTATS 2018.
#[derive(Clone, Copy, Debug)]
pub struct KAsync {
    quorum: Quorum,
}

impl KAsync {
    /// K-async with updates of `workers` workers.
    #[must_use]
    pub const fn new(workers: u32) -> Self {
        Self { quorum: Quorum::Of(workers) }
    }
}

impl Consistency for KAsync {
    fn closes(&self, cohort: &Cohort) -> Closing {
        if self.quorum.is_met(cohort) { Closing::Everything } else { Closing::NotYet }
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
