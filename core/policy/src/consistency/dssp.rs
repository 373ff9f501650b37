//! Dynamic stale-synchronous parallel.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Cohort, Consistency};
use pstrain_compute::id::{Clock, WorkerId};
use pstrain_compute::named::{Number, Word};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

pub(super) const WORD: Word = Word::new(
    "dssp",
    &[Number::any("LOW"), Number::any("HIGH")],
    "ssp with a slack from LOW to HIGH, as it pays",
);

/// DSSP: SSP whose slack is chosen, between two bounds, each time the fastest worker would have to
/// wait. The worker may continue for the number of extra iterations that minimizes its wait: until
/// just before the slowest is expected to push, if both keep their pace.
///
/// Invariant: a computing worker leads the slowest by at most the larger slack. A worker that leads
/// by more than the smaller slack was the fastest when it reached that lead and received credit for
/// it, at most the difference of the two slacks. If both slacks are equal it is SSP.
///
/// Zhao et al., ICDCS 2019, algorithms 1 and 2. Their interval is the time between two pushes. Here
/// it is the time from when a worker was free to start to its push, because the time it waited says
/// nothing about its pace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dssp {
    low: u64,
    high: u64,
    paces: BTreeMap<WorkerId, Pace>,
    /// Members that wait, with the clock they wait at.
    held: BTreeSet<(Clock, WorkerId)>,
    /// The latest time seen.
    now: Time,
}

/// Measured pace of a worker.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Pace {
    /// When it became free to start its current iteration.
    began: Time,
    /// Duration of its last iteration in nanoseconds; `None` before its first.
    interval: Option<u64>,
    /// It has credit for iterations before this one.
    credit: Clock,
}

/// Largest difference of the two slacks: a push compares that many predictions.
pub(super) const WIDEST: u64 = 1000;

impl Dssp {
    /// DSSP between two slacks, in iterations.
    #[must_use]
    pub const fn new(low: u64, high: u64) -> Self {
        Self { low, high, paces: BTreeMap::new(), held: BTreeSet::new(), now: Time::ZERO }
    }

    /// Returns the number of extra iterations after which `worker` waits the least for the slowest:
    /// the r for which its r-th push from now is predicted the shortest time before a push of the
    /// slowest worker. 0 while a pace is not known.
    fn credit(&self, cohort: &Cohort, worker: WorkerId) -> u64 {
        let most = self.high.saturating_sub(self.low).min(WIDEST);
        let pace = |worker: WorkerId| {
            self.paces.get(&worker).and_then(|pace| Some((pace.began.as_nanos(), pace.interval?)))
        };
        let slowest = cohort.slowest_member().and_then(|(_, slowest)| pace(slowest));
        let (Some((last, own)), Some((begun, other))) = (pace(worker), slowest) else { return 0 };
        let wait = |more: u64| {
            let push = last.saturating_add(more.saturating_mul(own));
            // The first push of the slowest that is not earlier; it may be overdue.
            let passed = push.saturating_sub(begun).div_ceil(other.max(1)).max(1);
            let met = begun.saturating_add(passed.saturating_mul(other));
            (passed <= most + 1).then(|| met.saturating_sub(push))
        };
        (0..=most).filter_map(|more| Some((wait(more)?, more))).min().map_or(0, |(_, more)| more)
    }

    /// Restarts the interval of members that no longer wait for the slowest.
    fn release(&mut self, cohort: &Cohort) {
        let Some(slowest) = cohort.slowest() else { return };
        let free = slowest.0.saturating_add(self.low);
        while let Some(&(clock, worker)) = self.held.first()
            && clock.0 <= free
        {
            self.held.pop_first();
            if let Some(pace) = self.paces.get_mut(&worker) {
                pace.began = self.now;
            }
        }
    }
}

impl Consistency for Dssp {
    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        let under_way = u64::from(under_way);
        let credited = || self.paces.get(&worker).zip(cohort.clock(worker));
        cohort.lead(worker).saturating_add(under_way) <= self.low
            || credited().is_some_and(|(pace, clock)| clock.0 + under_way < pace.credit.0)
    }

    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        cohort.lead(worker) == 0
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        // A worker gains credit at its own push, when it is checked anyway.
        cohort.slowest().map_or(0, |slowest| slowest.0 + 1)
    }

    fn contributed(&mut self, cohort: &Cohort, worker: WorkerId, now: Time) {
        self.now = now;
        let Some(clock) = cohort.clock(worker) else {
            return; // only members have a pace
        };
        self.held.remove(&(Clock(clock.0.saturating_sub(1)), worker));
        let first = !self.paces.contains_key(&worker);
        let pace = self.paces.entry(worker).or_default();
        if !first {
            pace.interval = Some(now.since(pace.began).as_nanos() as u64);
        }
        pace.began = now;
        let credited = clock < pace.credit;
        let lead = cohort.lead(worker);
        if !credited && lead == self.low + 1 && cohort.fastest() == Some(clock) {
            let more = self.credit(cohort, worker);
            if let Some(pace) = self.paces.get_mut(&worker) {
                pace.credit = Clock(clock.0 + more);
            }
        }
        if !self.may_start(cohort, worker, 0) {
            self.held.insert((clock, worker));
        }
        self.release(cohort);
    }

    fn left(&mut self, cohort: &Cohort, worker: WorkerId) {
        self.paces.remove(&worker);
        self.held.retain(|&(_, held)| held != worker);
        self.release(cohort);
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}
