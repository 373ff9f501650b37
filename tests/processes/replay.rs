//! A run replayed from its order of updates ends at the same bits, however asynchronous it was; a
//! record that does not match its job or data is refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::books::{check_books, timeline};
use crate::cluster::{ENDLESS, Left, SLOW, Server, number, path, real};
use crate::peers::all_without_a_server;
use crate::process::{Ended, finish};

/// Updates that depend on history: momentum, clipping and a schedule.
const UPDATE: [&str; 6] =
    ["--optimizer", "momentum:0.9", "--clip-norm", "0.5", "--schedule", "cosine:300,0.01"];

const SMALL: [&str; 4] = ["--data", "synthetic:2000", "--epochs", "4"];

/// Rules that weight gradients or select the examples they are computed on.
const RULES: [&[&str]; 21] = [
    &["--staleness", "plain"],
    &["--staleness", "inverse"],
    &["--staleness", "inverse-plus-one"],
    &["--staleness", "polynomial"],
    &["--staleness", "hinge:0.5,1"],
    &["--staleness", "dynsgd"],
    &["--staleness", "dc"],
    &["--staleness", "dc-adaptive"],
    &["--staleness", "gap-aware"],
    &["--participation", "share"],
    &["--participation", "incremental"],
    &["--participation", "incremental", "--staleness", "dc"],
    &["--consistency", "malenia:6"],
    &["--consistency", "ringleader"],
    &["--max-staleness", "3"],
    &["--work", "speed"],
    &["--consistency", "bsp", "--work", "speed", "--aggregation", "sum"],
    &["--work", "shards:9"],
    &["--consistency", "asp", "--work", "shards:50", "--data-from", "server"],
    &["--consistency", "k-sync:2", "--work", "shards:1", "--aggregation", "sum"],
    &["--clip-contribution", "0.2"],
];

fn replay(folder: &Path, more: &[&str]) -> Ended {
    let log = folder.join("order.log");
    finish(&[&["replay", path(&log)], more].concat())
}

/// Checks that the run in `folder` replays to its own parameters.
#[track_caller]
fn check_replay(folder: &Path, summary: &Value) -> Value {
    check_replay_in_flight(folder, summary, 1)
}

/// Like [`check_replay`], with up to `in_flight` mini-batches in flight per worker.
#[track_caller]
fn check_replay_in_flight(folder: &Path, summary: &Value, in_flight: u64) -> Value {
    check_books(folder, summary);
    let ended = replay(folder, &["--json"]).with_code(0);
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    let again = ended.json();
    assert_eq!(again["params_sha256"], summary["params_sha256"]);
    assert_eq!((&again["identical"], &again["complete"]), (&true.into(), &true.into()), "{again}");
    assert_eq!(again["version"], summary["updates"], "{again}");
    assert_eq!(again["gradients"], summary["batches"]["applied"], "{again}");
    for field in ["accuracy", "loss", "recall"] {
        assert_eq!(again[field], summary[field], "{field}");
    }
    let workers = summary["workers"].as_array().unwrap().len() as u64;
    assert!(number(&again["versions_kept"]) <= workers * in_flight + 1, "{again}");
    again
}

#[test]
fn an_asynchronous_run_of_four_processes_replays_to_the_same_bits() {
    let server = Server::tcp(&[&SMALL, &UPDATE, &["--workers", "4", "--consistency", "asp"]]);
    for worker in server.workers(4) {
        worker.wait().with_code(0);
    }
    let Server { process, out, .. } = server;
    let summary = process.wait().with_code(0).json();
    check_replay(&out, &summary);
    assert!(timeline(&out).iter().all(|row| row.received_ns.is_none()), "clocks of their own");
    assert!(summary["workers"][0]["send_s"].is_null(), "{summary}");

    // Every point of the curve equals a replay up to that version.
    let mut curve = csv::Reader::from_path(out.join("curve.csv")).unwrap();
    for row in curve.deserialize() {
        let (version, _, _, _, accuracy, loss): (String, f64, f64, f64, f64, f64) = row.unwrap();
        let past = replay(&out, &["--until", &version, "--json"]).with_code(0).json();
        assert_eq!(past["version"].to_string(), version);
        assert_eq!((real(&past["accuracy"]), real(&past["loss"])), (accuracy, loss), "{version}");
    }
    let model = out.join("past.safetensors");
    let past = replay(&out, &["--until", "7", "--json", "--out", path(&model)]).with_code(0).json();
    let args = ["eval", "--json", "--model", path(&model), "--data", "synthetic:2000"];
    let evaluated = finish(&args).with_code(0).json();
    assert_eq!(evaluated["params_sha256"], past["params_sha256"]);
    assert_ne!(past["params_sha256"], summary["params_sha256"]);
}

#[test]
fn every_consistency_and_budget_replays_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for (number, flags) in [
        &["--consistency", "ssp:1", "--workers", "3"][..],
        &["--consistency", "asp", "--budget", "partition", "--partition", "sizes:1,2,5"],
        &["--consistency", "bsp", "--budget", "partition", "--partition", "sizes:1,2,5"],
        &["--consistency", "asp", "--optimizer", "adam", "--weight-decay", "0.01"],
        &["--switch", "asp@10 ringleader@30", "--switch", "malenia:3@50 bsp@60", "--workers", "3"],
        &["--participation", "share", "--switch", "asp@10 bsp@25 ssp:1@40", "--workers", "3"],
        &["--staleness", "dc:0.1", "--switch", "asp@10 bsp@25 asp@40", "--workers", "3"],
        &["--staleness", "gap-aware", "--switch", "asp@10 k-async:2@40", "--workers", "3"],
        &["--aggregation", "sum", "--exchange", "separate", "--batch-size", "17"],
        &["--aggregation", "median", "--workers", "4"],
        &["--aggregation", "trimmed:1", "--clip-contribution", "0.5", "--workers", "3"],
        &["--aggregation", "krum:1,2", "--consistency", "delay:2", "--workers", "5"],
        &["--aggregation", "krum:1", "--consistency", "backup:1", "--workers", "6"],
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.path().join(number.to_string());
        let workers: &[&str] =
            if flags.contains(&"sizes:1,2,5") { &["--workers", "3"] } else { &[] };
        let run = [&["run", "--json", "--out", path(&out)], &SMALL[..], flags, workers].concat();
        check_replay(&out, &finish(&run).with_code(0).json());
    }
}

#[test]
fn every_staleness_participation_and_work_rule_replays_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let base = ["simulate", "--json", "--workers", "3"];
    let links = "1.delay=1ms 2.delay=20ms 3.delay=2ms";
    let speeds = ["--compute", "4ms 1.factor=3", "--link", links];
    let mut digests = BTreeSet::new();
    for rule in RULES {
        let out = folder.path().join(rule.join("-"));
        // With shards every worker holds all data.
        let partition = if rule.concat().contains("shards") { "iid" } else { "sizes:1,2,5" };
        let args = ["--out", path(&out), "--partition", partition];
        let args = [&base[..], &args, &SMALL, &UPDATE, &speeds, rule].concat();
        let asp: &[&str] = if rule[0] == "--consistency" { &[] } else { &["--consistency", "asp"] };
        let args = [&args[..], asp].concat();
        let summary = finish(&args).with_code(0).json();
        check_replay(&out, &summary);
        let digest = summary["params_sha256"].to_string();
        assert!(digests.insert(digest), "{rule:?} changes something");
        if rule[0] == "--max-staleness" {
            let rows = timeline(&out);
            assert!(
                rows.iter().filter(|row| row.is("applied")).all(|row| row.staleness <= Some(3))
            );
            assert!(rows.iter().any(|row| row.is("dropped")));
        }
    }
}

/// A filter's residual depends on earlier gradients: also on dropped pushes, on workers that died
/// and rejoined, and on the order in which several gradients in flight were sent.
#[test]
fn a_filtered_run_replays_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let links = "1.delay=1ms 2.delay=20ms 3.delay=2ms";
    let base =
        ["simulate", "--json", "--workers", "3", "--compute", "4ms 1.factor=3", "--link", links];
    for (number, (filters, rule)) in [
        ("top-k:0.05", &["--consistency", "asp"][..]),
        ("top-k:0.05,int8", &["--consistency", "k-sync:2"]),
        ("one-bit", &["--consistency", "backup:1", "--faults", "2.crash@300ms 2.restart@350ms"]),
        ("powersgd:2", &["--consistency", "asp", "--faults", "3.crash@300ms 3.restart@7s"]),
        ("significant:0.001,fp16", &["--consistency", "ssp:2", "--faults", "1.duplicate@200ms"]),
        ("qsgd", &["--consistency", "asp", "--max-staleness", "1"]),
        ("random-k:0.1", &["--consistency", "asp", "--in-flight", "3", "--error-feedback", "on"]),
        ("qsgd:1", &["--redundancy", "partial:2"]),
        ("bf16", &["--work", "shards:5", "--consistency", "asp"]),
        ("zero-skip", &["--switch", "asp@10 bsp@60", "--exchange", "separate"]),
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.path().join(number.to_string());
        let args = [&base[..], &SMALL, &UPDATE, &["--filters", filters, "--out", path(&out)], rule];
        let summary = finish(&args.concat()).with_code(0).json();
        let in_flight = if rule.contains(&"--in-flight") { 3 } else { 1 };
        check_replay_in_flight(&out, &summary, in_flight);
        let ratio = real(&summary["bytes_ratio"]);
        assert!(ratio > 0.0 && ratio < 0.9, "{filters}: {ratio}");
        for worker in summary["workers"].as_array().unwrap() {
            assert!(number_of_bytes(worker) > 0, "{worker}");
        }
    }
}

fn number_of_bytes(worker: &Value) -> u64 {
    let (pushed, unfiltered) = (&worker["pushed_bytes"], &worker["unfiltered_bytes"]);
    assert!(number(pushed) < number(unfiltered), "{worker}");
    number(pushed)
}

#[test]
fn a_filtered_run_that_cannot_be_replayed_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let links = "1.delay=1ms 2.delay=20ms 3.delay=2ms";
    let base =
        ["simulate", "--json", "--workers", "3", "--compute", "4ms 1.factor=3", "--link", links];
    let rule = ["--filters", "top-k:0.1", "--consistency", "asp", "--in-flight", "4"];
    let drops = ["--max-staleness", "0", "--out", path(&out)];
    finish(&[&base[..], &SMALL, &rule, &drops].concat()).with_code(0);
    let ended = replay(&out, &[]).with_code(2);
    for words in ["cannot be computed again", "in-flight = 1"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn a_run_that_restored_earlier_parameters_replays_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let links = "1.delay=1ms 2.delay=20ms 3.delay=2ms";
    let base = ["simulate", "--json", "--workers", "3", "--partition", "sizes:1,2,5"];
    let speeds = ["--compute", "4ms", "--link", links, "--consistency", "auto"];
    let data = ["--data", "synthetic:2000", "--epochs", "6", "--out", path(&out)];
    // A learning rate too high for stale gradients.
    let update = ["--learning-rate", "0.5", "--optimizer", "momentum", "--aggregation", "sum"];
    let run = [&base[..], &speeds, &data, &update].concat();
    let summary = finish(&run).with_code(0).json();
    check_books(&out, &summary);
    let log = fs::read_to_string(out.join("order.log")).unwrap();
    assert!(log.lines().any(|line| line.starts_with("restore ")), "{log}");
    let again = replay(&out, &["--json"]).with_code(0).json();
    assert_eq!(again["params_sha256"], summary["params_sha256"]);
    assert_eq!((&again["identical"], &again["complete"]), (&true.into(), &true.into()), "{again}");
    assert_eq!(again["version"], summary["updates"], "{again}");
}

#[test]
fn a_run_with_a_killed_and_rejoined_worker_replays_to_the_same_bits() {
    for consistency in ["asp", "bsp"] {
        let job = ["--workers", "3", "--lease", "300ms", "--consistency", consistency];
        let server = Server::tcp(&[&SLOW, &ENDLESS, &UPDATE, &job]);
        let mut workers = server.workers(3);
        server.wait_for_updates_of(2, 20);
        drop(workers.pop()); // kills it with SIGKILL
        let lost = server.wait_for("loss", |status| status["workers"][2]["state"] == "lost");
        workers.push(server.worker(&["--id", "3"]));
        server.wait_for_updates_of(2, number(&lost["workers"][2]["updates"]) + 20);
        let Left { out, summary, _folder } = server.interrupt(workers);
        check_replay(&out, &summary);
        let incarnations = timeline(&out).iter().map(|row| row.incarnation).max();
        assert_eq!(incarnations, Some(2), "it was taken in again");
    }
}

#[test]
fn a_truncated_record_replays_up_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = [&["run", "--json", "--out", path(&out)], &SMALL[..]].concat();
    finish(&run).with_code(0);
    let log = out.join("order.log");
    let whole = fs::read_to_string(&log).unwrap();
    let wanted = replay(&out, &["--until", "30", "--json"]).with_code(0).json();
    let after = whole.find("\n31 ").unwrap();
    for cut in [after + 1, after + 12] {
        fs::write(&log, &whole[..cut]).unwrap();
        let ended = replay(&out, &["--json"]).with_code(0);
        assert!(ended.stderr.contains("breaks off after version 30"), "{}", ended.stderr);
        let found = ended.json();
        assert_eq!((&found["complete"], &found["version"]), (&false.into(), &30.into()));
        assert_eq!(found["params_sha256"], wanted["params_sha256"]);
        assert!(found["identical"].is_null(), "there is nothing to compare with: {found}");
        replay(&out, &["--until", "31"]).refused(2, &["--until 31", "versions 0 to 30"]);
    }
    // A record may lack updates that the server that wrote it did not see.
    let (missed, later) = (whole.find("\n31 ").unwrap(), whole.find("\n34 ").unwrap());
    let hole = format!("{}\nmissing 31 33{}", &whole[..missed], &whole[later..]);
    fs::write(&log, hole).unwrap();
    let ended = replay(&out, &["--json"]).with_code(0);
    assert!(ended.stderr.contains("did not see updates 31 to 33"), "{}", ended.stderr);
    let found = ended.json();
    assert_eq!((&found["complete"], &found["version"]), (&false.into(), &30.into()));
    assert_eq!(found["params_sha256"], wanted["params_sha256"]);
    fs::write(&log, whole.replacen("\n31 ", "\n32 ", 1)).unwrap();
    replay(&out, &[]).refused(2, &["order.log:32", "version 32 follows version 30", "damaged"]);
}

#[test]
fn a_record_with_another_job_or_other_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let make = |name: &str, rows: &str| {
        let file = path(&at(name)).to_owned();
        finish(&["data", "synth", "--rows", rows, "--out", &file]).with_code(0);
        file
    };
    let (data, other) = (make("rows.csv", "2000"), make("other.csv", "1990"));
    let (out, second) = (at("out"), at("second"));
    for (out, rate) in [(&out, "0.1"), (&second, "0.2")] {
        let job = ["--data", &data, "--epochs", "2", "--learning-rate", rate];
        finish(&[&["run", "--json", "--out", path(out)], &job[..]].concat()).with_code(0);
    }
    // The data file may have moved, but its content must be the same.
    fs::rename(&data, at("moved.csv")).unwrap();
    replay(&out, &[]).refused(2, &["rows.csv", "--data PATH"]);
    let moved = path(&at("moved.csv")).to_owned();
    let again = replay(&out, &["--json", "--data", &moved]).with_code(0).json();
    assert_eq!(again["identical"], true);
    replay(&out, &["--data", &other]).refused(2, &["not the data of", "order.log", "--data"]);

    fs::copy(second.join("job.toml"), out.join("job.toml")).unwrap();
    let words = ["job.toml", "another job", "recorded with it"];
    replay(&out, &["--data", &moved]).refused(2, &words);
    fs::remove_file(out.join("job.toml")).unwrap();
    replay(&out, &[]).refused(2, &["job.toml", "order.log", "No such file"]);
    fs::copy(out.join("curve.csv"), out.join("order.log")).unwrap();
    replay(&out, &[]).refused(2, &["no order of updates"]);
}

#[test]
fn parameters_that_differ_from_the_summary_fail_the_replay() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = [&["run", "--json", "--out", path(&out)], &SMALL[..]].concat();
    let summary = finish(&run).with_code(0).json();
    let stored = fs::read_to_string(out.join("summary.json")).unwrap();
    let digest = summary["params_sha256"].as_str().unwrap();
    fs::write(out.join("summary.json"), stored.replace(digest, "0123")).unwrap();
    let ended = replay(&out, &[]).with_code(1);
    assert!(ended.stdout.contains("NOT those of the run"), "{}", ended.stdout);
    assert!(ended.stderr.contains("summary.json"), "{}", ended.stderr);
}

#[test]
fn the_update_at_which_a_run_began_to_diverge_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let job = ["--consistency", "asp", "--learning-rate", "20"];
    let run = [&["run", "--json", "--out", path(&out)], &SMALL[..], &job].concat();
    let ended = finish(&run).with_code(1);
    assert!(ended.stderr.contains("diverged"), "{}", ended.stderr);
    let norm = |update: &Value| real(&update["norm"]);
    let broke = replay(&out, &["--break-norm", "100", "--json"]).with_code(0).json();
    let version = number(&broke["broke"]["version"]);
    assert_eq!(number(&broke["version"]), version - 1, "{broke}");
    assert!(norm(&broke["broke"]) > 100.0, "{broke}");
    let gradient = &broke["broke"]["gradients"][0];
    let row = timeline(&out).into_iter().find(|row| row.version == Some(version)).unwrap();
    let told = [&gradient["worker"], &gradient["batch"], &gradient["base"]];
    assert_eq!(told.map(number), [row.worker, row.batch, row.base]);
    let table = replay(&out, &["--break-norm", "100"]).with_code(0).stdout;
    assert!(table.contains(&format!("stopped before version {version}")), "{table}");
    // Later updates have larger norms; without a limit the replay ends like the run.
    let limit = norm(&broke["broke"]).to_string();
    let later = replay(&out, &["--break-norm", &limit, "--json"]).with_code(0).json();
    assert!(number(&later["broke"]["version"]) > version, "{later}");
    let none = replay(&out, &["--break-norm", "1e300"]).with_code(0).stdout;
    assert!(none.contains("no update has a gradient whose norm is above 1e300"), "{none}");
    let whole = replay(&out, &["--json"]).with_code(0).json();
    assert_eq!((&whole["broke"], &whole["identical"]), (&Value::Null, &true.into()), "{whole}");
}

#[test]
fn a_run_in_virtual_time_replays_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let scenario = ["--compute", "4ms", "--link", "1.delay=1ms", "--link", "2.delay=20ms"];
    let args = ["simulate", "--json", "--consistency", "asp", "--out", path(&out)];
    let summary = finish(&[&args, &SMALL[..], &UPDATE, &scenario].concat()).with_code(0).json();
    check_replay(&out, &summary);
    let rows = timeline(&out);
    // In virtual time, the times equal the model's exactly: gradients take the link delay,
    // parameters none.
    for row in rows.iter().filter(|row| row.is("applied")) {
        let way = if row.worker == 1 { 1_000_000 } else { 20_000_000 };
        assert_eq!(row.received_ns, Some(row.granted_ns), "{row:?}");
        assert_eq!(row.sent_ns, Some(row.granted_ns + 4_000_000), "{row:?}");
        assert_eq!(row.pushed_ns, Some(row.granted_ns + 4_000_000 + way), "{row:?}");
    }
    let worker = &summary["workers"][1];
    assert_eq!(real(&worker["receive_s"]), 0.0, "{worker}");
    assert!((real(&worker["idleness"]) - 20.0 / 24.0).abs() < 0.01, "{worker}");
    // The worker asks for the next parameters at once: its age grows from one cycle to two; in the
    // first cycle, from 0 to one.
    let age = &worker["age_of_information"];
    let first = 0.024 * 0.024 / real(&summary["time_s"]);
    assert!((real(&age["mean_s"]) - (1.5 * 0.024 - first)).abs() < 0.001, "{age}");
    assert!((real(&age["peak_mean_s"]) - 2.0 * 0.024).abs() < 0.001, "{age}");
}

#[test]
fn a_run_without_a_server_is_not_replayed() {
    let folder = tempfile::TempDir::new().unwrap();
    for architecture in all_without_a_server() {
        let out = folder.path().join(architecture.replace(':', "-"));
        let job = ["run", "--architecture", &architecture, "--data", "synthetic:400"];
        finish(&[&job[..], &["--epochs", "1", "--out", path(&out)]].concat()).with_code(0);
        let why = format!(
            "a run of architecture = {architecture} has no server to replay: its workers hold the \
             parameters"
        );
        finish(&["replay", path(&out)]).refused(2, &["order.log", &why]);
    }
}
