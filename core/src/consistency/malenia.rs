//! Malenia SGD.

use alloc::collections::BTreeMap;

use super::{Admission, Closing, Cohort, Consistency, fresh_only};
use crate::id::{Version, WorkerId};
use crate::time::Time;

/// Malenia SGD: every member gives gradients on the current version, going on with it at once, and
/// the update waits until the harmonic mean of their counts B_i is large enough: with N members,
/// until `N / sum(1 / B_i) >= S / N`. The slowest is waited for once, and the fast ones spend that
/// time on better means of their own data.
///
/// Invariant: an update has at least one contribution of every member that counts at its close,
/// all computed on the version just before it, and satisfies the inequality over those members. A
/// step takes each worker's mean, not the mean of all gradients: the aggregator weighs a gradient
/// by the worker's share of the data over B_i. With S of N or less the update closes as soon as
/// everybody has given one, which at equal speeds is BSP.
///
/// Tyurin and Richtarik, NeurIPS 2023, section 5.
#[derive(Clone, Debug)]
pub struct Malenia {
    gradients: u32,
    /// B_i of the members in the open round.
    counts: BTreeMap<WorkerId, u32>,
    /// The sum of 1 / B_i.
    inverses: f64,
}

impl Malenia {
    /// Malenia with S = `gradients`.
    #[must_use]
    pub const fn new(gradients: u32) -> Self {
        Self { gradients, counts: BTreeMap::new(), inverses: 0.0 }
    }
}

/// By what the sum of 1 / B_i, kept from gradient to gradient, may be off.
const ROUNDING: f64 = 1e-9;

impl Consistency for Malenia {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        fresh_only(cohort, base)
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        // A member that has left is neither waited for nor counted on: the count it left behind
        // would never grow.
        let members = self.counts.len() as f64;
        let enough = members * members * (1.0 + ROUNDING) + ROUNDING
            >= f64::from(self.gradients) * self.inverses;
        if cohort.owing() == 0 && enough { Closing::Everything } else { Closing::NotYet }
    }

    fn may_start(&self, _cohort: &Cohort, _worker: WorkerId, _under_way: u32) -> bool {
        true
    }

    fn gate(&self, _cohort: &Cohort) -> u64 {
        0
    }

    fn in_rounds(&self) -> bool {
        true
    }

    fn cancels(&self) -> bool {
        true
    }

    fn contributed(&mut self, cohort: &Cohort, worker: WorkerId, _now: Time) {
        if !cohort.contains(worker) {
            return;
        }
        let count = self.counts.entry(worker).or_default();
        if *count > 0 {
            self.inverses -= 1.0 / f64::from(*count);
        }
        *count = count.saturating_add(1);
        self.inverses += 1.0 / f64::from(*count);
    }

    fn closed(&mut self, _cohort: &Cohort, _closing: Closing) {
        self.counts.clear();
        self.inverses = 0.0;
    }

    fn left(&mut self, _cohort: &Cohort, worker: WorkerId) {
        if let Some(count) = self.counts.remove(&worker) {
            self.inverses -= 1.0 / f64::from(count);
        }
    }
}
