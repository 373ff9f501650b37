//! Ringmaster ASGD.

use super::{Admission, Cohort, Consistency};
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::named::{Number, Word};

pub(super) const WORD: Word = Word::new(
    "ringmaster",
    &[Number::whole("R", 1..=u64::MAX)],
    "asp without gradients that are R updates stale",
);

/// Ringmaster ASGD: gradients are applied on arrival as under ASP, but a gradient that is R updates
/// stale or more is dropped, and its worker starts again on the current version.
///
/// Invariant: no gradient of staleness R or more is applied. With R = 1 only fresh gradients are;
/// with an R that is never reached it is ASP. Some worker is always fresh enough, because the
/// version does not change while all gradients are dropped.
///
/// Maranjyan, Tyurin and Richtarik, ICML 2025.
#[derive(Clone, Copy, Debug)]
pub struct Ringmaster {
    staleness: u64,
}

impl Ringmaster {
    /// Creates a Ringmaster that drops gradients of this staleness and above.
    #[must_use]
    pub const fn new(staleness: u64) -> Self {
        Self { staleness }
    }
}

impl Consistency for Ringmaster {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        if cohort.version().since(base) < self.staleness {
            Admission::Contribute
        } else {
            Admission::Drop(DropReason::Stale)
        }
    }
}
