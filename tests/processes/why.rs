//! `pstrain why` tells who waits for whom, where the time goes, and what to do.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{ENDLESS, SLOW, Server, number, path, real};
use crate::process::{Process, eventually, finish};

impl Server {
    /// What `why --json` prints.
    fn why(&self) -> Value {
        finish(&["why", &self.address, "--json"]).with_code(0).json()
    }

    /// Waits until the first finding is as wanted.
    #[track_caller]
    fn wait_for_finding(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually("finding", || Some(self.why()).filter(|why| wanted(&why["verdict"][0])))
    }
}

#[test]
fn a_stopped_worker_is_named_with_what_is_known_of_it() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--lease", "20s"]]);
    let workers = server.workers(3);
    server.wait_for_updates(10);
    workers[1].signal(Signal::STOP);
    // Overdue at first, silent as soon as two signs of life are missing.
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
    for words in ["worker 2 holds the others back: ", "barrier: worker 2"] {
        assert!(text.contains(words), "nothing of {words:?}:\n{text}");
    }
    workers[1].signal(Signal::CONT);
    server.wait_for_finding(|finding| !is_stuck(finding));
}

#[test]
fn a_worker_that_is_stopped_for_longer_than_its_lease_comes_first_although_the_others_go_on() {
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
        for words in
            ["worker 2 is lost: it has not been heard for ", "; the others go on", &restart]
        {
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
fn a_stopped_worker_comes_first_before_its_lease_is_over_although_no_other_waits_for_it() {
    let job = ["--workers", "3", "--lease", "20s", "--consistency", "asp"];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &job]);
    let workers = server.workers(3);
    server.wait_for_updates_of(1, 10);
    workers[1].signal(Signal::STOP);
    for (cause, words) in [("overdue", "worker 2 is late: "), ("silent", "worker 2 is silent: ")] {
        let why = server.wait_for_finding(|finding| finding["cause"] == cause);
        let finding = &why["verdict"][0];
        assert_eq!(finding["worker"], 2, "{why}");
        assert!(finding["says"].as_str().unwrap().starts_with(words), "{why}");
    }
    workers[1].signal(Signal::CONT);
    server.wait_for_finding(|finding| finding["worker"] != 2);
}

#[test]
fn a_slow_link_is_told_from_a_slow_machine() {
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
fn the_kernel_is_asked_about_tcp_and_bytes_are_counted() {
    let server = Server::tcp(&[&SLOW, &ENDLESS]);
    let _workers = server.workers(2);
    let before = number(&server.wait_for_updates(5)["updates"]);
    server.wait_for_updates(before + 5);
    let why = server.why();
    for worker in why["workers"].as_array().unwrap() {
        let link = &worker["link"];
        // The model has some 50,000 parameters, and all of them came and went.
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
fn before_the_run_begins_it_says_who_is_missing() {
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
fn a_stopped_standby_comes_first_and_no_worker_is_blamed_for_it() {
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &["--workers", "2", "--lease", "60s"]];
    let server = Server::tcp(&job);
    let of: &[&str] = &["--standby-of", &server.address];
    let standby = Server::tcp(&[&job[..], &[of]].concat());
    server.wait_for("standby", |status| status["standby"] == standby.address);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    standby.process.signal(Signal::STOP);
    // It is silent for half of the lease before the server gives it up.
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

/// The arguments of the first command that `why` advises.
fn advised(text: &str) -> Vec<&str> {
    let (_, from) = text.split_once("`pstrain ").expect(text);
    let (command, _) = from.split_once('`').expect(text);
    command.split(' ').collect()
}

#[test]
fn the_command_that_starts_a_missing_worker_works_as_it_is_printed() {
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
fn without_a_terminal_there_is_no_live_view() {
    let words = ["top draws on a terminal", "`pstrain why tcp://127.0.0.1:1 --json` says the same"];
    finish(&["top", "127.0.0.1:1"]).refused(2, &words);
}
