//! Results state the evaluation rows, the quality on each class and the workers' use of time; a
//! damaged or diverged model is not evaluated.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::books::{called, events, timeline};
use crate::cluster::{ENDLESS, Server, number, path, real};
use crate::process::{Process, finish};

/// Returns the folder of the original data; tests that need them are ignored without them.
fn original() -> PathBuf {
    let near = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    std::env::var_os("PSTRAIN_DATA").map_or_else(near, PathBuf::from).join("nsl-kdd")
}

/// Writes a file of synthetic rows.
fn rows(folder: &Path, name: &str, rows: &str, seed: &str) -> PathBuf {
    let file = folder.join(name);
    finish(&["data", "synth", "--rows", rows, "--seed", seed, "--out", path(&file)]).with_code(0);
    file
}

/// Checks that two results report the same quality of a model.
#[track_caller]
fn check_alike(one: &Value, other: &Value) {
    for field in ["accuracy", "macro_f1", "worst_class", "evaluation", "loss", "recall"] {
        assert_eq!(one[field], other[field], "{field}");
    }
}

#[test]
fn accuracy_is_reported_with_its_rows_and_the_worst_class() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let job = ["run", "--data", "synthetic:2000", "--epochs", "2"];
    let table = finish(&[&job[..], &["--out", path(&out), "--quiet"]].concat()).with_code(0);
    assert!(table.stdout.is_empty());
    // A value that is too wide for 80 columns continues below itself.
    let table = finish(&job).with_code(0).stdout.replace(&format!("\n{:15}", ""), " ");
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
    let source = "synthetic NSL-KDD, 2,000 rows, seed 1";
    let held_out = json!({ "rows": 500, "source": source, "share": 0.25 });
    assert_eq!(summary["evaluation"], held_out);
    let percent = |value: &Value| format!("{:.2} %", 100.0 * real(value));
    let worst = &summary["worst_class"];
    let least = summary["recall"].as_object().unwrap().values().filter_map(Value::as_f64);
    assert_eq!(real(&worst["recall"]), least.fold(1.0, f64::min), "{summary}");
    assert_eq!(summary["recall"][worst["name"].as_str().unwrap()], worst["recall"]);
    for line in [
        format!(
            "accuracy       {} of 500 evaluation rows, 25 % of {source}",
            percent(&summary["accuracy"])
        ),
        format!("macro F1       {}", percent(&summary["macro_f1"])),
        format!(
            "worst class    {}, recall {}",
            worst["name"].as_str().unwrap(),
            percent(&worst["recall"])
        ),
    ] {
        assert!(table.lines().any(|told| told == line), "no {line:?} in\n{table}");
    }
    let model = out.join("model.safetensors");
    let args = ["eval", "--model", path(&model), "--data", "synthetic:300"];
    let told = finish(&args).with_code(0).stdout;
    for words in ["of 300 evaluation rows, all of synthetic NSL-KDD", "macro F1", "worst class"] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn all_commands_accept_separate_evaluation_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (
        rows(folder.path(), "train.csv", "1200", "3"),
        rows(folder.path(), "test.csv", "700", "4"),
    );
    let given = json!({ "rows": 700, "source": "test.csv", "share": null });
    let base = ["--data", path(&train), "--epochs", "2"];
    let flag = ["--evaluation-data", path(&test)];
    let out = folder.path().join("out");
    let run = [&["run", "--json", "--out", path(&out)], &base[..], &flag].concat();
    let run = finish(&run).with_code(0).json();
    assert_eq!(run["evaluation"], given);
    // With separate evaluation rows, all rows of the data are trained on.
    assert_eq!(number(&run["samples"]), 2 * 1200);

    let model = path(&out.join("model.safetensors")).to_owned();
    let eval = finish(&["eval", "--json", "--model", &model, "--data", path(&test)]);
    check_alike(&eval.with_code(0).json(), &run);
    let log = path(&out.join("order.log")).to_owned();
    let again = finish(&["replay", "--json", &log]).with_code(0).json();
    check_alike(&again, &run);
    assert_eq!(again["identical"], json!(true));
    let others = ["replay", "--json", &log, "--evaluation-data", path(&train)];
    let others = finish(&others).with_code(0).json();
    assert_eq!(others["identical"], json!(true));
    assert_eq!(others["evaluation"], json!({ "rows": 1200, "source": "train.csv", "share": null }));

    // In virtual time, set by a job file.
    let job = folder.path().join("job.toml");
    fs::write(&job, format!("evaluation-data = {:?}\n", path(&test))).unwrap();
    let times = ["--link", "all.delay=1ms", "--compute", "1ms", "--job", path(&job)];
    let simulated = [&["simulate", "--json"], &base[..], &times].concat();
    let simulated = finish(&simulated).with_code(0).json();
    assert_eq!(simulated["params_sha256"], run["params_sha256"]);
    check_alike(&simulated, &run);
    // In separate processes, set by the environment. With `own` the server reads an outline only.
    for from in ["worker", "own"] {
        let variables = [("PSTRAIN_JOB_EVALUATION_DATA", path(&test))];
        let server = ["server", "--listen", "127.0.0.1:0", "--json", "--data-from", from];
        let server = Process::start_with(&[&server, &base[..]].concat(), &variables);
        let said = server.wait_to_say("listening on ");
        let address = said.split("listening on ").nth(1).unwrap();
        let address = address.split_whitespace().next().unwrap().to_owned();
        let workers = [1, 2]
            .map(|_| Process::start(&["worker", "--server", &address, "--data", path(&train)]));
        workers.into_iter().for_each(|worker| drop(worker.wait().with_code(0)));
        check_alike(&server.wait().with_code(0).json(), &run);
    }

    // Rows held out in addition are neither trained on nor evaluated on.
    let part = [&["run", "--json", "--evaluation-share", "0.25"], &base[..], &flag].concat();
    let part = finish(&part).with_code(0).json();
    assert_eq!((number(&part["samples"]), &part["evaluation"]), (2 * 900, &given));
    let usual = finish(&[&["run", "--json"], &base[..]].concat()).with_code(0).json();
    assert_eq!(part["params_sha256"], usual["params_sha256"]);
    let words = ["test.csv cannot be evaluated on", "NSL-KDD records", "are sparse"];
    let sparse = ["run", "--data", "sparse:200", "--model", "logistic"];
    finish(&[&sparse[..], &flag].concat()).refused(2, &words);
}

#[test]
fn a_run_does_not_resume_with_other_evaluation_rows() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let test = rows(folder.path(), "test.csv", "300", "4");
    let job = ["--data", "synthetic:400", "--batch-size", "8", "--workers", "1"];
    let durable = ["--durability", "log", "--state", path(&kept)];
    let server = Server::tcp(&[&job, &ENDLESS, &durable, &["--evaluation-data", path(&test)]]);
    let worker = server.worker(&[]);
    server.wait_for_updates(3);
    drop((server, worker));
    rows(folder.path(), "other.csv", "300", "5");
    fs::rename(folder.path().join("other.csv"), &test).unwrap();
    let resume = ["server", "--listen", "127.0.0.1:0", "--resume", path(&kept)];
    finish(&resume).refused(2, &["test.csv) are not those", "other evaluation rows", "put them"]);
}

#[test]
#[cfg_attr(not(nsl_kdd), ignore = "needs NSL-KDD: set PSTRAIN_DATA")]
fn a_model_of_the_original_training_file_is_evaluated_on_the_original_test_file() {
    let folder = original();
    let (train, test) = (folder.join("KDDTrain+.txt.xz"), folder.join("KDDTest+.txt.xz"));
    let job = ["simulate", "--compute", "4.5ms", "--link", "all.delay=1ms", "--json"];
    let job = [&job[..], &["--data", path(&train), "--epochs", "1"]].concat();
    let args = [&job[..], &["--evaluation-data", path(&test)]].concat();
    let summary = finish(&args).with_code(0).json();
    let rows = json!({ "rows": 22_544, "source": "KDDTest+.txt.xz", "share": null });
    assert_eq!(summary["evaluation"], rows);
    assert_eq!(number(&summary["samples"]), 125_973);
    // The test file has attacks that the training file lacks, and a larger share of rare classes.
    let accuracy = real(&summary["accuracy"]);
    assert!((0.6..0.85).contains(&accuracy), "{summary}");
    assert!(real(&summary["macro_f1"]) < accuracy, "{summary}");
    assert!(real(&summary["worst_class"]["recall"]) < 0.3, "{summary}");
}

#[test]
fn a_model_that_was_never_evaluated_has_no_accuracy() {
    let job = ["simulate", "--data", "synthetic:2000", "--link", "delay=1ms", "--compute", "4ms"];
    let args = [&job[..], &["--faults", "server.crash@20ms", "--json"]].concat();
    let summary = finish(&args).with_code(1).json();
    assert!(number(&summary["updates"]) > 0, "{summary}");
    for field in ["accuracy", "macro_f1", "worst_class", "loss", "objective"] {
        assert_eq!(summary[field], Value::Null, "{field}: {summary}");
    }
    let table = finish(&args[..args.len() - 1]).with_code(1).stdout;
    assert!(table.lines().any(|line| line == "accuracy       -"), "{table}");
}

#[test]
fn idleness_is_a_share_of_elapsed_time_for_any_number_of_mini_batches_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let job = ["simulate", "--data", "synthetic:12800", "--workers", "2", "--batch-size", "32"];
    let times = ["--link", "all.delay=40ms", "--compute", "4.5ms", "--json"];
    for (place, (rule, least, most)) in [
        (&["--consistency", "asp", "--in-flight", "24"][..], 0.0, 0.08),
        (&["--consistency", "delay:16"], 0.0, 0.2),
        (&["--consistency", "asp", "--in-flight", "1"], 0.89, 0.91),
        (&["--consistency", "bsp"], 0.89, 0.91),
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.path().join(place.to_string());
        let args = [&job[..], &times, rule, &["--epochs", "1", "--out", path(&out)]].concat();
        let summary = finish(&args).with_code(0).json();
        let (rows, events) = (timeline(&out), events(&out));
        for worker in summary["workers"].as_array().unwrap() {
            let own = || rows.iter().filter(|row| row.worker == number(&worker["id"]));
            let pushed = || own().filter_map(|row| Some((row, row.pushed_ns?)));
            let busy = pushed().map(|(row, _)| row.sent_ns.unwrap() - row.received_ns.unwrap());
            let called_off = own().filter(|row| row.is("called-off"));
            let stopped: u64 = called_off.map(|row| row.compute_ns.unwrap()).sum();
            let busy = (busy.sum::<u64>() + stopped) as f64 / 1e9;
            let first = own().map(|row| row.granted_ns).min().unwrap();
            let last = pushed().map(|(_, pushed)| pushed as f64 / 1e9).fold(0.0, f64::max);
            // The end calls off what is computed then, after the last push.
            let calls = called(&events, "called_off").filter(|it| it["worker"] == worker["id"]);
            let last = calls.map(|call| real(&call["at_s"])).fold(last, f64::max);
            let elapsed = last - first as f64 / 1e9;
            assert!((real(&worker["elapsed_s"]) - elapsed).abs() < 1e-6, "{rule:?}: {worker}");
            let idleness = real(&worker["idleness"]);
            assert!((idleness - (1.0 - busy / elapsed)).abs() < 1e-6, "{rule:?}: {worker}");
            assert!((least..=most).contains(&idleness), "{rule:?}: {worker}");
            let parts = ["compute_s", "network_s", "barrier_s"].map(|part| real(&worker[part]));
            assert!((parts.iter().sum::<f64>() - elapsed).abs() < 1e-6, "{rule:?}: {worker}");
        }
    }
}

#[test]
fn the_age_of_information_of_a_run_is_the_mean_over_all_workers() {
    let job = ["simulate", "--data", "synthetic:2000", "--epochs", "2", "--consistency", "asp"];
    // The second worker's gradient would arrive long after the end.
    let times = ["--link", "all.delay=0ms", "--compute", "4ms 2.time=1000s", "--json"];
    let summary = finish(&[&job[..], &times].concat()).with_code(0).json();
    let workers = summary["workers"].as_array().unwrap();
    assert_eq!(number(&workers[1]["updates"]), 0, "{summary}");
    let age = |of: &Value| real(&of["age_of_information"]["mean_s"]);
    // No gradient of the second worker ever counted: its age is the time since training began.
    let half = real(&summary["time_s"]) / 2.0;
    assert!((age(&workers[1]) - half).abs() < 1e-6, "{summary}");
    let mean = (age(&workers[0]) + age(&workers[1])) / 2.0;
    assert!((age(&summary) - mean).abs() < 1e-9, "{summary}");
    assert_eq!(workers[1]["age_of_information"]["peak_mean_s"], Value::Null);
}

#[test]
fn times_since_the_command_started_are_distinct_from_training_time() {
    let args = ["run", "--json", "--data", "synthetic:2000", "--epochs", "2"];
    let summary = finish(&args).with_code(0).json();
    let [started, first] = ["started_s", "first_update_s"].map(|field| real(&summary[field]));
    assert!(0.0 < started && started <= first, "{summary}");
    assert!(first - started <= real(&summary["time_s"]), "{summary}");
}

#[test]
fn a_model_that_is_damaged_or_diverged_is_not_evaluated_and_no_run_begins_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let job = ["--data", "synthetic:400", "--epochs", "2"];
    let run = [&["run", "--json", "--out", path(&out)], &job[..]].concat();
    finish(&run).with_code(0);
    let model = out.join("model.safetensors");
    let eval = |model: &Path| finish(&["eval", "--model", path(model), "--data", "synthetic:100"]);
    eval(&model).with_code(0);

    // The server starts from the parameters of a model whose checksum is the written one.
    let server = Server::tcp(&[&job, &["--init", path(&model)]]);
    let begin =
        |init: &Path| finish(&[&["run", "--quiet", "--init", path(init)], &job[..]].concat());
    let values = folder.path().join("values");
    let keys = ["--keys", "1953..1974", "-o", path(&values)];
    finish(&[&["pull", &server.address], &keys[..]].concat()).with_code(0);
    let whole = fs::read(&model).unwrap();
    let bias = SafeTensors::deserialize(&whole).unwrap().tensor("0.bias").unwrap();
    let bias = bias.data().as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
    let told = fs::read_to_string(&values).unwrap();
    for (key, value) in (1953..).zip(bias) {
        assert!(told.lines().any(|line| line == format!("{key} {value}")), "{key} {value}: {told}");
    }

    let mut bytes = whole;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&model, &bytes).unwrap();
    let damaged = [path(&model), "is damaged", "not what was written"];
    eval(&model).refused(2, &damaged);
    begin(&model).refused(2, &damaged);
    let replay = finish(&["replay", path(&out.join("order.log"))]).with_code(1);
    assert!(replay.stdout.contains("identical to those of the run"), "{}", replay.stdout);
    assert!(damaged.iter().all(|words| replay.stderr.contains(words)), "{}", replay.stderr);

    let diverged = folder.path().join("diverged");
    // The sum of gradients at the initial parameters alone exceeds the largest finite number.
    let step = ["--learning-rate", "3e38", "--consistency", "asp", "--in-flight", "32"];
    let args = [&["run", "--quiet", "--out", path(&diverged)], &step[..]].concat();
    finish(&[&args[..], &job].concat()).with_code(1);
    let model = diverged.join("model.safetensors");
    let words = [path(&model), "of the model's 2084 parameters are not finite", "diverged"];
    eval(&model).refused(1, &words);
    begin(&model).refused(2, &["init = ", path(&model), "has the value"]);
}
