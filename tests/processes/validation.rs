//! `pstrain validate` compares jobs in virtual time, shaped real time and netem.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{number, path, real};
use crate::process::{Ended, finish};

const JOB: &str = "
data = 'synthetic:600'
batch-size = 32
epochs = 2
workers = 2
link = '1.delay=2ms 2.delay=9ms'
compute = '3ms'
";

const SWEEP: &str = "
name = 'two'
title = 'Two jobs'
[job]
data = 'synthetic:600'
batch-size = 32
workers = 2
link = '1.delay=2ms 2.delay=20ms'
compute = '5ms'
[[axis]]
name = 'epochs'
values = [1, 4]
";

fn validate(text: &str, more: &[&str]) -> Ended {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("jobs.toml");
    fs::write(&file, text).unwrap();
    finish(&[&["validate", path(&file), "--quiet"], more].concat())
}

/// Checks that each job has a netem time or the reason why `tc netem` is missing.
fn netem_is_told(found: &Value) {
    for job in found["jobs"].as_array().unwrap() {
        match job["netem_missing"].as_str() {
            Some(why) => assert!(!why.trim().is_empty() && job["netem"].is_null(), "{job}"),
            None => assert!(real(&job["netem"]["time_s"]) > 0.0, "{job}"),
        }
    }
}

#[test]
fn a_job_file_is_compared_in_virtual_shaped_and_netem_time() {
    let ended = validate(JOB, &[]).with_code(0);
    for words in ["closed form", "shaped: largest error", "netem: ", "too short to judge by 5 %"] {
        assert!(ended.stdout.contains(words), "{}", ended.stdout);
    }
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    let found = validate(JOB, &["--json"]).with_code(0).json();
    let job = &found["jobs"][0];
    let (closed, simulated) = (real(&job["closed_form_s"]), real(&job["virtual"]["time_s"]));
    assert_eq!(closed, simulated, "{job}");
    assert!(real(&job["shaped"]["time_s"]) >= simulated, "{job}");
    assert!(found["shaped"]["ranks"].is_null(), "one job has no ranks: {found}");
    netem_is_told(&found);
}

#[test]
fn a_sweep_is_ranked_and_checked() {
    let ended = validate(SWEEP, &["--json", "--check"]);
    // The runs are too short to judge, which is good. On a busy machine they are judged: then
    // stderr must name the machine, or a disagreement.
    let code = ended.code;
    let said = ended.stderr.clone();
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(found["jobs"][1]["job"], "epochs=4");
    netem_is_told(&found);
    for job in found["jobs"].as_array().unwrap() {
        let shaped = &job["shaped"];
        assert_eq!(shaped["too_short"], real(&shaped["time_s"]) < 1.0, "{job}");
    }
    let good = |world: &Value| world.is_null() || world["good"] == true;
    if good(&found["shaped"]) && good(&found["netem"]) {
        assert_eq!((code, said.as_str()), (Some(0), ""), "{found}");
    } else {
        assert_eq!(code, Some(1), "{found}");
        let busy = number(&found["shaped"]["busy"]) > 0;
        let why = if busy { "machine was too busy" } else { "virtual time does not agree" };
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_job_without_a_closed_form_gets_the_reason() {
    let text = JOB.replace("'3ms'", "'normal:3ms,1ms'");
    let ended = validate(&text, &[]).with_code(0);
    assert!(ended.stdout.contains("no closed form"), "{}", ended.stdout);
    assert!(ended.stdout.contains("computing times that vary"), "{}", ended.stdout);
    let found = validate(&text, &["--json"]).with_code(0).json();
    let job = &found["jobs"][0];
    assert!(job["closed_form_s"].is_null(), "{job}");
    assert!(job["closed_form_missing"].as_str().unwrap().contains("vary"), "{job}");
    let faults = format!("{JOB}faults = '1.crash@10ms'\n");
    validate(&faults, &[]).refused(2, &["1 of 1 cells", "they happen in virtual time only"]);
    validate(&JOB.replace("compute", "computer"), &[]).refused(2, &["computer", "compute"]);
}
