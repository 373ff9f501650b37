//! Workers that average in pairs, each at its own pace: the mean is kept whatever happens, a
//! slow worker delays its neighbors alone, and one worker alone trains as with any architecture.

use std::time::Duration;

use pstrain_policy::architecture::Architecture;
use pstrain_tests::{Kind, PeerFaults, Toy, VirtualRun, for_seeds, run_peers, simulate_toy_peers};
use pstrain_wire::worker::EndReason;

use super::{
    GRAPHS, describe, drawn, hold_under_faults, on_threads, peers, set_graph, survive_a_death,
};

/// A job drawn from a seed.
pub(super) fn job_of(seed: u64, least: u64) -> Toy {
    drawn(Architecture::AdPsgd, seed, least)
}

#[test]
fn without_faults_every_schedule_ends() {
    for_seeds(
        240,
        |seed| describe(&job_of(seed, 1)),
        |seed| {
            let toy = job_of(seed, 1);
            let run = run_peers(&toy, PeerFaults::None, seed);
            assert_eq!((run.reason, run.groups), (EndReason::BudgetReached, 1));
            let ended = |end: &Option<_>| *end == Some(Ok(EndReason::BudgetReached));
            assert!(run.workers.iter().all(ended), "{:?}", run.workers);
            assert!(run.version > 20, "{}", run.version);
        },
    );
}

#[test]
fn after_a_death_the_others_go_on() {
    survive_a_death(job_of);
}

/// The checker of the lab follows each model through all exchanges and gradients.
#[test]
fn each_exchange_and_each_gradient_counts_once_whatever_happens() {
    hold_under_faults(job_of);
}

#[test]
fn a_run_that_goes_back_to_checkpoints_uses_up_its_budget() {
    let mut restarts = 0;
    let ran = for_seeds(
        1200,
        |seed| describe(&job_of(seed, 1)),
        |seed| {
            let run = run_peers(&job_of(seed, 1), PeerFaults::Restarts, seed);
            assert_eq!(run.reason, EndReason::BudgetReached, "{:?}", run.reasons);
            restarts += run.restarts;
        },
    );
    ran.expect_above(1200, restarts, "restarts");
}

#[test]
fn one_worker_trains_as_with_any_architecture() {
    let [alone, reduced] = [Architecture::AdPsgd, Architecture::Ring]
        .map(|it| simulate_toy_peers(&VirtualRun::new(&peers(it, 1, 203), "delay=3ms", "4ms")));
    assert_eq!(
        (alone.reason, reduced.reason),
        (EndReason::BudgetReached, EndReason::BudgetReached)
    );
    assert_eq!((alone.version, &alone.parameters), (reduced.version, &reduced.parameters));
}

#[test]
fn runs_end_over_every_transport() {
    for (graph, workers) in GRAPHS.into_iter().flat_map(|it| [1, 2, 5, 9].map(|n| (it, n))) {
        for kind in Kind::ALL {
            let mut toy = peers(Architecture::AdPsgd, workers, 203);
            set_graph(&mut toy, graph);
            let run = on_threads(kind, &toy);
            assert_eq!(run.reason, EndReason::BudgetReached, "{graph} {workers} {kind:?}");
        }
    }
}

/// Of two workers with equal links and machines the one that asks waits for its answer, and the
/// other one for nothing.
#[test]
fn an_update_takes_the_longer_of_a_gradient_and_an_exchange() {
    for (compute, asks) in [(7, 20), (20, 20), (31, 31)] {
        let mut toy = peers(Architecture::AdPsgd, 2, 80);
        (toy.job.batch_size, toy.job.budget.epochs) = (2, 5);
        let link = "delay=6ms down.delay=4ms";
        let run = simulate_toy_peers(&VirtualRun::new(&toy, link, &format!("{compute}ms")));
        assert_eq!(run.reason, EndReason::BudgetReached);
        let (first, last) = (run.updates[40], run.updates[run.updates.len() - 40]);
        let elapsed = last.since(first).as_millis() as f64;
        let wanted = elapsed / f64::from(compute) + elapsed / f64::from(asks);
        let found = (run.updates.len() - 80) as f64;
        assert!((found - wanted).abs() <= 2.0, "{compute} ms: {found} updates, not {wanted}");
    }
}

#[test]
fn a_slow_worker_holds_no_other_up() {
    let time = |architecture| {
        let mut toy = peers(architecture, 4, 160);
        toy.job.membership.lease = Duration::from_secs(3600);
        (toy.job.batch_size, toy.job.budget.epochs) = (2, 4);
        let run = simulate_toy_peers(&VirtualRun::new(&toy, "delay=1ms", "10ms 2.time=200ms"));
        assert_eq!(run.reason, EndReason::BudgetReached);
        run.updates[run.updates.len() - 1].since(run.updates[0])
    };
    // 320 mini-batches: in rounds of 200 ms, or most of them by three workers at 10 ms each.
    let (together, alone) = (time(Architecture::DPsgd), time(Architecture::AdPsgd));
    assert!(together > Duration::from_secs(15), "{together:?}");
    assert!(alone < Duration::from_millis(1500), "{alone:?}");
}

#[test]
fn workers_do_not_run_far_past_the_budget() {
    for seed in 0..8 {
        let toy = job_of(seed, 3);
        let job = &toy.job;
        let run = simulate_toy_peers(&VirtualRun::new(&toy, "delay=50ms", "1ms"));
        // The mini-batches of a pass may be a row shorter than the batch size.
        let workers = u64::from(job.membership.workers);
        let of_pass = job.data.train.rows.div_ceil(workers).div_ceil(job.batch_size.into());
        let most = of_pass * workers * u64::from(job.budget.epochs);
        assert!(run.version <= most + 3 * workers, "{} updates, of {most}", run.version);
    }
}

#[test]
fn virtual_time_repeats_a_run() {
    let toy = job_of(3, 4);
    let run = || simulate_toy_peers(&VirtualRun::new(&toy, "delay=3ms 2.delay=9ms", "4ms"));
    let [one, other] = [run(), run()];
    assert_eq!((one.version, one.updates), (other.version, other.updates));
    assert_eq!(one.parameters, other.parameters);
}
