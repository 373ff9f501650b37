//! Results written by `--out` can be read, run again, replayed and evaluated.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use pstrain_compute::rng::Stream;
use pstrain_data::split::split;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::books::{called, check_books, events, timeline};
use crate::cluster::{number, path, real};
use crate::process::{Ended, Process, finish};
use crate::small_disk::SmallDisk;

/// Runs a small job with results in `out`.
fn run(out: &Path, more: &[&str]) -> Ended {
    let job = ["run", "--json", "--data", "synthetic:2000", "--epochs", "3", "--out", path(out)];
    finish(&[&job, more].concat())
}

#[test]
fn a_results_folder_has_all_files_and_they_agree_with_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/down/out");
    let summary = run(&out, &[]).with_code(0).json();
    let stored = fs::read_to_string(out.join("summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&stored).unwrap(), summary);

    let mut curve = csv::Reader::from_path(out.join("curve.csv")).unwrap();
    let header =
        ["version", "samples", "epoch", "time_s", "accuracy", "loss", "objective", "macro_f1"];
    assert_eq!(curve.headers().unwrap(), &header[..]);
    let rows: Vec<Vec<f64>> = curve
        .records()
        .map(|row| row.unwrap().iter().map(|field| field.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.len(), 4, "before the first epoch and after each: {rows:?}");
    assert!(rows.is_sorted_by(|a, b| a[0] < b[0] && a[1] < b[1] && a[3] <= b[3]), "{rows:?}");
    assert_eq!(rows[3][4], real(&summary["accuracy"]));
    assert_eq!(rows[3][5], real(&summary["loss"]));
    assert_eq!(rows[3][7], real(&summary["macro_f1"]));

    let events = events(&out);
    assert!(events.is_sorted_by_key(|event| real(&event["at_s"])));
    assert_eq!(called(&events, "ended").count(), 1);
    assert_eq!(called(&events, "ready").count(), 2);
    for name in ["granted", "pushed", "applied", "updated"] {
        assert_eq!(called(&events, name).count(), 0, "{name} events are in timeline.csv");
    }
    check_books(&out, &summary);
    let seen = timeline(&out).iter().all(|row| row.received_ns.is_some());
    assert!(seen, "workers of the same process have the same clock");

    let model = fs::read(out.join("model.safetensors")).unwrap();
    let model = SafeTensors::deserialize(&model).unwrap();
    for (name, shape) in
        [("0.weight", &[21, 93][..]), ("0.bias", &[21]), ("2.weight", &[5, 21]), ("2.bias", &[5])]
    {
        assert_eq!(model.tensor(name).unwrap().shape(), shape, "{name}");
    }
}

#[test]
fn a_stored_job_runs_again_to_the_same_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let first = run(&out, &["--optimizer", "momentum:0.8", "--seed", "7"]).with_code(0).json();
    let again = finish(&["run", "--json", "--job", path(&out.join("job.toml"))]);
    let again = again.with_code(0).json();
    assert_eq!(again["params_sha256"], first["params_sha256"]);
    assert_eq!(again["job_sha256"], first["job_sha256"]);
    let other = run(&folder.path().join("other"), &["--seed", "8"]).with_code(0).json();
    assert_ne!(other["params_sha256"], first["params_sha256"]);
    assert_ne!(other["job_sha256"], first["job_sha256"]);
}

#[test]
fn a_stored_model_evaluated_on_the_held_out_rows_matches_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let (all, held_out) = (folder.path().join("all.csv"), folder.path().join("held-out.csv"));
    finish(&["data", "synth", "--rows", "2000", "--out", path(&all)]).with_code(0);
    let text = fs::read_to_string(&all).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let parts = split(2000, 0.25, Stream::new(1).fork("data", 0).fork("split", 0));
    let rows: Vec<&str> = parts.evaluation.iter().map(|&row| lines[row as usize]).collect();
    fs::write(&held_out, rows.join("\n")).unwrap();

    let out = folder.path().join("out");
    let summary = run(&out, &[]).with_code(0).json();
    let model = out.join("model.safetensors");
    let args = ["eval", "--model", path(&model), "--data", path(&held_out)];
    let evaluated = finish(&[&args[..], &["--json"]].concat()).with_code(0).json();
    assert_eq!(number(&evaluated["examples"]), 500);
    for field in ["accuracy", "loss", "recall"] {
        assert_eq!(evaluated[field], summary[field], "{field}");
    }
    // The evaluation also states the run that made the model.
    for field in ["updates", "samples", "epochs", "staleness", "params_sha256", "workers"] {
        assert_eq!(evaluated[field], summary[field], "{field}");
    }
    let table = finish(&args).with_code(0).stdout;
    let accuracy = format!("{:.2} %", 100.0 * real(&summary["accuracy"]));
    assert!(table.contains(&accuracy) && table.contains("recall"), "{table}");
}

#[test]
fn eval_and_replay_accept_a_results_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let summary = run(&out, &[]).with_code(0).json();
    let data = ["--data", "synthetic:500", "--json"];
    let eval = |model: &Path| {
        let args = [&["eval", "--model", path(model)], &data[..]].concat();
        finish(&args).with_code(0).json()
    };
    assert_eq!(eval(&out), eval(&out.join("model.safetensors")));
    let again = finish(&["replay", path(&out), "--json"]).with_code(0).json();
    assert_eq!(again["identical"], true, "{again}");
    assert_eq!(again["params_sha256"], summary["params_sha256"]);
    let other = folder.path();
    finish(&["replay", path(other)]).refused(2, &[path(&other.join("order.log")), "No such file"]);
    let args = ["eval", "--model", path(other), "--data", "synthetic:500"];
    finish(&args).refused(2, &[path(&other.join("model.safetensors")), "No such file"]);
}

#[test]
fn results_are_only_replaced_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let first = run(&out, &[]).with_code(0).json();
    run(&out, &["--seed", "2"]).refused(2, &[path(&out), "holds a run already", "--overwrite"]);
    let kept = fs::read_to_string(out.join("summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), first);
    let second = run(&out, &["--seed", "2", "--overwrite"]).with_code(0).json();
    assert_ne!(first["params_sha256"], second["params_sha256"]);
    check_books(&out, &second);
    finish(&["run", "--overwrite"]).refused(2, &["--out"]);
    finish(&["run", "--out-limit", "1MB"]).refused(2, &["--out <DIR>"]);
}

#[test]
fn an_unwritable_folder_is_refused_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let out = file.join("out");
    run(&out, &[]).refused(2, &["cannot make the folder", path(&out), "Not a directory"]);
}

#[test]
fn a_full_disk_costs_the_records_but_not_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(&folder.path().join("whole"), &[]).with_code(0).json();
    let growing = ["events.jsonl", "curve.csv", "timeline.csv", "order.log", "staleness.csv"];
    for file in growing.into_iter().chain(["summary.json", "model.safetensors"]) {
        let out = folder.path().join(file);
        fs::create_dir(&out).unwrap();
        symlink("/dev/full", out.join(file)).unwrap();
        let ended = run(&out, &["--overwrite"]);
        if matches!(file, "summary.json" | "model.safetensors") {
            // These files are replaced as a whole, so the link to the full disk is gone.
            ended.with_code(0);
            continue;
        }
        let ended = ended.with_code(2);
        let summary = ended.json();
        assert_eq!(summary["params_sha256"], whole["params_sha256"]);
        for word in [file, "No space left on device", "incomplete", "free some space"] {
            assert!(ended.stderr.contains(word), "nothing of {word:?}: {}", ended.stderr);
        }
        assert!(!out.join("summary.json").exists(), "it would call the run complete");
    }
}

#[test]
fn records_end_at_their_limit_and_replay_reports_the_missing_updates() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, out) = (folder.path().join("whole"), folder.path().join("out"));
    let job = ["--batch-size", "4", "--consistency", "bsp"];
    let unlimited = run(&whole, &[&job[..], &["--out-limit", "none"]].concat()).with_code(0).json();
    assert!(unlimited["full_files"].is_null(), "{unlimited}");
    let ended = run(&out, &[&job[..], &["--out-limit", "16KiB"]].concat()).with_code(0);
    let summary = ended.json();
    assert_eq!(summary["params_sha256"], unlimited["params_sha256"]);
    assert_eq!(summary["full_files"], serde_json::json!(["timeline.csv", "order.log"]));
    for name in ["timeline.csv", "order.log"] {
        let bytes = fs::metadata(out.join(name)).unwrap().len();
        assert!(bytes > 15_000 && bytes <= 16_384, "{name} has {bytes} bytes");
        let said = format!("{name} ends here: --out-limit lets it have 16384 bytes");
        assert_eq!(ended.stderr.matches(&said).count(), 1, "{}", ended.stderr);
    }
    let replayed = finish(&["replay", path(&out), "--json"]).with_code(0);
    let found = replayed.json();
    let last = number(&found["version"]);
    let lacks = format!("updates {} to {} are not in it", last + 1, number(&summary["updates"]));
    assert!(replayed.stderr.contains(&lacks), "{lacks}: {}", replayed.stderr);
    assert_eq!(found["complete"], false);
    let until = ["replay", path(&whole), "--json", "--until", &last.to_string()];
    let wanted = finish(&until).with_code(0).json();
    assert_eq!(found["params_sha256"], wanted["params_sha256"]);
}

#[test]
#[cfg_attr(not(namespaces), ignore = "needs root: a disk of its own")]
fn records_leave_free_space_on_a_small_disk() {
    let disk = SmallDisk::mount();
    let job =
        ["run", "--json", "--data", "synthetic:2000", "--epochs", "200", "--batch-size", "16"];
    let out = disk.path().join("out");
    let args = [&job[..], &["--out", path(&out), "--out-limit", "none"]].concat();
    let ended = Process::start_under(&disk.under(), &args).wait();
    let ended = ended.with_code(0);
    let summary = ended.json();
    for name in ["timeline.csv", "order.log"] {
        let full = summary["full_files"].as_array().unwrap();
        assert!(full.iter().any(|file| file == name), "{summary}");
        let said = format!("{name} ends here: little of its disk is free");
        assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    }
}

#[test]
fn results_are_not_written_into_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("curve.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    run(folder.path(), &["--overwrite"]).refused(2, &[path(&pipe), "is a pipe"]);
}

#[test]
fn results_are_not_written_through_a_link_to_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let (other, gone) = (folder.path().join("other"), folder.path().join("gone"));
    fs::write(&other, "precious").unwrap();
    for (name, target) in [("order.log", &other), ("summary.json", &other), ("curve.csv", &gone)] {
        let out = folder.path().join(format!("out-{name}"));
        fs::create_dir(&out).unwrap();
        symlink(target, out.join(name)).unwrap();
        let link = out.join(name);
        let words = [path(&link), "is a link to", path(target), "remove the link"];
        run(&out, &["--overwrite"]).refused(2, &words);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "{name}");
    }
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    assert!(!gone.exists());
}

#[test]
fn an_oversized_job_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.toml");
    fs::write(&job, format!("workers = 2\nname = \"{}\"\n", "a".repeat(70_000))).unwrap();
    finish(&["run", "--job", path(&job)]).refused(2, &["job.toml:2", "longer than 65536 bytes"]);
    finish(&["run", "--job", "/dev/zero"]).refused(2, &["/dev/zero", "more than 1048576 bytes"]);
}

#[test]
fn a_closed_stderr_does_not_abort_a_command() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pstrain"));
    let two = ["server", "--listen", "127.0.0.1:0", "--workers", "2", "--min-workers", "3"];
    let status = command.args(two).stdout(std::process::Stdio::null()).stderr(writer).status();
    assert_eq!(status.unwrap().code(), Some(2), "it could not say that this makes no sense");
}

#[test]
fn a_closed_or_full_stdout_does_not_lose_the_results() {
    let folder = tempfile::tempdir().unwrap();
    for (name, target) in [("closed", None), ("full", Some("/dev/full"))] {
        let out = folder.path().join(name);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pstrain"));
        command.args(["run", "--quiet", "--json", "--data", "synthetic:2000", "--epochs", "1"]);
        command.args(["--out", out.to_str().unwrap()]);
        let stdout = match target {
            Some(path) => fs::File::options().write(true).open(path).unwrap().into(),
            None => {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                std::process::Stdio::from(writer)
            }
        };
        let status = command.stdout(stdout).stderr(std::process::Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(if target.is_some() { 2 } else { 0 }), "{name}");
        for file in ["summary.json", "model.safetensors", "job.toml"] {
            assert!(out.join(file).exists(), "{name}: no {file}");
        }
    }
}

#[test]
fn a_users_own_job_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.toml");
    fs::write(&job, "epochs = 1\n").unwrap();
    let out = path(folder.path());
    let ended = finish(&["run", "--job", path(&job), "--out", out]);
    ended.refused(2, &["job.toml", "--overwrite"]);
    assert_eq!(fs::read_to_string(&job).unwrap(), "epochs = 1\n");
}
