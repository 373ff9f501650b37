//! Groups of workers under random faults: they never diverge, make each update once, and go on
//! without lost members.

use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::in_network::Layout;
use pstrain_policy::job::{Exchange, InitialFrom, OnLoss};
use pstrain_policy::rules::Aggregation;
use pstrain_tests::{PeerFaults, Toy, for_seeds, run_peers};
use pstrain_wire::worker::EndReason;

use super::{any, plain};

/// A job drawn from a seed: some 30 updates.
pub(super) fn job_of(seed: u64, least: u64) -> Toy {
    let mut random = Stream::new(seed).fork("job of peers", 0).rng();
    let workers = (least + random.below(7)) as u32;
    let all: Vec<Architecture> = Architecture::replicated().collect();
    let architecture = match all[random.below(all.len() as u64) as usize] {
        Architecture::InNetwork { .. } => Architecture::InNetwork {
            slots: 1 + random.below(4) as u32,
            values: 1 + random.below(20) as u32,
        },
        Architecture::Hierarchical { .. } => {
            Architecture::Hierarchical { fanout: 2 + random.below(3) as u32 }
        }
        architecture => architecture,
    };
    let rows = workers as usize * 17 + random.below(9) as usize;
    let mut toy = plain(architecture, workers, rows, random.below(2) == 0);
    toy.job.batch_size = 4;
    toy.job.budget.epochs = 6;
    toy.job.membership.lease = Duration::from_millis([200, 1000, 5000][random.below(3) as usize]);
    if random.below(4) == 0 {
        toy.job.aggregation = Aggregation::Sum;
        toy.job.update.learning_rate /= workers as f32;
    }
    toy.job.mode.in_flight = (random.below(3) == 0).then_some(2);
    if random.below(3) == 0 {
        toy.job.initial = InitialFrom::Worker;
    }
    toy
}

/// The same, where gradients leave layer by layer in every second schedule that can.
fn layered_job_of(seed: u64, least: u64) -> Toy {
    let mut toy = job_of(seed, least);
    if seed.is_multiple_of(2) && toy.job.architecture.algorithm().is_some() {
        toy.job.exchange = Exchange::Layers;
    }
    toy
}

/// In a quarter of the schedules the meeting point dies, too.
pub(super) const fn faults_of(seed: u64) -> PeerFaults {
    match seed % 4 {
        0 => PeerFaults::ManyAndRestarts,
        _ => PeerFaults::Many,
    }
}

pub(super) fn describe(seed: u64, least: u64) -> String {
    let job = job_of(seed, least).job;
    format!("{} workers, {}", job.membership.workers, job.architecture)
}

#[test]
fn without_faults_every_schedule_ends_at_the_same_parameters() {
    for_seeds(
        120,
        |seed| describe(seed, 1),
        |seed| {
            let mut toy = layered_job_of(seed, 1);
            toy.job.initial = InitialFrom::Seed; // else the first worker that is ready has them
            let [one, other] = [seed, seed + 1000].map(|it| run_peers(&toy, PeerFaults::None, it));
            assert_eq!((one.reason, one.groups), (EndReason::BudgetReached, 1));
            assert_eq!((one.version, &one.parameters), (other.version, &other.parameters));
            let ended = |end: &Option<_>| *end == Some(Ok(EndReason::BudgetReached));
            assert!(one.workers.iter().all(ended), "{:?}", one.workers);
        },
    );
}

#[test]
fn after_a_death_the_others_go_on_within_a_lease() {
    let (mut struck, mut regrouped) = (0, 0);
    let ran = for_seeds(
        1200,
        |seed| describe(seed, 2),
        |seed| {
            let toy = layered_job_of(seed, 2);
            let run = run_peers(&toy, PeerFaults::One, seed);
            assert_eq!(run.reason, EndReason::BudgetReached, "{:?} {:?}", run.faults, run.reasons);
            let lease = toy.job.membership.lease;
            let workers = toy.job.membership.workers;
            let (delay, compute) = run.pace;
            // A lease of silence; messages to and from the meeting point and new connections; the
            // update under way begins again.
            let turns = match toy.job.architecture {
                Architecture::InNetwork { slots, values } => {
                    Layout::new(run.parameters.len(), slots, values).turns(0) as u32
                }
                _ => 0,
            };
            // Packets pass in both: in the update that the fault interrupts, and in the next try.
            let again = delay * (2 * (workers + 2 * turns) + 12) + compute * 2;
            let most = again + lease + lease / 5 * 2;
            assert!(run.longest <= most, "{:?} after {:?}, of {most:?}", run.longest, run.faults);
            let finished = run
                .workers
                .iter()
                .filter(|end| **end == Some(Ok(EndReason::BudgetReached)))
                .count();
            assert!(finished >= workers as usize - 1, "{:?}", run.workers);
            struck += u64::from(!run.faults.is_empty());
            regrouped += u64::from(run.groups > 1);
        },
    );
    ran.expect_above(600, struck, "faults");
    ran.expect_above(400, regrouped, "groups that were formed again");
}

#[test]
fn a_lost_worker_ends_a_run_that_stops_then() {
    for_seeds(
        120,
        |seed| describe(seed, 2),
        |seed| {
            let mut toy = layered_job_of(seed, 2);
            toy.job.membership.on_loss = OnLoss::Stop;
            let run = run_peers(&toy, PeerFaults::One, seed);
            let is_stopped = matches!(run.reason, EndReason::WorkerLost(..));
            assert!(is_stopped || run.reason == EndReason::BudgetReached, "{:?}", run.reason);
            assert!(run.groups <= 2, "{}", run.groups);
        },
    );
}

#[test]
fn an_update_that_one_member_alone_has_made_is_passed_on_or_made_again() {
    let (mut missed, mut dropped) = (0, 0);
    let ran = for_seeds(
        1200,
        |seed| describe(seed, 2),
        |seed| {
            let toy = layered_job_of(seed, 2);
            let run = run_peers(&toy, PeerFaults::Ahead, seed);
            assert_eq!(run.reason, EndReason::BudgetReached);
            missed += run.missed;
            dropped += run.dropped;
        },
    );
    ran.expect_above(100, missed, "missed updates");
    ran.expect_above(100, dropped, "updates of lost members alone");
}

#[test]
fn members_never_diverge_whatever_happens() {
    let (mut regrouped, mut missed, mut ended) = (0, 0, 0);
    let mut faults = Vec::new();
    let ran = for_seeds(
        4800,
        |seed| describe(seed, 2),
        |seed| {
            let toy = layered_job_of(seed, 2);
            let run = run_peers(&toy, faults_of(seed), seed);
            regrouped += run.groups.saturating_sub(1);
            missed += run.missed;
            ended += u64::from(run.reason == EndReason::BudgetReached);
            faults.extend(run.faults.iter().map(|fault| format!("{fault:?}")));
        },
    );
    ran.expect_above(4800, regrouped, "groups that were formed again");
    ran.expect_above(400, missed, "missed updates");
    ran.expect_above(2400, ended, "runs that used up their budget");
    let words = ["Kill", "Stop", "CutOneWay", "Cut", "Isolate", "Break"];
    ran.expect_each(words, |word| faults.iter().any(|fault| fault == word));
}

/// The routes of messages in a run whose workers do not all reach each other.
#[test]
fn workers_that_do_not_reach_each_other_train_all_the_same() {
    let (mut relayed, mut regrouped) = (0, 0);
    let ran = for_seeds(
        1200,
        |seed| super::describe(&any(seed, 2)),
        |seed| {
            let mut toy = any(seed, 2);
            toy.job.initial = InitialFrom::Seed;
            // In a group that is formed again no gradient is computed ahead.
            toy.job.mode.in_flight = None;
            let run = run_peers(&toy, PeerFaults::Apart, seed);
            assert_eq!(run.reason, EndReason::BudgetReached, "{:?}", run.reasons);
            let plain = run_peers(&toy, PeerFaults::None, seed);
            if !toy.job.architecture.is_gossip() {
                assert_eq!((run.version, &run.parameters), (plain.version, &plain.parameters));
            }
            relayed += run.relayed;
            regrouped += run.groups - 1;
        },
    );
    ran.expect_above(12_000, relayed, "messages by way of the meeting point");
    ran.expect_above(400, regrouped, "groups that were formed again");
}

#[test]
fn relayed_messages_are_not_lost_with_connections_or_members() {
    let (mut relayed, mut ended) = (0, 0);
    let ran = for_seeds(
        2400,
        |seed| super::describe(&any(seed, 2)),
        |seed| {
            let run = run_peers(&any(seed, 2), PeerFaults::ApartAndMany, seed);
            relayed += run.relayed;
            ended += u64::from(run.reason == EndReason::BudgetReached);
        },
    );
    ran.expect_above(24_000, relayed, "messages by way of the meeting point");
    ran.expect_above(1200, ended, "runs that used up their budget");
}
