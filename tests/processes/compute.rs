//! Compute processes: a model behind the protocol ends at the bits of the same model inside
//! pstrain, and processes that die or lie harm no other worker.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{Server, number, path, undisturbed};
use crate::process::{PSTRAIN, Process, eventually, finish};

/// The data of the process, and of the job with the same model inside pstrain.
const DATA: [&str; 2] = ["--data", "synthetic:4000"];
const JOB: [&str; 8] =
    ["--workers", "2", "--epochs", "2", "--optimizer", "momentum", "--lease", "2s"];
/// A computing time that leaves a busy machine time to kill something in the middle of a run.
const PACED: [&str; 2] = ["--compute", "30ms"];

/// The built-in model as a compute process.
fn served() -> String {
    format!("exec {PSTRAIN} compute serve {}", DATA.join(" "))
}

/// The final parameters of the built-in model.
fn built_in(parts: &[&[&str]]) -> serde_json::Value {
    undisturbed(&[&[&DATA[..], &JOB], parts].concat())["params_sha256"].clone()
}

#[test]
fn over_every_transport_and_on_several_servers_it_ends_at_the_bits_of_the_built_in_model() {
    let wanted = built_in(&[]);
    let process = served();
    let way = ["run", "--json", "--process", &process];
    let variants: [&[&str]; 5] = [
        &[],
        &["--transport", "unix"],
        &["--transport", "tcp", "--servers", "2"],
        &["--servers", "4"],
        &["--exchange", "separate"],
    ];
    for variant in variants {
        let found = finish(&[&way, &JOB[..], variant].concat()).with_code(0).json();
        assert_eq!(found["params_sha256"], wanted, "{variant:?}");
        assert!(found["accuracy"].as_f64().unwrap() > 0.7, "{found}");
    }
}

#[test]
fn in_virtual_time_and_in_its_replay_it_has_the_bits_of_the_built_in_model() {
    let asp = ["--consistency", "asp", "--link", "all.delay=5ms", "--compute", "3ms"];
    let inside = finish(&[&["simulate", "--json"], &DATA[..], &JOB, &asp].concat());
    let wanted = inside.with_code(0).json()["params_sha256"].clone();
    let (folder, process) = (TempDir::new().unwrap(), served());
    let out = path(folder.path());
    let way = ["simulate", "--json", "--process", &process, "--out", out];
    let found = finish(&[&way, &JOB[..], &asp].concat()).with_code(0).json();
    assert_eq!(found["params_sha256"], wanted);
    let replay = finish(&["replay", out, "--process", &process, "--json"]).with_code(0).json();
    assert_eq!((&replay["params_sha256"], &replay["identical"]), (&wanted, &true.into()));
    finish(&["replay", out]).refused(2, &["came from a compute process", "--process"]);
}

#[test]
fn a_server_with_a_log_resumes_with_its_process() {
    let wanted = built_in(&[&PACED]);
    let (folder, process) = (TempDir::new().unwrap(), served());
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED, &durable]);
    let workers = workers_of(&server, &process);
    for updates in [5, 20] {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept)]]);
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
    check_books(&left.out, &left.summary);
}

#[test]
fn a_standby_takes_over_with_a_process_of_its_own() {
    let wanted = built_in(&[&PACED]);
    let process = served();
    let job = [&["--process", &process], &JOB[..], &PACED].concat();
    let first = Server::tcp(&[&job]);
    let of = ["--standby-of", &first.address];
    let second = Server::tcp(&[&job, &of]);
    first.wait_for("standby", |status| status["standby"] == second.address);
    let workers = workers_of(&first, &process);
    first.wait_for_updates(10);
    drop(first);
    let left = second.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
}

fn workers_of(server: &Server, process: &str) -> Vec<Process> {
    ["1", "2"].map(|id| server.worker(&["--id", id, "--process", process])).into()
}

/// The process that a worker has started.
fn child_of(worker: &Process) -> Pid {
    let id = worker.id();
    let children = format!("/proc/{id}/task/{id}/children");
    eventually("compute process", || {
        // Threads start processes, too, and each lists its own.
        let tasks = fs::read_dir(format!("/proc/{id}/task")).ok()?;
        let lists =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let child = lists.iter().flat_map(|list| list.split_whitespace()).next()?;
        Pid::from_raw(child.parse().unwrap_or_else(|_| panic!("{children}: {child}")))
    })
}

#[test]
fn a_killed_compute_process_costs_nothing_but_its_restart() {
    let wanted = built_in(&[&PACED]);
    let process = served();
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED]);
    let workers = workers_of(&server, &process);
    for updates in [3, 9, 15] {
        server.wait_for_updates(updates);
        kill_process(child_of(&workers[0]), Signal::KILL).unwrap();
        workers[0].wait_to_say("starting it again");
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
    check_books(&left.out, &left.summary);
}

#[test]
fn a_server_with_a_description_alone_trains_with_its_workers_processes() {
    let wanted = built_in(&[]);
    let (folder, process) = (TempDir::new().unwrap(), served());
    let file = folder.path().join("net.json");
    fs::write(&file, finish(&["compute", "describe", &process]).with_code(0).stdout).unwrap();
    let description = format!("description:{}", path(&file));
    let server = Server::tcp(&[&["--process", &description], &JOB[..]]);
    let workers = workers_of(&server, &process);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
    let run = ["run", "--process", &description, "--process-restarts", "0"];
    let said = finish(&run).with_code(1).stderr;
    assert!(said.contains("which cannot compute; give the process itself"), "{said}");
}

#[test]
fn a_run_begins_with_the_parameters_of_a_file() {
    let folder = TempDir::new().unwrap();
    let [out, first, other] = ["out", "first.safetensors", "other.safetensors"]
        .map(|name| folder.path().join(name).display().to_string());
    let plain = [&["run", "--json", "--out", &out], &DATA[..], &JOB].concat();
    let wanted = finish(&plain).with_code(0).json()["params_sha256"].clone();
    for (version, file) in [("0", &first), ("20", &other)] {
        finish(&["replay", &out, "--until", version, "--out", file]).with_code(0);
    }
    // With the parameters of its seed in a file, a run ends as without the file.
    let init = ["--init", &first];
    for variant in [&["run"][..], &["run", "--servers", "3", "--transport", "tcp"]] {
        let found = finish(&[variant, &["--json"], &DATA, &JOB, &init].concat());
        assert_eq!(found.with_code(0).json()["params_sha256"], wanted, "{variant:?}");
    }
    let virtually = ["simulate", "--json", "--link", "all.delay=1ms", "--compute", "1ms"];
    let found = finish(&[&virtually, &DATA[..], &JOB, &init].concat()).with_code(0).json();
    assert_eq!(found["params_sha256"], wanted);
    let process = served();
    let found = finish(&[&["run", "--json", "--process", &process], &JOB[..], &init].concat());
    let error = found.with_code(2).stderr;
    assert!(error.contains("tensor 0.weight is F32 [21, 93]"), "{error}");

    // With others it does not, and its record is whole.
    let again = folder.path().join("again").display().to_string();
    let warm = ["run", "--json", "--init", &other, "--out", &again];
    let found = finish(&[&warm, &DATA[..], &JOB].concat()).with_code(0).json();
    assert_ne!(found["params_sha256"], wanted);
    let replay = finish(&["replay", &again, "--json"]).with_code(0).json();
    assert_eq!(replay["identical"], true, "{replay}");

    // A server that resumes has them already.
    let kept = folder.path().join("kept").display().to_string();
    let durable = ["--durability", "log", "--state", &kept];
    let mut server = Server::tcp(&[&DATA, &JOB[..], &PACED, &init, &durable]);
    server.status();
    server = server.replace(&[&["--resume", &kept]]);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    server = server.replace(&[&["--resume", &kept]]);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);

    for (file, words) in
        [("missing", "cannot be read"), (path(&std::env::current_exe().unwrap()), "no safetensors")]
    {
        let run = [&["run", "--init", file], &DATA[..]].concat();
        finish(&run).refused(2, &["init = ", words]);
    }
    let narrow = [&["run", "--init", &first, "--model", "mlp:5"], &DATA[..]].concat();
    finish(&narrow)
        .refused(2, &["tensor 0.weight is F32 [21, 93], but the model needs F32 [5, 93]"]);
}

#[test]
fn why_names_a_compute_process_that_hangs() {
    let process = served();
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED]);
    let workers = workers_of(&server, &process);
    server.wait_for_updates(5);
    let child = child_of(&workers[0]);
    kill_process(child, Signal::STOP).unwrap();
    let said = eventually("blame", || {
        let said = finish(&["why", &server.address]).with_code(0).stdout;
        said.contains("its compute process does not").then_some(said)
    });
    assert!(said.contains("worker 1 holds the others back: its gradient is not"), "{said}");
    kill_process(child, Signal::CONT).unwrap();
    server.finish(workers);
}

#[test]
fn a_killed_worker_takes_its_process_along_and_another_continues() {
    let process = served();
    let job = ["--consistency", "asp", "--on-worker-loss", "wait"];
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED, &job]);
    let [first, second] = workers_of(&server, &process).try_into().unwrap();
    server.wait_for_updates(8);
    let orphan = child_of(&first);
    drop(first);
    eventually("end of the orphan", || {
        let gone = fs::read_to_string(format!("/proc/{}/stat", orphan.as_raw_nonzero()));
        gone.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
    let again = server.worker(&["--id", "1", "--process", &process]);
    let left = server.finish(vec![again, second]);
    check_books(&left.out, &left.summary);
    assert!(number(&left.summary["samples"]) >= 6000, "{}", left.summary);
}

#[test]
fn a_process_that_keeps_dying_ends_its_worker_and_no_other() {
    let process = served();
    let job = ["--consistency", "asp"];
    let server = Server::tcp(&[&["--process", &process], &JOB[..], &PACED, &job]);
    let good = server.worker(&["--id", "1", "--process", &process]);
    // It describes itself and has initial parameters, and dies at its first gradient.
    let dies = format!("sed -u 2q | {} ; exit 7", served().trim_start_matches("exec "));
    let bad = server.worker(&["--id", "2", "--process", &dies, "--process-restarts", "1"]);
    bad.wait().refused(2, &["the compute process", "failed", "starting it again (1 of 1)"]);
    let left = server.finish(vec![good]);
    check_books(&left.out, &left.summary);
}

#[test]
fn a_process_with_another_model_or_other_data_is_refused() {
    let process = served();
    let server = Server::tcp(&[&["--process", &process], &JOB[..]]);
    let other = |with: &str| format!("{process} {with}");
    for (process, words) in [
        (other("--model mlp:5"), "has tensor 0.weight [93, 5] where the job has 0.weight [93, 21]"),
        (other("--seed 2"), "the compute process has other data (digest"),
        ("echo hello; cat".to_owned(), "it wrote \"hello\" where a description was expected"),
        ("false".to_owned(), "it ended with exit status: 1"),
    ] {
        let worker = server.worker(&["--process", &process, "--process-restarts", "0"]);
        worker.wait().refused(2, &[words]);
    }
    server.worker(&[]).wait().refused(2, &["give its compute process with --process"]);
    let workers = workers_of(&server, &process);
    server.finish(workers);
}

#[test]
fn settings_that_a_process_rules_out_are_refused() {
    let process = served();
    let run = |more: &[&str]| finish(&[&["run", "--process", &process], more].concat());
    run(&["--model", "softmax"]).refused(2, &["leave model out"]);
    run(&["--loss", "squared"]).refused(2, &["loss = squared", "leave loss out"]);
    run(&["--data", "synthetic:100"]).refused(2, &["not those of a compute process"]);
    finish(&["run", "--model", "external"]).refused(2, &["--process"]);
    finish(&["run", "--data", "process"]).refused(2, &["--process"]);
    finish(&["compute", "serve", "--process", "x"]).refused(2, &["leave it out"]);
}

/// Linear regression of three columns in Python, without any package. `FAULT` changes rows or the
/// answer.
const LINEAR: &str = r#"
import sys, json, array, random
i, o = sys.stdin.buffer, sys.stdout.buffer
data = [([1.0, r % 7 / 7, r % 5 / 5], 2 * (r % 7) / 7 - (r % 5) / 5 + .5) for r in range(200)]
def say(message, values=()):
    values = array.array("f", values)
    o.write(json.dumps({**message, "values": len(values)}).encode() + b"\n" + values.tobytes())
    o.flush()
for line in i:
    m = json.loads(line)
    p = array.array("f", i.read(4 * m.get("values", 0)))
    if m["do"] == "hello":
        say({"tensors": [{"name": "w", "shape": [3]}], "examples": 200})
    elif m["do"] == "start":
        say({}, [.1, .2, .3])
    elif m["do"] == "gradient":
        rows = m["rows"]
        factor, noise = 1, 0
        FAULT
        chosen = [data[row] for row in rows]
        errors = [sum(w * x for w, x in zip(p, xs)) - y for xs, y in chosen]
        n = len(chosen)
        gradient = [factor * 2 * sum(e * xs[k] for e, (xs, _) in zip(errors, chosen)) / n for k in range(3)]
        say({"id": m["id"], "loss": sum(e * e for e in errors) / n + noise}, gradient)
    elif m["do"] == "evaluate":
        errors = [sum(w * x for w, x in zip(p, xs)) - y for xs, y in data]
        say({"id": m["id"], "examples": 200, "loss": sum(e * e for e in errors) / 200})
    elif m["do"] == "bye":
        break
"#;

#[test]
fn a_check_finds_what_is_planted_in_a_process() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 for compute processes");
        return;
    }
    let folder = TempDir::new().unwrap();
    let script = |name: &str, fault: &str| {
        let file = folder.path().join(format!("{name}.py"));
        fs::write(&file, LINEAR.replace("FAULT", fault)).unwrap();
        format!("python3 {}", path(&file))
    };
    let right = script("right", "pass");
    let report = finish(&["compute", "check", &right, "--json"]).with_code(0).json();
    assert_eq!(report["right"], true, "{report}");
    // All 200 rows are on one plane, so that training reaches it.
    let run = ["run", "--json", "--process", &right, "--epochs", "40", "--batch-size", "20"];
    let found = finish(&run).with_code(0).json();
    assert!(found["loss"].as_f64().unwrap() < 1e-2, "{found}");
    for (name, fault, check, words) in [
        ("sum", "factor = n = len(rows)", "derivative", "the loss changes by"),
        ("sign", "factor = -1", "derivative", "the loss changes by"),
        ("noise", "noise = random.random()", "determinism", "turn dropout"),
        ("rows", "rows = [row + 1 for row in rows]", "first and last row", "rows counted from 1"),
        ("slice", "rows = rows[:-1] or rows", "mean over rows", "does every row count once"),
        ("set", "rows = list(set(rows))", "repeated rows", "does every row count once"),
    ] {
        let check_it = ["compute", "check", &script(name, fault), "--json"];
        let ended = finish(&check_it).with_code(1);
        assert!(ended.stderr.contains("the compute process is wrong: "), "{}", ended.stderr);
        let report = ended.json();
        let found = report["checks"].as_array().unwrap().iter().find(|it| it["name"] == check);
        let found = found.unwrap();
        assert_eq!(found["right"], false, "{name}: {report}");
        assert!(found["says"].as_str().unwrap().contains(words), "{name}: {report}");
    }
}
