//! Numbers to predict, and the losses and metrics of each task, with real processes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pstrain_compute::examples::{Examples, Label};
use pstrain_data::{Prepared, Settings, SyntheticRegression};
use serde_json::Value;

use crate::cluster::{Server, path, real};
use crate::process::finish;

/// The command of docs/data.md.
const COMMAND: [&str; 9] = [
    "run",
    "--data",
    "regression",
    "--model",
    "linear",
    "--learning-rate",
    "0.05",
    "--epochs",
    "5",
];

fn run(args: &[&str]) -> Value {
    finish(&[args, &["--json"]].concat()).with_code(0).json()
}

/// Returns a row with a 1 for the intercept, and its value.
fn row(examples: &Examples, row: usize) -> (Vec<f64>, f64) {
    let row = examples.row(row);
    let Label::Value(value) = row.label else { panic!("a number is predicted") };
    (row.dense.iter().map(|&x| f64::from(x)).chain([1.0]).collect(), value.into())
}

/// Solves the normal equations by Gaussian elimination: the least squares of all examples.
fn least_squares(examples: &Examples) -> Vec<f64> {
    let size = examples.shape().dense as usize + 1;
    // Each row has the right side as its last number.
    let mut system = vec![vec![0.0; size + 1]; size];
    for (x, value) in (0..examples.len()).map(|index| row(examples, index)) {
        for (equation, own) in system.iter_mut().zip(&x) {
            for (sum, other) in equation.iter_mut().zip(x.iter().chain([&value])) {
                *sum += own * other;
            }
        }
    }
    for pivot in 0..size {
        let line = system[pivot].clone();
        let others = system.iter_mut().enumerate().filter(|(place, _)| *place != pivot);
        for (_, other) in others {
            let factor = other[pivot] / line[pivot];
            other.iter_mut().zip(&line).for_each(|(value, own)| *value -= factor * own);
        }
    }
    (0..size).map(|index| system[index][size] / system[index][index]).collect()
}

fn rmse(weights: &[f64], examples: &Examples) -> f64 {
    let square = |index| {
        let (x, value) = row(examples, index);
        let output: f64 = x.iter().zip(weights).map(|(x, weight)| x * weight).sum();
        (output - value).powi(2)
    };
    let squares: f64 = (0..examples.len()).map(square).sum();
    examples.unit() * (squares / examples.len() as f64).sqrt()
}

#[test]
fn the_documented_command_reaches_the_least_squares_within_a_hundredth() {
    let data = SyntheticRegression { rows: 10_000, columns: 10, seed: 1 };
    let prepared = Prepared::load(&data, &Settings::default()).unwrap();
    let best = rmse(&least_squares(&prepared.train), &prepared.evaluation);
    let summary = run(&COMMAND);
    let found = real(&summary["rmse"]);
    assert!((found / best - 1.0).abs() < 0.01, "{found} where least squares have {best}");
    // The loss is of numbers whose deviation is 1, the errors are of the numbers themselves.
    assert!((real(&summary["loss"]) - (1.0 - real(&summary["r2"]))).abs() < 0.01, "{summary}");
    assert!(real(&summary["r2"]) > 0.97 && real(&summary["mae"]) < found, "{summary}");
    for of_classes in ["accuracy", "macro_f1", "recall", "worst_class", "confusion"] {
        assert!(summary.get(of_classes).is_none(), "{of_classes}: {summary}");
    }
    for loss in ["huber", "huber:0.25", "absolute"] {
        let other = ["--epochs", "20", "--schedule", "cosine:1180", "--loss", loss];
        let other = real(&run(&[&COMMAND[..7], &other].concat())["rmse"]);
        assert!((other / best - 1.0).abs() < 0.02, "{loss}: {other} where {best} is possible");
    }
}

/// Writes a table with a price that is linear in its columns.
fn prices(folder: &Path) -> String {
    let file = folder.join("prices.csv");
    let mut text = String::from("rooms,town,id,price\n");
    for row in 0..400 {
        let (rooms, town) = (1 + row * 7 % 5, ["a", "b"][row * row % 3 % 2]);
        let price = 200e3 + 50e3 * rooms as f64 + if town == "a" { 100e3 } else { 0.0 };
        writeln!(text, "{rooms},{town},{row},{price}").unwrap();
    }
    fs::write(&file, text).unwrap();
    path(&file).to_owned()
}

#[test]
fn a_table_is_trained_evaluated_and_replayed_with_the_metrics_of_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("csv:{},target=price,drop=id", prices(folder.path()));
    let out = folder.path().join("out");
    let job = ["run", "--data", &data, "--partition", "by-class", "--workers", "3"];
    let more =
        ["--model", "mlp:8", "--learning-rate", "0.1", "--epochs", "60", "--loss", "huber:2"];
    let summary = run(&[&job[..], &more, &["--out", path(&out)]].concat());
    assert!(real(&summary["r2"]) > 0.95, "{summary}");
    assert!((1e3..20e3).contains(&real(&summary["rmse"])), "{summary}");

    let curve = fs::read_to_string(out.join("curve.csv")).unwrap();
    let mut lines = curve.lines();
    let header = "version,samples,epoch,time_s,rmse,loss,objective,mae,r2";
    assert_eq!(lines.next(), Some(header));
    let last: Vec<&str> = lines.last().unwrap().split(',').collect();
    assert_eq!(last[4].parse::<f64>().unwrap(), real(&summary["rmse"]));
    assert_eq!(last[8].parse::<f64>().unwrap(), real(&summary["r2"]));

    let model = out.join("model.safetensors");
    let eval = ["eval", "--model", path(&model), "--data", &data];
    let found = run(&eval);
    for metric in ["rmse", "mae", "r2"] {
        assert!(found[metric].is_f64(), "{found}");
    }
    let words = finish(&eval).with_code(0).stdout;
    assert!(words.contains("RMSE") && words.contains("of 400 evaluation rows"), "{words}");
    assert!(!words.contains("recall") && !words.contains("accuracy"), "{words}");

    let replayed = run(&["replay", path(&out)]);
    assert_eq!((&replayed["identical"], &replayed["rmse"]), (&true.into(), &summary["rmse"]));

    let split = finish(&["data", "split", "--data", &data, "--partition", "by-class"]);
    assert!(split.with_code(0).stdout.contains("decile 10"));
    let info = finish(&["data", "info", &data]).with_code(0).stdout;
    assert!(info.contains("number to predict") && info.contains("price"), "{info}");
}

#[test]
fn sparse_rows_have_numbers_to_predict_too_on_the_server_and_at_workers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows");
    let mut text = String::new();
    for row in 0..400_u32 {
        let (one, other) = (1 + row % 5, 6 + row * 3 % 7);
        writeln!(text, "{} {one}:1 {other}:0.5", f64::from(one) - 0.25 * f64::from(other)).unwrap();
    }
    fs::write(&file, text).unwrap();
    let data = format!("libsvm:{},predict=numbers", path(&file));
    let job = ["--data", &data, "--model", "linear", "--learning-rate", "0.5", "--epochs", "30"];
    let one = run(&[&["run"], &job[..]].concat());
    assert!(real(&one["rmse"]) < 0.05, "{one}");
    let several = run(&[&["run"], &job[..], &["--servers", "3"]].concat());
    assert_eq!(several["params_sha256"], one["params_sha256"]);
    let server = Server::tcp(&[&job]);
    let workers = vec![server.worker(&["--data", "server"]), server.worker(&["--data", &data])];
    assert_eq!(server.finish(workers).summary["params_sha256"], one["params_sha256"]);
    let curved = ["run", "--data", &data, "--model", "linear", "--optimizer", "diagonal"];
    let curved = [&curved[..], &["--learning-rate", "0.5", "--batch-size", "all"]].concat();
    run(&curved);
    let absolute = [&curved[..], &["--loss", "absolute"]].concat();
    finish(&absolute).refused(2, &["optimizer = diagonal needs another loss than absolute"]);
}

#[test]
fn two_classes_have_one_output_and_an_area_under_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let mut text = String::from("x,y,state\n");
    for row in 0..600_i32 {
        let (x, y) = (row * 37 % 101, row * 53 % 97);
        let is_on = x + y + row * 11 % 41 > 115;
        writeln!(text, "{x},{y},{}", if is_on { "on" } else { "off" }).unwrap();
    }
    fs::write(&file, text).unwrap();
    let data = format!("csv:{}", path(&file));
    let out = folder.path().join("out");
    let job = ["run", "--data", &data, "--model", "linear", "--epochs", "20"];
    let two = run(&job);
    let one = run(&[&job[..], &["--loss", "logistic", "--out", path(&out)]].concat());
    for summary in [&one, &two] {
        assert!(real(&summary["auc"]) > 0.95 && real(&summary["accuracy"]) > 0.85, "{summary}");
        let confusion = &summary["confusion"];
        let on = |class: &str| real(&confusion["on"][class]) as u64;
        assert_eq!(real(&summary["recall"]["on"]), on("on") as f64 / (on("on") + on("off")) as f64);
    }
    let words = finish(&["eval", "--model", path(&out), "--data", &data]).with_code(0).stdout;
    assert!(words.contains("AUC") && words.contains("class, predicted:"), "{words}");
}

/// An experiment about an error, which is better the lower it is.
const SWEEP: &str = "
name = 'errors'
title = 'Errors'
[job]
data = 'regression:800,4'
model = 'linear'
learning-rate = 0.05
epochs = 8
compute = '5ms'
link = 'all.delay=1ms'
[[axis]]
name = 'consistency'
values = ['bsp', 'asp']
[[picture]]
file = 'rmse'
title = 'RMSE'
kind = 'curve'
x = 'time_s'
y = 'rmse'
lines = ['consistency']
[[claim]]
text = 'the error falls to the noise'
measured = '{time_s to rmse 0.6; consistency=bsp}'
holds = 'measured < 2'
[[claim]]
text = 'no model is better than the noise'
measured = '{least rmse; consistency=asp}'
holds = 'measured > 0.4'
";

#[test]
fn an_experiment_measures_the_time_to_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("errors.toml"), folder.path().join("out"));
    fs::write(&file, SWEEP).unwrap();
    let ended = finish(&["experiment", "run", path(&file), "--out", path(&out)]);
    let said = ended.with_code(0).stdout;
    assert!(!said.contains("does not hold"), "{said}");
    let curve = fs::read_to_string(out.join("curve.csv")).unwrap();
    assert!(curve.lines().next().unwrap().ends_with("time_s,rmse,loss,mae,r2"), "{curve}");
    let picture = fs::read_to_string(out.join("pictures/rmse.svg")).unwrap();
    assert!(picture.contains("RMSE"), "{picture}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_cure() {
    let refused = |args: &[&str], words: &[&str]| {
        finish(&[&["run", "--data"], args].concat()).refused(2, words);
    };
    refused(&["regression", "--model", "softmax"], &["use model = linear or mlp:WIDTH"]);
    refused(&["regression", "--loss", "nll"], &["loss = nll", "use squared, absolute or huber"]);
    refused(&["synthetic:500", "--loss", "squared"], &["5 classes", "target=COLUMN"]);
    refused(&["synthetic:500", "--loss", "logistic"], &["loss = logistic", "use nll"]);
    refused(&["synthetic:500", "--loss", "mse"], &["did you mean \"squared\""]);
    refused(&["regression", "--loss", "huber:0"], &["DELTA must be finite and above 0"]);
}
