//! The shard queue in virtual time: no worker is idle, and fast workers do more.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::id::Version;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, DataFrom, Redundancy, WorkSpec};
use pstrain_policy::mode::{Switch, SwitchAt};
use pstrain_policy::rules::ParticipationSpec;
use pstrain_roles::node::{Event, Server};
use pstrain_tests::{Dealt, Toy, run_dealt};
use pstrain_wire::worker::EndReason;

/// A job with `count` shards under a consistency.
fn toy((workers, rows): (u32, usize), batch_size: u32, count: u32, consistency: &str) -> Toy {
    let mut toy = Toy::new(workers, rows);
    (toy.job.work, toy.job.batch_size) = (WorkSpec::Shards { count }, batch_size);
    toy.job.mode.consistency = consistency.parse().unwrap();
    toy
}

/// Mini-batches of one epoch that were applied.
#[derive(Debug, Default)]
struct Epoch {
    /// Number of mini-batches of each worker (counted from 1).
    by: BTreeMap<u64, u32>,
    /// How often each mini-batch of each shard was applied.
    times: BTreeMap<(u32, u64), u32>,
    /// Time of the last of them since the first grant.
    end: Duration,
}

/// Returns the epochs of a run with `batches` mini-batches in each shard.
fn epochs(result: &Dealt, batches: u64) -> Vec<Epoch> {
    let granted = |event: &Event| matches!(event, Event::Granted { .. });
    let begin = result.events.iter().find(|(_, event)| granted(event)).unwrap().0;
    let mut epochs: Vec<Epoch> = Vec::new();
    for (at, event) in &result.events {
        let Event::Applied { worker, part, batch, .. } = event else { continue };
        let number = (batch.0 / batches) as usize;
        epochs.resize_with(epochs.len().max(number + 1), Epoch::default);
        let epoch = &mut epochs[number];
        *epoch.by.entry(worker.number()).or_default() += 1;
        *epoch.times.entry((part.0, batch.0)).or_default() += 1;
        epoch.end = at.since(begin);
    }
    epochs
}

#[test]
fn an_epoch_takes_the_time_that_all_workers_together_need() {
    // 3,200 mini-batches of 4 ms and 0.1 ms there and back; worker 1 computes four times as long.
    let compute = "4ms 1.factor=4";
    let each = |factor: f64| 1.0 / (0.004 * factor + 0.0001);
    let together = 3200.0 / (each(4.0) + 3.0 * each(1.0));
    for consistency in ["asp", "buffered:4", "ringmaster:40", "auto"] {
        let mut shards = toy((4, 25_600), 8, 32, consistency);
        // A learning rate so low that `auto` has no reason to restore earlier parameters.
        shards.job.update.learning_rate = 0.002;
        let result = run_dealt(&shards, "delay=50us down.delay=50us", compute, "none");
        assert_eq!((result.reason, result.point.samples), (EndReason::BudgetReached, 3 * 25_600));
        // All workers share the data, so not even `auto` weights workers by their data.
        let switched = |(_, event): &(_, Event)| matches!(event, Event::Switched { .. });
        assert!(!result.events.iter().any(switched), "{consistency}");
        let epochs = epochs(&result, 100);
        assert_eq!(epochs.len(), 3);
        for (number, epoch) in (1..).zip(&epochs) {
            assert_eq!(epoch.times.len(), 3200, "{consistency}");
            assert!(epoch.times.values().all(|times| *times == 1), "{consistency}");
            let share = f64::from(epoch.by[&1]) / 3200.0;
            let wanted = each(4.0) / (each(4.0) + 3.0 * each(1.0));
            assert!((share / wanted - 1.0).abs() < 0.1, "{consistency}: {share}, not {wanted}");
            // An epoch ends once the slow worker has done its last mini-batches.
            let late = epoch.end.as_secs_f64() - f64::from(number) * together;
            assert!(late.abs() < 0.06, "{consistency}: epoch {number} ended {late} s late");
        }
    }
}

#[test]
fn policies_that_wait_for_slow_workers_gain_nothing_by_shards() {
    let last = |toy: &Toy| {
        let result = run_dealt(toy, "delay=50us", "4ms 1.factor=4", "none");
        assert_eq!(result.reason, EndReason::BudgetReached);
        result.point.time.as_secs_f64()
    };
    for consistency in ["bsp", "ssp:3"] {
        let shards = toy((4, 3200), 8, 16, consistency);
        let mut equal = shards.clone();
        equal.job.work = WorkSpec::Equal;
        let ratio = last(&shards) / last(&equal);
        assert!((ratio - 1.0).abs() < 0.02, "{consistency}: {ratio}");
    }
    // Without waiting, equal partitions leave the slow worker's data behind; a budget of equal
    // passes over all partitions takes as long as the slow worker needs.
    let shards = toy((4, 3200), 8, 16, "asp");
    let mut partitions = shards.clone();
    (partitions.job.work, partitions.job.budget.kind) = (WorkSpec::Equal, BudgetKind::Partition);
    let ratio = last(&partitions) / last(&shards);
    assert!((ratio - 3.25).abs() < 0.15, "{ratio}");
}

#[test]
fn a_dead_workers_mini_batches_are_done_before_the_next_epoch() {
    // One worker dies within its shard, another returns after a while.
    let faults = "1.crash@180ms 2.crash@300ms 2.restart@2500ms";
    for from in [DataFrom::Worker, DataFrom::Server] {
        for (consistency, in_flight) in [("asp", Some(3)), ("bsp", None), ("k-sync:2", None)] {
            let mut toy = toy((3, 4800), 8, 12, consistency);
            (toy.job.mode.in_flight, toy.job.data.from) = (in_flight, from);
            toy.job.membership.lease = Duration::from_millis(100);
            let result = run_dealt(&toy, "delay=100us", "4ms", faults);
            assert_eq!(result.reason, EndReason::BudgetReached, "{consistency}");
            assert!(result.ledger.lost >= 2, "{consistency}: {:?}", result.ledger);
            assert_eq!(result.point.samples, 3 * 4800);
            let epochs = epochs(&result, 50);
            assert!(epochs.iter().all(|epoch| epoch.times.len() == 600));
            // Both leases end within the first epoch, and the mini-batches of the lost workers are
            // done before the second epoch has gone far.
            let mut first = 0;
            let mut second = 0;
            for (_, event) in &result.events {
                if let Event::Applied { batch, .. } = event {
                    first += u32::from(batch.0 < 50);
                    second += u32::from(first < 600 && batch.0 >= 50);
                }
            }
            assert!(second <= 9, "{consistency}: {second} of the second epoch before the first's");
        }
    }
}

#[test]
fn shards_are_refused_with_incompatible_settings() {
    let told = |change: &dyn Fn(&mut Toy)| {
        let mut toy = toy((4, 200), 8, 10, "asp");
        change(&mut toy);
        Server::new(toy.job, 1).unwrap_err().to_string()
    };
    let budget = told(&|toy| toy.job.budget.kind = BudgetKind::Partition);
    assert!(budget.starts_with("work = shards:10 needs budget = global"), "{budget}");
    let coded = told(&|toy| toy.job.redundancy = Redundancy::Cyclic { tolerance: 1 });
    assert!(coded.starts_with("work = shards:10 needs redundancy = none"), "{coded}");
    for count in [0, 201, 5000] {
        let number = told(&|toy| toy.job.work = WorkSpec::Shards { count });
        let wanted =
            format!("work = shards:{count}: must be 1 to 4096, and at most the 200 training rows");
        assert_eq!(number, wanted);
    }
    let other = "work = shards:10 needs another consistency than malenia and ringleader";
    let malenia = ConsistencySpec::Malenia { gradients: 2 };
    for consistency in [malenia, ConsistencySpec::Ringleader] {
        let now = told(&|toy| toy.job.mode.consistency = consistency);
        assert!(now.starts_with(other), "{now}");
        let at = SwitchAt::Version(Version(3));
        let later = told(&|toy| toy.job.switches = vec![Switch { to: consistency, at }]);
        assert!(later.starts_with(other), "{later}");
    }
    for participation in [ParticipationSpec::Share, ParticipationSpec::Incremental] {
        let told = told(&|toy| toy.job.mode.participation = participation);
        assert!(told.starts_with("work = shards:10 needs participation = plain"), "{told}");
    }
}
