//! Checks every policy against a small model of server and workers under random schedules: the
//! contents of updates, the leads of workers, and that some worker is always running.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::{Admission, Cohort, Consistency, ConsistencySpec};
use crate::rules::Closing;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::time::Time;

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u32),
    Leave(u32),
    /// The worker's oldest gradient arrives, after this many nanoseconds.
    Push(u32, u64),
    /// The same with the worker's last gradient.
    Finish(u32),
}

#[derive(Clone, Copy, Debug)]
struct Contribution {
    worker: u32,
    clock: u64,
    staleness: u64,
}

/// A server without arithmetic; a worker is a queue of the versions it computes on.
struct Model {
    spec: ConsistencySpec,
    policy: Box<dyn Consistency>,
    cohort: Cohort,
    now: Time,
    /// The versions that each member computes on, oldest first.
    under_way: BTreeMap<u32, VecDeque<Version>>,
    /// Workers that count from the next update on.
    joining: Vec<u32>,
    /// Gathered contributions in order of arrival, with the versions they were computed on.
    pending: Vec<(Contribution, Version)>,
    /// Gradients that the budget still asks for, if there is a budget.
    wanted: Option<u64>,
    /// Mini-batches in a pass over a worker's data.
    pass: u64,
    /// True if the membership has never changed.
    fixed: bool,
    /// The iteration of the last update, if updates are iterations.
    iteration: Option<u64>,
    /// Members that have had no turn since the last table; `None` before the first.
    turns: Option<Vec<u32>>,
    /// The worker whose gradient came last, if no member has left since.
    latest: Option<u32>,
    /// Workers that were given parameters, and when.
    granted: Vec<(u32, Time)>,
}

const WORKERS: u32 = 5;

impl Model {
    fn new(spec: ConsistencySpec, workers: u32) -> Self {
        Self::within(spec, workers, Limits { wanted: None, pass: u64::MAX })
    }

    fn within(spec: ConsistencySpec, workers: u32, limits: Limits) -> Self {
        let Limits { wanted, pass } = limits;
        let mut model = Self {
            spec,
            policy: spec.build(),
            cohort: Cohort::default(),
            now: Time::ZERO,
            under_way: BTreeMap::new(),
            joining: Vec::new(),
            pending: Vec::new(),
            wanted,
            pass,
            fixed: true,
            iteration: None,
            turns: None,
            latest: None,
            granted: Vec::new(),
        };
        (0..workers).for_each(|worker| model.count(worker));
        model.tell_wanted();
        model.settle();
        model
    }

    fn count(&mut self, worker: u32) {
        let front = self.policy.joins_in_front();
        let clock = if front { self.cohort.fastest() } else { self.cohort.slowest() };
        self.cohort.join(WorkerId(worker), clock.unwrap_or_default(), self.pass);
        self.under_way.insert(worker, VecDeque::new());
    }

    fn tell_wanted(&mut self) {
        self.wanted.into_iter().for_each(|wanted| self.cohort.set_wanted(wanted));
    }

    fn is_over(&self) -> bool {
        self.wanted == Some(0)
    }

    fn take(&mut self, step: Step) {
        if self.is_over() {
            return;
        }
        self.now = self.now + Duration::from_nanos(1);
        match step {
            Step::Join(worker) => {
                let known = self.under_way.contains_key(&worker) || self.joining.contains(&worker);
                if !known {
                    self.fixed = false;
                    if self.policy.in_rounds() {
                        self.joining.push(worker);
                    } else {
                        self.count(worker);
                    }
                }
            }
            Step::Leave(worker) => self.leave(worker),
            Step::Push(worker, nanos) => {
                self.now = self.now + Duration::from_nanos(nanos);
                self.push(worker);
            }
            Step::Finish(worker) => {
                self.push(worker);
                self.leave(worker);
            }
        }
        self.settle();
    }

    fn leave(&mut self, worker: u32) {
        self.joining.retain(|joining| *joining != worker);
        if self.under_way.remove(&worker).is_some() {
            self.fixed = false;
            self.cohort.leave(WorkerId(worker));
            self.policy.left(&self.cohort, WorkerId(worker));
            self.turns.iter_mut().for_each(|turns| turns.retain(|owed| *owed != worker));
            self.latest = None;
        }
    }

    fn push(&mut self, worker: u32) {
        let Some(base) = self.under_way.get_mut(&worker).and_then(VecDeque::pop_front) else {
            return;
        };
        let id = WorkerId(worker);
        if self.policy.admit(&self.cohort, id, base) == Admission::Contribute {
            let clock = self.cohort.contribute(id).0;
            let contribution = Contribution { worker, clock, staleness: 0 };
            self.pending.push((contribution, base));
            self.latest = Some(worker);
            self.policy.contributed(&self.cohort, id, self.now);
        } else {
            assert!(base < self.cohort.version(), "a fresh gradient was dropped");
        }
    }

    fn settle(&mut self) {
        loop {
            if self.is_over() {
                return;
            }
            if self.cohort.contributions() > 0 {
                match self.policy.closes(&self.cohort) {
                    Closing::NotYet => break,
                    closing => self.close(closing),
                }
            } else if self.cohort.is_empty() && !self.joining.is_empty() {
                self.admit();
            } else {
                break;
            }
        }
        self.grant();
        self.check();
    }

    fn admit(&mut self) {
        for worker in core::mem::take(&mut self.joining) {
            self.count(worker);
        }
    }

    fn close(&mut self, closing: Closing) {
        let oldest = self.cohort.oldest().unwrap().0;
        let last = self.pending.len() - 1;
        let version = self.cohort.version();
        let mut taken = Vec::new();
        let mut place = 0;
        self.pending.retain(|(contribution, base)| {
            let chosen = match closing {
                Closing::NotYet => false,
                Closing::Everything => true,
                Closing::Oldest => contribution.clock == oldest,
                Closing::Latest => place == last,
            };
            place += 1;
            if chosen {
                taken.push(Contribution { staleness: version.since(*base), ..*contribution });
            }
            !chosen
        });
        self.check_update(closing, &taken);
        self.cohort.close(closing);
        self.wanted = self.wanted.map(|wanted| wanted.saturating_sub(taken.len() as u64));
        self.tell_wanted();
        self.policy.closed(&self.cohort, closing);
        self.admit();
        if self.policy.cancels() {
            let version = self.cohort.version();
            self.under_way.values_mut().flatten().for_each(|base| *base = version);
        }
    }

    /// Starts waiting workers, slowest first and one mini-batch each, until none may start. If it
    /// is no worker's turn yet and nothing is under way, time advances to the next turn.
    fn grant(&mut self) {
        loop {
            let mut waiting: Vec<u32> = self.under_way.keys().copied().collect();
            waiting.sort_unstable_by_key(|&worker| (self.cohort.clock(WorkerId(worker)), worker));
            let before = self.granted.len();
            for worker in waiting {
                if let Some(turn) = self.policy.next_turn(&self.cohort) {
                    if self.under_way.values().all(VecDeque::is_empty) {
                        self.now = self.now.max(turn);
                    }
                    if self.now < turn {
                        return;
                    }
                }
                self.start(worker);
            }
            if self.granted.len() == before {
                return;
            }
        }
    }

    fn start(&mut self, worker: u32) {
        let Some(under_way) = self.under_way.get_mut(&worker) else { return };
        let (busy, id) = (under_way.len() as u32, WorkerId(worker));
        if busy < self.policy.window() && self.policy.may_start(&self.cohort, id, busy) {
            under_way.push_back(self.cohort.version());
            self.granted.push((worker, self.now));
            self.policy.started(id, self.now);
        }
    }

    fn is_fresh(&self) -> bool {
        use ConsistencySpec as C;
        matches!(
            self.spec,
            C::KSync { .. } | C::Backup { .. } | C::KBatchSync { .. } | C::Malenia { .. }
        ) || self.is_bsp()
    }

    fn is_bsp(&self) -> bool {
        use ConsistencySpec as C;
        matches!(self.spec, C::Bsp | C::Ssp { slack: 0 } | C::Delay { bound: Some(0) })
            || self.spec == C::Dssp { low: 0, high: 0 }
    }

    fn check_update(&mut self, closing: Closing, taken: &[Contribution]) {
        use ConsistencySpec as C;
        assert!(!taken.is_empty(), "an update of nothing");
        assert!(!self.is_fresh() || taken.iter().all(|gradient| gradient.staleness == 0));
        let of = |worker: u32| taken.iter().filter(|gradient| gradient.worker == worker).count();
        let members: Vec<u32> = self.under_way.keys().copied().collect();
        let gone = |gradient: &&Contribution| !members.contains(&gradient.worker);
        let reach = members.len() + taken.iter().filter(gone).count();
        let nobody = members.is_empty();
        let (alone, most) = (taken.len() == 1, self.most_staleness());
        assert!(
            !self.fixed || taken.iter().all(|gradient| gradient.staleness <= most),
            "{taken:?} under {}",
            self.spec
        );
        match self.spec {
            _ if self.is_bsp() => assert!(members.iter().all(|worker| of(*worker) == 1)),
            C::KSync { workers } | C::KAsync { workers } => {
                assert_eq!(taken.len(), reach.min(workers as usize));
                assert!(members.iter().all(|worker| of(*worker) <= 1));
            }
            C::Backup { workers } => {
                assert_eq!(taken.len(), reach.saturating_sub(workers as usize).max(1));
                assert!(members.iter().all(|worker| of(*worker) <= 1));
            }
            C::KBatchSync { gradients } | C::Buffered { gradients } => {
                let most = u64::from(gradients).min(self.wanted.unwrap_or(u64::MAX));
                assert!(taken.len() as u64 == most || nobody);
            }
            C::Malenia { gradients } => {
                assert!(members.iter().all(|worker| of(*worker) >= 1));
                let inverses: f64 = members.iter().map(|worker| 1.0 / of(*worker) as f64).sum();
                let enough =
                    (members.len().pow(2) as f64) >= f64::from(gradients) * inverses - 1e-6;
                let exact = members.iter().all(|worker| of(*worker) as u64 >= self.pass);
                let last = self.wanted.is_some_and(|wanted| taken.len() as u64 >= wanted);
                assert!(enough || exact || last, "{taken:?} of {members:?}");
            }
            C::Delay { .. } => {
                let clock = taken[0].clock;
                assert!(taken.iter().all(|gradient| gradient.clock == clock));
                let mut whose: Vec<u32> = taken.iter().map(|gradient| gradient.worker).collect();
                whose.sort_unstable();
                assert!(whose.windows(2).all(|pair| pair[0] != pair[1]), "{taken:?}");
                assert!(self.iteration.is_none_or(|last| clock > last) || !self.fixed);
                assert!(!self.fixed || taken.len() == members.len());
                self.iteration = Some(clock);
            }
            C::Ringleader => self.check_turn(closing, taken, &members),
            C::Ringmaster { staleness } => assert!(alone && taken[0].staleness < staleness),
            _ => assert!(alone, "{taken:?}"),
        }
    }

    /// The largest staleness while the membership is fixed.
    fn most_staleness(&self) -> u64 {
        use ConsistencySpec as C;
        let others = (self.under_way.len() as u64).saturating_sub(1);
        match self.spec {
            C::Ssp { slack } => others * (2 * slack + 1),
            C::Dssp { high, .. } => others * (2 * high + 1),
            C::Delay { bound: Some(bound) } => bound,
            C::Ringleader | C::RoundRobin => 2 * others,
            _ => u64::MAX,
        }
    }

    fn check_turn(&mut self, closing: Closing, taken: &[Contribution], members: &[u32]) {
        if closing == Closing::Everything {
            assert!(self.turns.as_ref().is_none_or(Vec::is_empty), "a table before all turns");
            let entries = |worker: &u32| taken.iter().any(|gradient| gradient.worker == *worker);
            assert!(members.iter().all(entries), "{members:?} have no entries in {taken:?}");
            self.turns =
                Some(members.iter().copied().filter(|owed| Some(*owed) != self.latest).collect());
            return;
        }
        let worker = taken[0].worker;
        let turns = self.turns.as_mut().expect("a turn before the first table");
        let owed = turns.iter().position(|owed| *owed == worker);
        owed.map(|place| turns.remove(place));
        let left = !members.contains(&worker);
        assert!(owed.is_some() || left, "{worker} has had its turn");
    }

    /// Checks that the gathered gradients are bounded while the update waits for a worker.
    fn check_gathered(&self) {
        use ConsistencySpec as C;
        if !self.fixed {
            return;
        }
        let wanted = self.wanted.unwrap_or(u64::MAX - WORKERS as u64);
        let members = self.under_way.len() as u64;
        let C::Delay { bound } = self.spec else {
            // Each turn at the table since they were gathered may have used up one wanted gradient.
            let turns = if self.spec == C::Ringleader { members } else { 0 };
            // One more of each member that had contributed nothing.
            let most = wanted.saturating_add(turns + members);
            return assert!(self.pending.len() as u64 <= most, "{:?}", self.pending);
        };
        let most = wanted.div_ceil(members).min(bound.unwrap_or(self.pass)).saturating_add(1);
        for (worker, under_way) in &self.under_way {
            let ahead = self.cohort.lead(WorkerId(*worker)) + under_way.len() as u64;
            assert!(ahead <= most, "{worker} is {ahead} ahead, of {most}");
        }
    }

    fn check(&self) {
        use ConsistencySpec as C;
        let busy = |worker: &u32| self.under_way[worker].len() as u64;
        let held = || self.under_way.keys().all(|worker| busy(worker) == 0);
        assert!(self.under_way.is_empty() || !held(), "everybody waits under {}", self.spec);
        self.check_gathered();
        let most = match self.spec {
            _ if self.is_bsp() => return,
            C::Ssp { slack } => slack,
            C::Dssp { high, .. } => high,
            C::Delay { bound: Some(bound) } => bound,
            C::RoundRobin => 1,
            _ => return,
        };
        for worker in self.under_way.keys() {
            // The last mini-batch under way is of this iteration.
            let ahead = self.cohort.lead(WorkerId(*worker)) + busy(worker);
            assert!(ahead <= most + 1, "{worker} is {ahead} ahead under {}", self.spec);
        }
    }
}

/// Limits of the budget and of the data.
#[derive(Clone, Copy, Debug)]
struct Limits {
    wanted: Option<u64>,
    pass: u64,
}

fn limits() -> impl Strategy<Value = Limits> {
    let wanted = prop_oneof![Just(None), (1_u64..60).prop_map(Some)];
    let pass = prop_oneof![Just(u64::MAX), 1_u64..6];
    (wanted, pass).prop_map(|(wanted, pass)| Limits { wanted, pass })
}

fn specs() -> impl Strategy<Value = ConsistencySpec> {
    use ConsistencySpec as C;
    let few = || 1..=WORKERS;
    prop_oneof![
        Just(C::Bsp),
        Just(C::Asp),
        (0_u64..4).prop_map(|slack| C::Ssp { slack }),
        (0_u64..4).prop_map(|bound| C::Delay { bound: Some(bound) }),
        Just(C::Delay { bound: None }),
        (0_u64..3, 0_u64..5).prop_map(|(low, more)| C::Dssp { low, high: low + more }),
        few().prop_map(|workers| C::KSync { workers }),
        (0..WORKERS).prop_map(|workers| C::Backup { workers }),
        (1_u32..9).prop_map(|gradients| C::KBatchSync { gradients }),
        few().prop_map(|workers| C::KAsync { workers }),
        (1_u32..9).prop_map(|gradients| C::Buffered { gradients }),
        (1_u32..30).prop_map(|gradients| C::Malenia { gradients }),
        (1_u64..6).prop_map(|staleness| C::Ringmaster { staleness }),
        Just(C::Ringleader),
        Just(C::RoundRobin),
    ]
}

fn pushes() -> impl Strategy<Value = Step> {
    (0..WORKERS, 0_u64..1000).prop_map(|(worker, nanos)| Step::Push(worker, nanos))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = || 0..WORKERS;
    let step = prop_oneof![
        1 => worker().prop_map(Step::Join),
        1 => worker().prop_map(Step::Leave),
        1 => worker().prop_map(Step::Finish),
        20 => pushes(),
    ];
    prop::collection::vec(step, 0..200)
}

/// Lets all workers push in turn, and checks that the version advances.
fn check_progress(model: &mut Model) {
    if model.under_way.is_empty() || model.is_over() {
        return;
    }
    let before = model.cohort.version();
    for _ in 0..40 {
        (0..WORKERS).for_each(|worker| model.take(Step::Push(worker, 1)));
    }
    assert!(model.cohort.version() > before, "nothing continues under {}", model.spec);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_policy_keeps_its_promise_and_goes_on(
        (spec, workers, limits, steps) in (specs(), 1..=WORKERS, limits(), steps())
    ) {
        let mut model = Model::within(spec, workers, limits);
        steps.into_iter().for_each(|step| model.take(step));
        check_progress(&mut model);
    }

    #[test]
    fn bounds_hold_while_the_membership_is_fixed(
        (spec, workers, steps) in (specs(), 1..=WORKERS, prop::collection::vec(pushes(), 0..200))
    ) {
        let mut model = Model::new(spec, workers);
        steps.into_iter().for_each(|step| model.take(step));
        prop_assert!(model.fixed);
        check_progress(&mut model);
    }

    #[test]
    fn round_robin_gives_out_parameters_in_turn(
        (workers, steps) in (1..=WORKERS, prop::collection::vec(pushes(), 0..200))
    ) {
        let mut model = Model::new(ConsistencySpec::RoundRobin, workers);
        steps.into_iter().for_each(|step| model.take(step));
        for (place, (worker, _)) in model.granted.iter().enumerate() {
            prop_assert_eq!(*worker, place as u32 % workers);
        }
    }
}

/// Lets all workers push in turn, `rounds` times.
fn in_step(model: &mut Model, workers: u32, rounds: u32) {
    for _ in 0..rounds {
        (0..workers).for_each(|worker| model.take(Step::Push(worker, 10)));
    }
}

#[test]
fn bounded_delay_keeps_as_many_under_way_as_it_allows() {
    for (bound, wanted) in [(Some(0), 1), (Some(1), 2), (Some(3), 4), (None, 256), (Some(999), 256)]
    {
        let model = Model::new(ConsistencySpec::Delay { bound }, 3);
        assert!(model.under_way.values().all(|under_way| under_way.len() == wanted), "{bound:?}");
    }
}

#[test]
fn one_worker_with_delay_is_that_much_stale() {
    let mut model = Model::new(ConsistencySpec::Delay { bound: Some(3) }, 1);
    in_step(&mut model, 1, 20);
    // Three versions behind at all times: the work under way started before those updates.
    let under_way: Vec<u64> = model.under_way[&0].iter().map(|version| version.0).collect();
    assert_eq!((model.cohort.version().0, under_way), (20, vec![17, 18, 19, 20]));
}

#[test]
fn equal_speeds_make_one_contribution_of_each_worker() {
    for spec in [
        ConsistencySpec::KSync { workers: 4 },
        ConsistencySpec::Backup { workers: 0 },
        ConsistencySpec::Malenia { gradients: 4 },
        ConsistencySpec::Delay { bound: Some(0) },
    ] {
        let mut model = Model::new(spec, 4);
        in_step(&mut model, 4, 10);
        assert_eq!(model.cohort.version().0, 10, "{spec}");
    }
    let mut model = Model::new(ConsistencySpec::Ringleader, 4);
    in_step(&mut model, 4, 21);
    // A table of four gradients, whose last worker has thereby had its turn, and three turns.
    assert_eq!(model.cohort.version().0, 1 + (21 * 4 - 4) / 7 * 4 + 3);
}

#[test]
fn dynamic_slack_lets_the_fastest_stop_just_before_the_slowest_comes() {
    let mut model = Model::new(ConsistencySpec::Dssp { low: 1, high: 12 }, 2);
    let mut push = |worker: u32, at: u64| {
        model.now = Time::from_nanos(at - 1);
        model.take(Step::Push(worker, 0));
        !model.under_way[&worker].is_empty()
    };
    // The first takes 10 and the second 95; until both times are known the policy is SSP(1).
    assert!(push(0, 10) && !push(0, 20) && push(1, 95) && !push(0, 105) && push(1, 190));
    // The first was free to start at 190: the wait before does not count for its pace. The second
    // is expected at 285, just after the eighth push from now.
    assert!((0..8).all(|more| push(0, 200 + 10 * more)));
    assert!(!push(0, 280));
}
