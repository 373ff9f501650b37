//! Thousands of random fault schedules: crash, restart, cut, heal, duplicate, slow machines,
//! jitter, loss and outages, over every policy, budget and exchange.
//!
//! [`pstrain_tests::for_seeds`] says which seeds run, and how many. A failing seed prints the
//! `pstrain simulate` command that repeats the run without the checkers; a test of the binary
//! verifies that it is the same run, event by event.
//!
//! After each step of the server, independent checkers of the harness verify these invariants:
//!
//! - I1, an accepted push is applied exactly once: `Books` trace every gradient from its
//!   computation to its update, and repeat the training bit for bit.
//! - I2, no gradient is staler than its policy allows, updates consist of the gradients that the
//!   policy names, and no worker is further ahead: `Ranks` and `Promises`, from events alone.
//! - I3, versions rise by one: `Books`.
//! - I4, in a round all workers have read the same version: `Ranks`; the order of arrival does not
//!   matter: the bit-identical parameters of [`super::equivalence`], and the repeated training.
//! - I5, no barrier waits for a worker that does not count: `Checker` (some member owes
//!   something to every open round) and the time limits of each loss.
//! - I6, the server always waits for something: it has a deadline after each step, no wake-up is
//!   missed, and every run ends.
//! - I7, an old incarnation never pushes: `Books` accept pushes of the latest incarnation only.
//! - I9, a switch of the policy loses and mixes nothing: `Ranks` and `Books` continue under the new
//!   policy, with nothing in flight.
//! - I10, `assigned = applied + discarded + lost + outstanding`: `Books`, against the server's
//!   ledger. Real transports bound the queued bytes; see the conformance suite.
//!
//! I8 (a server that crashes is replaced) is tested in [`super::standby`], the guarantees of the
//! links in [`super::links`].

use std::cell::RefCell;
use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_roles::node::{Event, NodeError};
use pstrain_tests::{POLICIES, Ran, Simulated, Trial, for_seeds, kind_of_policy, trial_of};
use pstrain_transports::simulation::Origin;
use pstrain_wire::Refusal;
use pstrain_wire::worker::EndReason;

/// Number of seeds of the largest test.
const LARGEST: u64 = 10_000;

/// Runs `check` on the trials of a test that has `whole` of them.
fn for_trials(whole: u64, mut check: impl FnMut(u64, &Trial)) -> Ran {
    let describe = |seed| format!("the same without the checkers: {}", trial_of(seed));
    for_seeds(whole, describe, |seed| check(seed, &trial_of(seed)))
}

/// Returns words for everything that occurred in a run.
fn words(trial: &Trial, run: &Simulated) -> Vec<String> {
    let mut words = vec![
        format!("policy {}", kind_of_policy(trial.run.job.mode.consistency)),
        format!("budget {}", trial.run.job.budget.kind),
        format!("exchange {}", trial.run.job.exchange),
        format!("data from {}", trial.run.job.data.from),
        format!("on loss {}", trial.run.job.membership.on_loss),
        format!("minimum {}", trial.run.job.membership.min_workers.is_some()),
    ];
    words.extend(trial.faults_until(run.ended).iter().map(|fault| format!("fault {fault}")));
    let scenario = format!("{} {}", trial.run.scenario.links, trial.run.scenario.compute);
    let items = scenario.split(' ').filter_map(|item| item.split_once('='));
    words.extend(items.map(|(path, value)| {
        let key = path.rsplit('.').next().unwrap_or_default();
        let kind = value.split_once(':').map_or("", |(kind, _)| kind);
        format!("item {key} {kind}").trim_end().into()
    }));
    for (_, from, event) in &run.events {
        words.push(match event {
            Event::Joined { resumed, .. } => format!("Joined, resumed: {resumed}"),
            Event::Departed { how, .. } => format!("Departed {how:?}"),
            Event::Dropped { reason, .. } => format!("Dropped {reason:?}"),
            Event::Ended { reason } => {
                let reason = format!("Ended {reason:?}");
                reason.split(['(', '{']).next().unwrap_or_default().trim_end().into()
            }
            event => {
                let name = format!("{event:?}");
                let side = if *from == Origin::Server { "" } else { "worker: " };
                format!("{side}{}", name.split([' ', '{', '(']).next().unwrap_or_default())
            }
        });
    }
    words
}

/// Words that must occur in the largest test; otherwise it would check nothing.
const MUST_COME_UP: &[&str] = &[
    "CutOff",
    "Departed Left",
    "Departed Lost",
    "Departed Replaced",
    "Dropped Over",
    "Dropped Stale",
    "Ended BudgetReached",
    "Ended TooFewWorkers",
    "Adjusted",
    "Ended WorkerLost",
    "Joined, resumed: false",
    "Joined, resumed: true",
    "Paused",
    "Refused",
    "Repeated",
    "Switched",
    "Unpaused",
    "budget global",
    "budget partition",
    "data from server",
    "data from worker",
    "exchange combined",
    "exchange separate",
    "fault crash",
    "fault cut",
    "fault duplicate",
    "fault heal",
    "fault restart",
    "item distribution",
    "item factor",
    "item jitter",
    "item loss",
    "item outage",
    "item rate",
    "item slow",
    "item slow-start",
    "item time exponential",
    "item time lognormal",
    "item time normal",
    "item time pareto",
    "item time straggler",
    "minimum false",
    "minimum true",
    "on loss continue",
    "on loss stop",
    "on loss wait",
    "worker: Received",
    "worker: Redialling",
    "worker: Sent",
    "worker: Welcomed",
];

#[test]
fn under_random_fault_schedules_the_invariants_hold_and_the_run_ends() {
    let seen: RefCell<BTreeMap<String, u64>> = RefCell::default();
    let ran = for_trials(LARGEST, |_, trial| {
        let run = trial.run.run();
        check_ends(&run);
        for word in words(trial, &run) {
            *seen.borrow_mut().entry(word).or_default() += 1;
        }
    });
    let seen = seen.borrow();
    let policies = POLICIES.map(|policy| format!("policy {policy}"));
    let words = policies.iter().map(String::as_str).chain(MUST_COME_UP.iter().copied());
    ran.expect_each(words, |word| seen.contains_key(word));
}

/// Checks that no worker failed by a protocol error or received another end than the run's.
fn check_ends(run: &Simulated) {
    let ledger = run.ledger;
    assert_eq!(ledger.assigned, ledger.applied + ledger.discarded + ledger.lost, "{ledger:?}");
    for (end, worker) in run.workers.iter().zip((0..).map(WorkerId)) {
        match end {
            None | Some(Err(NodeError::Unreachable { .. })) => {}
            Some(Err(NodeError::Refused(Refusal::Over))) => {}
            Some(Ok(reason)) => assert_eq!(*reason, run.reason, "worker {worker}"),
            Some(Err(error)) => panic!("worker {worker} failed: {error}"),
        }
    }
}

/// A worker computes far ahead of its link of 83 kbit/s: the heartbeats of minutes arrive at once,
/// behind its pushes. They are no flood.
#[test]
fn heartbeats_that_a_slow_link_has_held_back_are_no_flood() {
    check_ends(&trial_of(13426276093210199259).run.run());
}

#[test]
fn a_repeated_trial_is_identical_event_by_event() {
    for_trials(500, |seed, trial| {
        let once = trial.run.run();
        let again = trial_of(seed).run.run();
        assert_eq!(again.trace, once.trace);
        // Compared as text, since losses may be NaN.
        assert_eq!(format!("{again:?}"), format!("{once:?}"));
    });
}

#[test]
fn without_faults_every_trial_reaches_its_budget_and_every_worker_knows() {
    for_trials(1000, |_, trial| {
        let mut run = trial.run.clone().with_faults("none");
        // Without outages (a long one equals a cut) and very late messages.
        let items = run.scenario.links.to_string();
        // A link that needs more than a lease for the parameters delays the end as long.
        let calm = |item: &&str| !["outage", "loss", "rate"].iter().any(|bad| item.contains(bad));
        let items: Vec<&str> = items.split(' ').filter(calm).collect();
        run.scenario.links = items.join(" ").parse().expect("what was written");
        let run = run.run();
        assert_eq!(run.reason, EndReason::BudgetReached);
        assert_eq!(run.ledger.lost, 0);
        assert!(run.membership_was_fixed || trial.run.job.membership.min_workers.is_some());
        let told = |end: &&Option<_>| **end == Some(Ok(EndReason::BudgetReached));
        // With a minimum below all workers, the run may end before the last has joined.
        let joined = |(.., event): &&(_, _, Event)| matches!(event, Event::Joined { .. });
        let joined = run.events.iter().filter(joined).count();
        assert_eq!(run.workers.iter().filter(told).count(), joined, "{:?}", run.workers);
    });
}

#[test]
fn faults_without_lost_workers_do_not_change_what_bsp_computes() {
    let compared = RefCell::new(0);
    let ran = for_trials(2000, |_, trial| {
        let mut run = trial.run.clone();
        run.job.mode.consistency = ConsistencySpec::Bsp;
        run.job.switches.clear();
        run.job.membership.min_workers = None;
        let disturbed = run.run();
        if disturbed.membership_was_fixed && disturbed.reason == EndReason::BudgetReached {
            let mut peaceful = run.with_faults("none");
            peaceful.scenario.links = "delay=1ms".parse().expect("a link");
            peaceful.scenario.compute = "1ms".parse().expect("a time");
            assert_eq!(peaceful.run().parameters, disturbed.parameters);
            *compared.borrow_mut() += 1;
        }
    });
    ran.expect_above(500, *compared.borrow(), "comparable runs");
}
