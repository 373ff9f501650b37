//! Workers that each have rows of their own (`partition = local`), with real processes: the server
//! has a profile and rows to evaluate on, and no training rows.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pstrain_compute::rng::Stream;
use rustix::process::Signal;
use serde_json::Value;

use crate::books::check_books;
use crate::cluster::{ENDLESS, Server, number, path, real};
use crate::process::finish;

/// Model and length of each run.
const JOB: [&str; 8] =
    ["--workers", "2", "--model", "softmax", "--epochs", "12", "--learning-rate", "0.1"];
/// A computing time that leaves a test time to kill the server.
const PACE: [&str; 2] = ["--compute", "10ms"];

/// Rows of two numbers and a text that decide a class, but for noise.
fn rows(range: std::ops::Range<u64>) -> String {
    let mut text = String::new();
    for row in range {
        let mut rng = Stream::new(5).fork("row", row).rng();
        let (heat, damp, noise) = (rng.unit(), rng.unit(), rng.unit());
        let kind = ["pump", "fan", "valve"][(row % 3) as usize];
        let bias = if row % 3 == 0 { 0.3 } else { 0.0 };
        let state = if heat - damp + bias + 0.3 * noise > 0.3 { "bad" } else { "good" };
        writeln!(text, "{},{},{kind},{state}", 20.0 + 5.0 * heat, 400.0 * damp).unwrap();
    }
    text
}

/// Writes the files of two workers, all rows in one file, rows to evaluate on, and the merged
/// profile of the workers' rows.
fn write_files(folder: &Path) {
    let header = "heat,damp,kind,state\n";
    let files = [("1", 0..700), ("2", 700..1000), ("all", 0..1000), ("test", 1000..1600)];
    for (name, range) in files {
        let text = format!("{header}{}", rows(range));
        fs::write(folder.join(format!("{name}.csv")), text).unwrap();
    }
    let mut profiles = Vec::new();
    for worker in ["1", "2"] {
        let table = format!("csv:{}", path(&folder.join(format!("{worker}.csv"))));
        let profile = folder.join(format!("{worker}.toml"));
        let written = finish(&["data", "profile", &table]).with_code(0).stdout;
        fs::write(&profile, written).unwrap();
        profiles.push(profile);
    }
    let merge = ["data", "profile", path(&profiles[0]), path(&profiles[1])];
    fs::write(folder.join("profile.toml"), finish(&merge).with_code(0).stdout).unwrap();
}

#[test]
fn workers_with_rows_of_their_own_train_as_well_as_on_one_partitioned_file() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let file = |name: &str| format!("csv:{}", path(&folder.path().join(name)));
    let profile = format!(",profile={}", path(&folder.path().join("profile.toml")));
    // Only the profile is on the server's machine.
    let (elsewhere, here) = (file("gone/{worker}.csv"), file("{worker}.csv"));
    let [elsewhere, here] = [elsewhere, here].map(|data| format!("{data}{profile}"));
    let test = file("test.csv");
    let evaluation = ["--evaluation-data", &test];
    let local = ["--partition", "local"];
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let data = ["--data", &elsewhere];
    let server = Server::tcp(&[&data, &local, &evaluation, &JOB, &PACE, &durable]);
    let [one, other] = [file("1.csv"), file("2.csv")];

    // Rows that are not the job's are refused by name.
    let text = fs::read_to_string(folder.path().join("1.csv")).unwrap();
    fs::write(folder.path().join("foreign.csv"), text.replace("damp", "moisture")).unwrap();
    fs::write(folder.path().join("class.csv"), text.replacen("good", "fair", 1)).unwrap();
    let foreign = file("foreign.csv");
    for (data, words) in [
        (&foreign, ["the job has no column \"moisture\", but heat, damp, kind, state", "drop="]),
        (&file("class.csv"), ["column state: \"fair\" is no class of the job", "profile of all"]),
    ] {
        server.worker(&["--data", data]).wait().refused(2, &words);
    }
    let dropped = format!("{foreign},drop=moisture");
    server.worker(&["--data", &dropped]).wait().refused(2, &["it has no column \"damp\""]);
    server.worker(&["--data", "server"]).wait().refused(1, &["keeps no rows to send"]);
    server.worker(&[]).wait().refused(2, &["this worker's here with --data"]);

    let workers = vec![
        server.worker(&["--id", "1", "--data", &one]),
        server.worker(&["--id", "2", "--data", &other]),
    ];
    server.wait_for_updates(5);
    let server = server.replace(&[&["--resume", path(&kept)]]);
    let left = server.finish(workers);
    check_books(&left.out, &left.summary);
    // An epoch is the rows of both, and two mini-batches may exceed the budget.
    let samples = number(&left.summary["samples"]);
    assert!((12_000..12_128).contains(&samples), "{samples}");
    let shares = &left.summary["workers"];
    assert_eq!((real(&shares[0]["data_share"]), number(&shares[1]["rows"])), (0.7, 300));

    // The same as in one process, with one server or two.
    let run = |data: &str, more: &[&str]| {
        let args = [&["run", "--json", "--data", data], more, &evaluation, &JOB].concat();
        finish(&args).with_code(0).json()
    };
    for servers in ["1", "2"] {
        let alike = run(&here, &[&local[..], &["--servers", servers]].concat());
        assert_eq!(alike["params_sha256"], left.summary["params_sha256"]);
        assert_eq!(alike["accuracy"], left.summary["accuracy"]);
    }
    let whole = run(&format!("{}{profile}", file("all.csv")), &[]);
    let accuracies = [&left.summary, &whole].map(|summary| real(&summary["accuracy"]));
    assert!((accuracies[0] - accuracies[1]).abs() < 0.02 && accuracies[0] > 0.9, "{accuracies:?}");

    // A replay needs the rows of all workers.
    let log = left.out.join("order.log");
    finish(&["replay", path(&log)]).refused(2, &["--data PATH says where they are", "1.csv"]);
    let again = finish(&["replay", path(&log), "--json", "--data", &here]).with_code(0).json();
    assert_eq!(again["identical"], true);
    finish(&["replay", path(&log), "--data", &one]).refused(2, &["write {worker} in data"]);
}

#[test]
fn without_a_profile_the_evaluation_rows_decide_columns_and_classes() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let file = |name: &str| format!("csv:{}", path(&folder.path().join(name)));
    let (here, test) = (file("{worker}.csv"), file("test.csv"));
    let server = Server::unix(&[&["--partition", "local", "--evaluation-data", &test], &JOB]);
    let [one, other] = [file("1.csv"), file("2.csv")];
    let workers = vec![
        server.worker(&["--id", "1", "--data", &one]),
        server.worker(&["--id", "2", "--data", &other]),
    ];
    let left = server.finish(workers);
    let local = ["--json", "--data", &here, "--partition", "local", "--evaluation-data", &test];
    let simulate = ["simulate", "--link", "all.delay=0ms", "--compute", "3ms"];
    for command in [&["run"][..], &simulate] {
        let alike = finish(&[command, &local, &JOB].concat()).with_code(0).json();
        assert_eq!(alike["params_sha256"], left.summary["params_sha256"], "{command:?}");
    }
    for (wrong, words) in [
        (&["--data", &here][..], &["give a profile of them", "(evaluation-data)"][..]),
        (&["--data", &one, "--evaluation-data", &test], &["write {worker} in data"]),
        (&["--data", "server"], &["the server none to send"]),
        (&["--evaluation-share", "0.1"], &["no rows to hold out"]),
        (
            &["--data", &here, "--evaluation-data", &test, "--on-worker-loss", "reassign"],
            &["partition = local needs on-worker-loss = continue, wait or stop"],
        ),
        (
            &["--data", &here, "--evaluation-data", &test, "--schedule", "step-run"],
            &["schedule = step-run", "say it as UPDATES, the last number of the schedule"],
        ),
    ] {
        let args = [&["run", "--partition", "local"], wrong, &JOB].concat();
        finish(&args).refused(2, words);
    }
    let process = ["run", "--partition", "local", "--process", "cat"];
    finish(&process).refused(2, &["a compute process has the rows", "leave partition out"]);
}

#[test]
fn the_rows_of_a_worker_stay_the_same_for_a_run() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let file = |name: &str| format!("csv:{}", path(&folder.path().join(name)));
    let [one, other, test] = [file("1.csv"), file("2.csv"), file("test.csv")];
    let job = ["--partition", "local", "--evaluation-data", &test, "--consistency", "asp"];
    let few = ["--workers", "2", "--min-workers", "1", "--lease", "2s"];
    let server = Server::tcp(&[&job, &few, &PACE, &ENDLESS]);
    let of = |id: &str, data: &str| server.worker(&["--id", id, "--data", data]);
    let first = of("1", &one);
    // The epoch grows with the second worker's rows.
    let wanted = |status: &Value| number(&status["samples_wanted"]);
    assert_eq!(wanted(&server.wait_for_updates(5)), 700_000_000);
    let second = of("2", &other);
    assert_eq!(wanted(&server.wait_for_updates_of(1, 1)), 1_000_000_000);
    second.signal(Signal::KILL);
    server.wait_for("lost worker", |status| status["workers"][1]["state"] == "lost");
    let said = ["700 rows where worker 2 of this run had 300", "its own file, or another --id"];
    of("2", &one).wait().refused(1, &said);
    let again = of("2", &other);
    server.wait_for("worker again", |status| status["workers"][1]["state"] == "computing");
    server.interrupt(vec![first, again]);
}
