//! Gradient coding and partial gradients: with late or lost workers, the parameters equal those of
//! BSP with all workers.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::time::Duration;

use proptest::prelude::*;
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, DataFrom, Exchange, Redundancy};
use pstrain_policy::mode::{Switch, SwitchAt};
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::{Event, Server};
use pstrain_tests::{Dealt, Toy, bits, faults_of, run_dealt, sequential_bsp};
use pstrain_wire::worker::EndReason;

/// A job with partitions of unequal sizes.
fn toy(workers: u32, redundancy: &str) -> Toy {
    let mut toy = Toy::new(workers, 203);
    toy.job.redundancy = redundancy.parse().unwrap();
    toy
}

/// Returns the largest deviation from the BSP parameters, relative to the largest of them.
fn distance(parameters: &[f32], reference: &[f32]) -> f32 {
    let largest = reference.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let apart = parameters.iter().zip(reference).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, f32::max) / largest
}

/// Machines that are slow at random times.
const UNRELIABLE: &str = "straggler:2ms,60ms,0.3,0.5 2.factor=3";
/// Bound of the rounding errors over a run of a few dozen updates.
const ROUNDING: f32 = 1e-4;

#[test]
fn gradient_coding_computes_the_rounds_of_bsp_up_to_rounding() {
    for (workers, redundancy) in [
        (4, "fractional:1"),
        (6, "fractional:2"),
        (3, "cyclic:1"),
        (4, "cyclic:1"),
        (5, "cyclic:2"),
        (6, "cyclic:2"),
    ] {
        for aggregation in [Aggregation::Mean, Aggregation::Sum] {
            for exchange in [Exchange::Combined, Exchange::Separate] {
                let mut toy = toy(workers, redundancy);
                (toy.job.aggregation, toy.job.exchange) = (aggregation, exchange);
                toy.job.data.from = if workers == 4 { DataFrom::Server } else { DataFrom::Worker };
                let mut plain = toy.clone();
                plain.job.redundancy = Redundancy::None;
                let reference = run_dealt(&plain, "delay=1ms", "5ms", "none");
                let coded = run_dealt(&toy, "delay=1ms jitter=500us", UNRELIABLE, "none");
                let who = format!("{workers} workers, {redundancy}, {aggregation}, {exchange}");
                assert_eq!(coded.reason, EndReason::BudgetReached, "{who}");
                let points = (coded.point.version, coded.point.samples);
                assert_eq!(points, (reference.point.version, reference.point.samples), "{who}");
                let apart = distance(&coded.parameters, &reference.parameters);
                assert!(apart < ROUNDING, "{who}: {apart}");
                if aggregation == Aggregation::Mean {
                    let sequential = sequential_bsp(&plain);
                    assert!(distance(&coded.parameters, &sequential) < ROUNDING, "{who}");
                }
                assert!(coded.ledger.discarded > 0, "{who}: nobody was ever late");
            }
        }
    }
}

#[test]
fn redundancy_of_degree_zero_equals_bsp_bit_for_bit() {
    for workers in [1, 2, 4] {
        for redundancy in ["fractional:0", "cyclic:0", "partial:1"] {
            let toy = toy(workers, redundancy);
            let mut reference = toy.clone();
            reference.job.redundancy = Redundancy::None;
            let reference = bits(&sequential_bsp(&reference));
            let result = run_dealt(&toy, "delay=1ms jitter=1ms", UNRELIABLE, "none");
            assert_eq!(bits(&result.parameters), reference, "{workers} workers, {redundancy}");
            assert_eq!(result.ledger.discarded, 0, "{workers} workers, {redundancy}");
        }
    }
}

#[test]
fn partial_gradients_compute_the_rounds_of_bsp_bit_for_bit() {
    for (workers, tasks) in [(2, 2), (3, 2), (4, 2), (4, 4), (5, 3)] {
        for exchange in [Exchange::Combined, Exchange::Separate] {
            let mut toy = toy(workers, &format!("partial:{tasks}"));
            toy.job.exchange = exchange;
            let reference = bits(&sequential_bsp(&toy));
            for (link, compute) in
                [("delay=1ms", "5ms"), ("delay=1ms jitter=3ms down.jitter=2ms", UNRELIABLE)]
            {
                let result = run_dealt(&toy, link, compute, "none");
                let who = format!("{workers} workers, {tasks} tasks, {exchange}, {compute}");
                assert_eq!(bits(&result.parameters), reference, "{who}");
                each_partition_once(&result, workers);
            }
        }
    }
}

/// Checks that every update has one gradient of each partition, of that round's mini-batch.
fn each_partition_once(result: &Dealt, workers: u32) {
    let mut parts = Vec::new();
    let mut round = 0;
    for (_, event) in &result.events {
        match event {
            Event::Applied { part, batch, base, staleness: 0, .. } => {
                assert_eq!((batch.0, *base), (round, Version(round)));
                parts.push(part.0);
            }
            Event::Applied { .. } => panic!("a stale gradient in round {round}: {event:?}"),
            Event::Updated { .. } => {
                assert_eq!(parts, (0..workers).collect::<Vec<_>>(), "round {round}");
                parts.clear();
                round += 1;
            }
            _ => {}
        }
    }
}

/// Returns the times between updates, from the second update on.
fn rounds(result: &Dealt) -> Vec<Duration> {
    let updated =
        |(at, event): &(Time, Event)| matches!(event, Event::Updated { .. }).then_some(*at);
    let at: Vec<Time> = result.events.iter().filter_map(updated).collect();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn a_slow_worker_costs_only_the_redundant_work() {
    let ms = Duration::from_millis;
    for (redundancy, slow, round) in [
        // 1 ms each way and 10 ms a mini-batch; all workers wait for the slow one.
        ("none", "1.factor=20", 202),
        // Two partitions for each worker, and no waiting.
        ("cyclic:1", "1.factor=20", 22),
        ("fractional:1", "1.factor=20", 22),
        ("cyclic:2", "1.factor=20 4.factor=50", 32),
        // The last worker is the one that computes the slow worker's partition after its own.
        ("partial:2", "1.factor=20", 22),
        ("partial:2", "1.factor=1.5", 17),
    ] {
        let toy = toy(6, redundancy);
        let result = run_dealt(&toy, "delay=1ms down.delay=1ms", &format!("10ms {slow}"), "none");
        let found = rounds(&result);
        assert!(
            found.len() > 5 && found.iter().all(|&time| time == ms(round)),
            "{redundancy} {found:?}"
        );
    }
}

#[test]
fn a_late_gradient_is_dropped_and_its_worker_starts_the_next_round() {
    let result = run_dealt(&toy(4, "fractional:1"), "delay=1ms", "10ms 1.factor=1.3", "none");
    // Worker 1 needs 26 ms, worker 2 only 20 ms: worker 1 is sent the next round each time.
    let from_first = result
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Pushed { worker, .. } if worker.0 == 0));
    assert_eq!(from_first.count(), 0);
    let superseded = result
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Superseded { worker, .. } if worker.0 == 0));
    assert!(superseded.count() as u64 >= result.point.version.0 - 2);
    // Two equally fast workers finish at the same time, and one gradient of each partition
    // suffices.
    let redundant = |(_, event): &&(Time, Event)| {
        matches!(event, Event::Dropped { reason: DropReason::Redundant | DropReason::Stale, .. })
    };
    assert!(result.events.iter().filter(redundant).count() as u64 > result.point.version.0 / 2);
}

#[test]
fn a_lost_worker_within_the_tolerance_changes_nothing() {
    for redundancy in ["cyclic:1", "fractional:1", "partial:2"] {
        let toy = toy(4, redundancy);
        let reference = sequential_bsp(&toy);
        let faults = "2.crash@60ms";
        let result = run_dealt(&toy, "delay=1ms", "5ms 3.factor=2", faults);
        assert_eq!(result.reason, EndReason::BudgetReached, "{redundancy}");
        assert!(distance(&result.parameters, &reference) < ROUNDING, "{redundancy}");
        let paused = result.events.iter().any(|(_, event)| matches!(event, Event::Paused { .. }));
        assert!(!paused, "{redundancy}");
    }
}

#[test]
fn more_lost_workers_than_tolerated_pause_the_run() {
    for (redundancy, faults) in [
        ("cyclic:1", "1.crash@60ms 2.crash@70ms 2.restart@20s"),
        ("fractional:1", "3.crash@60ms 4.crash@70ms 4.restart@20s"),
        ("partial:2", "2.crash@60ms 3.crash@70ms 2.restart@20s"),
    ] {
        let toy = toy(4, redundancy);
        let result = run_dealt(&toy, "delay=1ms", "5ms 3.factor=2", faults);
        assert_eq!(result.reason, EndReason::BudgetReached, "{redundancy}");
        let apart = distance(&result.parameters, &sequential_bsp(&toy));
        assert!(apart < ROUNDING, "{redundancy}: {apart}");
        let has = |wanted: fn(&Event) -> bool| result.events.iter().any(|(_, event)| wanted(event));
        let paused =
            |event: &Event| matches!(event, Event::Paused { present, needed } if needed > present);
        assert!(has(paused) && has(|event| matches!(event, Event::Unpaused)), "{redundancy}");
    }
    // If no worker returns, the run ends in order.
    let result =
        run_dealt(&toy(4, "fractional:1"), "delay=1ms", "5ms", "3.crash@60ms 4.crash@70ms");
    assert_eq!(result.reason, EndReason::TooFewWorkers { present: 2, needed: 3 });
}

/// A change of consistency during the run.
const LATER: Switch = Switch { to: ConsistencySpec::Asp, at: SwitchAt::Version(Version(10)) };

#[test]
fn redundancy_is_refused_with_incompatible_settings() {
    let told = |change: &dyn Fn(&mut Toy)| {
        let mut toy = toy(6, "cyclic:1");
        change(&mut toy);
        Server::new(toy.job, 1).unwrap_err().to_string()
    };
    let asp = told(&|toy| toy.job.mode.consistency = ConsistencySpec::Asp);
    assert_eq!(asp, "redundancy = cyclic:1 needs consistency = bsp: its rounds are synchronous");
    let ahead = told(&|toy| toy.job.mode.in_flight = Some(1));
    assert!(ahead.contains("in-flight = auto"), "{ahead}");
    let switch = told(&|toy| toy.job.switches = vec![LATER]);
    assert!(switch.contains("no switch"), "{switch}");
    let budget = told(&|toy| toy.job.budget.kind = BudgetKind::Partition);
    assert!(budget.contains("budget = global"), "{budget}");
    let groups = told(&|toy| toy.job.redundancy = Redundancy::Fractional { tolerance: 3 });
    assert!(groups.contains("groups of 4") && groups.contains("cyclic:3"), "{groups}");
    let many = told(&|toy| toy.job.redundancy = Redundancy::Partial { tasks: 7 });
    assert_eq!(many, "redundancy = partial:7: must be 1 to 6 here");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Deaths, returns, cuts, repeated messages and slow machines do not change the parameters.
    #[test]
    fn under_random_faults_the_result_equals_bsp(
        workers in 2_u32..6,
        kind in 0_u32..3,
        degree in 1_u32..4,
        faults in prop::collection::vec((0_u32..5, 0_usize..3, 5_u64..400, 1_u64..3000), 0..6),
        jitter in 0_u64..4,
        combined: bool,
    ) {
        let redundancy = match kind {
            0 => format!("cyclic:{}", degree.min(workers - 1)),
            1 if workers % (degree + 1) == 0 => format!("fractional:{degree}"),
            _ => format!("partial:{}", degree.min(workers)),
        };
        let mut toy = toy(workers, &redundancy);
        toy.job.exchange = if combined { Exchange::Combined } else { Exchange::Separate };
        let faults = faults_of(workers, &faults);
        let link = format!("delay=2ms jitter={jitter}ms down.delay=1ms down.jitter={jitter}ms");
        let result = run_dealt(&toy, &link, UNRELIABLE, &faults);
        prop_assert_eq!(result.reason, EndReason::BudgetReached);
        let reference = sequential_bsp(&toy);
        if redundancy.starts_with("partial") {
            each_partition_once(&result, workers);
            prop_assert_eq!(bits(&result.parameters), bits(&reference));
        } else {
            let apart = distance(&result.parameters, &reference);
            prop_assert!(apart < ROUNDING, "{} {}: {}", redundancy, faults, apart);
        }
    }
}
