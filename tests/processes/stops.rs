//! Processes that are stopped for longer than a lease with all connections open, and then continue.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::books::{called, events};
use crate::cluster::{Left, PACED, Server, check_undisturbed, number};
use crate::group::others;
use crate::process::Process;

const JOB: [&str; 6] = ["--epochs", "5", "--workers", "2", "--lease", "600ms"];
/// A lost worker is awaited, so that the result does not depend on which process stops.
const WAIT: [&str; 2] = ["--on-worker-loss", "wait"];

/// Stops a process for longer than a lease.
fn stop(process: &Process) {
    process.signal(Signal::STOP);
    sleep(Duration::from_millis(1800));
    process.signal(Signal::CONT);
}

/// Checks that a run has the parameters of an undisturbed run.
#[track_caller]
fn check(left: &Left) {
    check_undisturbed(left, &[&PACED, &JOB]);
}

#[test]
fn a_stopped_server_declares_no_worker_lost_for_its_own_silence() {
    let server = Server::tcp(&[&PACED, &JOB, &WAIT]);
    let workers = server.workers(2);
    for updates in [5, 20] {
        server.wait_for_updates(updates);
        stop(&server.process);
    }
    let left = server.finish(workers);
    check(&left);
    assert_eq!(number(&left.summary["batches"]["lost"]), 0, "{}", left.summary);
}

#[test]
fn a_stopped_worker_is_fenced_and_rejoins_as_a_new_incarnation() {
    let server = Server::tcp(&[&PACED, &JOB, &WAIT]);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    stop(&workers[1]);
    let left = server.finish(workers);
    check(&left);
    let events = events(&left.out);
    let lost = called(&events, "departed").filter(|event| event["how"] == "lost").count();
    let joined = called(&events, "joined").filter(|event| event["worker"] == 2);
    let incarnations: Vec<u64> = joined.map(|event| number(&event["incarnation"])).collect();
    assert_eq!((lost, incarnations.as_slice()), (1, &[1, 2][..]));
}

#[test]
fn a_stopped_coordinator_of_several_servers_does_not_change_the_parameters() {
    let server = Server::tcp(&[&PACED, &JOB, &WAIT, &["--servers", "2"]]);
    let others = others(&server, 2);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    stop(&server.process);
    check(&server.finish(workers));
    others.into_iter().for_each(|other| drop(other.wait().with_code(0)));
}

#[test]
fn a_stopped_non_coordinating_server_does_not_change_the_parameters() {
    let server = Server::tcp(&[&PACED, &JOB, &WAIT, &["--servers", "3"]]);
    let others = others(&server, 3);
    let workers = server.workers(2);
    for (other, updates) in others.iter().zip([5, 20]) {
        server.wait_for_updates(updates);
        stop(other);
    }
    let left = server.finish(workers);
    check(&left);
    let events = events(&left.out);
    assert!(called(&events, "server_cut_off").count() >= 2, "it was missed");
    others.into_iter().for_each(|other| drop(other.wait().with_code(0)));
}
