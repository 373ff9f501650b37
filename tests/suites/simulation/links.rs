//! Links in virtual time give the guarantees of connections over real transports.
//!
//! Real transports share one suite ([conformance](../conformance.rs)); the simulation is a driver
//! without a transport, so that suite cannot test it. Instead its links are checked from outside:
//! in every run of this package, the harness compares the messages that reach the server with the
//! messages that the workers sent (whole, in order, and all before the hang-up). The tests here
//! cover connections that are opened and closed.

use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{DataFrom, OnLoss};
use pstrain_roles::node::{Departure, Event};
use pstrain_tests::{Simulated, Toy, VirtualRun};
use pstrain_transports::simulation::{Origin, SimulationError};
use pstrain_wire::worker::EndReason;

const LEASE: Duration = Duration::from_secs(2);

fn ms(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Two workers with 10 ms up, 10 ms down and 30 ms a mini-batch: parameters come from 50 ms on,
/// every 50 ms.
fn two(faults: &str) -> VirtualRun {
    let mut toy = Toy::new(2, 400);
    toy.job.mode.consistency = ConsistencySpec::Asp;
    toy.job.budget.epochs = 8;
    assert_eq!(toy.job.membership.lease, LEASE);
    VirtualRun::new(&toy, "delay=10ms down.delay=10ms", "30ms").with_faults(faults)
}

/// Returns the time of the first event that satisfies `what`.
fn when(run: &Simulated, what: impl Fn(Origin, &Event) -> bool) -> Option<Time> {
    run.events.iter().find(|(_, from, event)| what(*from, event)).map(|(at, ..)| *at)
}

fn first(run: &Simulated, worker: u32, what: impl Fn(&Event, WorkerId) -> bool) -> Option<Time> {
    when(run, |from, event| from == Origin::Server && what(event, WorkerId(worker)))
}

fn is_cut_off(event: &Event, who: WorkerId) -> bool {
    matches!(event, Event::CutOff { worker, .. } if *worker == who)
}

fn is_lost(event: &Event, who: WorkerId) -> bool {
    matches!(event, Event::Departed { worker, how: Departure::Lost, .. } if *worker == who)
}

#[test]
fn a_connection_is_established_after_a_round_trip() {
    let run = two("none");
    let run = run.run();
    let joined = first(&run, 0, |event, _| matches!(event, Event::Joined { .. }));
    assert_eq!(joined, Some(ms(30)), "open, opened, hello");
    let welcomed = when(&run, |_, event| matches!(event, Event::Welcomed { .. }));
    assert_eq!(welcomed, Some(ms(40)));
    assert_eq!(first(&run, 0, |event, _| matches!(event, Event::Granted { .. })), Some(ms(50)));
}

#[test]
fn the_server_learns_of_a_dead_process_after_the_link_delay() {
    let run = two("1.crash@200ms").run();
    assert_eq!(first(&run, 0, is_cut_off), Some(ms(210)));
    // The worker counts until its lease ends, measured from its last message: a push at 200 ms.
    let heard = ms(200);
    assert_eq!(first(&run, 0, is_lost), Some(heard + LEASE));
    assert_eq!(run.reason, EndReason::BudgetReached, "the other one does the rest");
    assert_eq!(run.workers[0], None, "it died");
    assert_eq!(run.workers[1], Some(Ok(EndReason::BudgetReached)));
}

#[test]
fn a_restarted_process_takes_its_old_slot() {
    let run = two("1.crash@200ms 1.restart@300ms").run();
    let replaced = first(
        &run,
        0,
        |event, who| matches!(event, Event::Departed { worker, how: Departure::Replaced, .. } if *worker == who),
    );
    assert_eq!(replaced, Some(ms(330)), "open, opened, hello");
    assert_eq!(
        run.workers,
        [Some(Ok(EndReason::BudgetReached)), Some(Ok(EndReason::BudgetReached))]
    );
}

#[test]
fn a_short_cut_delays_messages_in_flight_and_loses_nothing() {
    let run = two("1.cut@195ms 1.heal@600ms").run();
    let lost = |event: &Event| {
        matches!(event, Event::CutOff { .. } | Event::Repeated { .. } | Event::Redialling { .. })
    };
    assert_eq!(when(&run, |_, event| lost(event)), None, "TCP sends it again");
    let arrivals =
        |worker: u64| run.arrivals.iter().filter(move |push| push.is_push && push.peer.0 == worker);
    let late: Vec<Time> = arrivals(0).map(|push| push.at).take(5).collect();
    // The pushes of 100 and 150 ms are on time, the push of 190 ms is late; its parameters arrive
    // at 610 ms.
    assert_eq!(late, [ms(100), ms(150), ms(600), ms(650), ms(700)]);
    assert!(arrivals(1).zip(2..).all(|(push, turn)| push.at == ms(50 * turn)), "the other's way");
    assert_eq!(run.ledger.lost, 0);
}

#[test]
fn a_long_cut_ends_the_membership_and_the_worker_rejoins_by_itself() {
    let run = two("1.cut@195ms 1.heal@5s").run();
    // The server last heard from the worker at 150 ms; the worker last heard from the server at 160
    // ms.
    assert_eq!(first(&run, 0, is_lost), Some(ms(150) + LEASE));
    let redials = when(&run, |from, event| {
        from == Origin::Worker(WorkerId(0)) && matches!(event, Event::Redialling { .. })
    });
    assert_eq!(redials, Some(ms(160) + LEASE));
    let back = first(&run, 0, |event, who| {
        let again = matches!(event, Event::Joined { worker, incarnation, .. }
            if *worker == who && incarnation.0 == 2);
        again
    });
    assert!(back.is_some_and(|at| at >= ms(5000) && at < ms(5000) + LEASE * 2), "{back:?}");
    assert_eq!(
        run.workers,
        [Some(Ok(EndReason::BudgetReached)), Some(Ok(EndReason::BudgetReached))]
    );
}

#[test]
fn a_push_with_a_lost_answer_arrives_twice_and_counts_once() {
    let run = two("1.duplicate@195ms").run();
    // The push of 190 ms arrives at 200 ms. At that moment the connection is reset, which its
    // worker detects at 210 ms.
    assert_eq!(first(&run, 0, is_cut_off), Some(ms(200)));
    let redials = when(&run, |_, event| matches!(event, Event::Redialling { .. }));
    assert_eq!(redials, Some(ms(210)));
    let repeated = first(
        &run,
        0,
        |event, who| matches!(event, Event::Repeated { worker, .. } if *worker == who),
    );
    let resumed = first(&run, 0, |event, _| matches!(event, Event::Joined { resumed: true, .. }));
    assert!(resumed.is_some() && repeated > resumed, "{resumed:?} {repeated:?}");
    assert_eq!((run.ledger.lost, run.membership_was_fixed), (0, true));
    let twice = run.events.iter().filter(|(_, _, event)| matches!(event, Event::Repeated { .. }));
    assert_eq!(twice.count(), 1);
}

#[test]
fn a_dial_into_a_cut_times_out_and_is_retried() {
    let run = two("1.cut@0s 1.heal@7s");
    let run = run.run();
    let redials: Vec<Time> = run
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Redialling { .. }))
        .map(|(at, ..)| *at)
        .collect();
    assert_eq!(redials, [ms(5000)], "a dial may take 5 s");
    assert_eq!(
        run.workers,
        [Some(Ok(EndReason::BudgetReached)), Some(Ok(EndReason::BudgetReached))]
    );
}

#[test]
fn goodbyes_arrive_before_the_hang_up() {
    let run = two("none").run();
    let how: Vec<_> = run
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Departed { how, .. } => Some(*how),
            _ => None,
        })
        .collect();
    assert_eq!(how, [Departure::Left, Departure::Left]);
    assert_eq!(when(&run, |_, event| matches!(event, Event::CutOff { .. })), None);
}

#[test]
fn large_messages_arrive_whole_for_many_workers_at_once() {
    let mut toy = Toy::new(40, 40_000);
    toy.job.budget.epochs = 1;
    toy.job.batch_size = 500;
    toy.job.data.from = DataFrom::Server;
    // Each worker verifies that it received its examples; otherwise it is refused.
    let link = "delay=1ms down.delay=1ms rate=100mbit down.rate=100mbit server.rate=1gbit \
                slow-start=on down.slow-start=on";
    let run = VirtualRun::new(&toy, link, "1ms").run();
    assert_eq!(run.reason, EndReason::BudgetReached);
    assert!(run.workers.iter().all(|end| *end == Some(Ok(EndReason::BudgetReached))));
    assert_eq!(run.parameters, pstrain_tests::sequential_bsp(&toy));
}

#[test]
fn a_run_without_any_worker_left_still_ends() {
    for on_loss in [OnLoss::Continue, OnLoss::Wait, OnLoss::Stop] {
        let mut run = two("all.crash@200ms");
        run.job.membership.on_loss = on_loss;
        let ended = run.run();
        let patience = match on_loss {
            OnLoss::Stop => Duration::ZERO,
            _ => run.job.membership.patience(),
        };
        let over = first(&ended, 0, |event, _| matches!(event, Event::Ended { .. }));
        assert_eq!(over, Some(ms(200) + LEASE + patience), "{on_loss}: {}", ended.reason);
    }
}

#[test]
fn a_cut_that_never_heals_still_ends_the_run() {
    let run = two("all.cut@195ms").run();
    assert!(matches!(run.reason, EndReason::TooFewWorkers { .. }), "{}", run.reason);
}

#[test]
fn a_delay_that_no_lease_outlasts_is_refused_by_name() {
    let toy = Toy::new(2, 60);
    let lease = toy.job.membership.lease;
    let run = |link: &str| VirtualRun::new(&toy, link, "1ms").try_run().map(|run| run.reason);
    let worker = WorkerId(0);
    let slow = SimulationError::Slow { worker, delay: lease, lease };
    for direction in ["delay", "down.delay"] {
        let link = format!("all.delay=1ms 1.{direction}={}ms", lease.as_millis());
        assert_eq!(run(&link).unwrap_err(), slow);
    }
    assert!(slow.to_string().contains("worker 1 or to it takes 2s, and lease = 2s"), "{slow}");
    assert_eq!(run("all.delay=1ms 1.delay=1900ms").unwrap(), EndReason::BudgetReached);
}
