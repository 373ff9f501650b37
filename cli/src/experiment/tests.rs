//! Tests with made-up runs, which need no training.

mod deciding;
mod folders;
mod specification;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::execute::Execute;
use super::record::{CurvePoint, Record};
use super::*;
use crate::picture::{Mark, Picture};

const SWEEP: &str = "
name = 'made-up'
title = 'Made up'
reps = 3
[job]
epochs = 2
seed = 40
[[axis]]
name = 'consistency'
values = ['bsp', 'asp']
[[axis]]
name = 'delay'
unit = 'ms'
values = [1, 10, 100]
set = { link = '2.delay={}ms' }
[[picture]]
file = 'line'
title = 'Line'
kind = 'line'
x = 'delay'
y = 'time_s'
lines = ['consistency']
[[picture]]
file = 'curve'
title = 'Curve'
kind = 'curve'
x = 'epoch'
y = 'accuracy'
lines = ['consistency']
where = { delay = 100 }
[[picture]]
file = 'bar'
title = 'Bars'
kind = 'bar'
x = 'consistency'
y = 'accuracy'
lines = ['delay']
[[picture]]
file = 'map'
title = 'Map'
kind = 'heatmap'
x = 'delay'
y = 'consistency'
value = 'epoch to accuracy 0.9'
";

fn spec(more: &str) -> Spec {
    let mut spec = Spec::parse("made-up.toml", &format!("{SWEEP}{more}")).unwrap();
    resolve(&mut spec, &[]).unwrap();
    spec
}

/// Makes up a run from its settings: async is faster and never exceeds an accuracy of 0.8.
#[derive(Debug, Default)]
struct MadeUp {
    /// Raises the flag after this many runs.
    stop_after: Option<usize>,
    asked: Mutex<Vec<(usize, u32)>>,
}

impl Execute for MadeUp {
    fn execute(&self, run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Record>> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((run.cell.index, run.rep));
        if self.stop_after.is_some_and(|after| asked.len() >= after) {
            stop.store(true, Ordering::Relaxed);
        }
        drop(asked);
        let layers = run.layers()?;
        let delay: f64 =
            layers.text("link").trim_start_matches("2.delay=").trim_end_matches("ms").parse()?;
        let sync = layers.text("consistency") == "bsp";
        let time = if sync { 100.0 + delay } else { 50.0 + delay / 3.0 } + run.seed as f64 * 1e-3;
        let best = if sync { 0.99 } else { 0.8 };
        let mut record = run.record();
        record.metrics = [("accuracy", best), ("time_s", time)]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        record.texts.insert("ended".into(), "the budget is used up".into());
        record.curve = (1..=10)
            .map(|epoch| CurvePoint {
                version: epoch,
                samples: epoch * 10,
                epoch: epoch as f64,
                time_s: time * epoch as f64 / 10.0,
                loss: None,
                objective: None,
                metrics: BTreeMap::from([(
                    "accuracy".into(),
                    Some(best * (1.0 - 0.5_f64.powi(epoch as i32))),
                )]),
            })
            .collect();
        record.staleness = BTreeMap::from([(0, 5), (1, run.seed)]);
        record.link_use.up = vec![(0.5, 1.0)];
        Ok(Some(record))
    }
}

fn about() -> About {
    let environment = Environment::here("pstrain".into());
    About { mode: Mode::VirtualTime, environment, calibration: None }
}

/// Executes the runs that `folder` lacks; returns how many are still missing.
fn make(folder: &Path, spec: &Spec, jobs: usize, execute: &dyn Execute) -> usize {
    let cells = cells(spec);
    let store = Store::create(folder, spec, &about(), false).unwrap();
    let there = store.records(cells.len(), spec.reps).unwrap();
    let mut runs = Vec::new();
    for rep in 0..spec.reps {
        runs.extend(cells.iter().map(|cell| Run::new(spec, cell, rep).unwrap()));
    }
    let all = runs.len();
    runs.retain(|run| !there.contains_key(&(run.cell.index, run.rep)));
    let stop = AtomicBool::new(false);
    let runner = Runner { spec, cells: &cells, store: &store, jobs, quiet: true, stop: &stop };
    let missing = runner.make(&runs, all, execute).unwrap();
    report(&store, spec).unwrap();
    missing
}

/// Every file of a results folder, except the records of when and where it was made.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for below in ["", "runs", "pictures"] {
        for entry in std::fs::read_dir(folder.join(below)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if path.is_file()
                && !["environment.json", "report.html", "report.md"].contains(&name.as_str())
            {
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn table(rows: &str, column: &str) -> String {
    format!("[[table]]\nfile = 'x'\ntitle = 'x'\n{rows}\n[[table.column]]\ntitle = 'x'\n{column}\n")
}

fn claim(measured: &str, holds: &str) -> String {
    format!("[[claim]]\ntext = 'x'\nmeasured = '{measured}'\nholds = '{holds}'\n")
}

#[test]
fn an_interrupted_experiment_goes_on_and_ends_as_if_it_had_not_been() {
    let spec = spec(&claim("{time_s; consistency=bsp, delay=1}", "measured > 0"));
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_eq!(make(whole.path(), &spec, 1, &MadeUp::default()), 0);

    let first = MadeUp { stop_after: Some(7), ..MadeUp::default() };
    assert_eq!(make(parts.path(), &spec, 1, &first), 18 - 7);
    assert!(files(whole.path()) != files(parts.path()));
    let second = MadeUp::default();
    assert_eq!(make(parts.path(), &spec, 1, &second), 0);
    assert_eq!(second.asked.into_inner().unwrap().len(), 18 - 7, "no run is made twice");
    let (whole, parts) = (files(whole.path()), files(parts.path()));
    assert!(whole.keys().eq(parts.keys()), "{:?} {:?}", whole.keys(), parts.keys());
    for (name, content) in &whole {
        assert!(parts[name] == *content, "{name} differs");
    }
    assert!(whole.contains_key("pictures/map.png") && whole.contains_key("staleness.csv"));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let spec = spec("");
    let (one, three) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(one.path(), &spec, 1, &MadeUp::default());
    make(three.path(), &spec, 3, &MadeUp::default());
    assert!(files(one.path()) == files(three.path()));
}

#[test]
fn the_resolved_specification_makes_the_same_runs() {
    let before = spec("");
    let again = Spec::parse("spec.toml", &before.to_toml().unwrap()).unwrap();
    let mut resolved = again.clone();
    resolve(&mut resolved, &[]).unwrap();
    assert_eq!(cells(&before), cells(&again));
    assert_eq!(cells(&before), cells(&resolved));
    let cells = cells(&before);
    assert_eq!(cells[5].job["name"], "made-up");
    assert_eq!(cells[5].job["batch-size"], "64");
    let run = Run::new(&before, &cells[5], 2).unwrap();
    assert_eq!(run.seed, 42);
    assert_eq!(run.layers().unwrap().text("seed"), "42");
}

#[test]
fn labels_say_what_the_runs_say() {
    let spec = spec("[define]\nslow = '{time_s; consistency=bsp, delay=100}'\n");
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &spec, 1, &MadeUp::default());
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let records = store.records(cells.len(), spec.reps).unwrap();
    let runs = Runs::new(&spec, &cells, records);
    let filled = |text| claims::filled(&runs, text);
    assert_eq!(filled("up to [slow] s, half of it [slow / 2] s"), "up to 200 s, half of it 100 s");
    assert_eq!(
        filled("[{loss; consistency=bsp, delay=1}] [, ] and none"),
        "unknown unknown and none"
    );
    assert_eq!(filled("a [ b"), "a [ b");
}

#[test]
fn pictures_show_what_is_asked_for_and_nothing_that_was_not_reached() {
    let spec = spec(
        "[[picture]]\nfile = 'use'\ntitle = 'Use'\nkind = 'usage'\nx = 'time_s'\ny = 'up'\nto = 2\n\
         lines = ['consistency']\nwhere = { delay = 10 }\n\
         [[picture]]\nfile = 'ratio'\ntitle = 'Ratio'\nkind = 'bar'\nx = 'delay'\n\
         y = '{time_s; consistency=asp} / {time_s; consistency=bsp}'\ny-label = 'Ratio'\n\
         among = { delay = [1, 100] }\n\
         [[picture]]\nfile = 'ratios'\ntitle = 'Ratios'\nkind = 'heatmap'\nx = 'delay'\n\
         y = 'consistency'\nvalue = '{time_s} / {min time_s over delay}'\nvalue-label = 'Ratio'\n\
         [[picture]]\nfile = 'to'\ntitle = 'To'\nkind = 'bar'\nx = 'consistency'\n\
         y = 'epoch to accuracy 0.9'\nwhere = { delay = 1 }\n",
    );
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &spec, 1, &MadeUp::default());
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let records = store.records(cells.len(), spec.reps).unwrap();
    let runs = Runs::new(&spec, &cells, records);
    let drawn = draw::draw(&runs).unwrap();
    let found = |file: &str| &drawn.iter().find(|drawn| drawn.file == file).unwrap().picture;

    let Picture::Chart(usage) = found("use") else { panic!("no chart") };
    let of = |line: usize, at: f64| {
        let marks = &usage.series[line].marks;
        let near = |mark: &&Mark| (mark.x - at).abs() < 0.01;
        marks.iter().find(near).unwrap().y
    };
    // In use from 0.5 to 1 s.
    assert_eq!([of(0, 0.3), of(0, 1.2)], [0.0, 0.0]);
    assert!((of(0, 0.7) - 1.0).abs() < 1e-9, "{}", of(0, 0.7));
    let Picture::Bars(ratio) = found("ratio") else { panic!("no bars") };
    assert_eq!(ratio.x.names, ["1", "100"]);
    let heights: Vec<_> = ratio.series[0].bars.iter().map(|bar| bar.unwrap().value).collect();
    assert!((heights[0] - 50.37 / 101.04).abs() < 1e-3, "{heights:?}");
    assert!((heights[1] - 83.37 / 200.04).abs() < 1e-3, "{heights:?}");
    let Picture::HeatMap(ratios) = found("ratios") else { panic!("no map") };
    assert_eq!(ratios.values[0][0], Some(1.0));
    assert!((ratios.values[0][2].unwrap() - 200.04 / 101.04).abs() < 1e-3);
    // Async never reaches an accuracy of 0.9.
    let Picture::Bars(to) = found("to") else { panic!("no bars") };
    let height = |place: usize| to.series[0].bars[place].map(|bar| bar.value);
    assert!(height(0).is_some_and(f64::is_finite));
    assert_eq!(height(1), Some(f64::INFINITY), "what was never reached is no number");
}
