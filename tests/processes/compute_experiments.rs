//! Experiments and validations of jobs with a compute process, and the metrics that a process
//! names.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::cluster::{path, real};
use crate::process::{PSTRAIN, finish, has_python};

/// An experiment of two runs, in whose job `SOURCE` stands for a setting.
const SPEC: &str = "
name = 'two'
title = 'Two runs'
[job]
SOURCE
batch-size = 32
epochs = 2
link = '1.delay=2ms 2.delay=9ms'
compute = '3ms'
[[axis]]
name = 'consistency'
values = ['bsp', 'asp']
";

/// The data of the job, which the compute process has, too.
const DATA: &str = "synthetic:600";

fn served() -> String {
    format!("exec {PSTRAIN} compute serve --data {DATA}")
}

/// Writes [`SPEC`] with a setting, runs it, and returns the loss at each point of the curves of
/// each run.
fn losses(folder: &Path, source: &str, mode: &[&str]) -> Vec<(String, String)> {
    let (file, out) = (folder.join("spec.toml"), folder.join("out"));
    fs::write(&file, SPEC.replace("SOURCE", source)).unwrap();
    let run = ["experiment", "run", path(&file), "--out", path(&out), "--quiet"];
    finish(&[&run, mode].concat()).with_code(0);
    let mut curve = csv::Reader::from_path(out.join("curve.csv")).unwrap();
    let names = curve.headers().unwrap().clone();
    let place = |wanted| names.iter().position(|name| name == wanted).unwrap();
    let (cell, loss) = (place("consistency"), place("loss"));
    let rows = curve.records().map(|row| row.unwrap());
    let rows = rows.map(|row| (row[cell].to_owned(), row[loss].to_owned())).collect();
    fs::remove_dir_all(out).unwrap();
    rows
}

#[test]
fn an_experiment_of_a_process_has_the_curves_of_the_built_in_model() {
    let folder = TempDir::new().unwrap();
    let (inside, process) = (format!("data = '{DATA}'"), format!("process = '{}'", served()));
    let losses = |source: &str, mode: &[&str]| losses(folder.path(), source, mode);
    let wanted = losses(&inside, &[]);
    assert!(wanted.len() > 4, "{wanted:?}");
    assert_eq!(losses(&process, &[]), wanted);
    let in_step = |rows: Vec<(String, String)>| -> Vec<_> {
        rows.into_iter().filter(|(consistency, _)| consistency == "bsp").collect()
    };
    assert_eq!(in_step(losses(&process, &["--real-time"])), in_step(wanted));
}

#[test]
fn an_axis_compares_a_process_with_the_built_in_model() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("spec.toml");
    let axis = format!("name = 'process'\nvalues = ['none', '{}']", served());
    let spec = SPEC.replace("name = 'consistency'\nvalues = ['bsp', 'asp']", &axis);
    fs::write(&file, spec.replace("SOURCE\n", "")).unwrap();
    let out = folder.path().join("out");
    let run = ["experiment", "run", path(&file), "--out", path(&out), "--quiet"];
    finish(&run).with_code(0);
    let runs = fs::read_to_string(out.join("runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 3, "{runs}");
}

#[test]
fn a_given_process_takes_the_place_of_the_networks_of_an_experiment() {
    let folder = TempDir::new().unwrap();
    let (file, out) = (folder.path().join("spec.toml"), folder.path().join("out"));
    let axis = "name = 'network'\nvalues = ['small', 'times']\n[axis.settings]\n\
                small = { model = 'mlp:21' }\ntimes = { model = 'timing:5000' }";
    let spec = SPEC.replace("name = 'consistency'\nvalues = ['bsp', 'asp']", axis);
    fs::write(&file, spec.replace("SOURCE", &format!("data = '{DATA}'"))).unwrap();
    let ran = |more: &[&str]| {
        let run = ["experiment", "run", path(&file), "--out", path(&out), "--quiet"];
        finish(&[&run, more].concat()).with_code(0);
        let mut runs = csv::Reader::from_path(out.join("runs.csv")).unwrap();
        let names = runs.headers().unwrap().clone();
        let place = |wanted| names.iter().position(|name| name == wanted).unwrap();
        let columns = ["network", "accuracy", "updates"].map(place);
        let rows = runs.records().map(|row| row.unwrap());
        let found: Vec<_> = rows.map(|row| columns.map(|it| row[it].to_owned())).collect();
        fs::remove_dir_all(&out).unwrap();
        found
    };
    let wanted = ran(&[]);
    assert_eq!(wanted.len(), 2);
    assert_eq!(ran(&["--set", &format!("process={}", served())]), wanted);
    // Without an axis of models.
    fs::write(&file, SPEC.replace("SOURCE", "data = 'synthetic:60'\nmodel = 'mlp:4'")).unwrap();
    let given = ["--set", &format!("process={}", served())];
    let run = ["experiment", "run", path(&file), "--out", path(&out), "--quiet"];
    finish(&[&run, &given[..]].concat()).with_code(0);
}

#[test]
fn a_job_with_a_process_is_validated() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("spec.toml");
    fs::write(&file, SPEC.replace("SOURCE", &format!("process = '{}'", served()))).unwrap();
    let found = finish(&["validate", path(&file), "--quiet", "--json"]).with_code(0).json();
    let jobs = found["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    for job in jobs {
        let (closed, simulated) = (real(&job["closed_form_s"]), real(&job["virtual"]["time_s"]));
        assert!((closed - simulated).abs() < 0.1 * closed, "{job}");
        assert!(real(&job["shaped"]["time_s"]) >= 0.9 * simulated, "{job}");
    }
}

/// A process in Python, without any package, that reports `METRICS` of its model.
const REPORTS: &str = r#"
import sys, json, array
i, o = sys.stdin.buffer, sys.stdout.buffer
def say(message, values=()):
    values = array.array("f", values)
    o.write(json.dumps({**message, "values": len(values)}).encode() + b"\n" + values.tobytes())
    o.flush()
for line in i:
    m = json.loads(line)
    p = array.array("f", i.read(4 * m.get("values", 0)))
    if m["do"] == "hello":
        say({"tensors": [{"name": "w", "shape": [3]}], "examples": 100})
    elif m["do"] == "start":
        say({}, [1, 2, 3])
    elif m["do"] == "gradient":
        say({"id": m["id"], "loss": sum(x * x for x in p)}, [2 * x for x in p])
    elif m["do"] == "evaluate":
        say({"id": m["id"], "examples": 100, "loss": sum(x * x for x in p), "metrics": METRICS})
    elif m["do"] == "bye":
        break
"#;

#[test]
fn the_time_to_a_metric_of_the_process_is_measured() {
    if !has_python() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (script, out) = (folder.path().join("process.py"), folder.path().join("out"));
    fs::write(&script, REPORTS.replace("METRICS", r#"{"points": 20 - sum(x * x for x in p)}"#))
        .unwrap();
    let spec = folder.path().join("experiment.toml");
    let text = format!(
        r#"name = "points"
title = "Points"
[job]
process = "python3 {}"
workers = 2
epochs = 20
link = "all.delay=5ms"
compute = "10ms"
target = "points>=19"
evaluate-every = 0.25
[[axis]]
name = "learning-rate"
values = [0.1, 0.000001]
[[table]]
file = "times"
title = "Time to 19 points"
rows = ["learning-rate"]
column = [{{ title = "time", unit = "s", value = "{{target.time_s}}" }}]
[[picture]]
file = "course"
title = "Points as training continues"
kind = "curve"
x = "epoch"
y = "points"
lines = ["learning-rate"]
[[picture]]
file = "end"
title = "Points"
kind = "line"
x = "learning-rate"
y = "points"
[[picture]]
file = "early"
title = "Points after an epoch"
kind = "bar"
x = "learning-rate"
y = "points @ epoch = 1"
"#,
        path(&script)
    );
    fs::write(&spec, text).unwrap();
    finish(&["experiment", "run", path(&spec), "--out", path(&out)]).with_code(0);
    let table = fs::read_to_string(out.join("tables/times.csv")).unwrap();
    let times: Vec<_> = table.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    let [fast, slow] = times[..] else { panic!("two rows: {table}") };
    assert!(fast.parse::<f64>().unwrap() > 0.0, "{table}");
    assert!(slow.starts_with('>'), "the slow run takes longer than it lasted: {table}");
    for picture in ["course", "end", "early"] {
        assert!(out.join(format!("pictures/{picture}.svg")).is_file(), "{picture}");
    }
    // The runs are kept: only the picture is wrong.
    let text = fs::read_to_string(out.join("spec.toml")).unwrap();
    fs::write(out.join("spec.toml"), text.replace("y = \"points\"", "y = \"point\"")).unwrap();
    let told = finish(&["experiment", "report", path(&out)]).with_code(2).stderr;
    assert!(told.contains("the curves have no \"point\", but points"), "{told}");
}

#[test]
fn a_process_that_names_its_metrics_has_columns_of_them_and_no_empty_ones() {
    if !has_python() {
        return;
    }
    let folder = TempDir::new().unwrap();
    for (metrics, columns, words) in [
        (r#"{"words": 5, "bits": 1.5}"#, "bits,loss,objective,words", &["bits", "words"][..]),
        (r#"{"accuracy": 0.75}"#, "accuracy,loss,objective", &["accuracy       75.00 %"]),
        ("{}", "loss,objective", &["loss"]),
    ] {
        let (script, out) = (folder.path().join("process.py"), folder.path().join("out"));
        fs::write(&script, REPORTS.replace("METRICS", metrics)).unwrap();
        let process = format!("python3 {}", path(&script));
        let run = ["run", "--process", &process, "--epochs", "2", "--out", path(&out)];
        let shown = finish(&[&run[..], &["--overwrite"]].concat()).with_code(0).stdout;
        assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
        assert!(!shown.contains("macro F1") && !shown.contains("worst class"), "{shown}");
        let curve = fs::read_to_string(out.join("curve.csv")).unwrap();
        let header = curve.lines().next().unwrap();
        assert_eq!(header, format!("version,samples,epoch,time_s,{columns}"));
        assert!(curve.lines().count() > 2 && !curve.contains(",,"), "{curve}");
    }
}
