//! State besides parameters, parameter groups, and processes that answer with differences: the same
//! bits over every transport, on any number of servers, after crashes and in replays.

use std::fs;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{Server, path};
use crate::process::{finish, json};

/// A process with 12 parameters, the running mean of its rows, the number of its batches, and
/// state of its own; `ANSWERS` is gradient or difference.
const PROCESS: &str = r#"
import sys, json, array, struct
i, o = sys.stdin.buffer, sys.stdout.buffer
def say(message, values=()):
    values = array.array("f", values)
    o.write(json.dumps({**message, "values": len(values)}).encode() + b"\n" + values.tobytes())
    o.flush()
single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
row = lambda k: [((k * (j + 3)) % 17 - 8) / 8 for j in range(3)]
for line in i:
    m = json.loads(line)
    p = array.array("f", i.read(4 * m.get("values", 0))).tolist()
    if m["do"] == "hello":
        say({"tensors": [{"name": "w", "shape": [3, 3]}, {"name": "bias", "shape": [3]}],
             "state": [{"name": "mean", "shape": [3], "combine": "mean"},
                       {"name": "batches", "shape": [], "combine": "first", "type": "i64"},
                       {"name": "own", "shape": [7], "combine": "local"}],
             "answers": "ANSWERS", "examples": 320})
    elif m["do"] == "start":
        say({}, [0.1 * k for k in range(12)] + [0, 0, 0, 0])
    elif m["do"] == "gradient":
        g, loss, n = [0.0] * 12, 0.0, len(m["rows"])
        mean, batches = p[12:15], p[15]
        for k in m["rows"]:
            x = row(k)
            for c in range(3):
                e = sum(p[3 * c + j] * (x[j] - mean[j]) for j in range(3)) + p[9 + c] - x[c]
                loss += e * e / n
                for j in range(3): g[3 * c + j] += 2 * e * (x[j] - mean[j]) / n
                g[9 + c] += 2 * e / n
        new = [single(0.9 * mean[j] + 0.1 * sum(row(k)[j] for k in m["rows"]) / n) for j in range(3)]
        if "ANSWERS" == "difference": g = [-0.1 * value for value in g]
        say({"id": m["id"], "loss": loss}, g + new + [batches + 1])
    elif m["do"] == "evaluate":
        say({"id": m["id"], "examples": 1, "loss": p[12]})
    elif m["do"] == "bye":
        break
"#;

const JOB: [&str; 10] = [
    "--workers",
    "2",
    "--epochs",
    "3",
    "--batch-size",
    "16",
    "--optimizer",
    "momentum",
    "--lease",
    "2s",
];
/// Settings that change parameters by their name, and measure all parameters of a gradient.
const RULES: [&str; 8] = [
    "--groups",
    "bias:rate=0.5,weight-decay=0",
    "--weight-decay",
    "0.01",
    "--clip-norm",
    "1",
    "--clip-contribution",
    "2",
];
const PACED: [&str; 2] = ["--compute", "30ms"];

/// The command of the process, in a file in `folder`.
fn process(folder: &TempDir, answers: &str) -> String {
    let file = folder.path().join(format!("{answers}.py"));
    fs::write(&file, PROCESS.replace("ANSWERS", answers)).unwrap();
    format!("exec python3 {}", file.display())
}

#[test]
fn state_has_the_same_bits_over_every_transport_and_on_several_servers() {
    let folder = TempDir::new().unwrap();
    for answers in ["gradient", "difference"] {
        let process = process(&folder, answers);
        let way = ["run", "--json", "--process", &process];
        for filters in [&[][..], &["--filters", "top-k:0.25,fp16"]] {
            let wanted = json(&[&way, &JOB, &RULES, filters]);
            let variants: [&[&str]; 4] = [
                &["--transport", "unix"],
                &["--transport", "tcp", "--servers", "2"],
                &["--servers", "5"],
                &["--exchange", "separate"],
            ];
            for variant in variants {
                let found = json(&[&way, &JOB, &RULES, filters, variant]);
                let hash = "params_sha256";
                assert_eq!(found[hash], wanted[hash], "{answers} {filters:?} {variant:?}");
            }
            let virtually = ["simulate", "--json", "--process", &process, "--compute", "3ms"];
            let link = ["--link", "all.delay=2ms"];
            let found = json(&[&virtually, &JOB, &RULES, filters, &link]);
            assert_eq!(found["params_sha256"], wanted["params_sha256"], "{answers} {filters:?}");
        }
    }
}

#[test]
fn state_survives_crashes_and_a_change_of_servers() {
    let folder = TempDir::new().unwrap();
    let process = process(&folder, "gradient");
    let wanted = json(&[&["run", "--json", "--process", &process], &JOB, &RULES]);
    let wanted = &wanted["params_sha256"];
    let workers_of = |server: &Server| {
        ["1", "2"].map(|id| server.worker(&["--id", id, "--process", &process])).into()
    };
    let job = [&["--process", &process], &JOB[..], &RULES, &PACED].concat();

    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[&job, &durable]);
    let workers = workers_of(&server);
    for updates in [5, 15] {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept)]]);
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], *wanted);
    check_books(&left.out, &left.summary);

    let first = Server::tcp(&[&job]);
    let second = Server::tcp(&[&job, &["--standby-of", &first.address]]);
    first.wait_for("standby", |status| status["standby"] == second.address);
    let workers = workers_of(&first);
    first.wait_for_updates(10);
    drop(first);
    let left = second.finish(workers);
    assert_eq!(left.summary["params_sha256"], *wanted);
}

#[test]
fn an_asynchronous_run_is_repeated_and_its_model_begins_the_next() {
    let folder = TempDir::new().unwrap();
    let process = process(&folder, "gradient");
    let [out, next] = ["out", "next"].map(|name| folder.path().join(name).display().to_string());
    let way = ["run", "--json", "--process", &process, "--consistency", "asp", "--out", &out];
    let run = json(&[&way, &JOB, &RULES, &["--servers", "3"]]);
    let replay = json(&[&["replay", &out, "--process", &process, "--json"]]);
    assert_eq!(
        (&replay["params_sha256"], &replay["identical"]),
        (&run["params_sha256"], &true.into())
    );

    let model = Path::new(&out).join("model.safetensors");
    let bytes = fs::read(&model).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let batches = tensors.tensor("batches").unwrap();
    assert_eq!((batches.dtype(), batches.shape()), (Dtype::I64, &[][..]));
    let counted = i64::from_le_bytes(batches.data().try_into().unwrap());
    assert_eq!(Some(counted), run["updates"].as_i64(), "each update is of one worker, the first");
    assert!(tensors.tensor("own").is_err());

    let warm = ["run", "--json", "--process", &process, "--init", path(&model), "--out", &next];
    let again = json(&[&warm, &JOB]);
    let bytes = fs::read(Path::new(&next).join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let batches = tensors.tensor("batches").unwrap();
    let later = i64::from_le_bytes(batches.data().try_into().unwrap());
    assert_eq!(Some(later - counted), again["updates"].as_i64());
}

#[test]
fn what_does_not_go_with_state_is_refused() {
    let folder = TempDir::new().unwrap();
    let gradient = process(&folder, "gradient");
    let run = ["run", "--process", &gradient];
    let coded = ["--workers", "4", "--redundancy", "cyclic:1"];
    finish(&[&run[..], &coded].concat()).refused(2, &["the state of the model is lost"]);
    let other = ["--groups", "conv.*:rate=0"];
    finish(&[&run[..], &other].concat()).refused(2, &["no tensor of the model is called conv.*"]);
    let hidden = ["--groups", "b*:rate=1", "--groups", "bias:rate=0"];
    finish(&[&run[..], &hidden].concat()).refused(2, &["bias has no tensor left"]);
    let file = folder.path().join("gradient.py");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(r#""combine": "first""#, r#""combine": "mean""#)).unwrap();
    finish(&run).refused(2, &["the mean of whole numbers is none"]);

    let difference = process(&folder, "difference");
    let says = finish(&["compute", "check", &difference]).with_code(0).stdout;
    let says = says.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["2 of state with 4 values", "it answers with differences", "with it added"] {
        assert!(says.contains(words), "{says}");
    }
}

#[test]
fn a_check_finds_wrong_state_and_wrong_differences() {
    let folder = TempDir::new().unwrap();
    let planted = |answers: &str, right: &str, wrong: &str| {
        let command = process(&folder, answers);
        let file = folder.path().join(format!("{answers}.py"));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(right), "{right}");
        fs::write(&file, text.replace(right, wrong)).unwrap();
        command
    };
    let after = "g + new + [batches + 1]";
    for (answers, right, wrong, check, words) in [
        ("difference", "-0.1 * value", "0.1 * value", "difference", "minus those it was sent"),
        ("gradient", after, "g + new + [batches + 0.5]", "state", "batches has the type i64"),
        ("gradient", after, "g + [1, 2, 3, 1]", "state", "keep state of its own"),
    ] {
        let report = finish(&["compute", "check", &planted(answers, right, wrong), "--json"]);
        let report = report.with_code(1).json();
        let checks = report["checks"].as_array().unwrap();
        let wrong: Vec<_> = checks.iter().filter(|it| it["right"] == false).collect();
        assert!(wrong.len() == 1 && wrong[0]["name"] == check, "{report}");
        assert!(wrong[0]["says"].as_str().unwrap().contains(words), "{report}");
    }
}

#[test]
fn a_description_is_for_a_server_alone() {
    let folder = TempDir::new().unwrap();
    let described = finish(&["compute", "describe", &process(&folder, "gradient")]);
    let file = folder.path().join("net.json");
    fs::write(&file, described.with_code(0).stdout).unwrap();
    let description = format!("description:{}", file.display());
    let simulate = ["simulate", "--link", "all.delay=0ms", "--compute", "1ms"];
    for command in [&["run"][..], &simulate] {
        let refused = finish(&[command, &["--process", &description]].concat());
        refused.refused(2, &["a description computes no gradients"]);
    }
}
