//! `pstrain validate` as a person runs it.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{path, real};
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

/// What either a machine with `tc netem` or one without it must say.
fn netem_is_told(found: &Value) {
    match found["no_netem"].as_str() {
        Some(why) => assert!(!why.trim().is_empty() && found["netem"].is_null(), "{found}"),
        None => assert!(real(&found["netem"]["largest_error"]) >= 0.0, "{found}"),
    }
}

#[test]
fn a_job_file_is_compared_in_every_world() {
    let ended = validate(JOB, &[]).with_code(0);
    for words in ["closed form", "shaped: largest error", "netem: "] {
        assert!(ended.stdout.contains(words), "{}", ended.stdout);
    }
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    let found = validate(JOB, &["--json"]).with_code(0).json();
    let job = &found["jobs"][0];
    let (closed, simulated) = (real(&job["closed_form_s"]["Ok"]), real(&job["virtual"]["time_s"]));
    assert_eq!(closed, simulated, "{job}");
    assert!(real(&job["shaped"]["time_s"]) >= simulated, "{job}");
    assert!(found["shaped"]["ranks"].is_null(), "one job has no ranks: {found}");
    netem_is_told(&found);
}

#[test]
fn a_sweep_is_ranked_and_checked() {
    let ended = validate(SWEEP, &["--json", "--check"]);
    // A machine that is busy may be late by more than is allowed: then that is what it must say.
    let code = ended.code;
    let said = ended.stderr.clone();
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(found["jobs"][1]["job"], "epochs=4");
    assert_eq!(real(&found["shaped"]["ranks"]), 1.0, "{found}");
    netem_is_told(&found);
    let good = |world: &Value| {
        world.is_null() || real(&world["largest_error"]) <= 0.05 && real(&world["ranks"]) == 1.0
    };
    if good(&found["shaped"]) && good(&found["netem"]) {
        assert_eq!((code, said.as_str()), (Some(0), ""), "{found}");
    } else {
        assert_eq!(code, Some(1), "{found}");
        assert!(said.contains("virtual time does not agree"), "{said}");
    }
}

#[test]
fn a_job_without_a_closed_form_says_why() {
    let text = JOB.replace("'3ms'", "'normal:3ms,1ms'");
    let ended = validate(&text, &[]).with_code(0);
    assert!(ended.stdout.contains("no closed form"), "{}", ended.stdout);
    assert!(ended.stdout.contains("computing times that vary"), "{}", ended.stdout);
    validate(&JOB.replace("compute", "computer"), &[]).refused(2, &["computer", "compute"]);
}
