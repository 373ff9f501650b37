//! Processes that are killed, stopped or late: the others continue and no gradient counts twice.

use std::collections::BTreeSet;

use pstrain_transports::WallClock;
use rustix::process::Signal;

use crate::books::{Row, called, check_books, parts, timeline};
use crate::cluster::{ENDLESS, Left, SLOW, Server, number, real};

#[test]
fn a_killed_worker_stalls_the_others_for_at_most_one_lease() {
    let lease = 0.8;
    let job = ["--workers", "3", "--lease", "800ms", "--epochs", "60"];
    let server = Server::tcp(&[&SLOW, &job]);
    let mut workers = server.workers(3);
    server.wait_for_updates_of(2, 20);
    drop(workers.pop()); // kills it with SIGKILL
    for worker in workers {
        worker.wait().with_code(0);
    }
    let Server { process, out, .. } = server;
    let summary = process.wait().with_code(0).json();
    let events = crate::books::events(&out);
    check_books(&out, &summary);
    let lost: Vec<_> = called(&events, "departed").filter(|event| event["how"] == "lost").collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(number(&lost[0]["worker"]), 3);
    // Parameters are sent after each update, so grant times are update times.
    let given: BTreeSet<u64> = timeline(&out).iter().map(|row| row.granted_ns).collect();
    let updates: Vec<f64> = given.into_iter().map(|at| at as f64 / 1e9).collect();
    let stall = updates.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    // Half a lease of tolerance for a machine that is busy with other tests.
    assert!(stall < 1.5 * lease, "stalled for {stall} s at a lease of {lease} s");
    let after = updates.iter().filter(|&&at| at > real(&lost[0]["at_s"])).count();
    assert!(after > 100, "{after} updates without the lost worker");
}

#[test]
fn a_worker_that_is_started_late_joins() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--min-workers", "2"]]);
    let mut workers = server.workers(2);
    server.wait_for_updates(20);
    workers.push(server.worker(&[]));
    server.wait_for_updates_of(2, 20);
    let Left { out, summary, _folder } = server.interrupt(workers);
    let events = crate::books::events(&out);
    check_books(&out, &summary);
    let place = |name: &str, worker: u64| {
        let of = |event: &serde_json::Value| event["event"] == name && event["worker"] == worker;
        events.iter().position(of).expect(name)
    };
    let started = events.iter().position(|event| event["event"] == "started").unwrap();
    assert!(place("joined", 3) > started);
    let ready_ns = 1e9 * real(&events[place("ready", 3)]["at_s"]);
    let third: Vec<_> = timeline(&out).into_iter().filter(|row| row.worker == 3).collect();
    assert!(third.len() >= 20 && third.iter().all(|row| row.granted_ns as f64 >= ready_ns));
}

#[test]
fn a_worker_stopped_for_longer_than_a_lease_rejoins_and_no_gradient_is_applied_twice() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--lease", "2s"]]);
    let workers = server.workers(3);
    let before = server.wait_for_updates_of(2, 20);
    workers[2].signal(Signal::STOP);
    let state = |status: &serde_json::Value| status["workers"][2]["state"] == "lost";
    let lost = server.wait_for("loss of the stopped worker", state);
    // The other workers progress while it is away.
    let away = server.wait_for_updates(number(&lost["updates"]) + 20);
    assert_eq!(away["workers"][2]["updates"], lost["workers"][2]["updates"]);
    workers[2].signal(Signal::CONT);
    server.wait_for_updates_of(2, number(&before["workers"][2]["updates"]) + 40);
    let Left { out, summary, _folder } = server.interrupt(workers);
    let events = crate::books::events(&out);
    check_books(&out, &summary);
    let incarnations: Vec<u64> = called(&events, "joined")
        .filter(|event| event["worker"] == 3)
        .map(|event| number(&event["incarnation"]))
        .collect();
    assert_eq!(incarnations, [1, 2], "it comes back as a new incarnation");
    let applied = |incarnation: u64| {
        let own = |row: &Row| row.worker == 3 && row.incarnation == incarnation;
        timeline(&out).iter().filter(|row| own(row) && row.is("applied")).count()
    };
    assert!(applied(1) >= 20 && applied(2) >= 20, "{} and {}", applied(1), applied(2));
}

#[test]
fn on_worker_loss_stop_ends_the_run_and_wait_pauses_it() {
    let job = ["--workers", "2", "--lease", "200ms"];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &job, &["--on-worker-loss", "stop"]]);
    let mut workers = server.workers(2);
    server.wait_for_updates(10);
    drop(workers.pop());
    let ended = server.process.wait().with_code(1);
    assert!(ended.stderr.contains("worker 2 was lost"), "{}", ended.stderr);
    assert!(number(&ended.json()["updates"]) >= 10, "{}", ended.stdout);
    workers.remove(0).wait().with_code(1);

    let server = Server::unix(&[&SLOW, &ENDLESS, &job, &["--on-worker-loss", "wait"]]);
    let mut workers = server.workers(2);
    server.wait_for_updates(10);
    drop(workers.pop());
    let lost = server.wait_for("loss", |status| status["workers"][1]["state"] == "lost");
    assert_eq!(lost["wait"]["workers"], serde_json::json!([2]), "{lost}");
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(server.status()["updates"], lost["updates"], "it waits");
    workers.push(server.worker(&["--id", "2"]));
    server.wait_for_updates(number(&lost["updates"]) + 10);
}

#[test]
fn workers_of_a_killed_server_exit_within_their_patience() {
    let lease = 0.25;
    for phase in ["waiting for workers", "training"] {
        let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "2", "--lease", "250ms"]]);
        let count = if phase == "training" { 2 } else { 1 };
        let workers = server.workers(count);
        server.wait_for(phase, |status| {
            let named = status["workers"][count as usize - 1]["name"] != "";
            status["phase"] == phase && named
        });
        let Server { process, address, .. } = server;
        drop(process); // kills it with SIGKILL
        let clock = WallClock::start();
        for worker in workers {
            let words = [&address, "cannot reach the server", "Connection refused", "tried"];
            worker.wait().refused(1, &words);
        }
        let took = clock.now().as_secs_f64();
        // Patience is twelve leases, plus a last attempt.
        assert!(took < 14.0 * lease, "{took} s");
        assert!(took > 6.0 * lease, "gave up after {took} s");
    }
}

#[test]
fn a_server_stopped_for_longer_than_a_lease_declares_no_worker_lost() {
    let lease = std::time::Duration::from_millis(600);
    for on_loss in ["stop", "continue"] {
        let job = ["--workers", "2", "--lease", "600ms", "--on-worker-loss", on_loss];
        let server = Server::tcp(&[&SLOW, &ENDLESS, &job]);
        let workers = server.workers(2);
        server.wait_for_updates(20);
        server.process.signal(Signal::STOP);
        std::thread::sleep(2 * lease);
        server.process.signal(Signal::CONT);
        let version = number(&server.status()["updates"]);
        server.wait_for_updates(version + 50);
        let Left { out, summary, _folder } = server.interrupt(workers);
        let events = crate::books::events(&out);
        check_books(&out, &summary);
        let lost = called(&events, "departed").filter(|event| event["how"] == "lost").count();
        assert_eq!((lost, number(&summary["batches"]["lost"])), (0, 0), "{on_loss}");
    }
}

#[test]
fn a_killed_workers_mini_batches_are_reassigned_and_returned_when_it_rejoins() {
    let job = ["--workers", "3", "--lease", "600ms", "--epochs", "20", "--batch-size", "16"];
    let server = Server::tcp(&[&SLOW, &job, &["--on-worker-loss", "reassign"]]);
    let mut workers = server.workers(3);
    server.wait_for_updates_of(2, 20);
    drop(workers.pop()); // kills it with SIGKILL
    let reassigned = |status: &serde_json::Value| number(&status["workers"][2]["reassigned"]);
    let status = server.wait_for("reassignment", |status| reassigned(status) > 5);
    assert_eq!(status["workers"][2]["state"], "lost");
    let table = server.table();
    assert!(table.lines().any(|line| line.trim_end().ends_with("reassigned")), "{table}");
    workers.push(server.worker(&["--id", "3"]));
    let back = number(&status["workers"][2]["updates"]) + 5;
    server.wait_for_updates_of(2, back);
    let Left { out, summary, _folder } = server.finish(workers);
    check_books(&out, &summary);
    // Each mini-batch of each epoch once: 3000 training rows make 63 in each of three partitions.
    let applied: BTreeSet<(u64, u64)> = parts(&out).into_iter().collect();
    let all: BTreeSet<(u64, u64)> =
        (1..=3).flat_map(|part| (0..63 * 20).map(move |batch| (part, batch))).collect();
    assert_eq!(applied, all);
    assert_eq!(number(&summary["batches"]["applied"]), all.len() as u64, "{summary}");
    assert_eq!(number(&summary["samples"]), 20 * 3000, "{summary}");
}
