//! Servers that join and leave while keys are rebalanced, under random schedules. The checkers
//! compare the parameters that each worker receives with a sequential computation, whichever
//! servers own the keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::Event;
use pstrain_tests::world::{Aftermath, Settings, let_happen};
use pstrain_tests::{POLICIES, kind_of_policy};
use pstrain_wire::worker::EndReason;

use super::{LARGEST, bits, for_seeds, of_all_kinds};

#[test]
fn servers_join_and_leave_and_nothing_is_lost_or_repeated() {
    let (moves, seen) = (Cell::new(0), RefCell::new(BTreeSet::new()));
    let ran = for_seeds(LARGEST / 2, |seed| {
        let mut settings = of_all_kinds(seed).with_servers(1 + (seed % 4) as u32).with_moves();
        if seed % 3 > 0 {
            settings.crashes = 1 + seed % 20;
        }
        if seed % 7 < 3 {
            settings = settings.measuring();
        }
        if seed % 5 == 0 {
            settings.saves = 1 + seed % 100;
        }
        for (_, event) in &let_happen(&settings).events {
            if let Event::KeysMoved { joined, .. } = event {
                moves.set(moves.get() + 1);
                let to = if joined.is_some() { "one more" } else { "one less" };
                let policy = kind_of_policy(settings.job.mode.consistency);
                seen.borrow_mut().insert(format!("{to} under {policy}"));
            }
        }
    });
    ran.expect_above(2000, moves.get(), "moves");
    let ways = ["one more", "one less"].into_iter();
    let words = ways.flat_map(|to| POLICIES.map(|policy| format!("{to} under {policy}")));
    ran.expect_each(words, |word| seen.borrow().contains(word));
}

/// Returns how often keys were rebalanced.
fn moves(aftermath: &Aftermath) -> u64 {
    let moved = |(_, event): &&(_, Event)| matches!(event, Event::KeysMoved { .. });
    aftermath.events.iter().filter(moved).count() as u64
}

#[test]
fn rebalanced_keys_do_not_change_what_bsp_computes() {
    let (moved, crashes) = (Cell::new(0), Cell::new(0));
    let ran = for_seeds(1500, |seed| {
        let mut one = Settings::draw(seed).with_any_optimizer().peaceful();
        one.job.mode = Mode::of(ConsistencySpec::Bsp);
        if seed % 3 == 0 {
            one = one.measuring();
        }
        let mut several = one.clone().with_servers(1 + (seed % 4) as u32).with_moves();
        several.network = !seed;
        several.compute.reverse();
        // Messages that are resent after a crash are identical, and no worker is lost for it.
        several.crashes = if seed % 2 == 0 { 0 } else { 2 };
        let (one, several) = (let_happen(&one), let_happen(&several));
        moved.set(moved.get() + moves(&several));
        crashes.set(crashes.get() + several.crashes);
        if several.membership_was_fixed && several.reason == EndReason::BudgetReached {
            assert_eq!(bits(&several), bits(&one), "keys that moved changed the parameters");
        }
    });
    ran.expect_above(1000, moved.get(), "moves");
    ran.expect_above(200, crashes.get(), "crashes");
}
