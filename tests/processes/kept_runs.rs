//! `pstrain run` with a state: the whole cluster in one process is killed, and resumes.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{names, number, path, real};
use crate::process::{Ended, Process, eventually, finish};

/// A run of some seconds, with a state in the optimiser.
const JOB: [&str; 10] = [
    "--data",
    "synthetic:4000",
    "--epochs",
    "8",
    "--compute",
    "8ms",
    "--optimizer",
    "momentum",
    "--lease",
    "2s",
];

/// Number of updates in the order of updates so far.
fn rows(out: &Path) -> usize {
    fs::read_to_string(out.join("timeline.csv")).map_or(0, |text| text.lines().count())
}

/// The number of the last checkpoint.
fn checkpoints(state: &Path) -> usize {
    if !state.is_dir() {
        return 0;
    }
    let number = |name: &String| name.strip_prefix("checkpoint-")?.split('.').next()?.parse().ok();
    names(state).iter().filter_map(number).max().unwrap_or_default()
}

/// Starts a run that keeps its state with `how`, kills it again and again, and waits for the end of
/// the last process.
fn killed(folder: &TempDir, how: &[&str], kills: usize) -> Ended {
    let out = folder.path().join("out");
    killed_after(folder, how, kills, || rows(&out))
}

/// The same, each time after some more of what `progress` counts.
fn killed_after(
    folder: &TempDir,
    how: &[&str],
    kills: usize,
    progress: impl Fn() -> usize,
) -> Ended {
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let begin = ["run", "--json", "--out", path(&out), "--state", path(&state)];
    let mut process = Process::start(&[&begin[..], &JOB, how].concat());
    let mut seen = 0;
    for _ in 0..kills {
        seen = eventually("more updates", || Some(progress()).filter(|now| *now > seen + 10));
        process.signal(Signal::KILL);
        assert_eq!(process.wait().code, None);
        process = Process::start(&["run", "--json", "--resume", path(&state)]);
        process.wait_to_say(", epoch "); // of the checkpoint, after one update or more
    }
    process.wait().with_code(0)
}

#[test]
fn a_killed_run_with_a_log_ends_at_the_parameters_of_an_undisturbed_one() {
    for servers in ["1", "2"] {
        let undisturbed = finish(&[&["run", "--json", "--servers", servers], &JOB[..]].concat());
        let undisturbed = undisturbed.with_code(0).json();
        let folder = TempDir::new().unwrap();
        let how = ["--durability", "log", "--checkpoint-every", "200ms", "--servers", servers];
        let summary = killed(&folder, &how, 2).json();
        assert_eq!(summary["params_sha256"], undisturbed["params_sha256"], "{servers} servers");
        assert_eq!(summary["updates"], undisturbed["updates"]);
        let applied = |it: &serde_json::Value| number(&it["batches"]["applied"]);
        assert_eq!(applied(&summary), applied(&undisturbed));
        let out = folder.path().join("out");
        check_books(&out, &summary);
        let replayed = finish(&["replay", path(&out), "--json"]).with_code(0).json();
        assert_eq!(replayed["identical"], true, "{replayed}");
        let kept = names(&folder.path().join("state"));
        assert_eq!(kept.contains(&"server-2".to_owned()), servers == "2", "{kept:?}");

        // A run that has ended ends again with the same result.
        let again = finish(&["run", "--json", "--resume", path(&folder.path().join("state"))]);
        let again = again.with_code(0).json();
        assert_eq!(again["params_sha256"], summary["params_sha256"]);
    }
}

#[test]
fn a_killed_run_with_checkpoints_loses_what_came_since_and_ends() {
    for servers in ["1", "2"] {
        let folder = TempDir::new().unwrap();
        let how = ["--durability", "checkpoint", "--checkpoint-every", "100ms"];
        let how = [&how[..], &["--servers", servers, "--consistency", "asp"]].concat();
        let summary = killed(&folder, &how, 2).json();
        check_books(&folder.path().join("out"), &summary);
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        assert!(real(&summary["accuracy"]) > 0.85, "{summary}");
    }
}

#[test]
fn a_killed_run_without_a_server_ends_at_the_parameters_of_an_undisturbed_one() {
    for architecture in ["all-reduce:ring", "gossip:d-psgd"] {
        let three = ["--architecture", architecture, "--workers", "3", "--batch-size", "16"];
        let undisturbed = finish(&[&["run", "--json"], &JOB[..], &three].concat());
        let undisturbed = undisturbed.with_code(0).json();
        let folder = TempDir::new().unwrap();
        let state = folder.path().join("state");
        let how = ["--durability", "checkpoint", "--checkpoint-every", "30ms"];
        let how = [&how[..], &three].concat();
        let summary = killed_after(&folder, &how, 2, || checkpoints(&state)).json();
        assert_eq!(summary["params_sha256"], undisturbed["params_sha256"], "{architecture}");
        assert_eq!(summary["updates"], undisturbed["updates"]);
        assert_eq!(summary["batches"], undisturbed["batches"]);
        let out = folder.path().join("out");
        let curve = fs::read_to_string(out.join("curve.csv")).unwrap();
        let versions = curve.lines().skip(1).map(|line| line.split(',').next().unwrap());
        let versions: Vec<u64> = versions.map(|version| version.parse().unwrap()).collect();
        assert!(versions.is_sorted_by(|one, other| one < other), "{curve}");

        // A run that has ended ends again with the same result.
        let again = finish(&["run", "--json", "--resume", path(&state)]).with_code(0).json();
        assert_eq!(again["params_sha256"], summary["params_sha256"]);
    }
}

#[test]
fn a_killed_run_of_workers_at_their_own_pace_uses_up_its_budget() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let how = ["--durability", "checkpoint", "--checkpoint-every", "30ms"];
    let pairs = ["--architecture", "gossip:ad-psgd", "--workers", "3", "--batch-size", "16"];
    let how = [&how[..], &pairs].concat();
    let summary = killed_after(&folder, &how, 2, || checkpoints(&state)).json();
    assert_eq!(summary["ended"], "the budget is used up", "{summary}");
    assert!(real(&summary["accuracy"]) > 0.85, "{summary}");
    let again = finish(&["run", "--json", "--resume", path(&state)]).with_code(0).json();
    assert_eq!(again["params_sha256"], summary["params_sha256"]);
}

#[test]
fn the_state_of_a_run_is_refused_where_it_does_not_fit() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let log = ["run", "--durability", "log"];
    finish(&log).refused(2, &["--state"]);
    finish(&["run", "--state", path(&state)]).refused(2, &["nothing is kept there"]);
    let both = [&log[..], &["--state", path(&state), "--resume", path(&state)]].concat();
    finish(&both).refused(2, &["cannot be used with"]);
    finish(&["run", "--resume", path(&state)]).refused(2, &["holds no run", "`pstrain run`"]);
    finish(&["run", "--resume", path(&state), "--workers", "3"]).refused(2, &["the job it had"]);
    let memory = ["--state", path(&state), "--servers", "2", "--transport", "memory"];
    finish(&[&log[..], &memory].concat()).refused(2, &["use unix"]);
    let short = ["--state", path(&state), "--data", "synthetic:400", "--epochs", "1", "--quiet"];
    finish(&[&log[..], &short].concat()).with_code(0);
    finish(&[&log[..], &short].concat()).refused(2, &["holds a run already", "--resume"]);
}
