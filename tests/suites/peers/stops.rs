//! Runs that a person stops, and targets: the result is the last model, evaluated.

use std::time::Duration;

use pstrain_policy::architecture::Architecture;
use pstrain_tests::{PeerFaults, Toy, VirtualRun, for_seeds, run_peers, simulate_toy_peers};
use pstrain_wire::worker::EndReason;

use super::{any, describe, peers};

fn job_of(seed: u64, least: u64) -> Toy {
    let mut toy = any(seed, least);
    // No evaluation but the first and the last.
    toy.job.stopping.evaluate_every = 1000.0;
    toy
}

/// The checkers of the lab compare the result with the models that the workers have.
#[test]
fn a_run_that_is_stopped_ends_with_the_last_models() {
    let (mut stopped, mut trained) = (0, 0);
    let ran = for_seeds(
        1200,
        |seed| describe(&job_of(seed, 1)),
        |seed| {
            let run = run_peers(&job_of(seed, 1), PeerFaults::Stopped, seed);
            let is_stopped = run.reason == EndReason::Stopped;
            assert!(is_stopped || run.reason == EndReason::BudgetReached, "{:?}", run.reason);
            let ended = |end: &Option<_>| matches!(end, Some(Ok(reason)) if *reason == run.reason);
            assert!(run.version == 0 || run.workers.iter().all(ended), "{:?}", run.workers);
            stopped += u64::from(is_stopped);
            trained += u64::from(is_stopped && run.version > 0);
        },
    );
    ran.expect_above(800, stopped, "runs that were stopped");
    ran.expect_above(600, trained, "runs that were stopped after updates");
}

/// If the member that was asked for its model dies, another one is asked. The checkers compare the
/// result with the models.
#[test]
fn a_worker_that_dies_while_a_run_is_stopped_does_not_take_the_result_with_it() {
    let (mut killed, mut trained) = (0, 0);
    let ran = for_seeds(
        1200,
        |seed| describe(&job_of(seed, 2)),
        |seed| {
            let run = run_peers(&job_of(seed, 2), PeerFaults::StoppedAndKilled, seed);
            let is_over = matches!(run.reason, EndReason::Stopped | EndReason::BudgetReached);
            assert!(is_over, "{:?}", run.reason);
            killed += u64::from(!run.faults.is_empty());
            trained += u64::from(!run.faults.is_empty() && run.version > 0);
        },
    );
    ran.expect_above(400, killed, "deaths");
    ran.expect_above(300, trained, "results of updates");
}

/// A worker that died before the first update joins later, and has no part of what was made
/// without it.
#[test]
fn a_worker_that_died_before_the_first_update_joins_later() {
    let all = [Architecture::DPsgd, Architecture::AdPsgd];
    for architecture in Architecture::replicated().chain(all) {
        for crash in (100..400).step_by(30) {
            let mut toy = peers(architecture, 2, 40);
            toy.job.batch_size = 1;
            toy.job.membership.lease = Duration::from_secs(5);
            let link = "all.delay=50ms all.jitter=5ms";
            let mut run = VirtualRun::new(&toy, link, "1ms");
            let faults = format!("2.crash@{crash}ms 2.restart@{}ms", crash + 2000);
            run.scenario.faults = faults.parse().unwrap();
            let end = simulate_toy_peers(&run);
            assert_eq!(end.reason, EndReason::BudgetReached, "{architecture}, {crash} ms");
        }
    }
}

/// Each worker dials its neighbors one after another, over links that take half a second.
#[test]
fn a_group_forms_over_slow_links_however_many_its_connections() {
    for (architecture, workers, delay) in
        [(Architecture::AllToAll, 8, 500), (Architecture::AllGather, 40, 100)]
    {
        let mut toy = peers(architecture, workers, workers as usize * 2);
        toy.job.membership.lease = Duration::from_secs(5);
        let end = simulate_toy_peers(&VirtualRun::new(&toy, &format!("delay={delay}ms"), "1ms"));
        assert_eq!(end.reason, EndReason::BudgetReached, "{architecture}");
    }
}
