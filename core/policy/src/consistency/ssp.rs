//! Stale-synchronous parallel.

use super::{Cohort, Consistency};
use pstrain_compute::id::WorkerId;
use pstrain_compute::named::{Number, Word};

pub(super) const WORD: Word =
    Word::new("ssp", &[Number::any("SLACK")], "at most SLACK iterations ahead of the slowest");

/// SSP(s): gradients are applied on arrival, but no worker starts an iteration more than `slack`
/// iterations ahead of the slowest member.
///
/// Invariant: a computing worker leads the slowest by at most `slack`, a waiting worker by at most
/// `slack + 1`; with N workers the measured staleness is at most `(N - 1)(2 slack + 1)`.
///
/// Ho et al., NIPS 2013.
#[derive(Clone, Copy, Debug)]
pub struct Ssp {
    slack: u64,
}

impl Ssp {
    /// SSP with the given slack, in iterations.
    ///
    /// With a slack of 0 no worker sees part of an iteration. [`super::ConsistencySpec::build`]
    /// therefore makes it BSP, which applies the iteration as one update in worker order.
    #[must_use]
    pub const fn new(slack: u64) -> Self {
        Self { slack }
    }
}

impl Consistency for Ssp {
    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        cohort.lead(worker) + u64::from(under_way) <= self.slack
    }

    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        cohort.lead(worker) == 0
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.slowest().map_or(0, |slowest| slowest.0 + 1)
    }
}
