//! Evaluations that end a run: `target`, `patience`, and how often they are made.

use std::fs;

use tempfile::TempDir;

use crate::books::{called, events};
use crate::cluster::{Server, path};
use crate::compute::served;
use crate::process::{finish, json};

/// A run in virtual time, where evaluations take no time.
const RUN: [&str; 10] = [
    "simulate",
    "--json",
    "--data",
    "synthetic:4000",
    "--workers",
    "2",
    "--link",
    "all.delay=1ms",
    "--compute",
    "1ms",
];

#[test]
fn a_run_ends_once_an_evaluation_reaches_the_target() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out").display().to_string();
    let stop =
        ["--epochs", "12", "--target", "accuracy=0.8", "--evaluate-every", "0.25", "--out", &out];
    let found = json(&[&RUN, &stop]);
    assert_eq!(found["ended"], "the target is reached", "{found}");
    let target = &found["target"];
    assert_eq!(target["goal"], "accuracy>=0.8");
    assert_eq!(target["update"], found["updates"], "virtual time ends at the evaluated update");
    assert!(found["accuracy"].as_f64().unwrap() >= 0.8, "{found}");
    assert!(found["epochs"].as_f64().unwrap() < 12.0, "{found}");

    let curve = fs::read_to_string(folder.path().join("out/curve.csv")).unwrap();
    let epochs: Vec<f64> = curve
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(2).unwrap().parse().unwrap())
        .collect();
    let last = epochs.last().unwrap();
    assert_eq!(
        epochs.len(),
        (last / 0.25) as usize + 1,
        "one every quarter of an epoch: {epochs:?}"
    );

    let replay = json(&[&["replay", &out, "--json"]]);
    assert_eq!(
        (&replay["params_sha256"], &replay["identical"]),
        (&found["params_sha256"], &true.into())
    );

    let missed = json(&[&RUN, &["--target", "accuracy=0.9999", "--epochs", "1"]]);
    assert_eq!(missed["ended"], "the budget is used up");
    assert_eq!(missed["target"]["update"], serde_json::Value::Null);
    let shown = finish(&[&["run"], &RUN[2..8], &["--target", "loss=1e-9"]].concat());
    let shown = shown.with_code(0).stdout;
    assert!(shown.contains("loss<=0.000000001 was not reached"), "{shown}");
}

#[test]
fn a_run_ends_once_evaluations_improve_no_more() {
    // At this learning rate the loss goes up and down.
    let found = json(&[&RUN, &["--learning-rate", "3", "--patience", "2", "--epochs", "12"]]);
    assert_eq!(found["ended"], "evaluations improve no more", "{found}");
    assert!(found["epochs"].as_f64().unwrap() < 12.0, "{found}");
    assert!(found.get("target").is_none(), "{found}");
}

#[test]
fn a_target_that_no_evaluation_has_is_told_and_lets_patience_rest() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let job = ["run", "--json", "--process", &served(), "--workers", "2", "--epochs", "3"];
    let stop = ["--target", "accurracy>=0.9", "--patience", "1", "--out", path(&out)];
    let ended = finish(&[&job[..], &stop].concat()).with_code(0);
    assert_eq!(ended.json()["ended"], "the budget is used up");
    let said = ended.stderr.matches("evaluations have no accurracy, which target names").count();
    assert_eq!(said, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("they have loss, accuracy, "), "{}", ended.stderr);
    let events = events(&out);
    let told: Vec<_> = called(&events, "target_unknown").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(
        (&told[0]["metric"], &told[0]["metrics"][0]),
        (&"accurracy".into(), &"accuracy".into())
    );
}

#[test]
fn a_server_and_its_workers_end_well_at_the_target() {
    let stop = ["--data", "synthetic:4000", "--epochs", "400", "--target", "accuracy=0.8"];
    let server = Server::tcp(&[&stop, &["--workers", "2", "--servers", "1"]]);
    let workers = ["1", "2"].map(|id| server.worker(&["--id", id]));
    let left = server.finish(workers.into());
    assert_eq!(left.summary["ended"], "the target is reached", "{}", left.summary);
}

#[test]
fn targets_that_the_task_does_not_have_are_refused() {
    let run = |more: &[&str]| finish(&[&["run", "--data", "synthetic:400"], more].concat());
    run(&["--target", "rmse=1"]).refused(2, &["this task has no rmse; use loss, accuracy"]);
    run(&["--target", "acuracy=0.9"]).refused(2, &["\"acuracy\" is not known"]);
    run(&["--evaluate-every", "0"]).refused(2, &["evaluate-every: must be a number"]);
    run(&["--patience", "0"]).refused(2, &["patience: must be 1 evaluation or more"]);
}
