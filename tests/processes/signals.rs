//! Ctrl-C and SIGTERM: the first ends a run in order, the second aborts it.

use rustix::process::Signal;

use crate::books::check_books;
use crate::cluster::{ENDLESS, SLOW, Server, number, path, real};
use crate::process::{Process, eventually};

#[test]
fn an_interrupted_run_prints_its_summary_and_keeps_its_results() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let args = ["run", "--json", "--transport", "unix", "--out", path(&out)];
        let run = Process::start(&[&args, &SLOW[..], &ENDLESS].concat());
        eventually("evaluation after an epoch", || {
            let curve = std::fs::read_to_string(out.join("curve.csv")).ok()?;
            (curve.lines().count() > 2).then_some(())
        });
        run.signal(signal);
        let ended = run.wait().with_code(3);
        assert!(ended.stderr.contains("draining"), "{}", ended.stderr);
        let summary = ended.json();
        assert_eq!(summary["ended"], "stopped on request");
        assert!(number(&summary["updates"]) >= 24, "{summary}");
        assert!(real(&summary["accuracy"]) > 0.5, "{summary}");
        check_books(&out, &summary);
        for file in ["summary.json", "model.safetensors", "job.toml"] {
            assert!(out.join(file).exists(), "{file}");
        }
    }
}

#[test]
fn an_interrupted_server_drains_and_dismisses_its_workers() {
    for signal in [Signal::INT, Signal::TERM] {
        let server = Server::tcp(&[&SLOW, &ENDLESS]);
        let workers = server.workers(2);
        server.wait_for_updates(20);
        server.process.signal(signal);
        let summary = server.process.wait().with_code(3).json();
        assert_eq!(number(&summary["batches"]["outstanding"]), 0, "{summary}");
        assert_eq!(number(&summary["batches"]["lost"]), 0, "{summary}");
        for worker in workers {
            let ended = worker.wait().with_code(3);
            assert!(ended.stderr.contains("stopped on request"), "{}", ended.stderr);
        }
    }
}

#[test]
fn a_server_interrupted_before_training_ends_at_once() {
    let server = Server::unix(&[&SLOW]);
    let worker = server.worker(&[]);
    server.wait_for("worker", |status| status["workers"][0]["state"] == "waiting");
    server.process.signal(Signal::INT);
    let summary = server.process.wait().with_code(3).json();
    assert_eq!(number(&summary["updates"]), 0, "{summary}");
    assert!(summary["accuracy"].is_null(), "nothing was evaluated: {summary}");
    worker.wait().with_code(3);
}

#[test]
fn a_second_signal_aborts() {
    for (first, second) in [(Signal::INT, Signal::INT), (Signal::TERM, Signal::INT)] {
        // The stopped worker owes a gradient, so draining takes a whole lease.
        let server = Server::tcp(&[&SLOW, &ENDLESS, &["--lease", "1m"]]);
        let workers = server.workers(2);
        server.wait_for_updates(10);
        workers[1].signal(Signal::STOP);
        server.wait_for("wait for the stopped worker", |status| {
            status["wait"]["workers"] == serde_json::json!([2])
        });
        server.process.signal(first);
        server.process.wait_to_say("draining");
        server.wait_for("drain", |status| status["phase"] == "draining");
        server.process.signal(second);
        let ended = server.process.wait();
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stderr.contains("aborted"), "{}", ended.stderr);
    }
}

#[test]
fn an_interrupted_worker_leaves_and_the_others_continue() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "3", "--lease", "20s"]]);
    let mut workers = server.workers(3);
    server.wait_for_updates(20);
    let leaving = workers.remove(1);
    leaving.signal(Signal::INT);
    let ended = leaving.wait().with_code(3);
    assert!(ended.stderr.contains("draining"), "{}", ended.stderr);
    // The other workers need not wait for a lease: the leaving worker said goodbye.
    let status = server.status();
    assert_eq!(status["workers"][1]["state"], "left", "{status}");
    server.wait_for_updates(number(&status["updates"]) + 20);
    server.process.signal(Signal::INT);
    let Server { process, out, .. } = server;
    let summary = process.wait().with_code(3).json();
    check_books(&out, &summary);
    // The leaving worker delivers its gradient; only parameters that cross its goodbye can be lost.
    assert!(number(&summary["batches"]["lost"]) <= 1, "{summary}");
    for worker in workers {
        worker.wait().with_code(3);
    }
}
