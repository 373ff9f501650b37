//! Compute processes, and initial parameters from a file, without a server: with every
//! architecture the results are the same as of the built-in model.

use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{Left, Server, path, undisturbed};
use crate::compute::{DATA, served};
use crate::peers::all_without_a_server;
use crate::process::finish;

const JOB: [&str; 8] =
    ["--workers", "3", "--epochs", "1", "--optimizer", "momentum", "--lease", "5s"];
/// One of each kind whose result is one of virtual time.
const LOCKSTEP: [&str; 4] =
    ["all-reduce:all-to-all", "hierarchical", "in-network", "gossip:d-psgd"];
const ASYNCHRONOUS: &str = "gossip:ad-psgd";

/// Checks that a run ended with the parameters of another, and evaluated them to the same numbers.
#[track_caller]
fn check_same(found: &Value, wanted: &Value, what: &str) {
    for name in ["params_sha256", "loss", "accuracy"] {
        assert_eq!(found[name], wanted[name], "{name}, {what}");
    }
}

#[test]
fn in_one_process_and_in_virtual_time_it_ends_at_the_bits_of_the_built_in_model() {
    let process = served();
    let process = ["--process", &process];
    for architecture in all_without_a_server().filter(|it| it != ASYNCHRONOUS) {
        let job = [&["--architecture", &architecture], &JOB[..]].concat();
        let wanted = undisturbed(&[&DATA[..], &job]);
        let found = finish(&[&["run", "--json"], &process[..], &job].concat()).with_code(0).json();
        check_same(&found, &wanted, &architecture);
        if !LOCKSTEP.iter().any(|it| architecture.starts_with(it)) {
            continue;
        }
        let times = ["simulate", "--json", "--compute", "2ms", "--link", "all.delay=1ms"];
        let found = finish(&[&times, &process[..], &job].concat()).with_code(0).json();
        check_same(&found, &wanted, &architecture);
    }
}

#[test]
fn workers_at_their_own_pace_train_and_evaluate_it() {
    let process = served();
    let job = ["run", "--json", "--architecture", ASYNCHRONOUS, "--process", &process];
    let found = finish(&[&job, &JOB[..]].concat()).with_code(0).json();
    assert!(found["accuracy"].as_f64().unwrap() > 0.7, "{found}");
}

#[test]
fn processes_end_at_the_bits_of_the_built_in_model_with_a_server_that_has_none() {
    for architecture in ["all-reduce:ring", "gossip:d-psgd"] {
        let job = [&["--architecture", architecture], &JOB[..]].concat();
        let wanted = undisturbed(&[&DATA[..], &job]);
        let folder = TempDir::new().unwrap();
        let (process, file) = (served(), folder.path().join("model.json"));
        let described = finish(&["compute", "describe", &process]).with_code(0).stdout;
        std::fs::write(&file, described).unwrap();
        let description = format!("description:{}", path(&file));
        let server = Server::tcp(&[&["--process", &description], &job[..]]);
        let worker = |id: u32| {
            let id = id.to_string();
            let listen = if id == "2" { "none" } else { "127.0.0.1:0" };
            server.worker(&["--id", &id, "--listen", listen, "--process", &process])
        };
        let workers = (1..=3).map(worker).collect();
        let Left { summary, .. } = server.finish(workers);
        check_same(&summary, &wanted, architecture);
    }
}

#[test]
fn a_file_has_the_initial_parameters_of_every_architecture() {
    let folder = TempDir::new().unwrap();
    let first = folder.path().join("first");
    let trained = ["run", "--json", "--epochs", "1", "--out", path(&first)];
    finish(&[&trained, &DATA[..]].concat()).with_code(0);
    let init = format!("{}/model.safetensors", path(&first));
    let with_server = ["run", "--json", "--init", &init];
    let wanted = finish(&[&with_server, &DATA[..], &JOB].concat()).with_code(0).json();
    for architecture in LOCKSTEP.into_iter().chain([ASYNCHRONOUS]) {
        let job = [&["--architecture", architecture, "--init", &init], &JOB[..]].concat();
        let found = finish(&[&["run", "--json"], &DATA[..], &job].concat()).with_code(0).json();
        if architecture.contains("all-to-all") {
            check_same(&found, &wanted, architecture);
        }
        let (one, other) = (found["loss"].as_f64().unwrap(), wanted["loss"].as_f64().unwrap());
        assert!((one - other).abs() < 0.05, "{architecture}: {one} for {other}");
        let simulated = ["simulate", "--json", "--compute", "2ms", "--link", "all.delay=1ms"];
        let simulated = finish(&[&simulated[..], &DATA[..], &job].concat()).with_code(0).json();
        if architecture != ASYNCHRONOUS {
            check_same(&simulated, &found, architecture);
        }
    }
}
