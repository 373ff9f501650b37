//! `pstrain why` names the bottleneck of a run, where the time goes, and the remedy.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{ENDLESS, LONG, SLOW, Server, number, path, real};
use crate::process::{Process, eventually, finish};

impl Server {
    /// Returns the output of `why --json`.
    fn why(&self) -> Value {
        finish(&["why", &self.address, "--json"]).with_code(0).json()
    }

    /// Waits until the first finding satisfies `wanted`.
    #[track_caller]
    fn wait_for_finding(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually("finding", || Some(self.why()).filter(|why| wanted(&why["verdict"][0])))
    }
}

#[test]
fn why_names_a_stopped_worker_and_who_waits_for_it() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--lease", "20s"]]);
    let workers = server.workers(3);
    server.wait_for_updates(10);
    workers[1].signal(Signal::STOP);
    // The worker is overdue at first, and silent as soon as two heartbeats are missing.
    let is_stuck = |finding: &Value| finding["cause"] == "overdue" || finding["cause"] == "silent";
    let why = server.wait_for_finding(is_stuck);
    let finding = &why["verdict"][0];
    assert_eq!(finding["worker"], 2, "{why}");
    for other in [0, 2] {
        let waits = json!({ "what": "barrier", "workers": [2] });
        assert_eq!(why["workers"][other]["waits_for"], waits, "{why}");
    }
    assert!(real(&why["workers"][1]["since_s"]) > 0.2, "{why}");
    let text = finish(&["why", &server.address]).with_code(0).stdout;
    for words in ["worker 2 (", ") holds the others back: ", "barrier: worker 2"] {
        assert!(text.contains(words), "nothing of {words:?}:\n{text}");
    }
    workers[1].signal(Signal::CONT);
    server.wait_for_finding(|finding| !is_stuck(finding));
}

#[test]
fn a_worker_stopped_past_its_lease_is_the_first_finding_while_the_others_continue() {
    for consistency in ["bsp", "asp"] {
        let job = ["--workers", "3", "--lease", "1s", "--consistency", consistency];
        let server = Server::tcp(&[&SLOW, &ENDLESS, &job]);
        let workers = server.workers(3);
        server.wait_for_updates_of(1, 10);
        workers[1].signal(Signal::STOP);
        let why = server.wait_for_finding(|finding| finding["cause"] == "lost");
        assert_eq!(why["verdict"][0]["worker"], 2, "{why}");
        assert_eq!(why["workers"][1]["waits_for"]["what"], "return", "{why}");
        let text = finish(&["why", &server.address]).with_code(0).stdout;
        let restart = format!("`pstrain worker --server {} --id 2`", server.address);
        for words in [
            "worker 2 (",
            ") is lost: it has not been heard for ",
            "; the others continue",
            &restart,
        ] {
            assert!(text.contains(words), "nothing of {words:?}:\n{text}");
        }
        assert!(!text.contains("all is well"), "{text}");
        let before = number(&why["updates"]);
        server.wait_for_updates(before + 10);
        workers[1].signal(Signal::CONT);
        server.wait_for_finding(|finding| finding["cause"] != "lost");
    }
}

#[test]
fn under_asp_a_stopped_worker_is_the_first_finding_before_its_lease_ends() {
    let job = ["--workers", "3", "--lease", "20s", "--consistency", "asp"];
    let server = Server::tcp(&[&LONG, &ENDLESS, &job]);
    let workers = server.workers(3);
    server.wait_for_updates_of(1, 10);
    workers[1].signal(Signal::STOP);
    for (cause, words) in [("overdue", ") is late: "), ("silent", ") is silent: ")] {
        let why = server.wait_for_finding(|finding| finding["cause"] == cause);
        let finding = &why["verdict"][0];
        assert_eq!(finding["worker"], 2, "{why}");
        let says = finding["says"].as_str().unwrap();
        assert!(says.starts_with("worker 2 (") && says.contains(words), "{why}");
        assert_eq!(finding["name"], why["workers"][1]["name"], "{why}");
    }
    workers[1].signal(Signal::CONT);
    server.wait_for_finding(|finding| finding["worker"] != 2);
}

#[test]
fn a_slow_link_is_distinguished_from_a_slow_machine() {
    let link = ["--workers", "3", "--link", "3.delay=30ms 3.down.delay=30ms"];
    let server = Server::tcp(&[&ENDLESS, &link]);
    let _workers = server.workers(3);
    server.wait_for_updates(40);
    let why = server.wait_for_finding(|finding| finding["cause"] == "link");
    assert_eq!(why["verdict"][0]["worker"], 3, "{why}");
    let third = &why["workers"][2];
    let per_step = real(&third["network_s"]) / number(&third["steps"]) as f64;
    assert!(per_step >= 0.06, "{why}");
    assert_eq!(why["workers"][0]["held_by"][0]["worker"], 3, "{why}");

    let compute = ["--workers", "3", "--compute", "1ms 2.time=80ms"];
    let server = Server::unix(&[&ENDLESS, &compute]);
    let _workers = server.workers(3);
    server.wait_for_updates(40);
    let why = server.wait_for_finding(|finding| finding["cause"] == "machine");
    assert_eq!(why["verdict"][0]["worker"], 2, "{why}");
}

#[test]
fn links_report_bytes_and_the_kernels_tcp_round_trip_time() {
    let server = Server::tcp(&[&SLOW, &ENDLESS]);
    let _workers = server.workers(2);
    let before = number(&server.wait_for_updates(5)["updates"]);
    server.wait_for_updates(before + 5);
    let why = server.why();
    for worker in why["workers"].as_array().unwrap() {
        let link = &worker["link"];
        // The model has some 50,000 parameters, all of which were sent both ways.
        assert!(number(&link["received_bytes"]) > 1_000_000, "{why}");
        assert!(number(&link["sent_bytes"]) > 1_000_000, "{why}");
        if cfg!(target_os = "linux") {
            let rtt = real(&link["rtt_s"]);
            assert!(rtt > 0.0 && rtt < Duration::from_secs(5).as_secs_f64(), "{why}");
        }
        assert!(real(&worker["compute_s"]) > 0.0, "{why}");
        assert!(number(&worker["steps"]) > 0, "{why}");
    }
    assert!(real(&why["loss"]) > 0.0, "{why}");
}

#[test]
fn before_training_why_names_the_missing_workers() {
    let server = Server::tcp(&[&SLOW, &["--workers", "2"]]);
    let why = server.why();
    assert_eq!(why["verdict"][0]["cause"], "missing", "{why}");
    assert_eq!(why["workers"][0]["waits_for"]["what"], "start", "{why}");
    let text = finish(&["why", &server.address]).with_code(0).stdout;
    assert!(text.contains("the run waits for workers 1, 2 to come, since "), "{text}");
    let command = format!("start them with `pstrain worker --server {}`", server.address);
    assert!(text.contains(&command), "{text}");
}

#[test]
fn a_stopped_standby_is_the_first_finding_and_no_worker_is_called_overdue() {
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &["--workers", "2", "--lease", "60s"]];
    let server = Server::tcp(&job);
    let of: &[&str] = &["--standby-of", &server.address];
    let standby = Server::tcp(&[&job[..], &[of]].concat());
    server.wait_for("standby", |status| status["standby"] == standby.address);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    standby.process.signal(Signal::STOP);
    // The standby is silent for half of the lease before the server gives it up.
    let why = server.wait_for_finding(|finding| {
        let says = finding["says"].as_str().unwrap();
        says.contains(&format!("waits for the standby at {}: ", standby.address))
    });
    let findings = why["verdict"].as_array().unwrap();
    assert_eq!(findings[0]["cause"], "silent", "{why}");
    assert!(findings.iter().all(|finding| finding["cause"] != "overdue"), "{why}");
    let table = server.table();
    assert!(table.contains("waiting   for the standby, which is silent"), "{table}");
    standby.process.signal(Signal::CONT);
    server.wait_for("update", |status| status["wait"]["reason"] != why["wait"]["reason"]);
    drop(workers);
}

/// Returns the arguments of the first command that `why` advises.
fn advised(text: &str) -> Vec<&str> {
    let (_, from) = text.split_once("`pstrain ").expect(text);
    let (command, _) = from.split_once('`').expect(text);
    command.split(' ').collect()
}

#[test]
fn the_printed_command_that_starts_a_missing_worker_works() {
    let folder = tempfile::tempdir().unwrap();
    let [rows, key] = ["rows.csv", "key"].map(|name| folder.path().join(name));
    finish(&["data", "synth", "--rows", "400", "--out", path(&rows)]).with_code(0);
    finish(&["cert", "psk", path(&key)]).with_code(0);
    let access = ["--psk", path(&key)];
    let job = ["--workers", "1", "--epochs", "1", "--data", path(&rows)];
    let server = Server::tcp(&[&job, &access]).for_clients(&access);
    let text = finish(&[&["why", &server.address], &access[..]].concat()).with_code(0).stdout;
    let worker = Process::start(&advised(&text));
    server.finish(vec![worker]);
}

#[cfg(feature = "top")]
#[test]
fn top_requires_a_terminal() {
    let words = ["top draws on a terminal", "`pstrain why tcp://127.0.0.1:1 --json` says the same"];
    finish(&["top", "127.0.0.1:1"]).refused(2, &words);
}

#[test]
fn a_killed_worker_is_not_said_to_come_back_and_its_command_takes_the_place() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "2", "--lease", "60s"]]);
    let mut workers = server.workers(2);
    server.wait_for_updates(5);
    let killed = workers.remove(1);
    killed.signal(Signal::KILL);
    let why = server.wait_for_finding(|finding| finding["cause"] == "cut-off");
    let finding = &why["verdict"][0];
    assert_eq!(finding["worker"], 2, "{why}");
    assert!(finding["says"].as_str().unwrap().contains("its connection is closed"), "{why}");
    assert!(!finding["cure"].as_str().unwrap().contains("by itself"), "{why}");
    let text = finish(&["why", &server.address]).with_code(0).stdout;
    let _again = Process::start(&advised(&text));
    let before = number(&server.status()["updates"]);
    server.wait_for_updates(before + 3);
}
