//! Mini-batches in proportion to speed: all workers finish at once, and each example is used once a
//! pass.

mod balanced;
mod shards;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, Exchange, Redundancy, WorkSpec};
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::{Event, Point, Server};
use pstrain_tests::{Dealt, Toy, faults_of, run_dealt};
use pstrain_wire::worker::EndReason;

/// A job whose mini-batches are sized in proportion to the workers' speeds.
fn toy(workers: u32, rows: usize, batch_size: u32) -> Toy {
    let mut toy = Toy::new(workers, rows);
    (toy.job.work, toy.job.batch_size) = (WorkSpec::Speed, batch_size);
    toy
}

/// Returns the time of each update and its number of examples.
fn updates(result: &Dealt) -> Vec<(Time, u64)> {
    let point = |(at, event): &(Time, Event)| match event {
        Event::Updated { point, .. } => Some((*at, point.samples)),
        _ => None,
    };
    let points: Vec<(Time, u64)> = result.events.iter().filter_map(point).collect();
    let before = [0].into_iter().chain(points.iter().map(|(_, samples)| *samples));
    points.iter().zip(before).map(|(&(at, samples), before)| (at, samples - before)).collect()
}

#[test]
fn equal_speeds_give_equal_work_bit_for_bit() {
    for consistency in ["bsp", "ssp:2", "asp", "k-sync:2", "buffered:2"] {
        let policy: ConsistencySpec = consistency.parse().unwrap();
        for aggregation in [Aggregation::Mean, Aggregation::Sum] {
            for exchange in [Exchange::Combined, Exchange::Separate] {
                check_equal_speeds(policy, aggregation, exchange, 192);
                // In modelled time a size of its own counts by its examples, another mini-batch as
                // a whole one, so which gradients of an uneven pass come first is not the same.
                if !matches!(consistency, "k-sync:2" | "buffered:2") {
                    check_equal_speeds(policy, aggregation, exchange, 204);
                }
            }
        }
    }
}

/// Compares sizes by speed with equal sizes, on so many rows, in mini-batches of 16.
fn check_equal_speeds(
    consistency: ConsistencySpec,
    aggregation: Aggregation,
    exchange: Exchange,
    rows: usize,
) {
    let mut sized = toy(4, rows, 16);
    sized.job.mode.consistency = consistency;
    (sized.job.aggregation, sized.job.exchange) = (aggregation, exchange);
    let mut equal = sized.clone();
    equal.job.work = WorkSpec::Equal;
    let [sized, equal] = [sized, equal].map(|toy| run_dealt(&toy, "delay=1ms", "5ms", "none"));
    let who = format!("{consistency}, {aggregation}, {exchange}, {rows} rows");
    let bits = |result: &Dealt| {
        let bits = result.parameters.iter().map(|value| value.to_bits());
        bits.collect::<Vec<u32>>()
    };
    assert_eq!(bits(&sized), bits(&equal), "{who}");
    assert_eq!(sized.ledger, equal.ledger, "{who}");
    assert!(rows == 204 || sized.point.time == equal.point.time, "{who}");
    let end = |point: Point| (point.version, point.samples, point.epoch);
    assert_eq!(end(sized.point), end(equal.point), "{who}");
}

#[test]
fn a_round_takes_the_time_that_all_workers_together_need() {
    // A mini-batch of 64 takes 8 ms, four times as long on worker 1, and 2 ms there and back.
    let mut sized = toy(4, 16_000, 64);
    let mut equal = sized.clone();
    equal.job.work = WorkSpec::Equal;
    for aggregation in [Aggregation::Mean, Aggregation::Sum] {
        (sized.job.aggregation, equal.job.aggregation) = (aggregation, aggregation);
        let last = |toy: &Toy| {
            let all =
                updates(&run_dealt(toy, "delay=1ms down.delay=1ms", "8ms 1.factor=4", "none"));
            // Some rounds of a pass have fewer examples.
            assert!(all.iter().all(|&(_, samples)| samples <= 256));
            assert!(all.iter().filter(|&&(_, samples)| samples == 256).count() > 40);
            all[40].0 - all[39].0
        };
        assert_eq!(last(&equal), Duration::from_millis(34));
        // 4 * 64 examples at speeds 1/4, 1, 1 and 1: 256 / 3.25 / 64 * 8 ms, to within one example.
        let (found, wanted) = (last(&sized).as_secs_f64(), 0.002 + 0.008 * 4.0 / 3.25);
        assert!((found - wanted).abs() < 0.0005, "{found} s, not {wanted} s");
    }
}

#[test]
fn a_slow_link_also_reduces_the_mini_batches() {
    let toy = toy(2, 16_000, 100);
    let all = updates(&run_dealt(&toy, "delay=1ms 1.delay=5ms", "10ms", "none"));
    // 5 ms against 1 ms, where 100 examples take 10 ms: 20 examples make up for the difference.
    let found = all[60].0 - all[59].0;
    assert!((found.as_secs_f64() - 0.013).abs() < 0.0002, "{found:?}");
}

#[test]
fn work_by_speed_is_refused_with_incompatible_settings() {
    let told = |change: &dyn Fn(&mut Toy)| {
        let mut toy = toy(4, 200, 8);
        change(&mut toy);
        Server::new(toy.job, 1).unwrap_err().to_string()
    };
    let budget = told(&|toy| toy.job.budget.kind = BudgetKind::Partition);
    assert!(budget.starts_with("work = speed needs budget = global"), "{budget}");
    let coded = told(&|toy| toy.job.redundancy = Redundancy::Cyclic { tolerance: 1 });
    assert!(coded.starts_with("work = speed needs redundancy = none"), "{coded}");
    let large = told(&|toy| toy.job.batch_size = 1 << 30);
    assert!(large.starts_with("work = speed needs a batch-size"), "{large}");
}

/// Checks that no example was applied twice in a pass of its worker, and that all were applied in
/// turn, except for `open` mini-batches in flight.
fn each_example_once_a_pass(result: &Dealt, open: usize) {
    let mut applied: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for (_, event) in &result.events {
        if let Event::Applied { part, batch, samples, examples, .. } = event {
            assert_eq!(examples, samples);
            applied.entry(part.0).or_default().push((batch.0, batch.0 + u64::from(*samples)));
        }
    }
    for (part, mut spans) in applied {
        spans.sort_unstable();
        let ends = [0].into_iter().chain(spans.iter().map(|(_, end)| *end));
        let gaps = ends.zip(&spans).filter(|(end, (begin, _))| {
            assert!(end <= begin, "example {begin} of partition {part} came twice");
            end < begin
        });
        assert!(gaps.count() <= open, "partition {part}: {spans:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Deaths, returns, cuts, repeated messages, and machines that are slow at times.
    #[test]
    fn under_random_faults_each_example_is_used_once_a_pass(
        workers in 1_u32..6,
        consistency in prop::sample::select(vec!["bsp", "asp", "ssp:2", "k-sync:1", "backup:0"]),
        in_flight in 1_u32..3,
        faults in prop::collection::vec((0_u32..5, 0_usize..3, 5_u64..400, 1_u64..3000), 0..6),
        jitter in 0_u64..4,
        combined: bool,
    ) {
        let mut toy = toy(workers, 403, 12);
        toy.job.mode.consistency = consistency.parse().unwrap();
        if consistency == "asp" {
            toy.job.mode.in_flight = Some(in_flight);
        }
        toy.job.exchange = if combined { Exchange::Combined } else { Exchange::Separate };
        let faults = faults_of(workers, &faults);
        let link = format!("delay=2ms jitter={jitter}ms down.delay=1ms down.jitter={jitter}ms");
        let machines = "straggler:2ms,60ms,0.3,0.5";
        let result = run_dealt(&toy, &link, machines, &faults);
        prop_assert_eq!(result.reason, EndReason::BudgetReached);
        prop_assert!(result.point.samples >= 3 * 403);
        each_example_once_a_pass(&result, in_flight as usize);
    }
}
