//! Bounded delay.

use super::{Cohort, Consistency};
use crate::rules::Closing;
use pstrain_compute::id::WorkerId;
use pstrain_compute::task::MOST_IN_FLIGHT;

/// Bounded delay D: whole iterations become updates, in order, and a worker may start iteration t
/// as soon as iterations before t - D have.
///
/// Invariant: an update has exactly one contribution of every member that took part in its
/// iteration, and iterations are updates in order; a worker is asked for at most D iterations
/// beyond the oldest that is no update yet, so no gradient is staler than D; nor for more of them
/// than the budget asks for, with one to spare. Without a bound it may be ahead by a pass over its
/// data, and over the blocks of keys if updates are of those: the server keeps all that, for a
/// worker that may never come. Unlike under SSP, nobody sees part of an iteration, and a worker may
/// begin before its own last gradient is in the parameters.
///
/// Li et al., OSDI 2014, sections 3.4 and 3.5.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    bound: Option<u64>,
}

impl Delay {
    /// Bounded delay of so many iterations; `None` if there is no bound.
    ///
    /// Without delay it is BSP, and [`super::ConsistencySpec::build`] makes it that.
    #[must_use]
    pub const fn new(bound: Option<u64>) -> Self {
        Self { bound }
    }
}

impl Consistency for Delay {
    fn closes(&self, cohort: &Cohort) -> Closing {
        // With nobody left, nobody can add to what there is.
        let passed =
            cohort.slowest().is_none_or(|slowest| cohort.oldest().is_some_and(|it| it < slowest));
        if passed { Closing::Oldest } else { Closing::NotYet }
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        // As many iterations of everybody as the budget asks for, were all mini-batches whole.
        let iterations = cohort.wanted().div_ceil(cohort.len().max(1) as u64);
        let ahead = cohort.lead(worker).saturating_add(u64::from(under_way));
        ahead <= self.bound.unwrap_or_else(|| cohort.pass(worker)).min(iterations)
    }

    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        cohort.lead(worker) == 0
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        cohort.slowest().map_or(0, |slowest| slowest.0 + 1)
    }

    fn joins_in_front(&self) -> bool {
        true
    }

    fn flushes(&self) -> Closing {
        Closing::Oldest
    }

    fn window(&self) -> u32 {
        let bound = self.bound.unwrap_or(u64::MAX);
        let most = u64::from(MOST_IN_FLIGHT).min(bound.saturating_add(1));
        most as u32
    }
}
