//! Wrong or occupied addresses, and workers that do not fit the job.

use std::net::TcpListener;

use pstrain_transports::WallClock;

use crate::books::{called, check_books, events};
use crate::cluster::{ENDLESS, SLOW, Server, number, path};
use crate::process::finish;

#[test]
fn an_address_in_use_is_refused_by_name() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    finish(&["server", "--listen", &address]).refused(2, &[&address, "in use"]);
    let server = Server::unix(&[&SLOW]);
    finish(&["server", "--listen", &server.address]).refused(2, &[&server.address, "in use"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let address = format!("unix:{}", file.display());
    finish(&["server", "--listen", &address]).refused(2, &[&address, "in use"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious", "only sockets are replaced");
}

#[test]
fn malformed_addresses_are_refused_with_an_example() {
    for args in [["server", "--listen", "7070"], ["worker", "--server", "edge-gw"]] {
        finish(&args).refused(2, &[args[1], args[2], "HOST:PORT", "unix:PATH"]);
    }
    finish(&["status", "edge-gw:99999"]).refused(2, &["edge-gw:99999", "HOST:PORT"]);
    finish(&["worker", "--server", "edge-gw"]).refused(2, &["--server", "HOST:PORT"]);
}

#[test]
fn an_unreachable_server_is_reported_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/none", folder.path().display());
    for (address, why) in [("127.0.0.1:1", "Connection refused"), (&address, "No such file")] {
        finish(&["status", address]).refused(2, &[address, why, "is a server running there?"]);
        let clock = WallClock::start();
        let worker = finish(&["worker", "--server", address, "--lease", "100ms"]);
        worker.refused(1, &[address, why, "no connection", "tried"]);
        let took = clock.now().as_secs_f64();
        assert!((1.0..4.0).contains(&took), "12 leases of patience, took {took} s");
    }
}

#[test]
fn a_plain_text_listener_on_all_interfaces_warns_in_its_first_line() {
    let args = ["server", "--listen", "0.0.0.0:0", "--insecure"];
    let server = crate::process::Process::start(&args);
    let said = server.wait_to_say("listening on ");
    assert!(said.lines().next().unwrap().contains("plain text"), "{said}");
    assert!(said.contains("without authentication"), "{said}");
    let server = Server::tcp(&[&SLOW]);
    assert!(!server.process.wait_to_say("listening").contains("authentication"));
}

#[test]
fn a_worker_with_other_data_is_refused_and_the_others_finish() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, rows: &str, seed: &str| {
        let file = folder.path().join(name);
        let out = path(&file).to_owned();
        finish(&["data", "synth", "--rows", rows, "--seed", seed, "--out", &out]).with_code(0);
        out
    };
    let right = make("right.csv", "2000", "1");
    let fewer = make("fewer.csv", "1900", "1");
    let others = make("others.csv", "2000", "2");
    let job = ["--data", &right, "--workers", "3", "--min-workers", "2", "--epochs", "3"];
    let server = Server::tcp(&[&job]);
    for (file, difference) in
        [(&fewer, "1425 training rows where the job has 1500"), (&others, "class")]
    {
        let ended = server.worker(&["--data", file]).wait();
        ended.refused(1, &["not the job's", difference, "the file that the server has"]);
    }
    let workers = [server.worker(&["--data", &right]), server.worker(&["--data", &right])];
    for worker in workers {
        worker.wait().with_code(0);
    }
    let Server { process, out, .. } = server;
    let ended = process.wait().with_code(0);
    let (events, summary) = (events(&out), ended.json());
    let refused: Vec<_> = called(&events, "refused").collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    check_books(&out, &summary);
    assert!(number(&summary["samples"]) >= 3 * 1500, "{summary}");
}

#[test]
fn worker_ids_that_are_unknown_or_taken_are_refused() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--lease", "10s"]]);
    let unknown = server.worker(&["--id", "7"]).wait();
    unknown.refused(1, &["there is no worker 7", "2 workers (1 to 2)"]);
    let _workers = server.workers(2);
    server.wait_for_updates(5);
    for (args, words) in [
        (&["--id", "1"][..], &["worker 1 is there already", "another id"][..]),
        (&[], &["all 2 workers of the job are there"]),
    ] {
        // A worker slot may become free, so the worker retries until its patience ends.
        let late = server.worker(&[args, &["--lease", "100ms"]].concat()).wait();
        late.refused(1, words);
    }
    let status = server.status();
    server.wait_for_updates(number(&status["updates"]) + 5);
}

#[test]
fn a_worker_checks_its_data_before_it_dials() {
    let words = ["--data none.csv", "no such file"];
    finish(&["worker", "--server", "127.0.0.1:1", "--data", "none.csv"]).refused(2, &words);
    let server = Server::tcp(&[&SLOW, &["--workers", "1"]]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.txt");
    std::fs::write(&file, "a,b,c\n").unwrap();
    server.worker(&["--data", path(&file)]).wait().refused(2, &["wrong.txt:1", "3 columns"]);
}
