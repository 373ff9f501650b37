//! Values pushed by clients, under random schedules. The checkers apply each reported push to their
//! own parameters and compare what every worker receives with them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{Exchange, OnLoss};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::{Aggregation, StalenessSpec};
use pstrain_roles::node::{Cause, Event};
use pstrain_roles::store::Store;
use pstrain_tests::world::{Aftermath, Settings, let_happen};
use pstrain_tests::{POLICIES, kind_of_policy};
use pstrain_wire::range::{PushRule, RangePart};
use pstrain_wire::worker::EndReason;

use super::{LARGEST, bits, for_seeds, of_all_kinds};

/// Returns the versions made by client pushes.
fn pushed(aftermath: &Aftermath) -> Vec<Version> {
    let version = |(_, event): &(_, Event)| match event {
        Event::RangePushed { point, .. } => Some(point.version),
        _ => None,
    };
    aftermath.events.iter().filter_map(version).collect()
}

/// The world of a seed, with clients that push values.
fn pushed_at(seed: u64) -> Settings {
    let mut settings = of_all_kinds(seed).with_pushes();
    if seed % 5 == 1 {
        settings = settings.sparse();
    }
    if seed % 11 == 1 {
        let blocks = settings.clone().with_blocks();
        settings = if blocks.job.validate().is_ok() { blocks } else { settings };
    }
    if !seed.is_multiple_of(3) {
        settings = settings.with_servers(1 + (seed % 4) as u32);
    }
    if seed.is_multiple_of(4) {
        settings = settings.with_moves();
    }
    if seed % 7 < 3 {
        settings = settings.measuring();
    }
    if seed.is_multiple_of(2) {
        settings.crashes = 1 + seed % 20;
    }
    if seed.is_multiple_of(6) {
        settings.saves = 1 + seed % 100;
    }
    settings
}

#[test]
fn under_random_faults_a_push_is_one_version_on_all_servers() {
    let (count, crashes, seen) = (Cell::new(0), Cell::new(0), RefCell::new(BTreeSet::new()));
    let ran = for_seeds(LARGEST, |seed| {
        let settings = pushed_at(seed);
        let aftermath = let_happen(&settings);
        crashes.set(crashes.get() + aftermath.crashes);
        let mut policy = settings.job.mode.consistency;
        for (_, event) in &aftermath.events {
            match event {
                Event::Switched { mode, .. } => policy = mode.consistency,
                Event::RangePushed { point, how, .. } => {
                    count.set(count.get() + 1);
                    let late = if point.version.0 > 1 { "later" } else { "at once" };
                    seen.borrow_mut().insert(format!("{how} {late}"));
                    seen.borrow_mut().insert(kind_of_policy(policy));
                }
                _ => {}
            }
        }
    });
    ran.expect_above(5000, count.get(), "pushes");
    ran.expect_above(1000, crashes.get(), "crashes");
    let words = ["add at once", "set at once", "add later", "set later"];
    ran.expect_each(POLICIES.into_iter().chain(words), |word| seen.borrow().contains(word));
}

#[test]
fn workers_are_told_that_a_server_was_lost_after_the_end_with_its_part_of_the_result() {
    let run = let_happen(&pushed_at(14_268_681_687_418_613_220));
    assert!(matches!(run.reason, EndReason::ServerLost(_)), "{}", run.reason);
    let ended = |reason| matches!(reason, Event::Ended { reason: EndReason::TooFewWorkers { .. } });
    assert!(run.events.into_iter().any(|(_, event)| ended(event)));
}

#[test]
fn a_worker_that_gets_ready_during_a_measurement_counts_when_it_ends() {
    // The measurement of the last update before pushed values ends without an event.
    assert!(let_happen(&pushed_at(9_278_454_900_521_676_850)).crashes > 0);
}

/// The world of a seed with bounded delay, in which an order may meet a push.
fn ordered_at(seed: u64) -> Settings {
    let mut settings = Settings::draw(seed).switching().with_servers(2).measuring().with_pushes();
    // Part of an iteration is an update, since a member that is away is waited for.
    settings.job.mode = Mode::of(ConsistencySpec::Delay { bound: Some(1 + seed % 2) });
    settings.job.switches.clear();
    settings.job.membership.on_loss = OnLoss::Wait;
    settings
}

#[test]
fn gradients_of_finished_workers_do_not_wait_for_one_that_joins() {
    // While an update is measured, a worker joins after all members have finished their shares.
    let settings = ordered_at(16_876_097_383_015_628_357);
    assert_eq!(settings.job.mode.consistency, ConsistencySpec::Delay { bound: Some(2) });
    let stale = let_happen(&settings).events.into_iter().filter_map(|(_, event)| match event {
        Event::Applied { staleness, .. } => Some(staleness),
        _ => None,
    });
    assert_eq!(stale.max(), Some(2));
}

#[test]
fn a_worker_that_takes_the_id_of_a_suspect_is_given_parameters() {
    // The gradient that is not finite is one of a process that leaves during a measurement.
    let run = let_happen(&ordered_at(16_314_948_990_441_046_449));
    assert_eq!(run.reason, EndReason::BudgetReached);
    let dropped =
        |(_, event): &_| matches!(event, Event::Dropped { reason: DropReason::NotFinite, .. });
    assert!(run.events.iter().any(dropped));
}

#[test]
fn an_order_may_begin_between_the_last_update_before_a_push_and_the_push() {
    let between = Cell::new(0);
    let ran = for_seeds(LARGEST, |seed| {
        let events = let_happen(&ordered_at(seed)).events;
        let found = events.windows(3).any(|next| {
            matches!(
                next,
                [
                    (_, Event::Switched { anew: false, .. }),
                    (_, Event::Switched { anew: true, cause: Cause::Pushed, .. }),
                    (_, Event::RangePushed { .. })
                ]
            )
        });
        between.set(between.get() + u64::from(found));
    });
    ran.expect_above(LARGEST / 20, between.get(), "modes that began in between");
}

#[test]
fn bsp_with_a_push_midway_is_the_same_on_any_number_of_servers() {
    let (compared, changed) = (Cell::new(0), Cell::new(0));
    let ran = for_seeds(600, |seed| {
        let mut settings = Settings::draw(seed).with_any_optimizer().peaceful();
        settings.job.mode = Mode::of(ConsistencySpec::Bsp);
        settings.job.exchange = Exchange::Combined;
        // The client completes its push before the round ends.
        settings.compute = vec![settings.job.membership.lease / 2];
        (settings.delay, settings.prepare) = (settings.grain, settings.grain);
        settings.late = settings.grain;
        if seed % 3 == 0 {
            settings = settings.measuring();
        }
        let without = let_happen(&settings);
        let how = if seed % 2 == 0 { PushRule::Add } else { PushRule::Set };
        settings.push = Some((Version(1), how));
        let one = let_happen(&settings);
        assert_eq!(one.reason, EndReason::BudgetReached);
        let versions = pushed(&one);
        if versions.is_empty() {
            return; // the run ended before the push
        }
        assert_eq!(versions, [Version(3)], "no round is left half done");
        assert_eq!(one.ledger, without.ledger, "a gradient was lost, or came twice");
        changed.set(changed.get() + u64::from(bits(&one) != bits(&without)));
        let by_distances = matches!(settings.job.aggregation, Aggregation::Krum { .. });
        let measures = by_distances || settings.job.update.clip_norm.is_some();
        for servers in [2, 4] {
            let several = settings.clone().with_servers(servers);
            let several = let_happen(&several);
            // A two-phase update measures on all servers, which may let the push in before a round
            // begins.
            let is_same = pushed(&several) == versions;
            assert!(is_same || measures, "{servers} servers");
            assert!(!is_same || bits(&several) == bits(&one), "{servers} servers");
        }
        compared.set(compared.get() + 1);
    });
    ran.expect_above(400, compared.get(), "comparable runs");
    ran.expect_above(400, changed.get(), "changed runs");
}

#[test]
fn keys_are_rebalanced_after_a_push_to_some_of_them() {
    let mut job = Settings::draw(0).job;
    job.mode.staleness = StalenessSpec::Delay { lambda: 0.5 };
    let model = job.build_model().unwrap();
    let range = |begin, end| KeyRange::new(begin, end).unwrap();
    let all = range(0, model.parameters() as u64);
    let halves = [range(0, all.len() / 2), range(all.len() / 2, all.len())];
    // Only the first half receives a push, while a worker computes on the version before it.
    let pushed = RangePart::new(range(0, 1), &[1.0]);
    let after = |keys| {
        let mut store = Store::new(&job, &model, keys).unwrap();
        store.gave(WorkerId(0), Version(0));
        store.push(PushRule::Add, &pushed);
        store.part(keys).unwrap()
    };
    let parts = halves.map(after).to_vec();
    let mut joined = Store::of_parts(&job, &model, all, parts).unwrap();
    assert_eq!(joined.part(all).unwrap(), after(all));
}
