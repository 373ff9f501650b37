//! Bounded delay.

use super::{Cohort, Consistency};
use crate::rules::Closing;
use pstrain_compute::id::WorkerId;
use pstrain_compute::named::{Limits, Number, Word};
use pstrain_compute::task::MOST_IN_FLIGHT;

pub(super) const WORD: Word = Word::new(
    "delay",
    &[Number::real("D", Limits::WholeOrInf)],
    "whole iterations, at most D ahead of the oldest not applied",
);

/// Bounded delay D: whole iterations become updates, in order, and a worker may start iteration t
/// as soon as all iterations before t - D have.
///
/// Invariant: an update has exactly one contribution of every member that took part in its
/// iteration, and iterations become updates in order. A worker is asked for at most D iterations
/// beyond the oldest that is not an update yet, so no gradient is staler than D. It is also not
/// asked for more iterations than the budget asks for, plus one. Without a bound a worker may be
/// ahead by a pass over its data, and over all blocks of keys if updates cover blocks: the server
/// keeps all these gradients, for a worker that may never come. Unlike under SSP, no worker sees
/// part of an iteration, and a worker may start before its own last gradient is in the parameters.
///
/// Li et al., OSDI 2014, sections 3.4 and 3.5.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    bound: Option<u64>,
}

impl Delay {
    /// Bounded delay of `bound` iterations; `None` for no bound.
    ///
    /// Without delay it is BSP, and [`super::ConsistencySpec::build`] builds that.
    #[must_use]
    pub const fn new(bound: Option<u64>) -> Self {
        Self { bound }
    }
}

impl Consistency for Delay {
    fn closes(&self, cohort: &Cohort) -> Closing {
        // Without members the contributions that exist are complete.
        let passed =
            cohort.slowest().is_none_or(|slowest| cohort.oldest().is_some_and(|it| it < slowest));
        if passed { Closing::Oldest } else { Closing::NotYet }
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        // Iterations of all members that the budget asks for if all mini-batches were whole.
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
