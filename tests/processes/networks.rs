//! Networks of pictures as real processes: the same bits in every way to run them, with the running
//! statistics of batch normalisation as state of the model.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{Server, path};
use crate::process::{finish, json};

/// A residual network with all kinds of layers.
const LAYERS: &str = "crop1,conv4x3,bn,relu,@a,conv4x3,bn,add:a,relu,pool2,@b,conv3x1,tanh,\
                      cat:b,conv6x3s2,bn,relu,drop0.1,linear8,relu";
const JOB: [&str; 6] = ["--workers", "2", "--batch-size", "20", "--optimizer", "momentum"];
const SHORT: [&str; 2] = ["--epochs", "3"];
/// Time to disturb a run: 20 epochs take 5 s.
const SLOWLY: [&str; 6] = ["--compute", "30ms", "--epochs", "20", "--lease", "2s"];

/// Writes raw records of 400 pictures of 8x8 pixels and two channels. The class is the corner of
/// the bright spot.
fn pictures(folder: &Path) -> String {
    let header = r#"{"columns": 128, "classes": ["a", "b", "c", "d"], "picture": [8, 8, 2]}"#;
    let file = folder.join("pictures");
    let mut out = fs::File::create(&file).unwrap();
    writeln!(out, "{header}").unwrap();
    for row in 0..400_u32 {
        let (class, moved) = (row % 4, row / 4 % 3);
        let (top, left) = (1 + class / 2 * 4 + moved % 2, 1 + class % 2 * 4 + moved / 2);
        for pixel in 0..128_u32 {
            let (y, x, channel) = (pixel / 16, pixel / 2 % 8, pixel % 2);
            let is_bright = y.abs_diff(top) + x.abs_diff(left) < 2;
            let noise = row.wrapping_mul(2_654_435_761).wrapping_add(pixel * 40_503) >> 9 & 63;
            let value = if is_bright { 1.0 - channel as f32 / 2.0 } else { 0.0 };
            out.write_all(&(value + noise as f32 / 128.0).to_le_bytes()).unwrap();
        }
        out.write_all(&(class as f32).to_le_bytes()).unwrap();
    }
    format!("raw:{}", file.display())
}

#[test]
fn a_network_has_the_same_bits_over_every_transport_and_on_several_servers() {
    let folder = TempDir::new().unwrap();
    let (data, model) = (pictures(folder.path()), format!("net:{LAYERS}"));
    let job = [&["--data", &data, "--model", &model], &JOB[..], &SHORT].concat();
    let wanted = json(&[&["run", "--json"], &job]);
    assert!(wanted["accuracy"].as_f64().unwrap() > 0.95, "{wanted}");
    let variants: [&[&str]; 7] = [
        &["--threads", "3"],
        &["--transport", "unix"],
        &["--transport", "tcp", "--servers", "2"],
        &["--servers", "4"],
        &["--exchange", "separate"],
        &["--exchange", "layers"],
        &["--filters", "zero-skip"],
    ];
    for variant in variants {
        let found = json(&[&["run", "--json"], &job, variant]);
        assert_eq!(found["params_sha256"], wanted["params_sha256"], "{variant:?}");
    }
    let link = ["simulate", "--json", "--compute", "3ms", "--link", "all.delay=2ms"];
    let found = json(&[&link, &job]);
    assert_eq!(found["params_sha256"], wanted["params_sha256"]);

    let without = ["run", "--json", "--architecture", "all-reduce:all-to-all"];
    let found = json(&[&without, &job]);
    assert_eq!(found["params_sha256"], wanted["params_sha256"], "without a server");
}

#[test]
fn without_a_server_running_statistics_are_those_of_all_workers() {
    let folder = TempDir::new().unwrap();
    let (data, model) = (pictures(folder.path()), format!("net:{LAYERS}"));
    let batches = |variant: &[&str]| {
        let name = variant.last().unwrap_or(&"server").replace(':', "-");
        let out = folder.path().join(name).display().to_string();
        let job = ["run", "--json", "--data", &data, "--model", &model, "--out", &out];
        let four = ["--workers", "4", "--batch-size", "20", "--optimizer", "momentum"];
        let run = json(&[&job, &four, &["--epochs", "4"], variant]);
        assert!(run["accuracy"].as_f64().unwrap() > 0.9, "{variant:?}: {run}");
        let bytes = fs::read(Path::new(&out).join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let batches = tensors.tensor("1.num_batches_tracked").unwrap();
        (i64::from_le_bytes(batches.data().try_into().unwrap()), run)
    };
    let (wanted, server) = batches(&[]);
    assert_eq!(wanted, 16, "mini-batches of a worker");
    for architecture in
        ["all-reduce:ring", "all-reduce:tree", "hierarchical:2", "in-network", "gossip:d-psgd"]
    {
        let (found, run) = batches(&["--architecture", architecture]);
        assert_eq!(found, wanted, "{architecture}");
        let far = (run["loss"].as_f64().unwrap() - server["loss"].as_f64().unwrap()).abs();
        assert!(architecture.starts_with("gossip") || far < 0.02, "{architecture}: {run} {server}");
    }
    let half = ["--architecture", "all-reduce:ring", "--filters", "fp16"];
    finish(&[&["run", "--data", &data, "--model", &model], &half[..]].concat())
        .refused(2, &["no filters with a model that has state"]);
}

#[test]
fn the_number_of_threads_of_a_worker_changes_no_bit() {
    let folder = TempDir::new().unwrap();
    let data = pictures(folder.path());
    // Products that are worth a thread.
    let model = "net:conv16x3,bn,relu,conv16x3,bn,relu,pool2,linear64,relu";
    let job = ["--data", &data, "--model", model, "--workers", "2", "--batch-size", "75"];
    let job = [&job[..], &["--epochs", "2"]].concat();
    let wanted = json(&[&["run", "--json"], &job]);
    let found = json(&[&["run", "--json", "--threads", "3"], &job]);
    assert_eq!(found["params_sha256"], wanted["params_sha256"]);
    let server = Server::tcp(&[&job]);
    let workers =
        ["2", "auto"].map(|threads| server.worker(&["--data", &data, "--threads", threads]));
    let left = server.finish(workers.into());
    assert_eq!(left.summary["params_sha256"], wanted["params_sha256"]);
    finish(&["worker", "--threads", "0"]).refused(2, &["must be a number from 1 to 1024, or auto"]);
}

/// Runs a job whose server is killed twice and resumes from its log, and one whose standby takes
/// over. Both must end at the parameters with this hash. `own` are flags of the workers.
fn survives_failures(job: &[&str], own: &[&str], wanted: &Value) {
    let folder = TempDir::new().unwrap();
    let workers_of =
        |server: &Server| ["1", "2"].map(|id| server.worker(&[&["--id", id], own].concat())).into();
    let kept = folder.path().join("kept");
    let mut server = Server::tcp(&[job, &["--durability", "log", "--state", path(&kept)]]);
    let workers = workers_of(&server);
    for updates in [10, 30] {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept)]]);
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], *wanted);
    check_books(&left.out, &left.summary);

    let first = Server::tcp(&[job]);
    let second = Server::tcp(&[job, &["--standby-of", &first.address]]);
    first.wait_for("standby", |status| status["standby"] == second.address);
    let workers = workers_of(&first);
    first.wait_for_updates(10);
    drop(first);
    let left = second.finish(workers);
    assert_eq!(left.summary["params_sha256"], *wanted);
}

#[test]
fn running_statistics_survive_a_crash_and_a_standby_takes_them_over() {
    let folder = TempDir::new().unwrap();
    let (data, model) = (pictures(folder.path()), format!("net:{LAYERS}"));
    let job = [&["--data", &data, "--model", &model], &JOB[..], &SLOWLY].concat();
    let wanted = json(&[&["run", "--json"], &job]);
    survives_failures(&job, &["--data", &data], &wanted["params_sha256"]);
}

#[test]
fn gradients_that_leave_layer_by_layer_end_at_the_same_bits_through_failures() {
    // Layers of 94, 256 and 256 kB.
    let job = ["--data", "synthetic:800", "--model", "mlp:256,256,256"];
    let (short, job) = ([&job[..], &JOB, &SHORT].concat(), [&job[..], &JOB, &SLOWLY].concat());
    let wanted = json(&[&["run", "--json"], &short]);
    let layers = [&short[..], &["--exchange", "layers"]].concat();
    let variants: [&[&str]; 4] = [
        &["--transport", "unix"],
        &["--transport", "tcp", "--servers", "2"],
        &["--threads", "2"],
        &["--architecture", "all-reduce:all-to-all"],
    ];
    for variant in variants {
        let found = json(&[&["run", "--json"], &layers, variant]);
        assert_eq!(found["params_sha256"], wanted["params_sha256"], "{variant:?}");
    }
    let wanted = json(&[&["run", "--json"], &job]);
    let layers = [&job[..], &["--exchange", "layers"]].concat();
    survives_failures(&layers, &[], &wanted["params_sha256"]);

    let refused = |more: &[&str], why: &str| {
        let of = [&["run"], &layers[..], more].concat();
        finish(&of).refused(2, &["exchange = layers needs", why]);
    };
    refused(&["--filters", "top-k:0.01"], "no filters");
    refused(&["--local-training", "sgd:4"], "no local training");
    refused(&["--redundancy", "cyclic:1"], "redundancy = none");
    let gossip = ["--architecture", "gossip:d-psgd", "--exchange", "layers"];
    finish(&[&["run"], &gossip[..]].concat()).refused(2, &["exchange = combined"]);
}

#[test]
fn an_asynchronous_run_of_a_network_is_replayed_and_its_model_is_evaluated() {
    let folder = TempDir::new().unwrap();
    let (data, model) = (pictures(folder.path()), format!("net:{LAYERS}"));
    let out = folder.path().join("out").display().to_string();
    let job = [&["--data", &data, "--model", &model], &JOB[..], &SHORT].concat();
    let more = ["--consistency", "asp", "--evaluation-data", &data, "--out", &out];
    let run = json(&[&["run", "--json"], &more, &job]);
    let replay = json(&[&["replay", &out, "--json"]]);
    assert_eq!(replay["params_sha256"], run["params_sha256"]);
    let file = Path::new(&out).join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let weight = tensors.tensor("0.weight").unwrap();
    assert_eq!(weight.shape(), [4, 2, 3, 3], "outputs, inputs, height, width");
    let batches = tensors.tensor("1.num_batches_tracked").unwrap();
    assert_eq!((batches.dtype(), batches.shape()), (Dtype::I64, &[][..]));
    assert_eq!(tensors.tensor("1.running_var").unwrap().shape(), [4]);
    let again = json(&[&["eval", "--model", path(&file), "--data", &data, "--json"]]);
    assert_eq!(again["accuracy"], run["accuracy"]);
}

#[test]
fn local_steps_change_running_statistics_as_steps_of_one_worker_do() {
    let folder = TempDir::new().unwrap();
    let (data, model) = (pictures(folder.path()), "net:conv4x3,bn,relu,mean");
    let job = ["run", "--json", "--data", &data, "--model", model, "--workers", "1"];
    let job = [&job[..], &["--epochs", "1"]].concat();
    // Two local steps of a mini-batch of 60 rows are two updates of 30 rows.
    let local = ["--batch-size", "60", "--local-training", "sgd:2,0.1", "--learning-rate", "1"];
    let local = json(&[&job, &local]);
    let plain = json(&[&job, &["--batch-size", "30", "--learning-rate", "0.1"]]);
    let of = |summary: &Value| summary["loss"].as_f64().unwrap();
    assert!((of(&local) - of(&plain)).abs() < 1e-4, "{local} {plain}");
}

#[test]
fn the_layers_of_a_network_are_listed_for_given_data() {
    let folder = TempDir::new().unwrap();
    let data = pictures(folder.path());
    let listed = finish(&["data", "info", &data, "--model", &format!("net:{LAYERS}")]);
    let listed = listed.with_code(0).stdout;
    for words in ["Convolution", "BatchNorm, relu", "8x8x4", "Concatenate", "Dropout", "all"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    let found = json(&[&["data", "info", &data, "--model", "resnet:8", "--json"]]);
    let parameters = |layer: &Value| layer["parameters"].as_u64().unwrap();
    let all: u64 = found["layers"].as_array().unwrap().iter().map(parameters).sum();
    // Of 78,042 with three channels and ten classes.
    assert_eq!(all, 78_042 - 16 * 9 - 6 * 65);
    finish(&["data", "info", &data, "--model", "timing:5"]).refused(2, &["has no layers"]);
    finish(&["data", "info", &data, "--model", "net:conv4x9p0"])
        .refused(2, &["9x9 pixels do not fit into a picture of 8x8"]);
}
