//! A server and its standby: killed, stopped and cut off at random, they do what one server does
//! that nothing happens to.

use std::env;
use std::time::Duration;

use pstrain_core::consistency::ConsistencySpec;
use pstrain_core::job::{Job, OnLoss};
use pstrain_core::mode::Mode;
use pstrain_core::node::Ledger;
use pstrain_tests::{Disturbances, Rank, Replicated, Toy, run_replicated};

fn toy(workers: u32, seed: u64) -> Toy {
    let mut toy = Toy::new(workers, 240);
    toy.job.seed = seed;
    toy.job.membership.on_loss = OnLoss::Wait;
    toy.job.membership.lease = Duration::from_millis(400);
    toy.job.budget.epochs = 6;
    toy
}

/// Runs `seeds` schedules of each of some sizes.
fn schedules(seeds: u64, look: impl FnMut(&Toy, u64, &Replicated), mode: ConsistencySpec) {
    schedules_of(1, seeds, look, mode);
}

/// The same with several servers.
fn schedules_of(
    servers: u32,
    seeds: u64,
    look: impl FnMut(&Toy, u64, &Replicated),
    mode: ConsistencySpec,
) {
    disturbed(Disturbances::One, servers, seeds, look, mode);
}

fn disturbed(
    disturbances: Disturbances,
    servers: u32,
    seeds: u64,
    mut look: impl FnMut(&Toy, u64, &Replicated),
    mode: ConsistencySpec,
) {
    let chosen = env::var("PSTRAIN_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in chosen.map_or(0..seeds, |seed| seed..seed + 1) {
        let mut toy = toy(1 + (seed % 4) as u32, seed / 4);
        toy.job.servers = servers;
        toy.job.mode = Mode::of(mode);
        let done = run_replicated(&toy, disturbances, seed);
        look(&toy, seed, &done);
    }
}

#[test]
fn whatever_befalls_them_bsp_comes_to_the_same_parameters() {
    let (mut takeovers, mut alone, mut deposed) = (0, 0, 0);
    let look = |toy: &Toy, seed: u64, done: &Replicated| {
        let calm = run_replicated(toy, Disturbances::None, seed);
        assert_eq!(calm.takeovers + calm.alone, 0);
        assert_eq!(done.reason, calm.reason, "seed {seed}");
        assert_eq!(done.version, calm.version, "seed {seed}");
        assert_eq!(done.parameters, calm.parameters, "seed {seed}");
        takeovers += done.takeovers;
        alone += done.alone;
        deposed += done.deposed;
    };
    schedules(400, look, ConsistencySpec::Bsp);
    assert!(takeovers > 200 && alone > 100 && deposed > 20, "{takeovers} {alone} {deposed}");
}

/// Any of so many servers is disturbed, in so many schedules.
fn several_servers(servers: u32, seeds: u64) {
    let (mut takeovers, mut alone, mut deposed) = (0, 0, 0);
    let look = |toy: &Toy, seed: u64, done: &Replicated| {
        let one = Toy { job: Job { servers: 1, ..toy.job.clone() }, ..toy.clone() };
        let one = run_replicated(&one, Disturbances::None, seed);
        assert_eq!(done.reason, one.reason, "seed {seed}");
        assert_eq!(done.version, one.version, "seed {seed}");
        assert_eq!(done.parameters, one.parameters, "seed {seed}");
        takeovers += done.takeovers;
        alone += done.alone;
        deposed += done.deposed;
    };
    schedules_of(servers, seeds, look, ConsistencySpec::Bsp);
    let all = (takeovers, alone, deposed);
    assert!(takeovers > seeds / 2 && alone > seeds / 4 && deposed > seeds / 20, "{all:?}");
}

#[test]
fn whatever_befalls_two_servers_bsp_comes_to_the_parameters_of_one() {
    several_servers(2, 400);
}

#[test]
fn whatever_befalls_three_servers_bsp_comes_to_the_parameters_of_one() {
    several_servers(3, 400);
}

#[test]
fn servers_that_keep_a_log_and_crash_both_at_a_time_come_to_the_same_parameters() {
    for servers in [1, 2] {
        let (mut takeovers, mut deposed) = (0, 0);
        let look = |toy: &Toy, seed: u64, done: &Replicated| {
            let calm = run_replicated(toy, Disturbances::None, seed);
            assert_eq!(done.reason, calm.reason, "seed {seed}");
            assert_eq!(done.parameters, calm.parameters, "seed {seed}");
            takeovers += done.takeovers;
            deposed += done.deposed;
        };
        disturbed(Disturbances::Crashes, servers, 300, look, ConsistencySpec::Bsp);
        assert!(takeovers > 60 && deposed > 30, "{servers}: {takeovers} {deposed}");
    }
}

/// Neither has gone on without the other then, so that the other can.
#[test]
fn a_server_that_dies_while_it_asks_for_promises_is_done_without() {
    for seed in 0..60 {
        let mut toy = toy(1 + (seed % 5) as u32, seed / 5);
        toy.job.mode = Mode::of(ConsistencySpec::Bsp);
        let workers = toy.job.membership.workers;
        let calm = run_replicated(&toy, Disturbances::None, seed);
        for (rank, enough) in
            [(Rank::Primary, workers / 2 + 1), (Rank::Standby, workers.div_ceil(2))]
        {
            for promises in 1..=enough {
                let done = run_replicated(&toy, Disturbances::Ambush(rank, promises), seed);
                assert_eq!(done.reason, calm.reason, "seed {seed}: {rank:?} {promises}");
                assert_eq!(done.parameters, calm.parameters, "seed {seed}: {rank:?} {promises}");
            }
        }
    }
}

#[test]
fn whatever_befalls_them_each_mini_batch_counts_once() {
    let consistencies = [
        ConsistencySpec::Asp,
        ConsistencySpec::Ssp { slack: 2 },
        ConsistencySpec::Delay { bound: Some(2) },
        ConsistencySpec::Buffered { gradients: 3 },
    ];
    for mode in consistencies {
        let mut takeovers = 0;
        let look = |toy: &Toy, seed: u64, done: &Replicated| {
            let calm = run_replicated(toy, Disturbances::None, seed);
            assert_eq!(done.reason, calm.reason, "seed {seed}");
            let Ledger { assigned, applied, discarded, lost, outstanding } = done.ledger;
            assert_eq!(assigned, applied + discarded + lost, "seed {seed}");
            assert_eq!((applied, outstanding), (calm.ledger.applied, 0), "seed {seed}");
            // What is under way when the budget is used up comes too late: one of each worker.
            let workers = u64::from(toy.job.membership.workers);
            assert!(discarded <= workers, "seed {seed}: {discarded}");
            takeovers += done.takeovers;
        };
        schedules(100, look, mode);
        assert!(takeovers > 20, "{mode}: {takeovers}");
    }
}
