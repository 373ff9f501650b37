//! The round-robin policy: one exchange at a time at the server, spread evenly over the cycle.

use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::model::ModelSpec;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_roles::node::Event;
use pstrain_tests::{Simulated, VirtualRun};
use pstrain_transports::simulation::Origin;

use super::closed_forms::patient;

const WORKERS: u32 = 8;
const MS: Duration = Duration::from_millis(1);

/// Runs a timing job with messages of 10,000 bytes and these computing times.
fn run(consistency: ConsistencySpec, link: &str, compute: &str) -> Simulated {
    let mut toy = patient(WORKERS, 1600, consistency);
    toy.job.model = ModelSpec::Timing { layers: vec![1] };
    let mut run = VirtualRun::new(&toy, link, compute);
    run.weight = Some(10_000);
    run.run()
}

/// Returns the periods in which a gradient of the worker, or parameters for it, were in flight, in
/// order.
fn transfers(run: &Simulated, worker: WorkerId) -> Vec<(Time, Time)> {
    let (mut sent, mut granted, mut found) = (None, None, Vec::new());
    for (at, from, event) in &run.events {
        match event {
            Event::Sent { .. } if *from == Origin::Worker(worker) => sent = Some(*at),
            Event::Pushed { worker: who, .. } if *who == worker => {
                found.extend(sent.take().map(|sent| (sent, *at)));
            }
            Event::Granted { worker: who, .. } if *who == worker => granted = Some(*at),
            Event::Received { .. } if *from == Origin::Worker(worker) => {
                found.extend(granted.take().map(|granted| (granted, *at)));
            }
            _ => {}
        }
    }
    found
}

/// Returns the maximum number of workers that exchange a message with the server at the same time,
/// after three turns of each worker. In the first turn all begin at once, and their waiting at the
/// link counts as theirs until the third.
fn most_at_once(run: &Simulated) -> usize {
    // Down and up, three times.
    let all = (0..WORKERS).map(|worker| transfers(run, WorkerId(worker)).split_off(6));
    let mut ends: Vec<(Time, bool)> = Vec::new();
    for (begin, end) in all.flatten().filter(|(begin, end)| begin < end) {
        ends.extend([(begin, true), (end, false)]);
    }
    ends.sort_unstable(); // an exchange that ends precedes one that begins at the same moment
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in ends {
        now = if begins { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    most
}

/// Returns worker, staleness and time of each applied gradient.
fn applied(run: &Simulated) -> Vec<(WorkerId, u64, Time)> {
    let applied = |(at, _, event): &(Time, Origin, Event)| match event {
        Event::Applied { worker, staleness, .. } => Some((*worker, *staleness, *at)),
        _ => None,
    };
    run.events.iter().filter_map(applied).collect()
}

/// Links on which a message takes 1 ms each way: one shared link, and one per worker.
const LINKS: [&str; 2] = ["delay=0ms server.rate=80mbit", "delay=1ms down.delay=1ms"];

#[test]
fn one_exchange_at_a_time_is_in_flight_unlike_under_bsp_and_asp() {
    for link in LINKS {
        let in_turn = run(ConsistencySpec::RoundRobin, link, "40ms");
        assert_eq!(most_at_once(&in_turn), 1, "{link}");
        assert_eq!(most_at_once(&run(ConsistencySpec::Bsp, link, "40ms")), 8, "{link}");
        let by_chance = most_at_once(&run(ConsistencySpec::Asp, link, "40ms"));
        assert!(by_chance > 1, "{link}: {by_chance} of async");
        // Once spaced, each gradient is N - 1 stale, and they arrive in the order of the ids.
        let applied = applied(&in_turn);
        assert!(applied.len() > 100, "{}", applied.len());
        for (place, (worker, staleness, _)) in applied.iter().enumerate() {
            assert_eq!(worker.0, place as u32 % WORKERS, "{link}: {place}");
            assert!(place < 24 || *staleness == 7, "{link}: {place} is {staleness} stale");
        }
    }
}

#[test]
fn turns_are_spread_evenly_and_do_not_lengthen_the_cycle() {
    let run = run(ConsistencySpec::RoundRobin, LINKS[1], "40ms");
    let applied = applied(&run);
    for (place, pair) in applied.windows(2).enumerate().skip(2 * 8) {
        // A cycle of 42 ms divided among eight workers.
        assert_eq!(pair[1].2 - pair[0].2, 42 * MS / 8, "{place}");
    }
    for pair in applied.windows(9).skip(2 * 8) {
        assert_eq!(pair[8].2 - pair[0].2, 42 * MS);
    }
}

#[test]
fn a_slower_worker_sets_the_pace_and_keeps_the_order() {
    let run = run(ConsistencySpec::RoundRobin, LINKS[1], "40ms 3.factor=2");
    let applied = applied(&run);
    assert!(most_at_once(&run) <= 2, "{}", most_at_once(&run));
    for cycle in applied.windows(9).skip(3 * 8) {
        assert_eq!(cycle[8].2 - cycle[0].2, 82 * MS);
        assert_eq!(cycle[8].0, cycle[0].0);
    }
}

#[test]
fn varying_computing_times_keep_the_order_and_most_of_the_spacing() {
    for compute in ["straggler:10ms,100ms,0.05,1", "normal:40ms,12ms", "exponential:40ms"] {
        for link in LINKS {
            let run = run(ConsistencySpec::RoundRobin, link, compute);
            let granted = run.events.iter().filter_map(|(.., event)| match event {
                Event::Granted { worker, .. } => Some(worker.0),
                _ => None,
            });
            for (place, worker) in granted.enumerate() {
                assert_eq!(worker, place as u32 % WORKERS, "{compute} {link}: {place}");
            }
            let applied = applied(&run);
            assert!(applied.iter().all(|(_, staleness, _)| *staleness <= 14), "{compute} {link}");
            assert!(most_at_once(&run) <= 4, "{compute} {link}: {}", most_at_once(&run));
        }
    }
}

#[test]
fn a_lost_worker_is_waited_for_until_its_lease_ends() {
    let mut toy = patient(4, 3200, ConsistencySpec::RoundRobin);
    toy.job.membership.lease = Duration::from_secs(1);
    let faults = "2.crash@1s 2.restart@10s";
    let run = VirtualRun::new(&toy, LINKS[1], "40ms").with_faults(faults).run();
    let applied = applied(&run);
    let pauses = applied.windows(2).filter(|pair| pair[1].2 - pair[0].2 > 100 * MS).count();
    assert_eq!(pauses, 1, "the others continued in turn");
    let without: Vec<u32> =
        applied.iter().skip_while(|(_, _, at)| at.as_secs_f64() < 3.0).map(|(w, ..)| w.0).collect();
    let place = without.iter().position(|&worker| worker == 0).expect("the first");
    assert_eq!(without[place..place + 6], [0, 2, 3, 0, 2, 3]);
    let last: Vec<u32> = applied.iter().rev().take(4).map(|(worker, ..)| worker.0).collect();
    let mut all = last.clone();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3], "it is back: {last:?}");
}
