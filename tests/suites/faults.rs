//! Whole clusters over TCP with real faults: networks that cut, stall and corrupt bytes, processes
//! that die, faulty workers, and unauthenticated connections.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::ops::Range;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_compute::rng::{Random, Stream};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_roles::node::{Departure, Event, NodeError};
use pstrain_tests::{
    Disturbance, Proxy, ServerEnd, ServerThread, Toy, WorkerThread, bits, check_exactly_once,
    sequential_bsp, within,
};
use pstrain_wire::worker::EndReason;

mod clients;
mod first_messages;
mod membership;

const LIMIT: Duration = Duration::from_secs(40);

/// A job with a lease short enough for a test to wait for.
fn toy(workers: u32, lease_ms: u64) -> Toy {
    let mut toy = Toy::new(workers, 203);
    toy.job.membership.lease = Duration::from_millis(lease_ms);
    toy
}

/// A model whose gradients are so long that a server inspects them before they are complete.
fn long_model() -> ModelSpec {
    ModelSpec::Mlp { hidden: vec![20_000], activation: Activation::Relu }
}

/// Like [`toy`], with so many epochs that the run ends only when it is stopped.
fn endless(workers: u32, lease_ms: u64) -> Toy {
    let mut toy = toy(workers, lease_ms);
    toy.job.budget.epochs = 10_000_000;
    toy
}

fn rng(test: &str) -> Random {
    Stream::new(11).fork(test, 0).rng()
}

fn start_workers(toy: &Toy, server: &ServerThread) -> Vec<WorkerThread> {
    let workers = 0..toy.job.membership.workers;
    workers.map(|worker| WorkerThread::start(toy, worker, &server.address)).collect()
}

fn all_end_with(reason: EndReason, workers: Vec<WorkerThread>) {
    for worker in workers {
        assert_eq!(worker.join(), Ok(reason));
    }
}

/// Checks that the run used up its budget with the result of an undisturbed run.
fn check_unharmed(toy: &Toy, end: &ServerEnd) {
    assert_eq!(end.reason, EndReason::BudgetReached);
    check_exactly_once(&end.events, &end.ledger);
    if toy.job.mode.consistency == ConsistencySpec::Bsp {
        assert_eq!(bits(&end.parameters), bits(&sequential_bsp(toy)), "other bits than sequential");
    }
}

fn count(events: &[Event], which: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| which(event)).count()
}

fn is_lost(event: &Event) -> bool {
    matches!(event, Event::Departed { how: Departure::Lost, .. })
}

fn is_resumed(event: &Event) -> bool {
    matches!(event, Event::Joined { resumed: true, .. })
}

#[test]
fn a_worker_cut_off_within_its_lease_resumes_and_no_gradient_is_applied_twice() {
    within(LIMIT, || {
        for consistency in [ConsistencySpec::Bsp, ConsistencySpec::Ssp { slack: 1 }] {
            let mut toy = toy(3, 5000);
            toy.job.mode.consistency = consistency;
            toy.job.budget.epochs = 300;
            let server = ServerThread::start(&toy);
            let proxy = Proxy::new(&server.address, rng("for a while"));
            let workers = vec![
                WorkerThread::start(&toy, 0, &server.address),
                WorkerThread::start(&toy, 1, &proxy.address()),
                WorkerThread::start(&toy, 2, &server.address),
            ];
            server.wait_for_version(30);
            proxy.cut();
            server.wait_for("a cut", |events| {
                events.iter().any(|event| matches!(event, Event::CutOff { .. }))
            });
            std::thread::sleep(Duration::from_secs(2));
            proxy.heal();
            all_end_with(EndReason::BudgetReached, workers);
            let end = server.join();
            check_unharmed(&toy, &end);
            assert_eq!(count(&end.events, is_lost), 0, "its lease was not over");
            assert_eq!(count(&end.events, is_resumed), 1);
        }
    });
}

/// Runs `toy` while the connections of its three workers are disturbed `times` times each, after a
/// number of bytes in `after`. Returns the end of the run and the number of disturbed connections.
fn disturbed(
    toy: &Toy,
    test: &str,
    times: u64,
    how: Disturbance,
    after: Range<u64>,
) -> (ServerEnd, u64) {
    let server = ServerThread::start(toy);
    let proxies: Vec<Proxy> = (0..3)
        .map(|worker| {
            let proxy = Proxy::new(&server.address, Stream::new(12).fork(test, worker).rng());
            proxy.disturb(times, how, after.clone());
            proxy
        })
        .collect();
    let workers = (0..3)
        .zip(&proxies)
        .map(|(worker, proxy)| WorkerThread::start(toy, worker, &proxy.address()))
        .collect();
    all_end_with(EndReason::BudgetReached, workers);
    (server.join(), proxies.iter().map(Proxy::times_disturbed).sum())
}

#[test]
fn long_gradients_cut_midway_do_not_change_the_result() {
    const CUTS: u64 = 6;
    within(LIMIT, || {
        let mut toy = toy(3, 2000);
        toy.job.model = long_model();
        let (end, cuts) = disturbed(&toy, "in the middle", CUTS, Disturbance::Cut, 0..6_000_000);
        check_unharmed(&toy, &end);
        assert!(cuts > CUTS, "only {cuts} cuts");
    });
}

#[test]
fn repeatedly_cut_connections_do_not_change_the_result() {
    const CUTS: u64 = 12;
    within(LIMIT, || {
        for consistency in [ConsistencySpec::Bsp, ConsistencySpec::Asp] {
            let mut toy = toy(3, 2000);
            toy.job.mode.consistency = consistency;
            toy.job.budget.epochs = 200;
            let (end, cuts) = disturbed(&toy, "again and again", CUTS, Disturbance::Cut, 0..6000);
            check_unharmed(&toy, &end);
            assert!(cuts >= CUTS, "only {cuts} cuts");
            assert!(count(&end.events, is_resumed) > 5, "nobody had to resume");
        }
    });
}

/// Upper bound of the bytes on a connection, both ways, until a worker has joined with its data.
const IS_IN: u64 = 6000;

#[test]
fn messages_with_a_flipped_byte_do_not_change_the_result() {
    const TIMES: u64 = 6;
    within(LIMIT, || {
        for (long, most) in [(false, 2 * IS_IN), (true, 3_000_000)] {
            let mut toy = toy(3, 5000);
            toy.job.budget.epochs = 200;
            if long {
                toy.job.model = long_model();
                toy.job.budget.epochs = 10;
            }
            let (end, flips) = disturbed(&toy, "damaged", TIMES, Disturbance::Flip, IS_IN..most);
            check_unharmed(&toy, &end);
            assert!(flips >= TIMES, "only {flips} bytes were damaged");
            assert!(count(&end.events, is_resumed) >= 5, "no worker had to resume");
            assert_eq!(count(&end.events, is_lost), 0, "a damaged byte is no death");
        }
    });
}

#[test]
fn messages_with_lost_bytes_are_detected_within_the_lease() {
    within(LIMIT, || {
        let mut toy = toy(3, 5000);
        toy.job.model = long_model();
        toy.job.budget.epochs = 10;
        let how = Disturbance::Lose(3000);
        let (end, losses) = disturbed(&toy, "lost", 2, how, 1_000_000..3_000_000);
        check_unharmed(&toy, &end);
        assert!(losses >= 2, "only {losses} losses");
        assert_eq!(count(&end.events, is_lost), 0, "a worker was silent for a lease");
    });
}

#[test]
fn a_path_that_damages_every_connection_is_given_up_and_reported() {
    within(LIMIT, || {
        let toy = endless(1, 2000);
        let server = ServerThread::start(&toy);
        let proxy = Proxy::new(&server.address, rng("damages all"));
        let worker = WorkerThread::start(&toy, 0, &proxy.address());
        server.wait_for_version(5);
        proxy.disturb(u64::MAX, Disturbance::Flip, 0..1);
        proxy.cut();
        proxy.heal();
        let error = worker.join().unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, NodeError::Damaged { times: 9, .. }), "{error:?}");
        assert!(words.contains("--tls or --psk"), "{words}");
        assert!(proxy.times_disturbed() >= 9);
        server.kill();
    });
}

#[test]
fn a_stall_within_the_lease_cuts_no_connection() {
    within(LIMIT, || {
        let mut toy = toy(2, 1000);
        toy.job.budget.epochs = 100;
        let server = ServerThread::start(&toy);
        let proxy = Proxy::new(&server.address, rng("stall"));
        let workers = vec![
            WorkerThread::start(&toy, 0, &server.address),
            WorkerThread::start(&toy, 1, &proxy.address()),
        ];
        server.wait_for_version(10);
        proxy.stall();
        std::thread::sleep(Duration::from_millis(400));
        proxy.heal();
        all_end_with(EndReason::BudgetReached, workers);
        let end = server.join();
        check_unharmed(&toy, &end);
        assert_eq!(count(&end.events, |event| matches!(event, Event::CutOff { .. })), 0);
    });
}

#[test]
fn a_worker_rejoins_after_a_stall_longer_than_the_lease() {
    within(LIMIT, || {
        let mut toy = endless(2, 300);
        toy.job.mode.consistency = ConsistencySpec::Asp;
        let server = ServerThread::start(&toy);
        let proxy = Proxy::new(&server.address, rng("long stall"));
        let near = WorkerThread::start(&toy, 0, &server.address);
        let far = WorkerThread::start(&toy, 1, &proxy.address());
        server.wait_for_version(10);
        proxy.stall();
        server.wait_for("the end of a lease", |events| events.iter().any(is_lost));
        // No connection was cut, so the worker detected the silence by itself.
        far.wait_for("its own notice", |events| {
            events.iter().any(|event| match event {
                Event::Redialling { why, .. } => why.contains("silent"),
                _ => false,
            })
        });
        proxy.heal();
        server.wait_for("its return", |events| {
            count(events, |event| matches!(event, Event::Ready { worker: WorkerId(1), .. })) == 2
        });
        server.drain();
        all_end_with(EndReason::Stopped, vec![near, far]);
        let end = server.join();
        assert_eq!(end.reason, EndReason::Stopped);
        check_exactly_once(&end.events, &end.ledger);
    });
}

#[test]
fn workers_of_a_lost_server_give_up_in_time_and_report_their_attempts() {
    within(LIMIT, || {
        let toy = endless(2, 250);
        let patience = toy.job.membership.patience();
        let server = ServerThread::start(&toy);
        let workers = start_workers(&toy, &server);
        server.wait_for_version(10);
        server.kill();
        for worker in workers {
            check_unreachable(worker.join(), patience);
        }
    });
}

#[test]
fn a_worker_that_never_finds_its_server_gives_up_in_time() {
    within(LIMIT, || {
        let toy = toy(1, 150);
        let nowhere = ServerThread::start(&toy);
        let address = nowhere.address.clone();
        nowhere.kill();
        let worker = WorkerThread::start(&toy, 0, &address);
        check_unreachable(worker.join(), toy.job.membership.patience());
    });
}

fn check_unreachable(end: Result<EndReason, NodeError>, patience: Duration) {
    let Err(error) = end else { panic!("{end:?}") };
    let text = error.to_string();
    let NodeError::Unreachable { attempts, tried, .. } = error else { panic!("{error:?}") };
    assert!(attempts >= 5, "{text}");
    assert!(tried >= patience, "{text}");
    // The last attempt is the first one after the patience is over.
    assert!(tried < patience + patience / 6, "{text}");
    assert!(text.starts_with("cannot reach the server, or is not admitted there: "), "{text}");
    assert!(text.contains(&format!("(tried {attempts} times in ")), "{text}");
}
