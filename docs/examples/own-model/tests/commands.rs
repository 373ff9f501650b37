//! Commands of pstrain work with the model and the data of this program.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::process::{Child, Command, Output, Stdio};

const JOB: [&str; 6] = ["--data", "blobs:600", "--model", "prototypes", "--epochs", "4"];

fn own(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-model"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The JSON object that a command prints.
fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The digest of the trained parameters; checks that the model is good.
fn trained(output: &Output) -> String {
    let report = json(output);
    assert!(report["accuracy"].as_f64().unwrap() > 0.95, "{report}");
    report["params_sha256"].as_str().unwrap().to_owned()
}

#[test]
fn all_ways_to_run_end_at_the_same_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    let run = trained(&own(&["run", "--json", "--out", &out]).args(JOB).output().unwrap());
    let link = ["--link", "all.delay=1ms 2.delay=9ms", "--compute", "1ms"];
    let simulated = own(&["simulate", "--json"]).args(link).args(JOB).output();
    assert_eq!(trained(&simulated.unwrap()), run);
    let two_servers = own(&["run", "--json", "--servers", "2"]).args(JOB).output();
    assert_eq!(trained(&two_servers.unwrap()), run);
    assert_eq!(trained(&own(&["replay", &out, "--json"]).output().unwrap()), run);
    let evaluated = own(&["eval", "--json", "--model", &out, "--data", "blobs:90,5"]).output();
    assert_eq!(trained(&evaluated.unwrap()), run);
}

#[test]
fn workers_of_the_program_train_its_model_in_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("socket").display());
    let server = own(&["server", "--listen", &address, "--json", "--quiet"])
        .args(JOB)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let worker = || own(&["worker", "--server", &address, "--quiet"]).spawn().unwrap();
    let workers = [worker(), worker()];
    let report = server.wait_with_output().unwrap();
    let ended = workers.map(|mut worker: Child| worker.wait().unwrap().success());
    assert_eq!(ended, [true, true]);
    let run = trained(&own(&["run", "--json"]).args(JOB).output().unwrap());
    assert_eq!(trained(&report), run);
}

#[test]
fn help_and_errors_name_what_the_program_adds() {
    let help = own(&["run", "--help"]).output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    // Lines are wrapped.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("prototypes: a point for each class"), "{help}");
    assert!(help.contains("blobs[:ROWS]: points around"), "{help}");
    let refused = own(&["run", "--data", "blobs:many"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("--data blobs:many") && told.contains("no such number"), "{told}");
}
