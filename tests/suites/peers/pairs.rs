//! Workers that average in pairs, each at its own pace: the mean is kept whatever happens, no
//! worker waits for a slow one that it does not ask, and one worker alone trains as with any
//! architecture.

use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::BudgetKind;
use pstrain_tests::{
    Kind, PeerFaults, Toy, VirtualRun, for_seeds, run_peer_cluster, run_peers, simulate_toy_peers,
    within,
};
use pstrain_wire::worker::EndReason;

use super::{GRAPHS, peers, plain};

/// A job drawn from a seed.
pub(super) fn job_of(seed: u64, least: u64) -> Toy {
    let mut random = Stream::new(seed).fork("job of pairs", 0).rng();
    let workers = (least + random.below(7)) as u32;
    let rows = workers as usize * 17 + random.below(9) as usize;
    let mut toy = plain(Architecture::AdPsgd, workers, rows, random.below(2) == 0);
    toy.job.graph = GRAPHS[random.below(5) as usize];
    toy.job.batch_size = 4;
    toy.job.budget.epochs = 12;
    if random.below(3) == 0 {
        toy.job.budget.kind = BudgetKind::Partition;
    }
    toy.job.membership.lease = Duration::from_millis([200, 1000, 5000][random.below(3) as usize]);
    toy
}

fn describe(seed: u64, least: u64) -> String {
    let job = job_of(seed, least).job;
    format!("{} workers, {}", job.membership.workers, job.graph)
}

#[test]
fn without_faults_every_schedule_ends() {
    for_seeds(
        240,
        |seed| describe(seed, 1),
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
    let (mut struck, mut regrouped) = (0, 0);
    let ran = for_seeds(
        1200,
        |seed| describe(seed, 2),
        |seed| {
            let toy = job_of(seed, 2);
            let run = run_peers(&toy, PeerFaults::One, seed);
            assert_eq!(run.reason, EndReason::BudgetReached, "{:?} {:?}", run.faults, run.reasons);
            let workers = toy.job.membership.workers as usize;
            let ended = |end: &&Option<_>| **end == Some(Ok(EndReason::BudgetReached));
            let finished = run.workers.iter().filter(ended).count();
            assert!(finished >= workers - 1, "{:?}", run.workers);
            struck += u64::from(!run.faults.is_empty());
            regrouped += u64::from(run.groups > 1);
        },
    );
    ran.expect_above(600, struck, "faults");
    ran.expect_above(400, regrouped, "groups that were formed again");
}

/// The checker of the lab follows each model through all exchanges and gradients.
#[test]
fn each_exchange_and_each_gradient_counts_once_whatever_happens() {
    let (mut regrouped, mut ended) = (0, 0);
    let mut faults = Vec::new();
    let ran = for_seeds(
        4800,
        |seed| describe(seed, 2),
        |seed| {
            let faults_of = match seed % 4 {
                0 => PeerFaults::ManyAndRestarts,
                _ => PeerFaults::Many,
            };
            let run = run_peers(&job_of(seed, 2), faults_of, seed);
            regrouped += run.groups.saturating_sub(1);
            ended += u64::from(run.reason == EndReason::BudgetReached);
            faults.extend(run.faults.iter().map(|fault| format!("{fault:?}")));
        },
    );
    ran.expect_above(4800, regrouped, "groups that were formed again");
    ran.expect_above(2400, ended, "runs that used up their budget");
    let words = ["Kill", "Stop", "CutOneWay", "Cut", "Isolate", "Break"];
    ran.expect_each(words, |word| faults.iter().any(|fault| fault == word));
}

#[test]
fn a_run_that_goes_back_to_checkpoints_uses_up_its_budget() {
    let mut restarts = 0;
    let ran = for_seeds(
        1200,
        |seed| describe(seed, 1),
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
            toy.job.graph = graph;
            let run = within(Duration::from_secs(60), move || run_peer_cluster(kind, &toy));
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
        let rows = job.data.train.rows * u64::from(job.budget.epochs);
        let (most, workers) = (rows / 4 + 3 * 12, u64::from(job.membership.workers));
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
