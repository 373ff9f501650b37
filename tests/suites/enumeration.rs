//! All that can happen to a small group of servers and its workers, one state after another.

use pstrain_tests::enumeration::{Bounds, Found, enumerate};

#[expect(clippy::print_stdout, reason = "the number of states is what people want to know")]
fn all(workers: u32, rounds: u32, crashes: u8, more: impl FnOnce(&mut Bounds)) -> Found {
    let mut bounds = Bounds { workers, rounds, crashes, joined: false, at_once: false };
    more(&mut bounds);
    let found = enumerate(bounds);
    println!("{bounds:?}: {found:?}");
    assert!(found.ends > 0);
    found
}

#[test]
fn three_workers_that_come_in_any_order_end_with_the_same_parameters() {
    all(3, 2, 0, |_| ());
}

#[test]
fn one_worker_and_two_servers_may_crash_twice_at_any_moment() {
    all(1, 3, 2, |bounds| bounds.joined = true);
}

#[test]
fn one_of_two_workers_and_two_servers_may_crash_at_any_moment() {
    all(2, 1, 1, |bounds| bounds.joined = true);
}

#[test]
#[ignore = "takes minutes"]
fn crashes_of_more_for_longer() {
    all(1, 3, 2, |_| ());
    all(2, 3, 1, |bounds| bounds.joined = true);
    all(3, 3, 1, |bounds| (bounds.joined, bounds.at_once) = (true, true));
    all(2, 3, 2, |bounds| (bounds.joined, bounds.at_once) = (true, true));
}
