//! Compute processes: a model behind the protocol ends at the bits of the same model inside
//! pstrain, and processes that die or lie harm no other worker.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{Server, number, path, undisturbed};
use crate::process::{PSTRAIN, Process, eventually, finish};

/// The data of the process, and of the job with the same model inside pstrain.
const DATA: [&str; 2] = ["--data", "synthetic:4000"];
const JOB: [&str; 8] =
    ["--workers", "2", "--epochs", "2", "--optimizer", "momentum", "--lease", "2s"];
/// A computing time that leaves a busy machine time to kill something in the middle of a run.
const PACED: [&str; 2] = ["--compute", "30ms"];

/// The built-in model as a compute process.
fn served() -> String {
    format!("exec {PSTRAIN} compute serve {}", DATA.join(" "))
}

/// The final parameters of the built-in model.
fn built_in(parts: &[&[&str]]) -> serde_json::Value {
    undisturbed(&[&[&DATA[..], &JOB], parts].concat())["params_sha256"].clone()
}

#[test]
fn over_every_transport_and_on_several_servers_it_ends_at_the_bits_of_the_built_in_model() {
    let wanted = built_in(&[]);
    let process = served();
    let way = ["run", "--json", "--process", &process];
    let variants: [&[&str]; 5] = [
        &[],
        &["--transport", "unix"],
        &["--transport", "tcp", "--servers", "2"],
        &["--servers", "4"],
        &["--exchange", "separate"],
    ];
    for variant in variants {
        let found = finish(&[&way, &JOB[..], variant].concat()).with_code(0).json();
        assert_eq!(found["params_sha256"], wanted, "{variant:?}");
        assert!(found["accuracy"].as_f64().unwrap() > 0.7, "{found}");
    }
}

#[test]
fn in_virtual_time_and_in_its_replay_it_has_the_bits_of_the_built_in_model() {
    let asp = ["--consistency", "asp", "--link", "all.delay=5ms", "--compute", "3ms"];
    let inside = finish(&[&["simulate", "--json"], &DATA[..], &JOB, &asp].concat());
    let wanted = inside.with_code(0).json()["params_sha256"].clone();
    let (folder, process) = (TempDir::new().unwrap(), served());
    let out = path(folder.path());
    let way = ["simulate", "--json", "--process", &process, "--out", out];
    let found = finish(&[&way, &JOB[..], &asp].concat()).with_code(0).json();
    assert_eq!(found["params_sha256"], wanted);
    let replay = finish(&["replay", out, "--process", &process, "--json"]).with_code(0).json();
    assert_eq!((&replay["params_sha256"], &replay["identical"]), (&wanted, &true.into()));
    finish(&["replay", out]).refused(2, &["came from a compute process", "--process"]);
}

#[test]
fn a_server_with_a_log_resumes_with_its_process() {
    let wanted = built_in(&[&PACED]);
    let (folder, process) = (TempDir::new().unwrap(), served());
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED, &durable]);
    let workers = workers_of(&server, &process);
    for updates in [5, 20] {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept)]]);
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
    check_books(&left.out, &left.summary);
}

#[test]
fn a_standby_takes_over_with_a_process_of_its_own() {
    let wanted = built_in(&[&PACED]);
    let process = served();
    let job = [&["--process", &process], &JOB[..], &PACED].concat();
    let first = Server::tcp(&[&job]);
    let of = ["--standby-of", &first.address];
    let second = Server::tcp(&[&job, &of]);
    first.wait_for("standby", |status| status["standby"] == second.address);
    let workers = workers_of(&first, &process);
    first.wait_for_updates(10);
    drop(first);
    let left = second.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
}

fn workers_of(server: &Server, process: &str) -> Vec<Process> {
    ["1", "2"].map(|id| server.worker(&["--id", id, "--process", process])).into()
}

/// The process that a worker has started.
fn child_of(worker: &Process) -> Pid {
    let id = worker.id();
    let children = format!("/proc/{id}/task/{id}/children");
    eventually("compute process", || {
        // Threads start processes, too, and each lists its own.
        let tasks = fs::read_dir(format!("/proc/{id}/task")).ok()?;
        let lists =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let child = lists.iter().flat_map(|list| list.split_whitespace()).next()?;
        Pid::from_raw(child.parse().unwrap_or_else(|_| panic!("{children}: {child}")))
    })
}

#[test]
fn a_killed_compute_process_costs_nothing_but_its_restart() {
    let wanted = built_in(&[&PACED]);
    let process = served();
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED]);
    let workers = workers_of(&server, &process);
    for updates in [3, 9, 15] {
        server.wait_for_updates(updates);
        kill_process(child_of(&workers[0]), Signal::KILL).unwrap();
        workers[0].wait_to_say("starting it again");
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
    check_books(&left.out, &left.summary);
}

#[test]
fn a_killed_worker_takes_its_process_along_and_another_continues() {
    let process = served();
    let job = ["--consistency", "asp", "--on-worker-loss", "wait"];
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED, &job]);
    let [first, second] = workers_of(&server, &process).try_into().unwrap();
    server.wait_for_updates(8);
    let orphan = child_of(&first);
    drop(first);
    eventually("end of the orphan", || {
        let gone = fs::read_to_string(format!("/proc/{}/stat", orphan.as_raw_nonzero()));
        gone.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
    let again = server.worker(&["--id", "1", "--process", &process]);
    let left = server.finish(vec![again, second]);
    check_books(&left.out, &left.summary);
    assert!(number(&left.summary["samples"]) >= 6000, "{}", left.summary);
}

#[test]
fn a_process_that_keeps_dying_ends_its_worker_and_no_other() {
    let process = served();
    let job = ["--consistency", "asp"];
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED, &job]);
    let good = server.worker(&["--id", "1", "--process", &process]);
    // It describes itself and has initial parameters, and dies at its first gradient.
    let dies = format!("sed -u 2q | {} ; exit 7", served().trim_start_matches("exec "));
    let bad = server.worker(&["--id", "2", "--process", &dies, "--process-restarts", "1"]);
    bad.wait().refused(2, &["the compute process", "failed", "starting it again (1 of 1)"]);
    let left = server.finish(vec![good]);
    check_books(&left.out, &left.summary);
}

#[test]
fn a_process_with_another_model_or_other_data_is_refused() {
    let process = served();
    let server = Server::tcp(&[&["--process", &process], &JOB[..]]);
    let other = |with: &str| format!("{process} {with}");
    for (process, words) in [
        (other("--model mlp:5"), "has tensor 0.weight [93, 5] where the job has 0.weight [93, 21]"),
        (other("--seed 2"), "the compute process has other data (digest"),
        ("echo hello; cat".to_owned(), "it wrote \"hello\" where a description was expected"),
        ("false".to_owned(), "it ended with exit status: 1"),
    ] {
        let worker = server.worker(&["--process", &process, "--process-restarts", "0"]);
        worker.wait().refused(2, &[words]);
    }
    server.worker(&[]).wait().refused(2, &["give its compute process with --process"]);
    let workers = workers_of(&server, &process);
    server.finish(workers);
}

#[test]
fn settings_that_a_process_rules_out_are_refused() {
    let process = served();
    let run = |more: &[&str]| finish(&[&["run", "--process", &process], more].concat());
    run(&["--model", "softmax"]).refused(2, &["leave model out"]);
    run(&["--data", "synthetic:100"]).refused(2, &["not those of a compute process"]);
    finish(&["run", "--model", "external"]).refused(2, &["--process"]);
    finish(&["run", "--data", "process"]).refused(2, &["--process"]);
    finish(&["compute", "serve", "--process", "x"]).refused(2, &["leave it out"]);
}
