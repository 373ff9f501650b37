//! One seed gives one result: over every transport, in any order of arrival, and equal to training
//! without a server.

use std::time::Duration;

use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, DataFrom, Exchange};
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::{Departure, Event};
use pstrain_tests::{Kind, Toy, bits, run_cluster, run_cluster_staggered, sequential_bsp, within};
use pstrain_transports::scenario::Scenario;
use pstrain_wire::worker::EndReason;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn bsp_is_sequential_sgd_bit_for_bit_over_every_transport() {
    for workers in [1, 2, 4] {
        let toy = Toy::new(workers, 203);
        let reference = bits(&sequential_bsp(&toy));
        for kind in Kind::ALL {
            let toy = toy.clone();
            let outcome = within(LIMIT, move || run_cluster(kind, &toy));
            assert_eq!(outcome.reason, EndReason::BudgetReached);
            assert_eq!(bits(&outcome.parameters), reference, "{workers} workers over {kind:?}");
            assert!(outcome.workers.iter().all(|end| *end == Ok(EndReason::BudgetReached)));
            let ledger = outcome.ledger;
            assert_eq!(ledger.outstanding, 0, "{ledger:?}");
            assert_eq!(ledger.assigned, ledger.applied + ledger.discarded + ledger.lost);
        }
    }
}

#[test]
fn gradients_that_arrive_in_pieces_change_no_bit() {
    for (workers, aggregation, clip_norm) in [
        (2, Aggregation::Mean, None),
        (4, Aggregation::Mean, None),
        (5, Aggregation::Sum, None),
        (4, Aggregation::Mean, Some(0.5)),
    ] {
        let mut toy = Toy::new(workers, 203);
        toy.job.model = ModelSpec::Mlp { hidden: vec![20_000], activation: Activation::Relu };
        toy.job.aggregation = aggregation;
        toy.job.update.clip_norm = clip_norm;
        let run = |kind| {
            let toy = toy.clone();
            within(LIMIT, move || run_cluster(kind, &toy))
        };
        // The memory transport delivers each gradient whole.
        let reference = run(Kind::Memory).parameters;
        assert!(size_of_val(reference.as_slice()) > 1024 * 1024);
        if aggregation == Aggregation::Mean && clip_norm.is_none() {
            assert_eq!(bits(&reference), bits(&sequential_bsp(&toy)));
        }
        for kind in [Kind::Unix, Kind::Tcp] {
            let outcome = run(kind);
            let is_same = bits(&outcome.parameters) == bits(&reference);
            assert!(is_same, "{workers} workers over {kind:?}");
        }
    }
}

#[test]
fn modelled_links_and_computing_times_change_no_bit() {
    let mut toy = Toy::new(3, 120);
    let reference = bits(&sequential_bsp(&toy));
    let links = "delay=1ms jitter=1ms down.delay=500us 2.rate=10mbit 3.loss=20%";
    let scenario = Scenario::parse(links, "1.time=lognormal:1ms,1 2.time=measured", "none");
    toy.job.scenario = scenario.unwrap().to_text();
    for kind in [Kind::ShapedMemory, Kind::ShapedTcp] {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        assert_eq!(outcome.reason, EndReason::BudgetReached);
        assert_eq!(bits(&outcome.parameters), reference, "{kind:?}");
        assert!(outcome.workers.iter().all(|end| *end == Ok(EndReason::BudgetReached)));
    }
}

#[test]
fn a_round_takes_at_least_its_modelled_link_and_computing_times() {
    let mut toy = Toy::new(2, 64);
    let scenario = Scenario::parse("delay=20ms down.delay=10ms 2.delay=5ms", "5ms", "none");
    toy.job.scenario = scenario.unwrap().to_text();
    for kind in [Kind::ShapedMemory, Kind::ShapedTcp] {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        let mut points = outcome.events.iter().filter_map(|event| match event {
            Event::Updated { point, .. } => Some(point.time),
            _ => None,
        });
        // Each round goes down, computes a mini-batch, and goes up.
        let rounds = u32::try_from(outcome.version).unwrap();
        assert!(points.next_back().unwrap() >= Duration::from_millis(35) * rounds, "{kind:?}");
        assert!(rounds > 3);
    }
}

#[test]
fn the_order_in_which_workers_start_does_not_matter() {
    let toy = Toy::new(4, 160);
    let reference = bits(&sequential_bsp(&toy));
    for (kind, order) in [(Kind::Tcp, [3, 1, 0, 2]), (Kind::Unix, [2, 3, 1, 0])] {
        let toy = toy.clone();
        let pause = Duration::from_millis(40);
        let outcome = within(LIMIT, move || run_cluster_staggered(kind, &toy, &order, pause));
        assert_eq!(bits(&outcome.parameters), reference, "{kind:?} {order:?}");
    }
}

#[test]
fn separate_push_and_pull_train_like_the_combined_exchange() {
    let mut toy = Toy::new(3, 120);
    let reference = bits(&sequential_bsp(&toy));
    toy.job.exchange = Exchange::Separate;
    for kind in Kind::ALL {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        assert_eq!(bits(&outcome.parameters), reference, "{kind:?}");
    }
}

#[test]
fn examples_from_the_server_train_like_local_ones() {
    // Large enough that a partition does not fit into one message.
    let mut toy = Toy::new(2, 30_000);
    toy.job.budget.epochs = 1;
    toy.job.batch_size = 512;
    let reference = bits(&sequential_bsp(&toy));
    toy.job.data.from = DataFrom::Server;
    for kind in Kind::ALL {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        assert_eq!(bits(&outcome.parameters), reference, "{kind:?}");
    }
}

#[test]
fn ssp_without_slack_is_bsp() {
    let mut toy = Toy::new(3, 150);
    let reference = bits(&sequential_bsp(&toy));
    toy.job.mode.consistency = ConsistencySpec::Ssp { slack: 0 };
    let outcome = within(LIMIT, move || run_cluster(Kind::Memory, &toy));
    assert_eq!(bits(&outcome.parameters), reference);
}

#[test]
fn policies_that_wait_for_all_workers_equal_bsp_over_every_transport() {
    let mut toy = Toy::new(3, 150);
    let reference = bits(&sequential_bsp(&toy));
    for policy in ["k-sync:3", "backup:0", "delay:0", "dssp:0,0"] {
        toy.job.mode.consistency = policy.parse().unwrap();
        for kind in Kind::ALL {
            let toy = toy.clone();
            let outcome = within(LIMIT, move || run_cluster(kind, &toy));
            assert_eq!(outcome.reason, EndReason::BudgetReached);
            assert_eq!(bits(&outcome.parameters), reference, "{policy} over {kind:?}");
        }
    }
}

/// Timing decides on which permitted parameters a mini-batch is computed; the gradients of an
/// update do not depend on it.
#[test]
fn bounded_delay_updates_consist_of_whole_iterations_over_every_transport() {
    let mut toy = Toy::new(3, 144);
    toy.job.mode.consistency = ConsistencySpec::Delay { bound: Some(2) };
    for kind in Kind::ALL {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        assert_eq!(outcome.reason, EndReason::BudgetReached);
        let applied = outcome.events.iter().filter_map(|event| match event {
            Event::Applied { worker, part, batch, staleness, .. } => {
                assert!(*staleness <= 2, "{kind:?}: {worker} is {staleness} stale");
                Some((batch.0, worker.0, part.0))
            }
            _ => None,
        });
        let applied: Vec<_> = applied.collect();
        // 48 examples per worker are 6 mini-batches a pass.
        let wanted: Vec<_> =
            (0..18).flat_map(|batch| (0..3).map(move |worker| (batch, worker, worker))).collect();
        assert_eq!(applied, wanted, "{kind:?}");
    }
}

#[test]
fn the_sum_of_two_gradients_is_twice_their_mean() {
    // With plain SGD and equal batches, the sum at half the learning rate is the mean, up to
    // rounding.
    let mut toy = Toy::new(2, 128);
    toy.job.update.optimizer = pstrain_compute::optim::OptimizerSpec::Sgd;
    toy.job.update.weight_decay = 0.0;
    let mean = sequential_bsp(&toy);
    toy.job.aggregation = Aggregation::Sum;
    toy.job.update.learning_rate /= 2.0;
    let outcome = within(LIMIT, move || run_cluster(Kind::Memory, &toy));
    for (a, b) in mean.iter().zip(&outcome.parameters) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{a} {b}");
    }
}

#[test]
fn one_asynchronous_worker_is_sequential_sgd() {
    let mut toy = Toy::new(1, 100);
    let reference = bits(&sequential_bsp(&toy));
    toy.job.mode.in_flight = Some(1);
    for policy in [
        "asp",
        "ssp:2",
        "delay:2",
        "dssp:1,3",
        "round-robin",
        "ringmaster:1",
        "ringleader",
        "k-async:1",
        "k-batch-sync:1",
        "buffered:1",
        "malenia:1",
    ] {
        toy.job.mode.consistency = policy.parse().unwrap();
        for kind in [Kind::Memory, Kind::Unix, Kind::Tcp] {
            let toy = toy.clone();
            let outcome = within(LIMIT, move || run_cluster(kind, &toy));
            assert_eq!(bits(&outcome.parameters), reference, "{policy} over {kind:?}");
        }
    }
}

#[test]
fn under_a_partition_budget_each_worker_does_its_own_share() {
    for consistency in
        [ConsistencySpec::Bsp, ConsistencySpec::Ssp { slack: 1 }, ConsistencySpec::Asp]
    {
        // 101 rows among 3 workers with batches of 8: 34 rows and 33 rows are both 5 batches a
        // pass.
        let mut toy = Toy::new(3, 101);
        toy.job.mode.consistency = consistency;
        toy.job.budget.kind = BudgetKind::Partition;
        let outcome = within(LIMIT, move || run_cluster(Kind::Unix, &toy));
        assert_eq!(outcome.reason, EndReason::BudgetReached);
        assert_eq!((outcome.ledger.applied, outcome.ledger.discarded), (45, 0), "{consistency}");
        let samples: u32 = outcome
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Applied { samples, .. } => Some(*samples),
                _ => None,
            })
            .sum();
        assert_eq!(samples, 3 * 101, "{consistency}");
    }
}

/// A message takes more than two leases each way.
#[test]
fn a_slow_link_does_not_lose_a_worker() {
    let mut toy = Toy::new(2, 32);
    toy.job.batch_size = 16;
    toy.job.budget.epochs = 2;
    toy.job.membership.lease = Duration::from_millis(250);
    let scenario = Scenario::parse("all.rate=8kbit all.down.rate=8kbit", "1ms", "none");
    toy.job.scenario = scenario.unwrap().to_text();
    for kind in [Kind::ShapedMemory, Kind::ShapedTcp] {
        let toy = toy.clone();
        let outcome = within(LIMIT, move || run_cluster(kind, &toy));
        let mut training =
            outcome.events.iter().take_while(|event| !matches!(event, Event::Ended { .. }));
        let lost = training.find(|event| {
            matches!(event, Event::Departed { how: Departure::Lost, .. } | Event::CutOff { .. })
        });
        assert_eq!(lost, None, "{kind:?}");
        assert_eq!(outcome.version, 2);
    }
}
