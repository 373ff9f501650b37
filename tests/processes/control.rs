//! `pstrain control` changes or stops a running job, and the records of the run stay consistent.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::books::{called, check_books, events};
use crate::cluster::{ENDLESS, Left, SLOW, Server, number, path};
use crate::group::others;
use crate::process::finish;

/// Sets `key` to `value`; returns the first version to which it applies.
#[track_caller]
fn set(server: &Server, key: &str, value: &str) -> u64 {
    let done = finish(&["control", &server.address, "set", key, value, "--json"]);
    let done = done.with_code(0).json();
    assert_eq!((&done["key"], &done["value"]), (&json!(key), &json!(value)));
    number(&done["version"])
}

/// Returns the mode changes of a run: first version and mode of each.
fn modes(folder: &std::path::Path) -> Vec<(u64, String)> {
    let events = events(folder);
    let began = |event: &Value| {
        (number(&event["version"]), event["mode"].as_str().unwrap_or_default().to_owned())
    };
    called(&events, "switched").map(began).collect()
}

#[track_caller]
fn replays(folder: &std::path::Path, summary: &Value) {
    let log = folder.join("order.log");
    let again = finish(&["replay", path(&log), "--json"]).with_code(0).json();
    assert_eq!(again["params_sha256"], summary["params_sha256"], "{again}");
}

#[test]
fn consistency_modes_of_a_running_job_can_be_changed_and_the_records_agree() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3"]]);
    let workers = server.workers(3);
    server.wait_for_updates(5);
    let ssp = set(&server, "consistency", "ssp:2");
    server.wait_for_updates(ssp + 10);
    let dc = set(&server, "staleness", "dc:0.1");
    let text = finish(&["control", &server.address, "set", "consistency", "asp"]).with_code(0);
    assert!(text.stdout.starts_with("consistency = asp from version "), "{}", text.stdout);
    assert!(text.stdout.ends_with(" on; the mode is asp, staleness dc:0.1\n"), "{}", text.stdout);
    let status = server.wait_for_updates(dc + 10);
    assert_eq!(status["consistency"], "asp, staleness dc:0.1");
    assert!(status["ordered"].is_null(), "{status}");
    let Left { out, summary, _folder } = server.interrupt(workers);
    check_books(&out, &summary);
    let began = modes(&out);
    assert_eq!((began[0].0, began[0].1.as_str()), (ssp, "ssp:2"));
    assert_eq!((began[1].0, began[1].1.as_str()), (dc, "ssp:2, staleness dc:0.1"));
    assert_eq!(began[2].1, "asp, staleness dc:0.1");
    replays(&out, &summary);
}

#[test]
fn control_stop_ends_every_process_of_a_run_like_ctrl_c() {
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &["--servers", "2"]];
    let server = Server::tcp(&job);
    let others = others(&server, 2);
    let standby = Server::tcp(&[&job[..], &[&["--standby-of", &server.address]]].concat());
    let workers = server.workers(2);
    server.wait_for("standby", |status| status["standby"] == standby.address);
    server.wait_for_updates(5);
    let Left { out, summary, _folder } = server.stop(workers);
    assert_eq!(summary["ended"], "stopped on request");
    assert_eq!(number(&summary["batches"]["outstanding"]), 0, "{summary}");
    assert_eq!(number(&summary["batches"]["lost"]), 0, "{summary}");
    check_books(&out, &summary);
    replays(&out, &summary);
    for other in others.into_iter().chain([standby.process]) {
        other.wait().with_code(3);
    }
}

#[test]
fn control_stop_ends_a_run_that_has_not_begun() {
    let server = Server::unix(&[&SLOW]);
    let worker = server.worker(&[]);
    server.wait_for("worker", |status| status["workers"][0]["state"] == "waiting");
    let Left { summary, .. } = server.stop(vec![worker]);
    assert_eq!(number(&summary["updates"]), 0, "{summary}");
}

#[test]
fn control_after_the_end_fails_with_the_same_error_as_status() {
    let server = Server::tcp(&[&SLOW, &ENDLESS]);
    let (address, workers) = (server.address.clone(), server.workers(2));
    server.wait_for_updates(3);
    drop(server.stop(workers));
    let status = finish(&["status", &address]).with_code(2);
    for order in [&["set", "consistency", "asp"][..], &["leave-server", "2"], &["stop"]] {
        let ordered = finish(&[&["control", &address], order].concat()).with_code(2);
        assert_eq!(ordered.stderr, status.stderr, "{order:?}");
    }
    assert!(status.stderr.contains("is a server running there?"), "{}", status.stderr);
}

#[test]
fn wrong_orders_are_refused_with_the_reason_and_training_continues() {
    let server = Server::unix(&[&SLOW, &ENDLESS]);
    let workers = server.workers(2);
    server.wait_for_updates(3);
    let order = |key: &str, value: &str, words: &[&str]| {
        finish(&["control", &server.address, "set", key, value]).refused(2, words);
    };
    order("lease", "1s", &["\"lease\" cannot be set in a running job", "use consistency"]);
    order("consistency", "sspp", &["no consistency", "ssp:SLACK"]);
    order("consistency", "sync", &["consistency = sync: did you mean \"bsp\"?"]);
    order("participation", "Share", &["did you mean \"share\"?"]);
    order("consistency", "k-sync:9", &["must be 1 to the 2 workers"]);
    order("in-flight", "-1", &["in-flight = -1: must be 1 to 256, or auto"]);
    order("max-staleness", "-1", &["max-staleness = -1: must be a number of updates"]);
    order("consistency", "ssp:99999999999999999999", &["SLACK must be 0 to 2^64 - 1"]);
    order("in-flight", "9", &["in-flight above 1 with consistency = bsp"]);
    order("max-staleness", "many", &["max-staleness = many"]);
    finish(&["control", "127.0.0.1:1", "set", "consistency", "asp"])
        .refused(2, &["cannot reach tcp://127.0.0.1:1"]);
    finish(&["control", &server.address, "get"]).refused(2, &["get"]);
    let status = server.status();
    assert_eq!(status["consistency"], "bsp");
    server.wait_for_updates(number(&status["updates"]) + 3);
    let Left { out, summary, _folder } = server.interrupt(workers);
    check_books(&out, &summary);
    assert_eq!(modes(&out), []);
}

#[test]
fn a_mode_change_waits_for_the_lease_of_an_unresponsive_worker() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--lease", "6s"]]);
    let mut workers = server.workers(3);
    server.wait_for_updates_of(2, 3);
    let frozen = workers.pop().unwrap();
    frozen.signal(Signal::STOP);
    server.wait_for("barrier", |status| status["wait"]["workers"] == json!([3]));
    let impatient = ["control", &server.address, "set", "consistency", "asp", "--timeout", "100ms"];
    let words = ["did not answer within 100ms", "asp is ordered", "of worker 3, since"];
    finish(&impatient).refused(2, &words);
    let status = server.status();
    assert_eq!((&status["consistency"], &status["ordered"]), (&json!("bsp"), &json!("asp")));
    assert_eq!(status["wait"]["workers"], json!([3]), "{status}");
    let table = finish(&["status", &server.address]).with_code(0).stdout;
    for words in ["ordered   asp", "for the last gradients before another mode of worker 3"] {
        assert!(table.contains(words), "nothing of {words:?}:\n{table}");
    }
    let patient = ["control", &server.address, "set", "max-staleness", "50", "--json"];
    let patient = finish(&patient).with_code(0);
    assert!(patient.stderr.contains("waiting for the last gradients"), "{}", patient.stderr);
    let version = number(&patient.json()["version"]);
    server.wait_for_updates(version + 10);
    drop(frozen);
    let Left { out, summary, _folder } = server.interrupt(workers);
    check_books(&out, &summary);
    assert_eq!(modes(&out), [(version, "asp, at most 50 updates stale".to_owned())]);
    let events = events(&out);
    assert_eq!(called(&events, "departed").filter(|event| event["how"] == "lost").count(), 1);
    replays(&out, &summary);
}
