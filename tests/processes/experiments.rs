//! `pstrain experiment` as users run it: sweeps on synthetic data.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::cluster::{number, path, real};
use crate::process::{Process, eventually, finish};

const SWEEP: &str = "
name = 'mine'
title = 'A sweep of mine'
reps = 2
[job]
data = 'synthetic:600'
epochs = 2
link = '1.delay=1ms'
compute = '4.5ms'
[[axis]]
name = 'consistency'
values = ['bsp', 'asp']
[[axis]]
name = 'delay'
unit = 'ms'
values = [1, 50]
set = { link = '2.delay={}ms' }
[[picture]]
file = 'time'
title = 'Time'
kind = 'line'
x = 'delay'
y = 'time_s'
lines = ['consistency']
[[claim]]
text = 'sync waits for the slower'
measured = '{time_s; consistency=bsp, delay=50} / {time_s; consistency=asp, delay=50}'
holds = 'measured > 2'
[[claim]]
text = 'this cannot be'
measured = '{accuracy; consistency=bsp, delay=1}'
holds = 'measured > 2'
";

fn file(folder: &TempDir, text: &str) -> String {
    let file = folder.path().join("mine.toml");
    fs::write(&file, text).unwrap();
    path(&file).to_owned()
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn a_sweep_writes_tables_pictures_claims_and_a_page_identical_for_any_number_of_threads() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, SWEEP);
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let run = ["experiment", "run", &file, "--jobs", "1", "--json", "--out", path(&one)];
    let summary = finish(&run).with_code(0).json();
    assert_eq!((number(&summary["done"]), number(&summary["of"])), (8, 8));
    assert_eq!(summary["claims"][0]["verdict"], "holds", "{summary}");
    assert_eq!(summary["claims"][1]["verdict"], "does-not-hold", "{summary}");
    let cell = &summary["cells"][3];
    assert_eq!((&cell["at"]["consistency"], &cell["at"]["delay"]), (&"asp".into(), &"50".into()));
    assert_eq!(number(&cell["metrics"]["time_s"]["n"]), 2);
    assert!(real(&cell["metrics"]["staleness.mean"]["mean"]) > 0.5, "{cell}");
    for absent in ["time_steps", "measured_s"] {
        assert!(cell["metrics"][absent].is_null(), "{cell}");
    }
    let of_data =
        |worker: u32| real(&cell["metrics"][format!("workers.{worker}.data_share")]["mean"]);
    assert!((of_data(1) - 0.5).abs() < 0.01, "{cell}");
    assert!((of_data(1) + of_data(2) - 1.0).abs() < 1e-9, "{cell}");

    assert_eq!(read(&one, "runs.csv").lines().count(), 1 + 8);
    assert_eq!(read(&one, "timeline.csv").lines().count(), 1 + 8 * 2);
    assert!(read(&one, "curve.csv").lines().count() > 8);
    assert!(read(&one, "staleness.csv").starts_with("consistency,delay,rep,staleness,gradients"));
    assert!(read(&one, "pictures/time.svg").contains("<svg"));
    assert!(fs::read(one.join("pictures/time.png")).unwrap().starts_with(b"\x89PNG"));
    let page = read(&one, "report.html");
    for part in ["A sweep of mine", "<svg", "does not hold", "slow start", "pstrain experiment run"]
    {
        assert!(page.contains(part), "{part}");
    }

    let chapter = read(&one, "report.md");
    for part in [
        "# A sweep of mine\n",
        "**2 claims: 1 hold, 1 do not hold, 0 cannot be told**",
        "![Time](pictures/time.svg)",
        "| measured &gt; 2 | does not hold |",
        &format!("pstrain experiment run {file} --out {}", path(&one)),
    ] {
        assert!(chapter.contains(part), "{part}: {chapter}");
    }

    // The resolved specification gives identical results with two threads.
    let spec = path(&one).to_owned() + "/spec.toml";
    let run = ["experiment", "run", &spec, "--jobs", "2", "--quiet", "--out", path(&two)];
    let ended = finish(&run).with_code(0);
    assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended:?}");
    let same =
        ["runs.csv", "curve.csv", "staleness.csv", "timeline.csv", "summary.json", "spec.toml"];
    for name in same {
        assert_eq!(read(&one, name), read(&two, name), "{name}");
    }

    // Evaluating the claims again runs nothing.
    let ended = finish(&["experiment", "report", path(&two)]).with_code(0);
    for words in ["sync waits for the slower", "1 hold, 1 do not hold", "report.html"] {
        assert!(ended.stdout.contains(words), "{}", ended.stdout);
    }
    let ended = finish(&["experiment", "report", path(&two), "--check", "--quiet"]).with_code(1);
    assert!(
        ended.stderr.contains("of 2 claims 1 do not hold, 0 cannot be told"),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_interrupted_sweep_prints_how_to_continue_and_continues() {
    let folder = TempDir::new().unwrap();
    let text = SWEEP.replace("reps = 2", "reps = 40").replace("synthetic:600", "synthetic:4000");
    let file = file(&folder, &text);
    let out = folder.path().join("out");
    let run = ["experiment", "run", &file, "--jobs", "1", "--out", path(&out)];
    let process = Process::start(&run);
    let done =
        || fs::read_dir(out.join("runs")).map_or(0, |runs| runs.filter_map(Result::ok).count());
    eventually("run", || (done() > 2).then_some(()));
    process.signal(Signal::INT);
    let ended = process.wait().with_code(3);
    for words in ["stopped: ", " of 160 runs are done; continue with", "--out"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    let there = done();
    assert!((3..160).contains(&there));

    let fewer = [&run[..], &["--reps", "1", "--quiet"]].concat();
    finish(&fewer).with_code(0);
    assert_eq!(read(&out, "runs.csv").lines().count(), 1 + 4);
    let other = [&run[..], &["--set", "epochs=3"]].concat();
    finish(&other).refused(2, &["another experiment", "--overwrite"]);
}

#[test]
fn the_same_specification_runs_with_real_processes() {
    let folder = TempDir::new().unwrap();
    let text = SWEEP.replace("reps = 2", "reps = 1").replace("[1, 50]", "[1, 5]");
    let file = file(&folder, &text.replace("delay=50", "delay=5"));
    let out = folder.path().join("out");
    let run = ["experiment", "run", &file, "--real-time", "--json", "--out", path(&out)];
    let summary = finish(&run).with_code(0).json();
    assert_eq!(summary["mode"], "real-time");
    assert_eq!(number(&summary["done"]), 4);
    let metrics = &summary["cells"][0]["metrics"];
    assert!(real(&metrics["time_s"]["mean"]) > 0.0 && real(&metrics["accuracy"]["mean"]) > 0.5);
    let (time, step) = (&metrics["time_s"]["mean"], &metrics["reference_step_s"]["mean"]);
    let steps = real(&metrics["time_steps"]["mean"]);
    assert!((steps * real(step) / real(time) - 1.0).abs() < 1e-9, "{metrics}");
    let page = read(&out, "report.html");
    for part in ["process of its own", "time (steps)", "reference step"] {
        assert!(page.contains(part), "{part}");
    }
    let about: serde_json::Value = serde_json::from_str(&read(&out, "environment.json")).unwrap();
    assert_eq!(real(&about["calibration"]["reference_step_s"]), real(step));
    // No run is missing, so nothing is measured again.
    let again = finish(&run).with_code(0).json();
    assert_eq!(again["cells"], summary["cells"]);
    let after: serde_json::Value = serde_json::from_str(&read(&out, "environment.json")).unwrap();
    assert_eq!(after["calibration"], about["calibration"]);
    // Runs in virtual time are refused in a folder of real-time runs.
    finish(&["experiment", "run", &file, "--out", path(&out)]).refused(2, &["another experiment"]);
}

#[test]
fn a_measured_computing_time_applies_to_all_runs_and_is_reported_with_each() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, &SWEEP.replace("'4.5ms'", "'measured'"));
    let out = folder.path().join("out");
    let run = ["experiment", "run", &file, "--json", "--out", path(&out)];
    let summary = finish(&run).with_code(0).json();
    let measured = |cell: usize| &summary["cells"][cell]["metrics"]["measured_s"];
    let (least, most) = (real(&measured(0)["mean"]), real(&measured(3)["mean"]));
    assert!(least > 0.0 && (most - least).abs() < 1e-12, "{summary}");
    assert_eq!((number(&measured(0)["n"]), real(&measured(0)["sd"])), (2, 0.0));
    assert!(read(&out, "runs.csv").lines().next().unwrap().contains("measured_s"));
}

#[test]
fn shipped_experiments_are_listed_and_shown() {
    let listed = finish(&["experiment", "list"]).with_code(0).stdout;
    for name in ["osdi-failover", "paeleke-fig1", "paeleke-fig2", "paeleke-outlook"] {
        assert!(listed.contains(name), "{listed}");
        let shown = finish(&["experiment", "show", name]).with_code(0).stdout;
        assert!(shown.contains(&format!("name = \"{name}\"")), "{shown}");
    }
    let words = ["no experiment", "did you mean \"paeleke-fig1\""];
    finish(&["experiment", "show", "paeleke-fig11"]).refused(2, &words);
    finish(&["experiment", "run", "./mine.toml"]).refused(2, &["./mine.toml", "no such file"]);
    finish(&["experiment", "run", "/"]).refused(2, &["/ is a folder"]);
    finish(&["experiment", "report", "/"]).refused(2, &["no experiment", "spec.toml"]);
}

#[test]
fn an_experiment_uses_separate_evaluation_rows_in_virtual_and_real_time() {
    let folder = TempDir::new().unwrap();
    let spec = "name = 'mine'\ntitle = 'Mine'\nreps = 1\n[job]\ndata = 'synthetic:600'\nepochs = \
        1\n[[axis]]\nname = 'consistency'\nvalues = ['bsp']\n";
    let file = file(&folder, spec);
    let test = folder.path().join("test.csv");
    finish(&["data", "synth", "--rows", "250", "--out", path(&test)]).with_code(0);
    for (out, ways) in [
        ("virtual", &["--set", "compute=1ms", "--set", "link=all.delay=1ms"][..]),
        ("real", &["--real-time"]),
    ] {
        let out = folder.path().join(out);
        let run = ["experiment", "run", &file, "--json", "--out", path(&out)];
        let run = [&run[..], ways, &["--evaluation-data", path(&test)]].concat();
        let summary = finish(&run).with_code(0).json();
        let metrics = &summary["cells"][0]["metrics"];
        assert_eq!(number_of(metrics, "evaluation.rows"), 250.0, "{summary}");
        // With separate evaluation rows, all rows of the data are trained on.
        assert_eq!(number_of(metrics, "samples"), 600.0, "{summary}");
        let times = read(&out, "timeline.csv");
        let mut times = csv::Reader::from_reader(times.as_bytes());
        let header: Vec<String> = times.headers().unwrap().iter().map(str::to_owned).collect();
        let row = times.records().next().unwrap().unwrap();
        let share = |part: &str| {
            let place = header.iter().position(|name| name == part).unwrap();
            row[place].parse::<f64>().unwrap()
        };
        let shares = ["compute_share", "network_share", "barrier_share"].map(share);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{shares:?}");
    }
}

/// Returns the mean of a metric over the repetitions.
fn number_of(metrics: &serde_json::Value, name: &str) -> f64 {
    real(&metrics[name]["mean"])
}
