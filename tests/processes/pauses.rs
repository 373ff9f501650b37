//! A run with a state that is stopped on request is paused: resumed, it ends at the parameters of
//! an undisturbed run, and its budget can be raised.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::books::check_counts;
use crate::cluster::{PACED, SLOW, Server, number, path, undisturbed};
use crate::process::{Ended, Process, eventually, finish};

/// A run of some seconds, with a state in the optimiser.
const JOB: [&str; 10] = [
    "--data",
    "synthetic:4000",
    "--epochs",
    "6",
    "--compute",
    "8ms",
    "--optimizer",
    "momentum",
    "--lease",
    "2s",
];

const LOG: [&str; 2] = ["--durability", "log"];
const CHECKPOINTS: [&str; 4] = ["--durability", "checkpoint", "--checkpoint-every", "1h"];

/// A run that keeps its state in a folder.
struct Kept {
    folder: TempDir,
    process: Process,
}

impl Kept {
    fn start(parts: &[&[&str]]) -> Self {
        let folder = TempDir::new().unwrap();
        let (out, state) = (folder.path().join("out"), folder.path().join("state"));
        let kept = ["run", "--json", "--out", path(&out), "--state", path(&state)];
        let process = Process::start(&[&kept[..], &parts.concat()].concat());
        Self { folder, process }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Sends `signal` once some more of the run's curve is written; returns what the process said.
    fn stop(self, signal: Signal) -> (TempDir, Ended) {
        let out = self.out();
        let seen = rows(&out).max(2); // the head, and the beginning
        eventually("another evaluation", || (rows(&out) > seen).then_some(()));
        self.process.signal(signal);
        (self.folder, self.process.wait().with_code(3))
    }

    fn resume(folder: TempDir, parts: &[&str]) -> Self {
        let state = folder.path().join("state");
        let words = [&["run", "--json", "--resume", path(&state)], parts].concat();
        Self { process: Process::start(&words), folder }
    }
}

/// Rows of the results that grow with the evaluations.
fn rows(out: &Path) -> usize {
    fs::read_to_string(out.join("curve.csv")).map_or(0, |text| text.lines().count())
}

/// The last line that a process said.
fn last_line(ended: &Ended) -> &str {
    ended.stderr.trim_end().lines().last().unwrap_or_default()
}

#[track_caller]
fn check_alike(summary: &Value, undisturbed: &Value) {
    assert_eq!(summary["params_sha256"], undisturbed["params_sha256"], "{summary}");
    for count in ["updates", "ended"] {
        assert_eq!(summary[count], undisturbed[count]);
    }
    // A mini-batch that was under way at a stop counts as lost, and is assigned again.
    let [batches, sound] = [summary, undisturbed].map(|summary| &summary["batches"]);
    let count = |name: &str| number(&batches[name]);
    assert_eq!(count("assigned"), count("applied") + count("lost"), "{batches}");
    assert_eq!(batches["applied"], sound["applied"]);
}

/// Runs of one process that keep their state, with and without a server.
const RUNS: [(&[&str], &[&str]); 6] = [
    (&LOG, &[]),
    (&LOG, &["--servers", "2"]),
    (&CHECKPOINTS, &[]),
    (&CHECKPOINTS, &["--servers", "2"]),
    (&CHECKPOINTS, &["--architecture", "all-reduce:ring", "--workers", "3"]),
    (&CHECKPOINTS, &["--architecture", "gossip:d-psgd", "--workers", "3"]),
];

#[test]
fn a_stopped_run_with_a_state_goes_on_to_the_parameters_of_an_undisturbed_one() {
    for (how, job) in RUNS {
        let undisturbed = undisturbed(&[&JOB, job]);
        let mut run = Kept::start(&[&JOB, how, job]);
        for signal in [Signal::TERM, Signal::INT] {
            let state = run.state();
            let (folder, ended) = run.stop(signal);
            assert_eq!(ended.json()["ended"], "stopped on request");
            let command = format!("`pstrain run --resume {}` goes on; ", state.display());
            let said = last_line(&ended);
            assert!(said.contains(&command) && said.contains("--epochs N"), "{}", ended.stderr);
            run = Kept::resume(folder, &[]);
        }
        let out = run.out();
        let summary = run.process.wait().with_code(0).json();
        check_alike(&summary, &undisturbed);
        check_counts(&out, &summary);
    }
}

#[test]
fn a_run_that_a_second_signal_aborts_names_the_command_with_which_it_goes_on() {
    for how in [&LOG[..], &CHECKPOINTS] {
        let run = Kept::start(&[&["--data", "synthetic:4000", "--compute", "30s"], how]);
        let out = run.out();
        eventually("socket", || out.join("socket").exists().then_some(()));
        eventually("gradient", || {
            let status = finish(&["status", path(&out), "--json"]).with_code(0).json();
            (status["workers"][0]["state"] == "computing").then_some(())
        });
        run.process.signal(Signal::INT);
        run.process.wait_to_say("draining");
        run.process.signal(Signal::INT);
        let state = run.state();
        let ended = run.process.wait();
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        let command = format!("aborted: `pstrain run --resume {}` goes on", state.display());
        assert!(last_line(&ended).contains(&command), "{}", ended.stderr);
    }
}

#[test]
fn the_budget_of_a_run_may_be_raised_when_it_is_resumed() {
    let half = [&JOB[..2], &["--epochs", "3"], &JOB[4..]].concat();
    for (how, job) in RUNS {
        let undisturbed = undisturbed(&[&JOB, job]);
        // Stopped, and raised.
        let (folder, _) = Kept::start(&[&half, how, job]).stop(Signal::TERM);
        let run = Kept::resume(folder, &["--epochs", "6"]);
        let state = run.state();
        check_alike(&run.process.wait().with_code(0).json(), &undisturbed);
        let fewer = finish(&["run", "--resume", path(&state), "--epochs", "5"]);
        fewer.refused(2, &["--epochs 5: the run has 6 already"]);
        // It is a run of six passes from now on.
        let again = finish(&["run", "--json", "--resume", path(&state)]).with_code(0).json();
        check_alike(&again, &undisturbed);

        // Finished, and raised.
        let Kept { folder, process } = Kept::start(&[&half, how, job]);
        let ended = process.wait().with_code(0);
        assert!(last_line(&ended).contains("--epochs N`"), "{}", ended.stderr);
        let run = Kept::resume(folder, &["--epochs", "6"]);
        if job.contains(&"--servers") {
            run.process.wait().refused(2, &["it has ended, and its other servers with it"]);
            continue;
        }
        check_alike(&run.process.wait().with_code(0).json(), &undisturbed);
    }
}

#[test]
fn a_stopped_server_goes_on_with_new_workers() {
    let job = ["--epochs", "5", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let undisturbed = undisturbed(&[&PACED, &job]);
    for how in [&LOG[..], &CHECKPOINTS] {
        let folder = TempDir::new().unwrap();
        let kept = folder.path().join("kept");
        let mut server = Server::tcp(&[&PACED, &job, how, &["--state", path(&kept)]]);
        let mut workers = server.workers(2);
        for (updates, is_ordered) in [(10, false), (30, true)] {
            server.wait_for_updates(updates);
            match is_ordered {
                false => server.process.signal(Signal::TERM),
                true => drop(finish(&["control", &server.address, "stop"]).with_code(0)),
            }
            workers.into_iter().for_each(|worker| drop(worker.wait().with_code(3)));
            let listens = "`pstrain server --listen 127.0.0.1:";
            let (next, ended) = server.after_stop(&[&["--resume", path(&kept)]]);
            let said = last_line(&ended);
            let resume = format!("--resume {}` goes on, once its workers", kept.display());
            assert!(said.contains(listens) && said.contains(&resume), "{}", ended.stderr);
            server = next;
            // New processes need not know which of the workers they are.
            workers = vec![server.worker(&[]), server.worker(&[])];
        }
        let left = server.finish(workers);
        assert_eq!(left.summary["params_sha256"], undisturbed["params_sha256"], "{how:?}");
        check_counts(&left.out, &left.summary);
    }
}

#[test]
fn a_stopped_server_and_its_standby_go_on() {
    let job = ["--epochs", "8", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let undisturbed = undisturbed(&[&SLOW, &job]);
    let folder = TempDir::new().unwrap();
    let states = ["first", "second"].map(|name| folder.path().join(name));
    let state = |number: usize| [&LOG[..], &["--state", path(&states[number])]].concat();
    let server = Server::tcp(&[&PACED, &job, &state(0)]);
    let of = ["--standby-of", server.address.as_str()];
    let standby = Server::tcp(&[&PACED, &job, &of, &state(1)]);
    server.wait_for("standby", |status| status["standby"] == standby.address);
    let workers = server.workers(2);
    server.wait_for_updates(20);
    server.process.signal(Signal::TERM);
    workers.into_iter().for_each(|worker| drop(worker.wait().with_code(3)));
    let (server, _) = server.after_stop(&[&["--resume", path(&states[0])]]);
    let (standby, said) = standby.after_stop(&[&["--resume", path(&states[1])]]);
    assert!(last_line(&said).contains(path(&states[1])), "{}", said.stderr);
    let workers = server.workers(2);
    server.wait_for("standby", |status| status["standby"] == standby.address);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], undisturbed["params_sha256"]);
    assert!(number(&left.summary["updates"]) > 20);
    standby.process.wait().with_code(0);
}

/// Signals of a batch system reach the workers before the server.
#[test]
fn a_run_whose_processes_are_all_signalled_at_once_goes_on_as_it_was() {
    let job = ["--epochs", "5", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let undisturbed = undisturbed(&[&PACED, &job]);
    for how in [&LOG[..], &CHECKPOINTS] {
        let folder = TempDir::new().unwrap();
        let kept = folder.path().join("kept");
        let server = Server::tcp(&[&PACED, &job, how, &["--state", path(&kept)]]);
        let start = |server: &Server, rank: &str| {
            let args = ["worker", "--server", &server.address, "--rank", "slurm"];
            let variables = [("SLURM_PROCID", rank), ("SLURM_STEP_NUM_TASKS", "2")];
            Process::start_with(&args, &variables)
        };
        let workers = ["0", "1"].map(|rank| start(&server, rank));
        server.wait_for_updates(20);
        workers.iter().for_each(|worker| worker.signal(Signal::TERM));
        workers.iter().for_each(|worker| drop(worker.wait_to_say("draining")));
        server.process.signal(Signal::TERM);
        workers.into_iter().for_each(|worker| drop(worker.wait().with_code(3)));
        let (server, _) = server.after_stop(&[&["--resume", path(&kept)]]);
        let workers = ["0", "1"].map(|rank| start(&server, rank));
        let left = server.finish(workers.into());
        assert_eq!(left.summary["params_sha256"], undisturbed["params_sha256"], "{how:?}");
    }
}
