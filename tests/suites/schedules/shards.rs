//! The shard queue under random schedules. The checkers verify that each mini-batch of each epoch
//! is applied exactly once, at every grant, loss and update.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use pstrain_compute::decided::DropReason;
use pstrain_compute::filter::Filters;
use pstrain_compute::id::{BatchId, PartId};
use pstrain_compute::pass::Pass;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, OnLoss, WorkSpec};
use pstrain_policy::mode::Mode;
use pstrain_roles::node::Event;
use pstrain_tests::world::{Aftermath, Settings, let_happen};
use pstrain_tests::{POLICIES, kind_of_policy, partition_of};
use pstrain_wire::worker::EndReason;

use super::{LARGEST, bits, for_seeds};

/// Returns how often each mini-batch of each part was applied.
pub(super) fn applied(aftermath: &Aftermath) -> BTreeMap<(u32, u64), u32> {
    let mut counts = BTreeMap::new();
    for (_, event) in &aftermath.events {
        if let Event::Applied { part, batch, .. } = event {
            *counts.entry((part.0, batch.0)).or_default() += 1;
        }
    }
    counts
}

/// Returns the number of rows that were applied, or are left out since a gradient is not finite.
pub(super) fn rows_done(settings: &Settings, aftermath: &Aftermath) -> u64 {
    let parts = settings.job.parts();
    let mut done: BTreeSet<(PartId, BatchId)> = BTreeSet::new();
    for pair in aftermath.events.windows(2) {
        match (&pair[0].1, &pair[1].1) {
            (&Event::Applied { part, batch, .. }, _)
            | (
                &Event::Pushed { part, batch, .. },
                Event::Dropped { reason: DropReason::NotFinite, .. },
            ) => drop(done.insert((part, batch))),
            _ => {}
        }
    }
    let size = |&(part, batch): &(PartId, BatchId)| {
        let rows = partition_of(&settings.train, parts, part).len() as u64;
        Pass::new(rows, settings.job.batch_size).size(batch)
    };
    done.iter().map(size).sum()
}

#[test]
fn under_random_faults_each_mini_batch_of_a_shard_counts_once_an_epoch() {
    let seen = RefCell::new(BTreeSet::new());
    let ran = for_seeds(LARGEST / 3, |seed| {
        let settings = match seed % 3 {
            0 => Settings::draw(seed).switching().with_shards(),
            _ => Settings::draw(seed).with_shards(),
        };
        let aftermath = let_happen(&settings);
        let mut seen = seen.borrow_mut();
        let whole = settings.job.data.train.rows * u64::from(settings.job.budget.epochs);
        if aftermath.reason == EndReason::BudgetReached {
            assert_eq!(rows_done(&settings, &aftermath), whole);
            if aftermath.ledger.lost > 0 {
                seen.insert("finished after a loss".to_owned());
            }
            let dropped = |(_, event): &(_, Event)| matches!(event, Event::Dropped { .. });
            if aftermath.events.iter().any(dropped) {
                seen.insert("finished after a drop".to_owned());
            }
        }
        seen.insert(kind_of_policy(settings.job.mode.consistency));
    });
    let policies = POLICIES.into_iter().filter(|word| !["malenia", "ringleader"].contains(word));
    let words = policies.chain(["finished after a loss", "finished after a drop"]);
    ran.expect_each(words, |word| seen.borrow().contains(word));
}

#[test]
fn a_dead_workers_shards_are_done_by_the_others() {
    for_seeds(600, |seed| {
        let mut settings = Settings::draw(seed).with_one_death().with_shards();
        settings.job.membership.workers = settings.job.membership.workers.max(2);
        settings.job.membership.on_loss = OnLoss::Continue;
        settings.job.membership.min_workers = Some(1);
        let policies = settings.job.mode.consistency;
        if policies.check(settings.job.membership.workers).is_err() {
            settings.job.mode = Mode::of(ConsistencySpec::Asp);
        }
        let aftermath = let_happen(&settings);
        assert_eq!(aftermath.reason, EndReason::BudgetReached);
        assert!(applied(&aftermath).values().all(|count| *count == 1));
    });
}

#[test]
fn one_worker_with_one_shard_equals_one_worker_bit_for_bit() {
    for_seeds(300, |seed| {
        let mut shards = Settings::draw(seed).peaceful().with_shards();
        shards.job.membership.workers = 1;
        shards.job.work = WorkSpec::Shards { count: 1 };
        shards.job.mode.consistency = ConsistencySpec::Bsp;
        if shards.job.mode.validate().is_err() {
            shards.job.mode = Mode::of(ConsistencySpec::Bsp);
        }
        let mut equal = shards.clone();
        equal.job.work = WorkSpec::Equal;
        let [shards, equal] = [shards, equal].map(|settings| let_happen(&settings));
        assert_eq!(shards, equal);
    });
}

#[test]
fn under_bsp_one_shard_per_worker_equals_partitions_bit_for_bit() {
    for_seeds(300, |seed| {
        let mut shards = Settings::draw(seed).peaceful();
        shards.job.mode = Mode::of(ConsistencySpec::Bsp);
        shards.job.budget.kind = BudgetKind::Global;
        // Filters depend on which worker computes which mini-batch, which differs here.
        shards.job.filters = Filters::default();
        let workers = shards.job.membership.workers;
        // Parts of equal size, so that all are finished at once.
        let rows = shards.train.len() as u32 / workers * workers;
        shards.train = shards.train.select(&(0..rows).collect::<Vec<_>>());
        shards.job.data.train = pstrain_compute::fingerprint::Fingerprint::of(&shards.train);
        let mut equal = shards.clone();
        shards.job.work = WorkSpec::Shards { count: workers };
        equal.compute.reverse();
        let [shards, equal] = [shards, equal].map(|settings| let_happen(&settings));
        assert_eq!(bits(&shards), bits(&equal));
        assert_eq!(applied(&shards), applied(&equal));
    });
}
