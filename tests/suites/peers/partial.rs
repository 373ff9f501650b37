//! All-reduces that leave late gradients out: no mini-batch is lost or counts twice, and no slow
//! worker makes the others wait for longer than it may.

use std::time::Duration;

use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::BudgetKind;
use pstrain_policy::rules::Aggregation;
use pstrain_tests::{
    Kind, PeerFaults, Toy, VirtualRun, for_seeds, intervals, run_peers, simulate_toy_peers,
};
use pstrain_wire::worker::EndReason;

use super::schedules::{describe, faults_of, job_of};
use super::{on_threads, peers, plain};

/// Architectures whose sums may be without some gradients.
fn summed() -> impl Iterator<Item = Architecture> {
    Architecture::replicated().filter(|architecture| architecture.algorithm().is_some())
}

/// A job whose updates do not wait for long.
fn partial_job_of(seed: u64, least: u64) -> Toy {
    let mut random = Stream::new(seed).fork("job without late gradients", 0).rng();
    let mut toy = job_of(seed, least);
    if let Architecture::InNetwork { .. } = toy.job.architecture {
        toy.job.architecture = Architecture::Hierarchical { fanout: 2 };
    }
    toy.job.mode.in_flight = None;
    let lease = toy.job.membership.lease;
    let after = lease / [100_000, 2000, 200, 50][random.below(4) as usize];
    toy.job.membership.partial_after = Some(after);
    if random.below(3) == 0 {
        toy.job.budget.kind = BudgetKind::Partition;
    }
    // Gradients of earlier versions want a smaller rate.
    toy.job.update.learning_rate /= 4.0;
    toy
}

#[test]
fn each_mini_batch_counts_once_whatever_happens() {
    let (mut regrouped, mut partial, mut missed, mut ended) = (0, 0, 0, 0);
    let ran = for_seeds(
        4800,
        |seed| describe(seed, 2),
        |seed| {
            let run = run_peers(&partial_job_of(seed, 2), faults_of(seed), seed);
            regrouped += run.groups.saturating_sub(1);
            partial += run.partial;
            missed += run.missed;
            ended += u64::from(run.reason == EndReason::BudgetReached);
        },
    );
    ran.expect_above(4800, regrouped, "groups that were formed again");
    ran.expect_above(24_000, partial, "updates without late gradients");
    ran.expect_above(400, missed, "missed updates");
    ran.expect_above(2400, ended, "runs that used up their budget");
}

#[test]
fn without_faults_every_run_uses_up_its_budget() {
    let mut partial = 0;
    let ran = for_seeds(
        480,
        |seed| describe(seed, 1),
        |seed| {
            let run = run_peers(&partial_job_of(seed, 1), PeerFaults::None, seed);
            assert_eq!((run.reason, run.groups), (EndReason::BudgetReached, 1));
            let ended = |end: &Option<_>| *end == Some(Ok(EndReason::BudgetReached));
            assert!(run.workers.iter().all(ended), "{:?}", run.workers);
            partial += run.partial;
        },
    );
    ran.expect_above(2400, partial, "updates without late gradients");
}

/// As long as no gradient is late, the parameters are the same as without a limit.
#[test]
fn without_late_gradients_updates_have_all_over_every_transport() {
    for architecture in summed() {
        for aggregation in [Aggregation::Mean, Aggregation::Sum] {
            let mut toy = plain(architecture, 5, 203, true);
            toy.job.aggregation = aggregation;
            toy.job.update.learning_rate /= 5.0;
            // A ring sums each chunk from another rank on. 115 values in 5 chunks have the same
            // borders with the word of those present as without.
            let activation = Activation::Relu;
            toy.job.model = ModelSpec::Mlp { hidden: vec![7], activation };
            let virtually = |toy: &Toy| {
                simulate_toy_peers(&VirtualRun::new(toy, "delay=2ms", "3ms")).parameters
            };
            let wanted = virtually(&toy);
            toy.job.membership.partial_after = Some(Duration::from_secs(60));
            assert_eq!(virtually(&toy), wanted, "{architecture}");
            for kind in Kind::ALL {
                let run = on_threads(kind, &toy);
                assert_eq!(run.parameters, wanted, "{architecture} {kind:?}");
            }
        }
    }
}

/// Nothing waits for gradients but the first: most of the others are late.
#[test]
fn runs_with_late_gradients_end_over_every_transport() {
    for architecture in summed() {
        for kind in Kind::ALL {
            let mut toy = peers(architecture, 4, 203);
            toy.job.membership.partial_after = Some(Duration::ZERO);
            let run = on_threads(kind, &toy);
            assert_eq!(run.reason, EndReason::BudgetReached, "{architecture} {kind:?}");
            let ended = |end: &Result<_, _>| *end == Ok(EndReason::BudgetReached);
            assert!(run.workers.iter().all(ended), "{architecture} {kind:?} {:?}", run.workers);
        }
    }
}

/// The last worker is slow. An update takes the gradient of a fast worker, the time that it waits,
/// and a hop to the late one and back.
#[test]
fn an_update_takes_a_fast_gradient_the_wait_and_a_round_trip() {
    let (hop, fast, slow, after) = (3, 20, 700, 15);
    for workers in [2_u32, 3, 4, 8] {
        // One site: rank 0 adds all up, and is the first to miss a gradient.
        let architecture = Architecture::Hierarchical { fanout: workers };
        let mut toy = peers(architecture, workers, 60 * workers as usize);
        toy.job.membership.lease = Duration::from_secs(3600);
        toy.job.membership.partial_after = Some(Duration::from_millis(after));
        (toy.job.batch_size, toy.job.budget.epochs) = (2, 4);
        let compute = format!("{fast}ms {}.time={slow}ms", workers - 1);
        let run = simulate_toy_peers(&VirtualRun::new(&toy, &format!("delay={hop}ms"), &compute));
        let times = intervals(&run.updates);
        let wanted = Duration::from_millis(fast + after + 2 * hop);
        // The late worker's gradient makes one update in a dozen complete, and thus faster.
        let as_wanted = times.iter().filter(|time| **time == wanted).count();
        assert!(as_wanted * 10 >= times.len() * 8, "{workers}: {times:?}");
        assert!(times[2..].iter().all(|time| *time <= wanted), "{workers}: {times:?}");
    }
}
