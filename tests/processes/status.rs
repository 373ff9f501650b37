//! `pstrain status` names the workers that a job waits for, and since when.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{ENDLESS, SLOW, Server, number, real};
use crate::process::finish;

/// Returns the human-readable output of `status`.
fn table(server: &Server) -> String {
    finish(&["status", &server.address]).with_code(0).stdout
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "nothing of {word:?}:\n{text}");
    }
}

#[test]
fn status_names_missing_workers_before_training() {
    let server = Server::tcp(&[&SLOW, &["--workers", "3", "--name", "night run"]]);
    says(&table(&server), &["night run (bsp), waiting for workers", "for workers 1, 2, 3 to come"]);
    let _worker = server.worker(&["--id", "2", "--name", "edge-7"]);
    let here = |status: &Value| status["workers"][1]["state"] == "waiting";
    let status = server.wait_for("first worker", here);
    assert_eq!(status["phase"], "waiting for workers");
    assert_eq!(status["wait"]["reason"], "more workers");
    assert_eq!(status["wait"]["workers"], json!([1, 3]));
    assert!(real(&status["wait"]["waited_s"]) > 0.0, "{status}");
    // At most 120 leases of 5 s remain.
    let left = real(&status["wait"]["left_s"]);
    assert!((500.0..600.0).contains(&left), "{status}");
    assert_eq!(status["workers"][1]["name"], "edge-7");
    assert_eq!(status["workers"][0]["state"], "awaited");
    assert!(status["workers"][0]["silent_s"].is_null(), "it was never there: {status}");
    let text = table(&server);
    says(&text, &["for workers 1, 3 to come, since ", " ago, at most 9m", "edge-7", "never"]);
}

#[test]
fn status_reports_the_progress_of_a_healthy_run() {
    let server = Server::unix(&[&SLOW, &ENDLESS, &["--consistency", "asp"]]);
    let _workers = server.workers(2);
    let first = server.wait_for_updates(10);
    let second = server.wait_for_updates(number(&first["updates"]) + 10);
    assert_eq!(first["phase"], "training");
    assert_eq!(first["consistency"], "asp");
    assert!(first["wait"].is_null(), "under ASP nobody waits: {first}");
    assert!(number(&second["samples"]) > number(&first["samples"]), "{second}");
    assert!(real(&second["epoch"]) > real(&first["epoch"]), "{second}");
    assert!(real(&second["uptime_s"]) > real(&first["uptime_s"]), "{second}");
    assert_eq!(number(&second["samples_wanted"]), 3_000_000_000);
    says(
        &table(&server),
        &["training, up for ", "of 3,000,000,000 samples", "waiting   for no worker"],
    );
}

#[test]
fn status_names_the_straggler_of_a_barrier_and_the_waiting_time() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--lease", "20s"]]);
    let workers = server.workers(3);
    server.wait_for_updates(10);
    workers[1].signal(Signal::STOP);
    let waits = |status: &Value| {
        status["wait"]["workers"] == json!([2]) && real(&status["wait"]["waited_s"]) > 0.2
    };
    let first = server.wait_for("barrier", waits);
    assert_eq!(first["wait"]["reason"], "gradients");
    assert_eq!(first["workers"][1]["state"], "computing");
    assert_eq!(first["workers"][0]["state"], "waiting");
    let second = server.status();
    let waited = |status: &Value| real(&status["wait"]["waited_s"]);
    assert!(waited(&second) > waited(&first), "{first} {second}");
    assert!(real(&second["workers"][1]["silent_s"]) > 0.2, "{second}");
    assert_eq!(first["updates"], second["updates"]);
    says(&table(&server), &["waiting   for gradients of worker 2, since ", "ms ago"]);
    workers[1].signal(Signal::CONT);
    server.wait_for_updates(number(&second["updates"]) + 10);
}

#[test]
fn under_asp_status_names_only_lost_workers_that_must_return() {
    let job = ["--workers", "3", "--consistency", "asp", "--on-worker-loss", "wait"];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &job, &["--lease", "500ms"]]);
    let mut workers = server.workers(3);
    let before = server.wait_for_updates(10);
    drop(workers.remove(1)); // kills it with SIGKILL
    let waits = |status: &Value| !status["wait"].is_null();
    let status = server.wait_for("one to come back", waits);
    assert_eq!(status["wait"]["workers"], json!([2]), "{status}");
    assert!(
        number(&status["updates"]) > number(&before["updates"]),
        "the others continue: {status}"
    );
}

#[test]
fn while_gradients_gather_status_names_the_silent_worker() {
    let job = ["--workers", "3", "--consistency", "malenia:3", "--lease", "20s"];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &job]);
    let workers = server.workers(3);
    server.wait_for_updates_of(2, 3);
    workers[1].signal(Signal::STOP);
    // The other workers go through all their data first.
    let waits = |status: &Value| status["wait"]["workers"] == json!([2]);
    let status = server.wait_for("those who have given all", waits);
    let there = |status: &Value, worker: usize| status["workers"][worker]["state"] == "waiting";
    assert!(there(&status, 0) || there(&status, 2), "{status}");
    let updates = number(&server.wait_for("all", |s| there(s, 0) && there(s, 2))["updates"]);
    assert_eq!(updates, number(&status["updates"]), "no update comes without it");
    workers[1].signal(Signal::CONT);
    server.wait_for_updates(updates + 3);
}
