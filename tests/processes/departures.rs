//! Workers that leave a run because of an error: the results and messages say which, when and why,
//! and the exit code is that of the run's end.

use serde_json::Value;

use crate::cluster::{number, real};
use crate::compute::served;
use crate::process::{Ended, finish};

/// A job of two workers; the compute process of the second dies at its first gradient.
/// With bsp the other worker waits for that gradient, so that the run cannot be over before.
fn job(more: &[&str]) -> Ended {
    let serves = served().trim_start_matches("exec ").to_owned();
    let process = format!(
        "read -r first; again() {{ printf '%s\\n' \"$first\"; \"$@\"; }}; case $first in \
         *'\"worker\":1,'*) again sed -u 1q | {serves}; exit 7;; \
         *) again cat | {serves};; esac"
    );
    let args = ["--process", &process, "--process-restarts", "0", "--consistency", "bsp"];
    let (command, more) = more.split_first().unwrap();
    let sized = ["--workers", "2", "--epochs", "1"];
    finish(&[&[*command], &args[..], &sized, more].concat())
}

/// Checks that the summary names the departure.
fn has_departed(summary: &Value) {
    let departures = summary["departures"].as_array().unwrap();
    let [departed] = &departures[..] else { panic!("{summary}") };
    assert_eq!((number(&departed["worker"]), &departed["how"]), (2, &"left".into()));
    assert!(departed["why"].as_str().unwrap().contains("the compute process"), "{departed}");
    assert!(real(&departed["at_s"]) >= 0.0, "{departed}");
}

const COMMANDS: [&[&str]; 2] =
    [&["run"], &["simulate", "--link", "all.delay=1ms", "--compute", "1ms"]];

#[test]
fn a_run_that_ends_as_foreseen_warns_of_a_worker_that_left_and_is_a_success() {
    for command in COMMANDS {
        let ended = job(&[command, &["--json"]].concat()).with_code(0);
        let summary = ended.json();
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        has_departed(&summary);
        let warnings = ended.stderr.lines().filter(|line| line.contains("\"warning\""));
        let warnings: Vec<&str> = warnings.collect();
        assert_eq!(warnings.len(), 1, "{}", ended.stderr);
        assert!(warnings[0].contains("worker 2 has left: the compute process"), "{warnings:?}");
        let shown = job(command).with_code(0);
        assert!(
            shown.stdout.contains("\ndeparted       worker 2 has left at "),
            "{}",
            shown.stdout
        );
        assert!(shown.stderr.contains("worker 2 has left: the compute"), "{}", shown.stderr);
        let quiet = job(&[command, &["--quiet"]].concat()).with_code(0);
        assert!(quiet.stderr.contains("worker 2 has left: the compute"), "{}", quiet.stderr);
    }
}

#[test]
fn a_run_that_ends_with_a_worker_says_that_it_left_and_why() {
    for command in COMMANDS {
        let stop = [command, &["--on-worker-loss", "stop"]].concat();
        let summary = job(&[&stop[..], &["--json"]].concat()).with_code(1).json();
        let why = summary["ended"].as_str().unwrap();
        assert!(why.starts_with("worker 2 has left, and on-worker-loss does not"), "{why}");
        has_departed(&summary);
        let shown = job(&stop).with_code(1);
        let first = shown.stdout.lines().next().unwrap();
        assert!(first.starts_with("worker 2 has left: ") && first.len() <= 80, "{first}");
        assert!(
            shown.stdout.contains("\ndeparted       worker 2 has left at "),
            "{}",
            shown.stdout
        );
        let early = "the run ended early: worker 2 has left, and on-worker-loss";
        assert!(shown.stderr.contains(early), "{}", shown.stderr);
    }
}
