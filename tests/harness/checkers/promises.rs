//! Guarantees of each consistency policy, stated independently of the code under test: derived from
//! the workers that count and the gradients in each update.

use pstrain_compute::id::{Incarnation, WorkerId};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;

/// A gradient that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
    pub(super) clock: u64,
    /// Gradients that were accepted before.
    pub(super) number: u64,
    /// Updates since its base version, once it is applied.
    pub(super) staleness: u64,
}

/// A worker that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) worker: WorkerId,
    pub(super) clock: u64,
    /// Gradients that had been accepted when it began to count.
    pub(super) since: u64,
    /// Mini-batches in a pass over its data.
    pub(super) pass: u64,
}

impl Member {
    /// Gradients in `given` from this worker since it counts.
    pub(super) fn gave(&self, given: &[Given]) -> usize {
        let own = |given: &&Given| given.worker == self.worker && given.number >= self.since;
        given.iter().filter(own).count()
    }
}

/// The guarantees of one policy.
#[derive(Clone, Debug)]
pub(super) struct Promises {
    policy: ConsistencySpec,
    /// Workers of the job.
    workers: u64,
    /// Mini-batches that one worker may have under way.
    window: u64,
    /// The last iteration that became an update, for policies that update by iteration.
    iteration: Option<u64>,
    /// Members still due a turn since the last table; `None` before the first table.
    turns: Option<Vec<WorkerId>>,
    /// The worker of the last gradient, unless a member has left since.
    latest: Option<WorkerId>,
    /// Mini-batches that the budget still asks for beyond the updates so far.
    wanted: u64,
}

impl Promises {
    pub(super) fn new(mode: &Mode, workers: u32, wanted: u64) -> Self {
        use ConsistencySpec as C;
        let policy = match mode.consistency {
            C::Ssp { slack: 0 } | C::Delay { bound: Some(0) } | C::Dssp { low: 0, high: 0 } => {
                C::Bsp
            }
            C::Dssp { low, high } if low == high => C::Ssp { slack: low },
            other => other,
        };
        let (window, workers) = (mode.window().into(), workers.into());
        Self { policy, workers, window, iteration: None, turns: None, latest: None, wanted }
    }

    /// Sets the number of mini-batches that the budget still asks for.
    pub(super) const fn set_wanted(&mut self, wanted: u64) {
        self.wanted = wanted;
    }

    /// Widens the window of mini-batches under way per worker. It never shrinks, since mini-batches
    /// that are under way stay.
    pub(super) fn widen(&mut self, window: u32) {
        self.window = self.window.max(window.into());
    }

    /// True if gradients of several workers make a round, for which joiners wait.
    pub(super) const fn in_rounds(&self) -> bool {
        use ConsistencySpec as C;
        matches!(
            self.policy,
            C::Bsp | C::KSync { .. } | C::Backup { .. } | C::KAsync { .. } | C::Malenia { .. }
        )
    }

    /// True if joiners start at the clock of the fastest worker.
    pub(super) const fn in_front(&self) -> bool {
        matches!(self.policy, ConsistencySpec::Delay { .. })
    }

    /// True if a worker that has contributed waits for the update.
    pub(super) const fn holds(&self) -> bool {
        self.in_rounds() && !matches!(self.policy, ConsistencySpec::Malenia { .. })
    }

    /// The staleness that an accepted gradient must stay below.
    pub(super) const fn staleness_below(&self) -> u64 {
        use ConsistencySpec as C;
        match self.policy {
            C::Bsp | C::KSync { .. } | C::Backup { .. } => 1,
            C::KBatchSync { .. } | C::Malenia { .. } => 1,
            C::Ringmaster { staleness } => staleness,
            _ => u64::MAX,
        }
    }

    /// Iterations that one of `members` workers, with `pass` mini-batches in a pass over its data,
    /// may be granted beyond the slowest.
    pub(super) fn most_lead_of(&self, members: usize, pass: u64) -> u64 {
        let ConsistencySpec::Delay { bound } = self.policy else { return self.most_lead() };
        self.wanted.div_ceil(members as u64).min(bound.unwrap_or(pass))
    }

    /// Iterations that a worker may be granted beyond the slowest.
    pub(super) fn most_lead(&self) -> u64 {
        use ConsistencySpec as C;
        match self.policy {
            C::Bsp => 0,
            C::RoundRobin => 1,
            C::Ssp { slack } => slack,
            C::Dssp { high, .. } => high,
            C::Delay { bound } => bound.unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// True if `member`, with `under_way` mini-batches, must wait for others because it can add
    /// nothing useful to `pending`.
    pub(super) fn has_given_enough(
        &self,
        member: &Member,
        under_way: u64,
        pending: &[Given],
    ) -> bool {
        use ConsistencySpec as C;
        let given = member.gave(pending) as u64 + under_way;
        matches!(self.policy, C::Malenia { .. } | C::Ringleader)
            && given > 0
            && (given >= member.pass || pending.len() as u64 >= self.wanted)
    }

    /// True if `worker` must wait at `clock` because it is the turn of `other`.
    pub(super) fn waits_for_turn(&self, (worker, clock): (WorkerId, u64), other: &Member) -> bool {
        let due = if other.worker < worker { other.clock } else { other.clock + 1 };
        self.policy == ConsistencySpec::RoundRobin && due < clock
    }

    /// Upper bound of the staleness under a fixed membership.
    fn most_staleness(&self) -> u64 {
        use ConsistencySpec as C;
        let others = self.workers - 1;
        match self.policy {
            C::Ssp { .. } | C::Dssp { .. } => {
                // Plus the worker's own gradients that were under way before this one.
                others * (2 * self.most_lead() + 1) + self.window - 1
            }
            C::Delay { .. } => self.most_lead(),
            C::Ringleader | C::RoundRobin if self.window == 1 => 2 * others,
            _ => self.staleness_below() - 1,
        }
    }

    /// Workers that an update waits for, of those within reach.
    const fn quorum(&self, within_reach: usize) -> usize {
        use ConsistencySpec as C;
        match self.policy {
            C::KSync { workers } | C::KAsync { workers } if (workers as usize) < within_reach => {
                workers as usize
            }
            C::Backup { workers } if (workers as usize) + 1 < within_reach => {
                within_reach - workers as usize
            }
            C::Backup { .. } => 1,
            _ => within_reach,
        }
    }

    /// A gradient was accepted.
    pub(super) const fn given(&mut self, worker: WorkerId) {
        self.latest = Some(worker);
    }

    /// A worker no longer counts.
    pub(super) fn left(&mut self, worker: WorkerId) {
        self.latest = None;
        self.turns.iter_mut().for_each(|turns| turns.retain(|owed| *owed != worker));
    }

    /// Checks an update of leftover gradients before a change of mode, with nothing under way. Two
    /// guarantees hold even then: bounded staleness, and no update of several iterations.
    pub(super) fn flushed(&self, taken: &[Given], fixed: bool) {
        self.check_staleness(taken, fixed);
        if matches!(self.policy, ConsistencySpec::Delay { .. }) {
            let iteration = taken[0].clock;
            assert!(taken.iter().all(|given| given.clock == iteration), "of several: {taken:?}");
        }
    }

    fn check_staleness(&self, taken: &[Given], fixed: bool) {
        for given in taken {
            let (stale, below) = (given.staleness, self.staleness_below());
            assert!(stale < below, "{given:?} is too stale for {}", self.policy);
            let most = self.most_staleness();
            assert!(!fixed || stale <= most, "{given:?} over {most}");
        }
    }

    /// Checks an update of `taken`, in order of arrival. `members` are the workers that count, with
    /// their clocks; `fixed` is true if the membership never changed.
    pub(super) fn updated(
        &mut self,
        closing: Closing,
        taken: &[Given],
        members: &[Member],
        fixed: bool,
    ) {
        use ConsistencySpec as C;
        self.check_staleness(taken, fixed);
        match self.policy {
            C::Bsp | C::KSync { .. } | C::Backup { .. } | C::KAsync { .. } => {
                assert!(members.iter().all(|member| member.gave(taken) <= 1), "twice in {taken:?}");
                let wanted = self.quorum(within_reach(taken, members));
                assert!(taken.len() >= wanted, "{taken:?}, but {wanted} were wanted");
                assert!(!fixed || taken.len() == wanted, "{taken:?}, but {wanted} were wanted");
            }
            C::KBatchSync { gradients } | C::Buffered { gradients } => {
                let full = taken.len() as u64 == self.wanted.min(gradients.into());
                assert!(full || members.is_empty(), "{} of {gradients}", taken.len());
            }
            C::Malenia { .. } => assert!(!self.lacks_gradients(taken, members), "{taken:?}"),
            C::Delay { .. } => self.check_iteration(taken, members, fixed),
            C::Ringleader => self.check_turn(closing, taken, members),
            _ => assert_eq!(taken.len(), 1, "one update was made of several gradients: {taken:?}"),
        }
    }

    /// Checks that updates are whole iterations, in order.
    fn check_iteration(&mut self, taken: &[Given], members: &[Member], fixed: bool) {
        let iteration = taken[0].clock;
        assert!(taken.iter().all(|given| given.clock == iteration), "of several: {taken:?}");
        let behind = members.iter().find(|member| member.clock <= iteration);
        assert_eq!(behind, None, "iteration {iteration} was not complete");
        assert_eq!(distinct(taken), taken.len(), "one came twice: {taken:?}");
        let next = self.iteration.is_none_or(|last| iteration == last + 1);
        assert!(!fixed || next, "iteration {iteration} after {:?}", self.iteration);
        self.iteration = Some(iteration);
    }

    /// Checks that each table of all members is followed by one turn of each member.
    fn check_turn(&mut self, closing: Closing, taken: &[Given], members: &[Member]) {
        if closing == Closing::Everything {
            assert!(self.turns.as_ref().is_none_or(Vec::is_empty), "owed: {:?}", self.turns);
            for member in members {
                assert!(member.gave(taken) > 0, "{member:?} is missing from {taken:?}");
            }
            let others = members.iter().map(|member| member.worker);
            self.turns = Some(others.filter(|worker| Some(*worker) != self.latest).collect());
            return;
        }
        assert_eq!((closing, taken.len()), (Closing::Latest, 1), "{taken:?}");
        let worker = taken[0].worker;
        let turns = self.turns.as_mut().expect("a turn before the first table");
        let owed = turns.iter().position(|owed| *owed == worker);
        owed.map(|place| turns.remove(place));
        let counts = members.iter().any(|member| member.worker == worker);
        assert!(owed.is_some() || !counts, "{worker} has had its turn");
    }

    /// True if the harmonic mean of the members' counts is still too small and a member can give
    /// more gradients within the budget.
    fn lacks_gradients(&self, given: &[Given], members: &[Member]) -> bool {
        let ConsistencySpec::Malenia { gradients } = self.policy else { return false };
        let counts = members.iter().map(|member| member.gave(given) as f64);
        let inverses: f64 = counts.map(f64::recip).sum();
        (members.len() as f64).powi(2) < f64::from(gradients) * inverses - 1e-6
            && (given.len() as u64) < self.wanted
            && members.iter().any(|member| (member.gave(given) as u64) < member.pass)
    }

    /// True if `pending` rightly are no update yet, since there is something to wait for.
    pub(super) fn awaits_more(&self, pending: &[Given], members: &[Member]) -> bool {
        use ConsistencySpec as C;
        let everybody = members.iter().all(|member| member.gave(pending) > 0);
        match self.policy {
            C::Bsp => !everybody,
            C::KSync { .. } | C::Backup { .. } | C::KAsync { .. } => {
                distinct(pending) < self.quorum(within_reach(pending, members))
            }
            C::KBatchSync { gradients } | C::Buffered { gradients } => {
                let wanted = self.wanted.min(gradients.into());
                (pending.len() as u64) < wanted && !members.is_empty()
            }
            C::Malenia { .. } => !everybody || self.lacks_gradients(pending, members),
            C::Delay { .. } => {
                let oldest = pending.iter().map(|given| given.clock).min();
                members.iter().any(|member| Some(member.clock) <= oldest)
            }
            C::Ringleader => {
                let owed = self.turns.as_ref().is_some_and(|turns| !turns.is_empty());
                owed || !everybody
            }
            _ => false,
        }
    }
}

/// Workers that contributed or still can.
fn within_reach(given: &[Given], members: &[Member]) -> usize {
    let gone = |given: &&Given| !members.iter().any(|member| member.worker == given.worker);
    let gone: Vec<Given> = given.iter().filter(gone).copied().collect();
    members.len() + distinct(&gone)
}

/// Number of distinct workers in `given`.
fn distinct(given: &[Given]) -> usize {
    let first =
        |place: usize| given[..place].iter().all(|other| other.worker != given[place].worker);
    (0..given.len()).filter(|place| first(*place)).count()
}
