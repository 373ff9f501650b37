//! Exhaustive enumeration of the states of small groups of servers and workers.

use pstrain_tests::enumeration::{Bounds, Found, Grain, enumerate};

#[expect(clippy::print_stdout, reason = "the number of states is what people want to know")]
fn all(bounds: Bounds) -> Found {
    let found = enumerate(bounds);
    println!("{bounds:?}: {found:?}");
    assert!(found.ends > 0);
    found
}

/// Starts with workers that have joined and hold their first parameters.
fn joined(workers: u32, rounds: u32, crashes: u8, grain: Grain) -> Found {
    all(Bounds { workers, rounds, crashes, joined: true, grain })
}

/// Starts with workers that are about to join.
fn from_the_start(workers: u32, rounds: u32, crashes: u8) -> Found {
    all(Bounds { workers, rounds, crashes, joined: false, grain: Grain::Messages })
}

#[test]
#[ignore = "half a minute: .ci/nightly enumeration"]
fn three_workers_that_join_in_any_order_end_with_the_same_parameters() {
    from_the_start(3, 2, 0);
}

#[test]
fn one_worker_and_two_servers_may_crash_twice_at_any_moment() {
    joined(1, 3, 2, Grain::Messages);
}

#[test]
fn one_of_two_workers_and_two_servers_may_crash_between_messages_on_connections() {
    joined(2, 1, 1, Grain::Connections);
}

#[test]
#[ignore = "a quarter of a minute: .ci/nightly enumeration"]
fn one_of_two_workers_and_two_servers_may_crash_at_any_moment() {
    joined(2, 1, 1, Grain::Messages);
}

#[test]
#[ignore = "half a minute: .ci/nightly enumeration"]
fn one_of_three_workers_and_two_servers_may_crash_after_any_decisions() {
    joined(3, 1, 1, Grain::Decisions);
}

#[test]
#[ignore = "minutes: .ci/nightly enumeration"]
fn one_worker_and_two_servers_that_join_may_crash_twice_in_three_rounds() {
    from_the_start(1, 3, 2);
}

#[test]
#[ignore = "minutes: .ci/nightly enumeration"]
fn one_of_two_workers_may_crash_at_any_moment_in_three_rounds() {
    joined(2, 3, 1, Grain::Messages);
}

#[test]
#[ignore = "minutes: .ci/nightly enumeration"]
fn one_of_three_workers_may_crash_between_messages_on_connections_in_two_rounds() {
    joined(3, 2, 1, Grain::Connections);
}

#[test]
#[ignore = "minutes: .ci/nightly enumeration"]
fn two_workers_may_crash_twice_between_messages_on_connections_in_three_rounds() {
    joined(2, 3, 2, Grain::Connections);
}

#[test]
#[ignore = "minutes: .ci/nightly enumeration"]
fn three_workers_may_crash_twice_after_any_decisions_in_two_rounds() {
    joined(3, 2, 2, Grain::Decisions);
}
