//! Lost workers whose mini-batches are reassigned, under random schedules. The checkers verify that
//! each mini-batch of each epoch is applied exactly once, at every grant, loss and update.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use pstrain_compute::fingerprint::Fingerprint;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, OnLoss};
use pstrain_policy::mode::Mode;
use pstrain_roles::node::Event;
use pstrain_tests::world::{Aftermath, Settings, let_happen};
use pstrain_tests::{POLICIES, kind_of_policy};
use pstrain_wire::worker::EndReason;

use super::shards::{applied, rows_done};
use super::{LARGEST, bits, for_seeds};

/// True if a worker's mini-batch was ever applied by another worker.
fn changed_hands(aftermath: &Aftermath) -> bool {
    let by_another = |(_, event): &(_, Event)| match event {
        Event::Applied { worker, part, .. } => part.0 != worker.0,
        _ => false,
    };
    aftermath.events.iter().any(by_another)
}

#[test]
fn with_workers_that_join_and_leave_each_mini_batch_counts_once_an_epoch() {
    let seen = RefCell::new(BTreeSet::new());
    let ran = for_seeds(LARGEST / 3, |seed| {
        let mut settings = match seed % 3 {
            0 => Settings::draw(seed).switching().with_reassignment(),
            _ => Settings::draw(seed).with_reassignment(),
        };
        if seed % 4 == 0 {
            settings = settings.with_servers(2 + (seed % 3) as u32);
        }
        if seed % 2 == 0 {
            (settings.crashes, settings.saves) = (seed % 20, 10 + seed % 100);
        }
        let aftermath = let_happen(&settings);
        let mut seen = seen.borrow_mut();
        if aftermath.reason == EndReason::BudgetReached {
            let whole = settings.job.data.train.rows * u64::from(settings.job.budget.epochs);
            assert_eq!(rows_done(&settings, &aftermath), whole);
            if aftermath.ledger.lost > 0 && changed_hands(&aftermath) {
                seen.insert("done by another".to_owned());
            }
        }
        seen.insert(kind_of_policy(settings.job.mode.consistency));
    });
    let policies = POLICIES.into_iter().filter(|word| !["malenia", "ringleader"].contains(word));
    ran.expect_each(policies.chain(["done by another"]), |word| seen.borrow().contains(word));
}

#[test]
fn a_dead_workers_mini_batches_are_done_by_the_others() {
    let done = Cell::new(0);
    let ran = for_seeds(600, |seed| {
        let mut settings = Settings::draw(seed).with_one_death();
        settings.job.membership.workers = settings.job.membership.workers.max(2);
        settings.job.membership.min_workers = Some(1);
        settings = settings.with_reassignment();
        if settings.job.validate().is_err() {
            settings.job.mode = Mode::of(ConsistencySpec::Asp);
        }
        let aftermath = let_happen(&settings);
        assert_eq!(aftermath.reason, EndReason::BudgetReached);
        assert!(applied(&aftermath).values().all(|count| *count == 1));
        done.set(done.get() + u64::from(changed_hands(&aftermath)));
    });
    ran.expect_above(100, done.get(), "runs in which any was");
}

#[test]
fn without_losses_reassign_equals_continue_bit_for_bit() {
    for_seeds(300, |seed| {
        let mut settings = Settings::draw(seed).peaceful();
        settings.job.mode = Mode::of(ConsistencySpec::Bsp);
        settings.job.budget.kind = BudgetKind::Global;
        // Partitions of equal size, so that all are finished at once.
        let workers = settings.job.membership.workers;
        let rows = settings.train.len() as u32 / workers * workers;
        settings.train = settings.train.select(&(0..rows).collect::<Vec<_>>());
        settings.job.data.train = Fingerprint::of(&settings.train);
        let run = |on_loss| {
            let mut settings = settings.clone();
            settings.job.membership.on_loss = on_loss;
            let_happen(&settings)
        };
        let [plain, reassigned] = [OnLoss::Continue, OnLoss::Reassign].map(run);
        assert_eq!(bits(&plain), bits(&reassigned));
        assert_eq!(applied(&plain), applied(&reassigned));
    });
}
