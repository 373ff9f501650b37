//! The shard queue in virtual time: nobody is idle, and the fast do more.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_core::aggregate::ParticipationSpec;
use pstrain_core::consistency::ConsistencySpec;
use pstrain_core::id::Version;
use pstrain_core::job::{Aggregation, BudgetKind, DataFrom, Exchange};
use pstrain_core::mode::{Switch, SwitchAt};
use pstrain_core::node::{Event, Server};
use pstrain_core::protocol::message::EndReason;
use pstrain_core::work::{Redundancy, WorkSpec};
use pstrain_tests::{Dealt, Toy, run_dealt};

fn toy(workers: u32, rows: usize, batch_size: u32, count: u32) -> Toy {
    let mut toy = Toy::new(workers, rows);
    toy.job.work = WorkSpec::Shards { count };
    toy.job.batch_size = batch_size;
    toy
}

/// Mini-batches of each worker that became part of an update, in order of their epochs, and the time
/// of the last of each epoch; `batches` are those of a shard.
fn epochs(result: &Dealt, batches: u64) -> (BTreeMap<u64, BTreeMap<u32, u32>>, Vec<Duration>) {
    let mut counts: BTreeMap<u64, BTreeMap<u32, u32>> = BTreeMap::new();
    let mut ends = Vec::new();
    let begin = result.events.iter().find(|(_, event)| matches!(event, Event::Granted { .. }));
    let begin = begin.unwrap().0;
    for (at, event) in &result.events {
        if let Event::Applied { worker, batch, .. } = event {
            let epoch = batch.0 / batches;
            *counts.entry(epoch).or_default().entry(worker.number() as u32).or_default() += 1;
            ends.resize((epoch as usize + 1).max(ends.len()), Duration::ZERO);
            ends[epoch as usize] = at.since(begin);
        }
    }
    (counts, ends)
}

#[test]
fn an_epoch_takes_what_all_together_need() {
    // 3,200 mini-batches of 4 ms in 3 epochs over links of 50 us; worker 1 is 4 times slower.
    let mut shards = toy(4, 25_600, 8, 32);
    let mut equal = shards.clone();
    equal.job.work = WorkSpec::Equal;
    let run = |toy: &Toy| run_dealt(toy, "delay=50us", "4ms 1.factor=4", "none");
    for consistency in ["asp", "ssp:8", "delay:inf", "buffered:4", "k-batch-sync:4"] {
        shards.job.mode.consistency = consistency.parse().unwrap();
        if consistency == "delay:inf" {
            shards.job.mode.in_flight = Some(3);
        }
        let result = run(&shards);
        assert_eq!(result.point.samples, 3 * 25_600);
        let (counts, ends) = epochs(&result, 100);
        let alone = 3200.0 * 0.0041;
        let together = alone / 3.25;
        let last = ends[2].as_secs_f64() / 3.0;
        match consistency {
            // Whoever is ahead waits for the slowest.
            "ssp:8" => assert!((last - alone / 4.0 * 4.0).abs() < 0.05 * alone, "{last} s"),
            "k-batch-sync:4" => {}
            _ => assert!((last / together - 1.0).abs() < 0.03, "{consistency}: {last} s"),
        }
        if consistency == "asp" {
            for counts in counts.values() {
                assert_eq!(counts.values().sum::<u32>(), 3200);
                let slow = f64::from(counts[&1]) / 3200.0;
                assert!((slow * 13.0 - 1.0).abs() < 0.1, "{counts:?}");
            }
            // An epoch is over when the last mini-batches of the slowest are, and no later.
            for (epoch, end) in (1..).zip(&ends) {
                let over = end.as_secs_f64() - f64::from(epoch) * together;
                assert!(over < 0.04, "epoch {epoch} ended {over} s late");
            }
        }
        equal.job.mode = shards.job.mode;
        if consistency == "asp" {
            // In an epoch of equal partitions the slow one goes through a quarter of its own.
            let result = run(&equal);
            let passes = epochs(&result, 100).0;
            assert!(passes.len() > 3, "{passes:?}");
        }
    }
}
