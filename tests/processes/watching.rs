//! The words of a run on its results, the model among them, and the clients that watch it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::cluster::{ENDLESS, SLOW, number, path, real};
use crate::process::{Process, eventually, finish};

#[test]
fn a_run_is_watched_and_stopped_by_the_name_of_its_results_folder() {
    let jobs: [&[&str]; 4] = [
        &["--transport", "memory"],
        &["--transport", "unix"],
        &["--transport", "tcp"],
        &["--architecture", "all-reduce:ring"],
    ];
    for job in jobs {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("out");
        let run = ["run", "--json", "--out", path(&out)];
        let run = Process::start(&[&run[..], &SLOW, &ENDLESS, job].concat());
        eventually("socket", || out.join("socket").exists().then_some(()));
        let status = eventually("update", || {
            let status = finish(&["status", path(&out), "--json"]).with_code(0).json();
            (number(&status["updates"]) > 3).then_some(status)
        });
        assert_eq!(status["workers"].as_array().unwrap().len(), 2, "{status}");
        let why = finish(&["why", path(&out)]);
        assert!(!why.with_code(0).stdout.is_empty(), "{job:?}");
        if job.contains(&"--architecture") {
            run.signal(rustix::process::Signal::TERM);
        } else {
            let pulled = finish(&["pull", path(&out), "--json"]).with_code(0).json();
            assert!(real(&pulled["l2"]) > 0.0, "{pulled}");
            let control = ["control", path(&out), "set", "consistency", "asp"];
            let said = finish(&control).with_code(0).stdout;
            assert!(said.starts_with("consistency = asp from version"), "{said}");
            finish(&["control", path(&out), "stop"]).with_code(0);
            assert!(out.join("summary.json").exists(), "it returned before the results were there");
        }
        run.wait().with_code(3);
        let words = ["no run listens in that folder", "HOST:PORT"];
        finish(&["status", path(&out)]).refused(2, &words);
    }
}

#[test]
fn a_run_that_was_killed_is_told_from_one_that_cannot_be_reached() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let run = Process::start(&[&["run", "--out", path(&out)], &SLOW[..], &ENDLESS].concat());
    eventually("socket", || out.join("socket").exists().then_some(()));
    drop(run); // kills it with SIGKILL
    for command in ["status", "why", "pull"] {
        let words = [path(&out), "the run is gone: it was killed", "`pstrain run --resume DIR`"];
        finish(&[command, path(&out)]).refused(2, &words);
    }
}

#[test]
fn a_results_folder_whose_path_is_too_long_for_a_socket_is_named_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("a-long-name-".repeat(12));
    let args = ["run", "--data", "synthetic:200", "--epochs", "1", "--out", path(&out)];
    let said = finish(&args).with_code(0).stderr;
    for words in ["bytes is too long for a socket: choose a shorter one", "or --listen"] {
        assert!(said.contains(words) && !said.contains("SUN_LEN"), "{said}");
    }
}

#[test]
fn a_run_listens_where_it_is_told() {
    let run = ["run", "--listen", "127.0.0.1:0"];
    let run = Process::start(&[&run[..], &SLOW, &ENDLESS].concat());
    let said = run.wait_to_say("listening on ");
    let line = said.lines().find_map(|line| line.split_once("listening on "));
    let address = line.and_then(|(_, rest)| rest.split_whitespace().next()).unwrap();
    let status = finish(&["status", address, "--json"]).with_code(0).json();
    assert_eq!(status["job"], "reference", "{status}");
    finish(&["control", address, "stop"]).with_code(0);
    let said = run.wait().with_code(3).stderr;
    assert!(said.contains("nothing of this run is kept: --out DIR keeps"), "{said}");
}

/// The losses of the evaluations, by update.
fn curve(out: &Path) -> Vec<(u64, f64)> {
    let mut curve = csv::Reader::from_path(out.join("curve.csv")).unwrap();
    let row = |row: csv::StringRecord| (row[0].parse().unwrap(), row[5].parse().unwrap());
    curve.records().map(|record| row(record.unwrap())).collect()
}

#[test]
fn the_best_evaluated_model_is_kept_if_it_is_wanted_and_with_patience() {
    // The last steps are too long, so that the last model is not the best.
    let job = [
        "--data",
        "synthetic:600",
        "--epochs",
        "12",
        "--model",
        "mlp:64",
        "--optimizer",
        "sgd",
        "--learning-rate",
        "6",
    ];
    let kinds: [(&[&str], bool); 4] = [
        (&["--keep", "best"], true),
        (&["--patience", "2"], true),
        (&["--patience", "2", "--keep", "last"], false),
        (&["--keep", "best", "--architecture", "all-reduce:ring"], true),
    ];
    for (how, is_best) in kinds {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("out");
        let run = ["run", "--out", path(&out)];
        let ended = finish(&[&run[..], &job, how].concat());
        let said = if is_best { "the best model" } else { "the last model" };
        let words = format!("kept in {}: {said}", out.display());
        assert!(ended.stderr.contains(&words), "{how:?}: {}", ended.stderr);
        let curve = curve(&out);
        let best = curve.iter().filter(|(_, loss)| loss.is_finite());
        let best = best.min_by(|(_, one), (_, other)| one.total_cmp(other)).unwrap();
        let last = curve.last().unwrap();
        assert_ne!(best.0, last.0, "nothing was proved: {curve:?}");
        let (update, loss) = if is_best { best } else { last };
        let summary = fs::read_to_string(out.join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(real(&summary["loss"]).to_bits(), loss.to_bits(), "{how:?}: {summary}");
        let expected = if is_best { Some(*update) } else { None };
        assert_eq!(summary["model_update"].as_u64(), expected, "{how:?}: {summary}");
        if !how.contains(&"--architecture") {
            let replayed = finish(&["replay", path(&out), "--json"]).with_code(0).json();
            assert_eq!(replayed["identical"], true, "{how:?}: {replayed}");
        }
    }
}
