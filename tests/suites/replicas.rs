//! A server and its standby under random crashes, stops and cuts: the run equals one undisturbed
//! server's.

use std::time::Duration;

use pstrain_compute::filter::PullFilter;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{Exchange, Job, OnLoss};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::{Aggregation, ParticipationSpec, StalenessSpec};
use pstrain_roles::node::{Ledger, Replicate};
use pstrain_tests::{
    Disturbances, Ran, Rank, Replaced, ReplicaFault, Replicated, Toy, for_seeds, run_moving,
    run_replicated,
};
use pstrain_wire::worker::EndReason;

fn toy(workers: u32, seed: u64) -> Toy {
    let mut toy = Toy::new(workers, 240);
    toy.job.seed = seed;
    toy.job.membership.on_loss = OnLoss::Wait;
    toy.job.membership.lease = Duration::from_millis(400);
    toy.job.budget.epochs = 6;
    toy
}

/// Runs the schedules of a test that has `whole` of them, with one to four workers.
fn schedules(whole: u64, look: impl FnMut(&Toy, u64, &Replicated), mode: ConsistencySpec) -> Ran {
    disturbed(Disturbances::One, 1, whole, look, mode)
}

/// Like [`schedules`], with other disturbances and number of servers.
fn disturbed(
    disturbances: Disturbances,
    servers: u32,
    whole: u64,
    mut look: impl FnMut(&Toy, u64, &Replicated),
    mode: ConsistencySpec,
) -> Ran {
    let describe = |_| format!("{disturbances:?}, {servers} servers, {mode}");
    for_seeds(whole, describe, |seed| {
        let toy = of_seed(seed, servers, mode);
        let done = run_replicated(&toy, disturbances, seed);
        look(&toy, seed, &done);
    })
}

/// The job that [`disturbed`] draws from a seed.
fn of_seed(seed: u64, servers: u32, mode: ConsistencySpec) -> Toy {
    let mut toy = toy(1 + (seed % 4) as u32, seed / 4);
    toy.job.servers = servers;
    toy.job.mode = Mode::of(mode);
    toy
}

/// Counts of takeovers, continuations without a standby, deposed servers and pushes without values.
#[derive(Debug, Default)]
struct Came {
    takeovers: u64,
    alone: u64,
    deposed: u64,
    bare: u64,
}

impl Came {
    fn note(&mut self, done: &Replicated) {
        self.takeovers += done.takeovers;
        self.alone += done.alone;
        self.deposed += done.deposed;
        self.bare += done.bare;
    }

    /// Checks that each count exceeds its minimum, so that the schedules test what they should.
    #[track_caller]
    fn check(&self, ran: Ran, takeovers: u64, alone: u64, deposed: u64) {
        ran.expect_above(takeovers, self.takeovers, "takeovers");
        ran.expect_above(alone, self.alone, "servers that continued alone");
        ran.expect_above(deposed, self.deposed, "servers that were deposed");
        // Half of the schedules with more than one worker replicate pushes without values.
        ran.expect_above(20 * takeovers, self.bare, "pushes without values");
    }
}

#[test]
fn under_random_disturbances_bsp_ends_at_the_same_parameters() {
    let mut came = Came::default();
    let look = |toy: &Toy, seed: u64, done: &Replicated| {
        let calm = run_replicated(toy, Disturbances::None, seed);
        assert_eq!(calm.takeovers + calm.alone, 0);
        assert_eq!(done.reason, calm.reason, "seed {seed}");
        assert_eq!(done.version, calm.version, "seed {seed}");
        assert_eq!(done.parameters, calm.parameters, "seed {seed}");
        came.note(done);
    };
    let ran = schedules(800, look, ConsistencySpec::Bsp);
    came.check(ran, 400, 200, 20);
}

/// Standbys of servers that do not coordinate receive each push.
#[test]
fn a_standby_receives_one_gradient_per_update_or_per_push() {
    for servers in [1, 2] {
        let mut bare = 0;
        let look = |toy: &Toy, seed: u64, done: &Replicated| {
            let count = |updates: u64, pushes: u64| {
                let coordinator = match done.replicate {
                    Replicate::Pushes => pushes,
                    Replicate::Updates => updates,
                };
                coordinator + u64::from(servers - 1) * pushes
            };
            let all = count(done.version.0, done.ledger.applied);
            // With one server, the standby may join in any round. While it is sent the state, it
            // is sent gradients, too.
            let (version, applied) = if servers == 1 { done.joined_at } else { (0, 0) };
            let owed = count(done.version.0 - version, done.ledger.applied - applied);
            // A standby may join while a round is open (with several servers, during the first two
            // rounds), and the parameters of other servers arrive for each evaluation while a round
            // is open.
            let rounds = if servers == 1 { 1 } else { 2 + u64::from(toy.job.budget.epochs) };
            // So do a request to a worker to evaluate, and the answer.
            let rounds = rounds + 2 * done.evaluations;
            let may_differ = rounds * u64::from(toy.job.membership.workers);
            let sent = done.replicated;
            let is_right = owed <= sent + may_differ && sent <= all + may_differ;
            assert!(is_right, "seed {seed}: {sent} for {owed} to {all} gradients");
            bare += done.bare;
        };
        let bsp = ConsistencySpec::Bsp;
        let ran = disturbed(Disturbances::Calm, servers, 60, look, bsp);
        ran.expect_above(1000, bare, "pushes without values");
    }
}

/// All inputs of an update other than the sum of its gradients.
#[test]
fn with_every_aggregation_and_weighting_rule_bsp_ends_at_the_same_parameters() {
    let all: [fn(&mut Job); 9] = [
        |job| job.aggregation = Aggregation::Sum,
        |job| job.aggregation = Aggregation::Median,
        |job| job.aggregation = Aggregation::Krum { faulty: 0, chosen: 2 },
        |job| job.update.clip_norm = Some(0.5),
        |job| job.update.clip_contribution = Some(0.5),
        |job| job.mode.staleness = StalenessSpec::DELAY_ADAPTIVE,
        |job| job.mode.staleness = StalenessSpec::GapAware,
        |job| job.mode.participation = ParticipationSpec::Incremental,
        |job| job.exchange = Exchange::Separate,
    ];
    let (mut takeovers, mut bare) = (0, [0; 9]);
    for (place, change) in all.into_iter().enumerate() {
        for seed in 0..40 {
            let mut toy = toy(3 + (seed % 3) as u32, seed);
            toy.job.servers = 1 + (seed % 2) as u32;
            change(&mut toy.job);
            let done = run_replicated(&toy, Disturbances::One, seed);
            toy.job.servers = 1;
            let calm = run_replicated(&toy, Disturbances::None, seed);
            assert_eq!(done.version, calm.version, "{place}, seed {seed}");
            assert_eq!(done.parameters, calm.parameters, "{place}, seed {seed}");
            takeovers += done.takeovers;
            bare[place] += done.bare;
        }
    }
    let sends_bare = bare.map(|bare| bare > 100);
    let expected = [true, true, false, true, false, false, true, false, false];
    assert_eq!(sends_bare, expected, "{bare:?}");
    assert!(takeovers > 150, "{takeovers}");
}

/// Runs schedules in which any of several servers is disturbed.
fn several_servers(servers: u32, whole: u64) {
    let mut came = Came::default();
    let look = |toy: &Toy, seed: u64, done: &Replicated| {
        let one = Toy { job: Job { servers: 1, ..toy.job.clone() }, ..toy.clone() };
        let one = run_replicated(&one, Disturbances::None, seed);
        assert_eq!(done.reason, one.reason, "seed {seed}");
        assert_eq!(done.version, one.version, "seed {seed}");
        assert_eq!(done.parameters, one.parameters, "seed {seed}");
        came.note(done);
    };
    let ran = disturbed(Disturbances::One, servers, whole, look, ConsistencySpec::Bsp);
    came.check(ran, whole / 2, whole / 4, whole / 20);
}

#[test]
fn a_pull_filter_keeps_back_the_same_parameters_over_any_number_of_servers() {
    for delta in [0.02, 0.05, 0.1, 0.2] {
        let mut toy = toy(4, 5);
        let without = run_replicated(&toy, Disturbances::None, 1);
        toy.job.filters.pull = PullFilter::Changed { delta };
        let one = run_replicated(&toy, Disturbances::None, 1);
        assert_ne!(one.parameters, without.parameters, "nothing was kept back at {delta}");
        for servers in [2, 3, 4, 16] {
            toy.job.servers = servers;
            let several = run_replicated(&toy, Disturbances::None, 1);
            assert_eq!(several.parameters, one.parameters, "{servers} servers, {delta}");
        }
    }
}

#[test]
fn a_pull_filter_keeps_back_the_same_parameters_after_takeovers_and_reconnects() {
    let (mut takeovers, mut differs, mut compared) = (0, 0, 0);
    for seed in 0..120 {
        let mut toy = toy(1 + (seed % 4) as u32, seed);
        let without = run_replicated(&toy, Disturbances::None, seed);
        toy.job.filters.pull = PullFilter::Changed { delta: 0.1 };
        let calm = run_replicated(&toy, Disturbances::None, seed);
        differs += u64::from(calm.parameters != without.parameters);
        toy.job.servers = 1 + (seed % 3) as u32;
        let done = run_replicated(&toy, Disturbances::One, seed);
        assert_eq!(done.version, calm.version, "seed {seed}");
        takeovers += done.takeovers;
        // A worker that was given up begins afresh, with all parameters.
        if done.ledger.lost == 0 {
            assert_eq!(done.parameters, calm.parameters, "seed {seed}");
            compared += 1;
        }
    }
    assert!(takeovers > 50 && differs > 100 && compared > 100);
}

#[test]
fn under_random_disturbances_two_servers_end_at_the_parameters_of_one() {
    several_servers(2, 400);
}

/// The replicas of the coordinator lose each other as the run ends, or one is cut off from all. The
/// one that the workers have finishes the run.
#[test]
fn workers_are_told_the_end_of_a_run_whose_replicas_lose_each_other_then() {
    for seed in [15_670_241_290_575_754_631, 10_881_462_288_045_882_191] {
        let done = run_replicated(&of_seed(seed, 2, ConsistencySpec::Bsp), Disturbances::One, seed);
        assert_eq!(done.reason, Some(EndReason::BudgetReached));
    }
}

/// The coordinator's primary is killed after the workers were told of the end: none may vote.
#[test]
fn a_server_that_is_killed_after_the_end_is_replaced_within_a_lease() {
    let seed = 13_545_869_344_272_045_511;
    let toy = of_seed(seed, 2, ConsistencySpec::Bsp);
    let done = run_replicated(&toy, Disturbances::One, seed);
    assert_eq!(done.reason, Some(EndReason::BudgetReached));
    let late = done.replaced.iter().find(|it| is_late(it, toy.job.membership.lease));
    assert_eq!(late.map(|it| it.led), None);
}

#[test]
fn under_random_disturbances_three_servers_end_at_the_parameters_of_one() {
    several_servers(3, 400);
}

/// Each server may have a standby, including servers that joined later.
#[test]
fn servers_join_and_leave_under_random_disturbances_and_bsp_ends_at_the_same_parameters() {
    for disturbances in [Disturbances::One, Disturbances::Crashes] {
        let (mut came, mut moves) = (Came::default(), 0);
        let describe = |_| format!("{disturbances:?}");
        let ran = for_seeds(100, describe, |seed| {
            let mut toy = toy(1 + (seed % 4) as u32, seed / 4);
            toy.job.mode = Mode::of(ConsistencySpec::Bsp);
            toy.job.budget.epochs = 12;
            let one = run_replicated(&toy, Disturbances::None, seed);
            toy.job.servers = 1 + (seed % 3) as u32;
            let done = run_moving(&toy, disturbances, seed);
            assert_eq!(done.reason, one.reason, "seed {seed}, {disturbances:?}");
            assert_eq!(done.version, one.version, "seed {seed}, {disturbances:?}");
            assert_eq!(done.parameters, one.parameters, "seed {seed}, {disturbances:?}");
            came.note(&done);
            moves += done.moves;
        });
        came.check(ran, 25, 35, 10);
        ran.expect_above(350, moves, "moves");
    }
}

/// A worker has evaluated while it attaches to a server that has joined.
#[test]
fn a_run_ends_though_keys_move_during_an_evaluation() {
    let seed = 18391502153554123637;
    let mut toy = toy(1 + (seed % 4) as u32, seed / 4);
    toy.job.mode = Mode::of(ConsistencySpec::Bsp);
    toy.job.budget.epochs = 12;
    toy.job.servers = 1 + (seed % 3) as u32;
    let done = run_moving(&toy, Disturbances::Crashes, seed);
    assert_eq!(done.reason, Some(EndReason::BudgetReached));
    assert!(done.moves > 0);
}

/// A lost lease would end the run, since `on_loss` is `Stop`.
#[test]
fn no_worker_loses_its_lease_while_another_server_is_away() {
    let describe = |_| String::from("a server is away");
    for_seeds(200, describe, |seed| {
        let mut toy = toy(1 + (seed % 4) as u32, seed / 4);
        toy.job.servers = 2;
        toy.job.membership.on_loss = OnLoss::Stop;
        let done = run_replicated(&toy, Disturbances::Away, seed);
        assert_eq!(done.reason, Some(EndReason::BudgetReached), "seed {seed}");
        assert_eq!(done.departed, 0, "seed {seed}");
    });
}

/// A worker is told of the end after the coordinator has admitted it again, and before the other
/// server has.
#[test]
fn a_worker_that_is_not_attached_to_all_servers_says_goodbye() {
    let seed = 16_998_208_815_029_002_642;
    let mut toy = toy(1 + (seed % 4) as u32, seed / 4);
    toy.job.servers = 2;
    toy.job.membership.on_loss = OnLoss::Stop;
    let done = run_replicated(&toy, Disturbances::Away, seed);
    assert_eq!((done.reason, done.departed), (Some(EndReason::BudgetReached), 0));
}

/// Returns the minimum and maximum of some times, in leases.
fn range(times: impl Iterator<Item = Duration>, lease: Duration) -> (f64, f64) {
    let leases = times.map(|time| time.as_secs_f64() / lease.as_secs_f64());
    leases.fold((f64::INFINITY, 0.0), |(least, most), it| (it.min(least), it.max(most)))
}

/// True if a server was replaced later than it may be.
fn is_late(replaced: &Replaced, lease: Duration) -> bool {
    // Workers contact a standby after a pause; then some messages go back and forth in sequence.
    let pause = Duration::from_millis(50);
    replaced.led > lease + pause + replaced.delay * 24
}

#[test]
fn a_killed_stopped_or_cut_off_server_is_replaced_within_a_lease() {
    let lease = toy(1, 0).job.membership.lease;
    let mut all: Vec<(u64, Replaced)> = Vec::new();
    let look = |_: &Toy, seed: u64, done: &Replicated| {
        all.extend(done.replaced.iter().map(|replaced| (seed, *replaced)));
    };
    let ran = disturbed(Disturbances::One, 2, 1200, look, ConsistencySpec::Bsp);
    for fate in [ReplicaFault::Killed, ReplicaFault::Stopped, ReplicaFault::CutOff] {
        for coordinated in [true, false] {
            let is_one =
                |(_, it): &&(u64, Replaced)| (it.fate, it.coordinated) == (fate, coordinated);
            let those: Vec<_> = all.iter().filter(is_one).collect();
            let led = range(those.iter().map(|(_, it)| it.led), lease);
            let updated = range(those.iter().filter_map(|(_, it)| it.updated), lease);
            let count = those.len();
            println!("{fate:?}, coordinated: {coordinated}, {count}: {led:.2?} {updated:.2?}");
            ran.expect_above(10, count as u64, &format!("{fate:?}, coordinated: {coordinated}"));
        }
    }
    let late: Vec<_> = all.iter().filter(|(_, it)| is_late(it, lease)).collect();
    assert!(late.is_empty(), "{}: {late:?}", late.len());
}

#[test]
fn a_standby_with_a_brief_cut_follows_its_primary_again_over_any_link() {
    let look = |_: &Toy, _: u64, done: &Replicated| {
        assert_eq!(done.asked, 0, "a standby asks the coordinator while its primary takes it back");
    };
    disturbed(Disturbances::Blinks, 2, 120, look, ConsistencySpec::Bsp);
}

#[test]
fn a_primary_and_standby_with_logs_that_both_crash_end_at_the_same_parameters() {
    for servers in [1, 2] {
        let (mut takeovers, mut deposed) = (0, 0);
        let look = |toy: &Toy, seed: u64, done: &Replicated| {
            let calm = run_replicated(toy, Disturbances::None, seed);
            assert_eq!(done.reason, calm.reason, "seed {seed}");
            assert_eq!(done.parameters, calm.parameters, "seed {seed}");
            takeovers += done.takeovers;
            deposed += done.deposed;
        };
        let bsp = ConsistencySpec::Bsp;
        let ran = disturbed(Disturbances::Crashes, servers, 300, look, bsp);
        ran.expect_above(60, takeovers, "takeovers");
        ran.expect_above(30, deposed, "servers that were deposed");
    }
}

/// Neither server has continued without the other yet, so the survivor may.
#[test]
fn if_a_server_dies_while_it_collects_votes_the_other_continues() {
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

/// Workers that had voted for the dead server to continue alone are no longer bound.
#[test]
fn a_server_that_dies_when_its_standby_returns_is_replaced() {
    let mut returns = 0;
    let look = |toy: &Toy, seed: u64, done: &Replicated| {
        let calm = run_replicated(toy, Disturbances::None, seed);
        assert_eq!(done.reason, calm.reason, "seed {seed}");
        assert_eq!(done.parameters, calm.parameters, "seed {seed}");
        returns += done.returns;
    };
    let ran = disturbed(Disturbances::Return, 1, 60, look, ConsistencySpec::Bsp);
    ran.expect_above(40, returns, "returns");
}

#[test]
fn under_random_disturbances_each_mini_batch_counts_once() {
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
            let Ledger { assigned, applied, discarded, lost, outstanding, .. } = done.ledger;
            assert_eq!(assigned, applied + discarded + lost, "seed {seed}");
            assert_eq!((applied, outstanding), (calm.ledger.applied, 0), "seed {seed}");
            // Gradients in flight when the budget is used up are too late: one per worker.
            let workers = u64::from(toy.job.membership.workers);
            assert!(discarded <= workers, "seed {seed}: {discarded}");
            takeovers += done.takeovers;
        };
        let ran = schedules(300, look, mode);
        ran.expect_above(100, takeovers, "takeovers");
    }
}
