//! Members and their progress: all the state that a policy may use.

mod counts;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use self::counts::Counts;
use crate::rules::Closing;
use pstrain_compute::id::{Clock, Version, WorkerId};

/// The members that count, their clocks, and the open round.
///
/// Every question of a policy is answered in constant or logarithmic time, so that the cost of a
/// push does not grow with the number of idle workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cohort {
    version: Version,
    members: BTreeMap<WorkerId, Standing>,
    /// The members sorted by clock.
    clocks: BTreeSet<(Clock, WorkerId)>,
    /// Members that have contributed to the open round, including members that have left since.
    contributors: Vec<WorkerId>,
    /// Number of contributors that no longer count.
    gone: usize,
    /// Contributions to the open round, by their iteration.
    pending: Counts,
    contributions: usize,
    /// The iteration of the last contribution.
    latest: Clock,
    /// Number of members that have not contributed to the open round.
    members_owing: usize,
    /// True if the received gradients suffice for an update.
    covered: bool,
    /// Mini-batches that the budget asks for beyond the updates so far; `None` without such a
    /// budget.
    wanted: Option<u64>,
    joins: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Standing {
    clock: Clock,
    contributed: bool,
    /// Number of mini-batches in a pass over its data.
    pass: u64,
}

impl Cohort {
    /// The current version of the parameters.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The number of members that count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if no members count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns true if `worker` counts.
    #[must_use]
    pub fn contains(&self, worker: WorkerId) -> bool {
        self.members.contains_key(&worker)
    }

    /// The members that count, sorted by id.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.members.keys().copied()
    }

    /// The clock of `worker`, if it counts.
    #[must_use]
    pub fn clock(&self, worker: WorkerId) -> Option<Clock> {
        self.members.get(&worker).map(|standing| standing.clock)
    }

    /// The clock of the slowest member.
    #[must_use]
    pub fn slowest(&self) -> Option<Clock> {
        self.slowest_member().map(|(clock, _)| clock)
    }

    /// The slowest member with its clock; of several, the one with the lowest id.
    #[must_use]
    pub fn slowest_member(&self) -> Option<(Clock, WorkerId)> {
        self.clocks.first().copied()
    }

    /// The clock of the fastest member, or of one that has left while its contribution is not part
    /// of an update yet, even if no member is left. A worker that joins at this clock thus never
    /// joins an iteration that it has already contributed to, and contributions of workers
    /// that have left do not wait until it catches up.
    #[must_use]
    pub fn fastest(&self) -> Option<Clock> {
        let member = self.clocks.last().map(|(clock, _)| *clock);
        let gone = self.pending.last().map(|latest| Clock(latest.0 + 1));
        member.max(gone)
    }

    /// Number of iterations that `worker` is ahead of the slowest member.
    #[must_use]
    pub fn lead(&self, worker: WorkerId) -> u64 {
        match (self.clock(worker), self.slowest()) {
            (Some(clock), Some(slowest)) => clock.0 - slowest.0,
            _ => 0,
        }
    }

    /// Returns true if `worker` has contributed to the open round.
    #[must_use]
    pub fn contributed(&self, worker: WorkerId) -> bool {
        self.members.get(&worker).is_some_and(|standing| standing.contributed)
    }

    /// Workers that have contributed to the open round; some of them may have left.
    #[must_use]
    pub fn contributors(&self) -> usize {
        self.contributors.len()
    }

    /// Workers that have contributed to the open round or still can: the largest number of
    /// different workers that a round may wait for without blocking forever.
    #[must_use]
    pub fn within_reach(&self) -> usize {
        self.members.len() + self.gone
    }

    /// The oldest iteration that has contributions.
    #[must_use]
    pub fn oldest(&self) -> Option<Clock> {
        self.pending.first()
    }

    /// Contributions to the open round.
    #[must_use]
    pub const fn contributions(&self) -> usize {
        self.contributions
    }

    /// Number of members that have not contributed to the open round.
    ///
    /// Only this number, and never a comparison of counts, tells if a round is complete: the
    /// contribution of a member that has left since must not stand in for one that is still owed.
    #[must_use]
    pub const fn members_owing(&self) -> usize {
        self.members_owing
    }

    /// Returns true if the contributions to the open round suffice for an update, for policies
    /// where that does not depend on who contributed.
    #[must_use]
    pub const fn is_covered(&self) -> bool {
        self.covered
    }

    /// Sets the value of [`Self::is_covered`].
    pub const fn set_covered(&mut self, covered: bool) {
        self.covered = covered;
    }

    /// Mini-batches that the budget asks for beyond the updates so far; the maximum without a
    /// budget.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.wanted.unwrap_or(u64::MAX)
    }

    /// Sets the number of mini-batches that the budget asks for beyond the updates so far.
    pub const fn set_wanted(&mut self, batches: u64) {
        self.wanted = Some(batches);
    }

    /// Returns true if the contributions to the open round are all that the budget asks for.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.contributions as u64 >= self.wanted()
    }

    /// Mini-batches in a pass over the data of `worker`: the mean gradient of that many on the same
    /// parameters is exact.
    #[must_use]
    pub fn pass(&self, worker: WorkerId) -> u64 {
        self.members.get(&worker).map_or(u64::MAX, |standing| standing.pass)
    }

    /// Number of joins so far.
    #[must_use]
    pub const fn joins(&self) -> u64 {
        self.joins
    }

    /// Adds `worker` as a member at `clock`, with `pass` mini-batches in a pass over its data.
    pub fn join(&mut self, worker: WorkerId, clock: Clock, pass: u64) {
        self.joins += 1;
        self.leave(worker);
        self.members.insert(worker, Standing { clock, contributed: false, pass });
        self.clocks.insert((clock, worker));
        self.members_owing += 1;
    }

    /// Removes `worker` from the members; its contributions stay. Returns its clock, if it was a
    /// member.
    pub fn leave(&mut self, worker: WorkerId) -> Option<Clock> {
        let standing = self.members.remove(&worker)?;
        self.clocks.remove(&(standing.clock, worker));
        if standing.contributed {
            self.gone += 1;
        } else {
            self.members_owing -= 1;
        }
        Some(standing.clock)
    }

    /// Records a contribution of `worker` and advances its clock. Returns the iteration of the
    /// contribution: the worker's own, or the slowest member's if the worker is not a member.
    pub fn contribute(&mut self, worker: WorkerId) -> Clock {
        self.contributions += 1;
        let clock = self.clock(worker).or_else(|| self.slowest()).unwrap_or_default();
        self.pending.add(clock);
        self.latest = clock;
        let Some(standing) = self.members.get_mut(&worker) else { return clock };
        standing.clock = Clock(clock.0 + 1);
        if !standing.contributed {
            standing.contributed = true;
            self.contributors.push(worker);
            self.members_owing -= 1;
        }
        self.clocks.remove(&(clock, worker));
        self.clocks.insert((Clock(clock.0 + 1), worker));
        clock
    }

    /// Increments the version without an update, between two updates.
    pub const fn renew(&mut self) {
        self.version = self.version.next();
    }

    /// Makes an update, and with it a new version, of the contributions that `closing` selects. If
    /// none remain, the round ends and every member owes again.
    pub fn close(&mut self, closing: Closing) {
        let taken = match closing {
            Closing::NotYet => return,
            Closing::Everything => self.contributions,
            Closing::Oldest => self.pending.take_first(),
            Closing::Latest => {
                self.pending.take_one(self.latest);
                1
            }
        };
        self.version = self.version.next();
        self.contributions -= taken;
        if self.contributions > 0 {
            // The round stays open for the remaining contributions.
            return;
        }
        self.pending.clear();
        self.gone = 0;
        for worker in self.contributors.drain(..) {
            if let Some(standing) = self.members.get_mut(&worker)
                && standing.contributed
            {
                standing.contributed = false;
                self.members_owing += 1;
            }
        }
    }

    /// Sets all clocks to the fastest member's: a lead that a worker gained under an earlier rule
    /// must not count under the next.
    pub fn level(&mut self) {
        let Some(fastest) = self.fastest() else { return };
        self.members.values_mut().for_each(|standing| standing.clock = fastest);
        self.clocks = self.members.keys().map(|&worker| (fastest, worker)).collect();
    }
}

#[cfg(test)]
mod tests;
