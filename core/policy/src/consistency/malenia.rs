//! Malenia SGD.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::spec::GATHERED;
use super::{Admission, Cohort, Consistency, fresh_only};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::named::{Number, Word};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

pub(super) const WORD: Word = Word::new(
    "malenia",
    &[Number::whole("S", GATHERED)],
    "updates worth S gradients, each worker's mean counts the same",
);

/// Malenia SGD: every member contributes gradients on the current version and continues on it at
/// once. The update waits until the harmonic mean of their counts B_i is large enough: with N
/// members, until `N / sum(1 / B_i) >= S / N`. The update waits for one gradient of the slowest
/// member, and the fast members use that time to average more of their own data.
///
/// Invariant: an update has at least one contribution of every member that counts at its close, all
/// computed on the version just before it, and satisfies the inequality over those members. A step
/// takes each worker's mean, not the mean of all gradients: the aggregator weighs a gradient by the
/// worker's share of the data over B_i. With S of N or less the update closes as soon as every
/// member has contributed once, which at equal speeds is BSP.
///
/// While the update waits for others, a worker stops after a whole pass over its data, because its
/// mean is then the exact gradient, or once the gathered gradients are all that the budget asks
/// for. An update falls short of S if no member could contribute more, or the budget does not ask
/// for it.
///
/// Tyurin and Richtarik, NeurIPS 2023, section 5.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Malenia {
    gradients: u32,
    /// B_i of the members in the open round.
    counts: BTreeMap<WorkerId, u32>,
    /// The sum of 1 / B_i.
    inverses: f64,
    /// Members that have contributed a whole pass over their data, or more.
    exact: BTreeSet<WorkerId>,
}

impl Malenia {
    /// Malenia with S = `gradients`.
    #[must_use]
    pub const fn new(gradients: u32) -> Self {
        Self { gradients, counts: BTreeMap::new(), inverses: 0.0, exact: BTreeSet::new() }
    }
}

/// Bound on the error of the incrementally maintained sum of 1 / B_i.
const ROUNDING: f64 = 1e-9;

impl Consistency for Malenia {
    fn admit(&self, cohort: &Cohort, _worker: WorkerId, base: Version) -> Admission {
        fresh_only(cohort, base)
    }

    fn closes(&self, cohort: &Cohort) -> Closing {
        // Only counts of current members are used: the count of a member that left would never
        // grow.
        let members = self.counts.len() as f64;
        let enough = members * members * (1.0 + ROUNDING) + ROUNDING
            >= f64::from(self.gradients) * self.inverses;
        let done = enough || cohort.is_spent() || self.exact.len() == self.counts.len();
        if cohort.members_owing() == 0 && done { Closing::Everything } else { Closing::NotYet }
    }

    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        let count = self.counts.get(&worker).copied().unwrap_or_default();
        let given = u64::from(count) + u64::from(under_way);
        given == 0 || given < cohort.pass(worker) && !cohort.is_spent()
    }

    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        if cohort.members_owing() > 0 {
            !cohort.contributed(worker)
        } else {
            !self.exact.contains(&worker)
        }
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
        if u64::from(*count) >= cohort.pass(worker) {
            self.exact.insert(worker);
        }
    }

    fn closed(&mut self, _cohort: &Cohort, _closing: Closing) {
        self.counts.clear();
        self.exact.clear();
        self.inverses = 0.0;
    }

    fn left(&mut self, _cohort: &Cohort, worker: WorkerId) {
        self.exact.remove(&worker);
        if let Some(count) = self.counts.remove(&worker) {
            self.inverses -= 1.0 / f64::from(count);
        }
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
