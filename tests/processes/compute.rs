//! Compute processes: a model behind the protocol ends at the bits of the same model inside
//! pstrain, and processes that die or lie harm no other worker.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::books::{called, check_books, events};
use crate::cluster::{Server, number, path, shard_of, undisturbed};
use crate::process::{PSTRAIN, Process, eventually, finish, has_python};

/// The data of the process, and of the job with the same model inside pstrain.
pub(crate) const DATA: [&str; 2] = ["--data", "synthetic:4000"];
const JOB: [&str; 8] =
    ["--workers", "2", "--epochs", "2", "--optimizer", "momentum", "--lease", "2s"];
/// A computing time that leaves a busy machine time to kill something in the middle of a run.
const PACED: [&str; 2] = ["--compute", "30ms"];

/// The built-in model as a compute process.
pub(crate) fn served() -> String {
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

/// A description of the process, for `--process`.
fn description_of(process: &str, folder: &TempDir) -> String {
    let file = folder.path().join("net.json");
    fs::write(&file, finish(&["compute", "describe", process]).with_code(0).stdout).unwrap();
    format!("description:{}", path(&file))
}

/// Checks that a run ended with the parameters of another, and evaluated them to the same numbers.
#[track_caller]
fn check_same_quality(summary: &serde_json::Value, wanted: &serde_json::Value) {
    assert!(wanted["loss"].as_f64().is_some(), "{wanted}");
    for name in ["params_sha256", "loss", "accuracy", "macro_f1", "recall", "non_zeros", "metrics"]
    {
        assert_eq!(summary[name], wanted[name], "{name}: {summary}");
    }
}

#[test]
fn an_evaluation_by_a_worker_is_made_again_after_a_restart_and_by_a_standby() {
    let (folder, process) = (TempDir::new().unwrap(), served());
    let description = description_of(&process, &folder);
    let job = [&JOB[..], &PACED].concat();
    let wanted = finish(&[&["run", "--json", "--process", &process], &job[..]].concat());
    let wanted = wanted.with_code(0).json();
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[&["--process", &description], &job[..], &durable]);
    let workers = workers_of(&server, &process);
    for updates in [1, 24, 40] {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept)]]);
    }
    check_same_quality(&server.finish(workers).summary, &wanted);

    let job = [&["--process", &description], &job[..]].concat();
    let first = Server::tcp(&[&job]);
    let second = Server::tcp(&[&job, &["--standby-of", &first.address]]);
    first.wait_for("standby", |status| status["standby"] == second.address);
    let workers = workers_of(&first, &process);
    first.wait_for_updates(10);
    drop(first);
    check_same_quality(&second.finish(workers).summary, &wanted);
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
fn a_server_with_a_description_alone_trains_and_evaluates_with_its_workers_processes() {
    let (folder, process) = (TempDir::new().unwrap(), served());
    let description = description_of(&process, &folder);
    let of = |process| [&["--process", process], &JOB[..]].concat();
    let own = finish(&[&["run", "--json"], &of(&process)[..]].concat()).with_code(0).json();
    let server = Server::tcp(&[&of(&description)]);
    let workers = workers_of(&server, &process);
    let left = server.finish(workers);
    check_same_quality(&left.summary, &own);
    let evaluated = |out: &Path| fs::read_to_string(out.join("curve.csv")).unwrap().lines().count();
    assert_eq!(evaluated(&left.out), 4, "a heading, the first parameters and two epochs");
    // Several servers: the coordinator has the parameters of all.
    let server = Server::tcp(&[&of(&description), &["--servers", "2"]]);
    let (other, _) = shard_of(&server.address, (2, 2), "127.0.0.1:0", &[]);
    let workers = workers_of(&server, &process);
    let left = server.finish(workers);
    check_same_quality(&left.summary, &own);
    other.wait().with_code(0);
}

#[test]
fn the_first_worker_describes_the_model_to_a_server_without_one() {
    let wanted = built_in(&[&PACED]);
    let (folder, process) = (TempDir::new().unwrap(), served());
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[&["--process", "worker"], &JOB[..], &PACED, &durable]);
    // A worker without a process has nothing to describe, and a client finds no job.
    finish(&["worker", "--server", &server.address]).refused(1, &["--process"]);
    finish(&["status", &server.address]).refused(2, &["waits for a worker"]);
    let workers = workers_of(&server, &process);
    workers[0].wait_to_say("in job");
    server.wait_for_updates(5);
    server = server.replace(&[&["--resume", path(&kept)]]);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], wanted);
    // The second worker was late with its description, which is no trouble.
    assert_eq!(called(&events(&left.out), "refused").count(), 0);
    // The workers' processes evaluate.
    assert!(left.summary["accuracy"].as_f64().unwrap() > 0.7, "{}", left.summary);
    check_books(&left.out, &left.summary);
    let run = ["run", "--process", "worker", "--process-restarts", "0"];
    finish(&run).refused(2, &["only a server that coordinates"]);
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
    assert!(said.starts_with("worker 1 ("), "{said}");
    assert!(said.contains(") holds the others back: its gradient is not"), "{said}");
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
    let events = events(&left.out);
    let departed = events.iter().find(|event| event["event"] == "departed").unwrap();
    let why = departed["why"].as_str().unwrap();
    assert!(why.contains("the compute process"), "{departed}");
}

#[test]
fn a_process_with_another_model_or_other_data_is_refused() {
    let process = served();
    let server = Server::tcp(&[&["--process", &process], &JOB[..]]);
    let other = |with: &str| format!("{process} {with}");
    for (process, words) in [
        (
            other("--model mlp:5"),
            "has tensor 0.weight [93, 5] where the job has tensor 0.weight [93, 21]",
        ),
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
fn a_process_that_ends_before_hello_is_told_at_once_with_its_own_words() {
    let process = "echo 'No module named torch' >&2; exit 3";
    let said = finish(&["run", "--process", process]).with_code(2).stderr;
    for words in
        ["No module named torch\n", "it ended with exit status: 3, before it answered hello"]
    {
        assert!(said.contains(words), "nothing of {words:?}:\n{said}");
    }
    assert_eq!(said.matches("No module named torch\n").count(), 1, "it was started again:\n{said}");
}

#[test]
fn a_process_without_examples_is_refused_with_this_reason() {
    let process = r#"echo '{"tensors":[{"name":"w","shape":[2]}],"examples":0}'; cat"#;
    let words = r#"the compute process has no examples: its "examples" is 0"#;
    finish(&["run", "--process", process]).refused(2, &[words]);
}

#[test]
fn the_processes_of_a_run_share_the_cores_unless_the_user_says_otherwise() {
    let folder = TempDir::new().unwrap();
    let list = folder.path().join("threads");
    let process = format!("echo \"=$OMP_NUM_THREADS\" >> {}; {}", path(&list), served());
    let run = |environment: &[&str]| {
        let _none_yet = fs::remove_file(&list);
        let job = ["run", "--workers", "2", "--epochs", "1", "--process", &process];
        Process::start_under(&[&["env"], environment].concat(), &job).wait().with_code(0);
        fs::read_to_string(&list).unwrap()
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    let share = format!("={}", (cores / 2).max(1));
    let threads = run(&["-u", "OMP_NUM_THREADS"]);
    // One process describes the model, two are of workers, and one evaluates.
    assert_eq!(threads.lines().filter(|line| *line == share).count(), 3, "{threads}");
    let threads = run(&["OMP_NUM_THREADS=7"]);
    assert!(threads.lines().all(|line| line == "=7"), "{threads}");
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
/// answer, and `HITCH` happens before an evaluation.
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
        rows = m.get("rows") or range(200)
        HITCH
        errors = [sum(w * x for w, x in zip(p, data[row][0])) - data[row][1] for row in rows]
        n = len(rows)
        say({"id": m["id"], "examples": n, "loss": sum(e * e for e in errors) / n})
    elif m["do"] == "bye":
        break
"#;

/// [`LINEAR`] as a process; `None` if there is no Python.
pub(super) fn linear(folder: &TempDir, name: &str, fault: &str, hitch: &str) -> Option<String> {
    if !has_python() {
        return None;
    }
    let file = folder.path().join(format!("{name}.py"));
    fs::write(&file, LINEAR.replace("FAULT", fault).replace("HITCH", hitch)).unwrap();
    Some(format!("exec python3 {}", path(&file)))
}

/// A job for [`LINEAR`], with rows that are held out.
const HELD_OUT: [&str; 6] = ["--workers", "2", "--batch-size", "20", "--evaluation-share", "0.25"];
/// Workers that do not wait for each other.
pub(super) const APART: [&str; 4] = ["--min-workers", "1", "--consistency", "asp"];

#[test]
fn workers_evaluate_the_rows_that_are_held_out() {
    let folder = TempDir::new().unwrap();
    let Some(process) = linear(&folder, "linear", "pass", "pass") else { return };
    let description = description_of(&process, &folder);
    let job = [&HELD_OUT[..], &["--epochs", "3"]].concat();
    let run = [&["run", "--json", "--process", &process], &job[..]].concat();
    let own = finish(&run).with_code(0).json();
    assert_eq!(own["evaluation"]["rows"], 50, "{own}");
    let server = Server::tcp(&[&["--process", &description], &job[..]]);
    let workers = workers_of(&server, &process);
    let left = server.finish(workers);
    check_same_quality(&left.summary, &own);
}

#[test]
fn another_worker_evaluates_if_a_process_or_its_worker_is_killed_meanwhile() {
    let folder = TempDir::new().unwrap();
    let stuck = folder.path().join("stuck");
    let hitch = format!("open({:?}, 'w').close(); import time; time.sleep(1000)", path(&stuck));
    let Some(process) = linear(&folder, "linear", "pass", "pass") else { return };
    let Some(hangs) = linear(&folder, "hangs", "pass", &hitch) else { return };
    let description = description_of(&process, &folder);
    let paced = ["--epochs", "60", "--compute", "20ms", "--lease", "1s"];
    let job = [&HELD_OUT[..], &APART, &paced].concat();
    for kills_worker in [true, false] {
        let _absent = fs::remove_file(&stuck);
        let server = Server::tcp(&[&["--process", &description], &job[..]]);
        let first = server.worker(&["--id", "1", "--process", &hangs, "--process-restarts", "0"]);
        let second = server.worker(&["--id", "2", "--process", &process]);
        eventually("evaluation", || stuck.exists().then_some(()));
        let workers = if kills_worker {
            drop(first);
            vec![second]
        } else {
            // Meanwhile the worker keeps its lease.
            let before = number(&server.status()["workers"][1]["updates"]);
            let later = server.wait_for_updates_of(1, before + 100);
            assert_eq!(later["workers"][0]["state"], "computing", "{later}");
            kill_process(child_of(&first), Signal::KILL).unwrap();
            vec![first, second]
        };
        let left = server.finish(workers);
        assert!(left.summary["loss"].as_f64().unwrap() < 1.0, "{}", left.summary);
        let events = fs::read_to_string(left.out.join("events.jsonl")).unwrap();
        assert!(events.contains("evaluation_requested"), "{events}");
        check_books(&left.out, &left.summary);
    }
}

#[test]
fn a_run_whose_processes_cannot_evaluate_ends_well_and_says_so_once() {
    let folder = TempDir::new().unwrap();
    let hitch = r#"say({"id": m["id"], "error": "no rows to evaluate on"}); continue"#;
    let Some(process) = linear(&folder, "linear", "pass", hitch) else { return };
    let description = description_of(&process, &folder);
    let job = [&HELD_OUT[..], &["--epochs", "3"]].concat();
    let server = Server::tcp(&[&["--process", &description], &job[..]]);
    let workers = workers_of(&server, &process);
    let said = server.process.wait_to_say("are not evaluated: worker ");
    assert!(said.contains("failed: no rows to evaluate on"), "{said}");
    let left = server.finish(workers);
    assert!(left.summary["loss"].is_null(), "{}", left.summary);
    check_books(&left.out, &left.summary);
    let run = [&["run", "--process", &process], &job[..]].concat();
    let said = finish(&run).with_code(0).stderr;
    assert_eq!(said.matches("are not evaluated").count(), 1, "{said}");
}

#[test]
fn a_process_that_answers_another_number_ends_the_run_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let Some(process) = linear(&folder, "sameid", "m['id'] = 1", "pass") else { return };
    let job = ["run", "--json", "--process", &process, "--process-restarts", "1", "--lease", "1s"];
    let ended = finish(&[&job[..], &["--batch-size", "20"]].concat()).with_code(1);
    // The run does not wait for workers that cannot come.
    assert_eq!(ended.json()["ended"], "worker 1 failed, and the run could not go on without it");
    let words = "it answered id 1 where 2 was asked; send the id of the request back";
    let said = ended.stderr;
    assert!(!said.contains("too few workers"), "{said}");
    assert!(said.contains("sameid.py") && said.contains(words), "{said}");
    let checked = finish(&["compute", "check", &process, "--json"]).with_code(1).json();
    assert!(checked.to_string().contains(words), "{checked}");
}

#[test]
fn a_check_finds_what_is_planted_in_a_process() {
    let folder = TempDir::new().unwrap();
    let script = |name: &str, fault: &str| linear(&folder, name, fault, "pass");
    let Some(right) = script("right", "pass") else { return };
    let report = finish(&["compute", "check", &right, "--json"]).with_code(0).json();
    assert_eq!(report["right"], true, "{report}");
    // All 200 rows are on one plane, so that training reaches it.
    let run = ["run", "--json", "--process", &right, "--epochs", "40", "--batch-size", "20"];
    let found = finish(&run).with_code(0).json();
    assert!(found["loss"].as_f64().unwrap() < 1e-2, "{found}");
    // A process need not say its loss: then there is nothing to compare the derivative with.
    let silent = folder.path().join("silent.py");
    let loss = r#""loss": sum(e * e for e in errors) / n + noise"#;
    let without = LINEAR.replace(loss, r#""loss": None"#);
    assert!(without != LINEAR);
    fs::write(&silent, without.replace("FAULT", "pass").replace("HITCH", "pass")).unwrap();
    let silent = format!("exec python3 {}", path(&silent));
    let report = finish(&["compute", "check", &silent, "--json"]).with_code(0).json();
    let right = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|it| it["name"] == name).unwrap()["right"].clone()
    };
    for name in ["gradient", "determinism", "mean over rows", "repeated rows"] {
        assert_eq!(right(name), true, "{name}: {report}");
    }
    assert!(right("derivative").is_null(), "{report}");
    for (name, fault, check, words) in [
        ("sum", "factor = n = len(rows)", "derivative", "the loss changes by"),
        ("sign", "factor = -1", "derivative", "the loss changes by"),
        ("noise", "noise = random.random()", "determinism", "turn dropout"),
        ("rows", "rows = [row + 1 for row in rows]", "first and last row", "rows counted from 1"),
        ("slice", "rows = rows[:-1] or rows", "mean over rows", "does every row count once"),
        ("set", "rows = list(set(rows))", "repeated rows", "does every row count once"),
        ("nan", "factor = float('nan')", "derivative", "value 0 of the gradient is NaN"),
    ] {
        let check_it = ["compute", "check", &script(name, fault).unwrap(), "--json"];
        let ended = finish(&check_it).with_code(1);
        assert!(ended.stderr.contains("the compute process is wrong: "), "{}", ended.stderr);
        let report = ended.json();
        let found = report["checks"].as_array().unwrap().iter().find(|it| it["name"] == check);
        let found = found.unwrap();
        assert_eq!(found["right"], false, "{name}: {report}");
        assert!(found["says"].as_str().unwrap().contains(words), "{name}: {report}");
        // NaN differs from itself, its bits do not.
        if name == "nan" {
            let mut found = report["checks"].as_array().unwrap().iter();
            let twice = found.find(|it| it["name"] == "determinism").unwrap();
            assert_eq!(twice["right"], true, "{report}");
            let says = twice["says"].as_str().unwrap();
            assert!(says.contains("same bits, but value 0 of the gradient is NaN"), "{says}");
            // A smaller learning rate does not cure the first gradient.
            let process = script(name, fault).unwrap();
            let ended = finish(&["run", "--process", &process, "--epochs", "1"]).with_code(1);
            let said = "no finite gradient at the initial parameters";
            assert!(ended.stderr.contains(said), "{}", ended.stderr);
        }
    }
}
