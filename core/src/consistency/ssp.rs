//! Stale-synchronous parallel.

use super::{Admission, Closing, Cohort, Consistency};
use crate::id::{Version, WorkerId};

/// SSP(s): gradients are applied on arrival, but nobody starts an iteration more than `slack`
/// iterations ahead of the slowest member.
///
/// Invariant: a worker that computes leads the slowest by at most `slack`, one that waits by at
/// most `slack + 1`; with N workers the measured staleness is at most `(N - 1)(2 slack + 1)`.
///
/// Ho et al., NIPS 2013.
#[derive(Clone, Copy, Debug)]
pub struct Ssp {
    slack: u64,
}

impl Ssp {
    /// SSP with the given slack, in iterations.
    ///
    /// A slack of 0 lets nobody see part of an iteration, so [`super::ConsistencySpec::build`]
    /// makes it BSP, which applies the iteration as one update in worker order.
    #[must_use]
    pub const fn new(slack: u64) -> Self {
        Self { slack }
    }
}

impl Consistency for Ssp {
    fn admit(&self, _cohort: &Cohort, _worker: WorkerId, _base: Version) -> Admission {
        Admission::Contribute
    }

    fn closes(&self, _cohort: &Cohort) -> Closing {
        Closing::Everything
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        cohort.lead(worker) + u64::from(under_way) <= self.slack
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.slowest().map_or(0, |slowest| slowest.0 + 1)
    }

    fn in_rounds(&self) -> bool {
        false
    }
}
