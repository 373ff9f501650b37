//! Local training with real processes.

use crate::books::{check_alike, check_books};
use crate::cluster::{path, real};
use crate::process::{finish, json};

const JOB: [&str; 8] =
    ["--data", "synthetic:4000", "--epochs", "2", "--workers", "3", "--batch-size", "256"];

const LOCAL: [&str; 3] = ["--local-training", "sgd:8,0.1", "--json"];

#[test]
fn differences_end_at_the_same_bits_on_every_transport_and_in_virtual_time() {
    let times = ["simulate", "--link", "all.delay=1ms", "--compute", "1ms"];
    let virtually = json(&[&times, &JOB, &LOCAL]);
    assert!(real(&virtually["accuracy"]) > 0.85, "{virtually}");
    let gradients = json(&[&times[..], &JOB, &["--json"]]);
    assert_eq!(gradients["updates"], virtually["updates"]);
    assert!(real(&gradients["loss"]) > 1.5 * real(&virtually["loss"]), "{gradients} {virtually}");
    for more in [
        &["--transport", "memory"][..],
        &["--transport", "tcp", "--servers", "2"],
        &["--transport", "unix", "--architecture", "all-reduce:all-to-all"],
    ] {
        let run = json(&[&["run"], &JOB, &LOCAL, more]);
        assert_eq!(run["params_sha256"], virtually["params_sha256"], "{more:?}");
    }
}

#[test]
fn a_run_of_differences_is_replayed_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let asp = ["--consistency", "asp", "--learning-rate", "0.3", "--out", path(&out)];
    let run = json(&[&["run"], &JOB, &LOCAL, &asp]);
    check_books(&out, &run);
    check_alike(&out);
    let replayed = json(&[&["replay", path(&out.join("order.log")), "--json"]]);
    assert_eq!(replayed["params_sha256"], run["params_sha256"]);
}

#[test]
fn settings_that_need_gradients_are_refused() {
    let refused = |more: &[&str], words: &[&str]| {
        finish(&[&["run"], &JOB[..], &LOCAL, more].concat()).refused(2, words);
    };
    refused(&["--redundancy", "cyclic:1"], &["local-training needs redundancy = none"]);
    for (value, words) in
        [("sgd:0", "STEPS must be 1 to"), ("sgd:3,-1", "RATE must be"), ("adam:3", "proximal")]
    {
        let run = ["run", "--data", "synthetic:100", "--local-training", value];
        finish(&run).refused(2, &[value, words]);
    }
}
