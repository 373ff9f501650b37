//! Energy: by a power model, in virtual and in real time, and by counters of the machine.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{Server, number, path, real};
use crate::process::{Process, finish, json};

/// Two workers in step: 12 updates of 10 ms each way and 8 ms for the slower worker.
const JOB: [&str; 11] = [
    "simulate",
    "--json",
    "--data",
    "synthetic:2000",
    "--epochs",
    "1",
    "--link",
    "all.up.delay=10ms all.down.delay=10ms",
    "--compute",
    "4ms 2.factor=2",
    "--seed=1",
];
const UPDATES: f64 = 12.0;
const TIME: f64 = UPDATES * 0.028;

#[track_caller]
fn assert_close(value: &Value, wanted: f64) {
    let value = real(value);
    assert!((value - wanted).abs() <= 1e-12 * wanted.abs(), "{value} instead of {wanted}");
}

fn bytes_of(worker: &Value) -> f64 {
    let bytes = ["pushed_bytes", "key_bytes", "pulled_bytes"];
    bytes.map(|name| number(&worker[name])).iter().sum::<u64>() as f64
}

#[test]
fn energy_in_virtual_time_is_that_of_the_closed_form() {
    let power = ["--power", "idle=2W busy=6W byte=20nJ 2.busy=10W server.idle=3W"];
    let summary = json(&[&JOB, &power, &["--carbon-intensity", "380"]]);
    assert_eq!(number(&summary["updates"]), 12);
    assert_close(&summary["time_s"], TIME);
    let bytes = [0, 1].map(|worker: usize| bytes_of(&summary["workers"][worker]));
    // 93 x 21 + 21 + 21 x 5 + 5 parameters, up and down in each update.
    assert_eq!(bytes, [2084.0 * 4.0 * 2.0 * UPDATES; 2], "{summary}");
    let modelled = &summary["energy"]["modelled"];
    let one = 2.0 * TIME + 4.0 * 0.004 * UPDATES + 2e-8 * bytes[0];
    let two = 2.0 * TIME + 8.0 * 0.008 * UPDATES + 2e-8 * bytes[1];
    let server = 3.0 * TIME + 2e-8 * (bytes[0] + bytes[1]);
    assert_close(&modelled["workers"][0]["joules"], one);
    assert_close(&modelled["workers"][1]["joules"], two);
    assert_close(&modelled["servers"]["joules"], server);
    let all = one + two + server;
    assert_close(&modelled["joules"], all);
    assert_close(&modelled["joules_per_sample"], all / number(&summary["samples"]) as f64);
    assert_close(&modelled["carbon_g"], all / 3.6e6 * 380.0);
    assert!(modelled["joules_to_target"].is_null(), "{modelled}");
    let carbon = &summary["energy"]["carbon"];
    assert_eq!(carbon, &serde_json::json!({ "grams_per_kwh": 380.0 }), "no PUE was given");
    assert!(summary["energy"].get("measured").is_none(), "{summary}");
    // Energy changes neither the run nor the job.
    let without = json(&[&JOB]);
    assert!(without.get("energy").is_none(), "{without}");
    for name in ["trace_sha256", "job_sha256", "params_sha256"] {
        assert_eq!(without[name], summary[name], "{name}");
    }
}

#[test]
fn a_run_that_ends_at_its_target_has_taken_the_energy_to_the_target() {
    let target = ["--evaluate-every", "0.25", "--target", "loss=1.55"];
    let target = [&target[..], &["--power", "laptop byte=1nJ"]].concat();
    let summary = json(&[&JOB, &target]);
    assert_eq!(summary["ended"], "the target is reached", "{summary}");
    let modelled = &summary["energy"]["modelled"];
    assert_close(&modelled["joules_to_target"], real(&modelled["joules"]));
    assert_eq!(modelled["power"], "all.device=laptop all.byte=1nJ");
}

#[test]
fn a_ring_receives_as_many_bytes_as_it_sends() {
    let ring = ["--workers", "4", "--architecture", "all-reduce:ring", "--power", "laptop"];
    let summary = json(&[&JOB, &ring]);
    let workers = summary["workers"].as_array().unwrap();
    let sum = |name: &str| workers.iter().map(|worker| number(&worker[name])).sum::<u64>();
    assert_eq!(sum("pushed_bytes"), sum("pulled_bytes"), "{summary}");
    // Each sends 2 (N - 1) / N of the parameters.
    let sent = 2 * 3 * 2084 * number(&summary["updates"]);
    assert_eq!(sum("pushed_bytes"), sent * 4, "{summary}");
    // The meeting point passes nothing on.
    assert_close(
        &summary["energy"]["modelled"]["servers"]["joules"],
        8.0 * real(&summary["time_s"]),
    );
}

#[test]
fn energy_in_real_time_lies_between_idle_and_busy_all_the_time() {
    let job = ["run", "--data", "synthetic:2000", "--epochs", "2", "--power", "raspberry-pi-4"];
    let summary = json(&[&job, &["--json"]]);
    let time = real(&summary["time_s"]);
    let modelled = &summary["energy"]["modelled"];
    for worker in modelled["workers"].as_array().unwrap() {
        let joules = real(&worker["joules"]);
        assert!((2.7 * time..=6.4 * time * (1.0 + 1e-9)).contains(&joules), "{worker}");
    }
    let told = finish(&[&job[..], &["--carbon-intensity", "380", "--pue", "1.5"]].concat());
    let table = told.with_code(0).stdout;
    for words in ["\nenergy  ", " modelled: workers ", "\ncarbon  ", " at 380 g/kWh, PUE 1.5"] {
        assert!(table.contains(words), "no {words:?} in {table}");
    }
}

/// A folder of counters, as the kernel has one for a machine with one processor.
fn counters(energy: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (entry, name) in [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram")] {
        let entry = folder.path().join(entry);
        fs::create_dir(&entry).unwrap();
        for (file, text) in [("name", name), ("max_energy_range_uj", "262143328850")] {
            fs::write(entry.join(file), text).unwrap();
        }
        fs::write(entry.join("energy_uj"), energy).unwrap();
    }
    folder
}

fn count(folder: &Path, energy: &str) {
    let file = folder.join("intel-rapl:0/energy_uj");
    fs::write(folder.join("new"), energy).unwrap();
    fs::rename(folder.join("new"), file).unwrap();
}

#[test]
fn servers_and_workers_measure_their_machine_where_it_has_counters() {
    let counters = counters("1000000");
    let variable = format!("PSTRAIN_POWERCAP={}", counters.path().display());
    let under = ["env", &variable];
    let job = ["--data", "synthetic:2000", "--epochs", "100000", "--compute", "5ms"];
    let server = Server::under(&under, "127.0.0.1:0", &[&job]);
    let workers = [(); 2]
        .map(|()| Process::start_under(&under, &["worker", "--server", &server.address, "--json"]));
    server.wait_for_updates(5);
    count(counters.path(), "4500000");
    let left = server.stop(Vec::from(workers));
    let measured = &left.summary["energy"]["measured"];
    assert_eq!(real(&measured["domains"]["package-0"]), 3.5, "{measured}");
    assert_eq!(real(&measured["domains"]["package-0-dram"]), 0.0, "{measured}");
    assert_eq!(real(&measured["joules"]), 3.5, "{measured}");
    assert!(real(&measured["seconds"]) > 0.02, "{measured}");
    assert_close(&measured["joules_per_sample"], 3.5 / number(&left.summary["samples"]) as f64);
    assert!(left.summary["energy"].get("modelled").is_none(), "{measured}");
}

#[test]
fn a_worker_tells_the_energy_of_its_machine() {
    let counters = counters("1000000");
    let variable = format!("PSTRAIN_POWERCAP={}", counters.path().display());
    let server = Server::tcp(&[&["--data", "synthetic:2000", "--epochs", "2"]]);
    let start = || {
        let args = ["worker", "--server", &server.address, "--json"];
        Process::start_under(&["env", &variable], &args)
    };
    for worker in [start(), start()] {
        let told = worker.wait().with_code(0).json();
        assert_eq!(real(&told["energy"]["joules"]), 0.0, "{told}");
        assert!(!told["energy"]["boot"].as_str().unwrap().is_empty(), "{told}");
    }
    server.process.wait().with_code(0);
}

#[test]
fn what_cannot_be_modelled_is_refused_with_its_cure() {
    for (args, told) in [
        (&["--power", "raspberry"][..], &["--power raspberry", "raspberry-pi-4"][..]),
        (&["--power", "idle=2W"], &["power: 1", "1.busy=6.4W"]),
        (&["--power", "1.device=laptop 2.device=laptop"], &["power: server", "server.idle=0W"]),
        (&["--power", "idle=9W busy=2W"], &["busy=2W", "idle=9W"]),
        (&["--power", "3.device=laptop"], &["power: 3", "1 to 2"]),
        (&["--pue", "1.5"], &["pue = 1.5", "carbon-intensity"]),
        (
            &["--power", "laptop", "--carbon-intensity", "-1"],
            &["--carbon-intensity -1", "0 or more"],
        ),
        (
            &["--power", "laptop", "--carbon-intensity", "380", "--pue", "0.5"],
            &["--pue 0.5", "1 or more"],
        ),
        (&["--carbon-intensity", "380"], &["carbon-intensity = 380", "--power raspberry-pi-4"]),
    ] {
        finish(&[&JOB[..], args].concat()).refused(2, told);
    }
    let run = ["run", "--data", "synthetic:2000", "--carbon-intensity", "380"];
    let nowhere = ["env", "PSTRAIN_POWERCAP=/nonexistent"];
    let refused = Process::start_under(&nowhere, &run).wait();
    refused.refused(2, &["carbon-intensity = 380", "/nonexistent", "--power"]);
}

#[cfg(feature = "pictures")]
#[test]
fn power_is_swept_drawn_and_claimed_by_an_experiment() {
    const SWEEP: &str = "
name = 'energy'
title = 'Energy of two links'
[job]
data = 'synthetic:600'
epochs = 2
target = 'loss=0.01'
link = 'all.down.delay=1ms'
compute = '4ms'
[[axis]]
name = 'delay'
unit = 'ms'
values = [1, 50]
set = { link = 'all.delay={}ms' }
[[axis]]
name = 'idle'
unit = 'W'
values = [1, 2]
set = { power = 'idle={}W busy=4W' }
[[picture]]
file = 'energy'
title = 'Energy'
kind = 'line'
x = 'idle'
y = 'energy.modelled.joules_per_sample'
lines = ['delay']
[[claim]]
text = 'waiting takes energy'
measured = '{energy.modelled.joules; delay=50, idle=2} / {energy.modelled.joules; delay=1, idle=2}'
holds = 'measured > 2'
[[claim]]
text = 'a target that is not reached takes more than the run'
measured = '{energy.modelled.joules_to_target; delay=1, idle=1}'
expected = '{energy.modelled.joules; delay=1, idle=1}'
holds = 'measured >= expected'
[[claim]]
text = 'the power that was set'
measured = '{setting power.idle; delay=1, idle=2}'
holds = 'measured > 1.99'
";
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("energy.toml");
    fs::write(&file, SWEEP).unwrap();
    let out = folder.path().join("out");
    let run = ["experiment", "run", path(&file), "--json", "--out", path(&out)];
    let summary = finish(&run).with_code(0).json();
    for claim in summary["claims"].as_array().unwrap() {
        assert_eq!(claim["verdict"], "holds", "{claim}");
    }
    assert!(out.join("pictures/energy.svg").exists() || out.join("energy.svg").exists());
}

/// A job whose second worker is always called off after 10 of its 19 ms.
const CALLED_OFF: [&str; 14] = [
    "--workers",
    "2",
    "--consistency",
    "k-sync:1",
    "--data",
    "synthetic:4000",
    "--batch-size",
    "50",
    "--epochs",
    "1",
    "--link",
    "all.delay=0ms",
    "--compute",
    "10ms 2.time=19ms",
];

#[test]
fn computing_that_is_called_off_is_computing_and_takes_energy() {
    let power = ["--power", "idle=1W busy=2W", "--json"];
    let out = TempDir::new().unwrap();
    let results = out.path().join("results");
    let job = [&["simulate"], &CALLED_OFF[..], &power, &["-o", path(&results)]].concat();
    let summary = finish(&job).with_code(0).json();
    let second = &summary["workers"][1];
    assert_eq!(number(&second["called_off"]), 60, "{second}");
    for time in ["elapsed_s", "compute_s", "called_off_s"] {
        assert_close(&second[time], 0.6);
    }
    assert_eq!((real(&second["idleness"]), real(&second["network_s"])), (0.0, 0.0), "{second}");
    assert_close(&summary["energy"]["modelled"]["workers"][1]["joules"], 1.2);
    check_books(&results, &summary);
    let timeline = fs::read_to_string(results.join("timeline.csv")).unwrap();
    let rows = timeline.lines().filter(|line| line.starts_with("2,"));
    assert!(rows.clone().all(|row| row.ends_with(",,10000000,called-off,,")), "{timeline}");
    assert_eq!(rows.count(), 60, "{timeline}");
    let shown = finish(&job[..job.len() - 3]).with_code(0).stdout;
    assert!(shown.contains("60 gradients, after ") && shown.contains("called off"), "{shown}");
}

#[test]
fn computing_that_is_called_off_is_booked_in_real_time_and_by_separate_processes() {
    let out = TempDir::new().unwrap();
    let results = out.path().join("results");
    let into = ["--json", "-o", path(&results)];
    let run = [&["run"], &CALLED_OFF[..], &into].concat();
    let summary = finish(&run).with_code(0).json();
    check_called_off(&summary, &results);
    let server = Server::tcp(&[&CALLED_OFF]);
    let workers = server.workers(2);
    let left = server.finish(workers);
    check_called_off(&left.summary, &left.out);
}

/// Checks that the second worker's computing is booked, and that the timeline has a row for each
/// gradient that was called off.
fn check_called_off(summary: &Value, results: &Path) {
    check_books(results, summary);
    let second = &summary["workers"][1];
    let times = ["called_off_s", "compute_s", "elapsed_s"].map(|time| real(&second[time]));
    assert!(0.0 < times[0] && times[0] <= times[1], "{second}");
    let timeline = fs::read_to_string(results.join("timeline.csv")).unwrap();
    let rows = timeline.lines().filter(|line| line.ends_with(",called-off,,")).count();
    let workers = summary["workers"].as_array().unwrap();
    let counted: u64 = workers.iter().map(|worker| number(&worker["called_off"])).sum();
    assert!(counted > 0 && rows as u64 == counted, "{counted} in {summary}\n{timeline}");
}
