//! Round-robin.

use alloc::collections::BTreeMap;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Cohort, Consistency};
use pstrain_compute::id::WorkerId;
use pstrain_compute::named::Word;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;

pub(super) const WORD: Word = Word::new("round-robin", &[], "a worker waits only for its turn");

/// Round-robin: gradients are applied on arrival, but workers are given parameters in turn,
/// cyclically in the order of their ids, evenly spaced over the cycle.
///
/// Worker i may start an iteration once every worker before it has started the same iteration, and
/// every worker after it the previous one. The server observes a start only by the push before it,
/// so the turn belongs to the first member in the order of (clock, id): a worker may start if it is
/// level with the slowest member, or one iteration ahead of it and before it in the cycle. The
/// server waits for a late worker as long as it is a member, so for a silent one until its lease
/// expires; an absent worker has no turn.
///
/// Turns are slots: the next one begins P / N after the last, where P is the cycle, the longest
/// time that any of the N members takes from its parameters to its gradient. Each slot begins when
/// a gradient has just arrived, so that slots do not lengthen the cycle of equal workers, and an
/// exchange of gradient and parameters that takes less than a slot has the server's link to itself.
/// If times vary, a slot that began late delays all later slots: the spacing then costs some of the
/// time that the fixed order loses anyway. The shortest of a worker's last four times counts, so
/// that slow mini-batches and lost messages do not slow down all workers for longer. P is unknown
/// before the first gradients: all workers start at once, and are spaced over the next two cycles,
/// which takes one cycle longer.
///
/// Invariant: with a fixed membership of N, parameters are given out in the order 1, 2, ..., N, 1,
/// ..., two turns at least a slot apart; no computing worker is more than one iteration ahead of
/// another; no gradient is staler than 2 (N - 1), and at equal speeds each is exactly N - 1 stale
/// once the workers are spaced.
///
/// Chen et al., INFOCOM 2019 (R2SP).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RoundRobin {
    /// When the last turn began.
    turn: Option<Time>,
    times: BTreeMap<WorkerId, Times>,
}

/// Times of a worker from its parameters to its gradient.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Times {
    started: Time,
    /// The latest times, as a ring buffer; `None` in unused entries.
    last: [Option<Duration>; KEPT],
    /// Number of times measured so far.
    count: usize,
}

/// Number of times kept per worker; the shortest of them counts.
const KEPT: usize = 4;

impl RoundRobin {
    /// Time from one turn to the next.
    fn slot(&self, cohort: &Cohort) -> Duration {
        let shortest = |times: &Times| times.last.iter().flatten().min().copied();
        let cycle = self.times.values().filter_map(shortest).max().unwrap_or_default();
        cycle / (cohort.len() as u32).max(1)
    }
}

impl Consistency for RoundRobin {
    fn may_start(&self, cohort: &Cohort, worker: WorkerId, under_way: u32) -> bool {
        match (cohort.lead(worker) + u64::from(under_way), cohort.slowest_member()) {
            (0, _) => true,
            (1, Some((_, slowest_member))) => worker < slowest_member,
            _ => false,
        }
    }

    fn awaits(&self, cohort: &Cohort, worker: WorkerId) -> bool {
        cohort.slowest_member().is_some_and(|(_, slowest_member)| slowest_member == worker)
    }

    fn next_turn(&self, cohort: &Cohort) -> Option<Time> {
        self.turn.map(|turn| turn + self.slot(cohort))
    }

    fn gate(&self, cohort: &Cohort) -> u64 {
        // One more than the number of turns so far, counting 2^32 workers per cycle.
        cohort.slowest_member().map_or(0, |(clock, worker)| {
            clock.0.wrapping_shl(u32::BITS).wrapping_add(u64::from(worker.0)).wrapping_add(1)
        })
    }

    fn started(&mut self, worker: WorkerId, now: Time) {
        self.turn = Some(now);
        self.times.entry(worker).or_default().started = now;
    }

    fn contributed(&mut self, _cohort: &Cohort, worker: WorkerId, now: Time) {
        let Some(times) = self.times.get_mut(&worker) else {
            return; // it started under the mode before
        };
        times.last[times.count % KEPT] = Some(now.since(times.started));
        times.count += 1;
    }

    fn left(&mut self, _cohort: &Cohort, worker: WorkerId) {
        self.times.remove(&worker);
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pstrain_compute::id::Clock;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Returns the next turn after worker 0 has started at `from` and pushed at `to`.
    fn after(policy: &mut RoundRobin, cohort: &Cohort, from: u64, to: u64) -> Option<Time> {
        policy.started(WorkerId(0), ms(from));
        policy.contributed(cohort, WorkerId(0), ms(to));
        policy.next_turn(cohort)
    }

    #[test]
    fn a_slot_is_the_longest_time_of_all_over_their_number() {
        let mut cohort = Cohort::default();
        (0..4).for_each(|worker| cohort.join(WorkerId(worker), Clock(0), 1));
        let mut policy = RoundRobin::default();
        assert_eq!(policy.next_turn(&cohort), None, "nothing is known");
        policy.started(WorkerId(1), ms(0));
        assert_eq!(policy.next_turn(&cohort), Some(ms(0)), "nor of the first ones");
        policy.contributed(&cohort, WorkerId(1), ms(20));
        // 20 ms among four.
        assert_eq!(policy.next_turn(&cohort), Some(ms(5)));
        assert_eq!(after(&mut policy, &cohort, 100, 140), Some(ms(110)));
        // Three slow times do not change the slot, the fourth does.
        for from in [200, 400, 600] {
            assert_eq!(after(&mut policy, &cohort, from, from + 100), Some(ms(from + 10)));
        }
        assert_eq!(after(&mut policy, &cohort, 2000, 2400), Some(ms(2025)));
        // A worker that has left counts neither with its time nor as a member.
        cohort.leave(WorkerId(0));
        policy.left(&cohort, WorkerId(0));
        assert_eq!(policy.next_turn(&cohort), Some(ms(2000) + Duration::from_millis(20) / 3));
    }
}
