//! Results as tables for other programs: CSV files and `summary.json`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde::Serialize;

use super::answers::Answers;
use super::claims::Finding;
use super::grid::Cell;
use super::record::Record;
use super::runs::{NotReached, Runs};
use super::store::{Mode, Store};
use crate::record::POINT;
use crate::statistics;

/// Contents of `summary.json`, and of the output of `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary<'a> {
    /// Name of the experiment.
    pub(crate) experiment: &'a str,
    /// Its title.
    pub(crate) title: &'a str,
    /// Its source.
    pub(crate) source: &'a str,
    /// `virtual-time` or `real-time`.
    pub(crate) mode: Mode,
    /// Number of runs by build of the program (version and commit).
    pub(crate) pstrain: BTreeMap<&'a str, usize>,
    /// Repetitions of each cell.
    pub(crate) reps: u32,
    /// Completed runs.
    pub(crate) done: usize,
    /// All runs.
    pub(crate) of: usize,
    /// The runs that ended without reaching their goal.
    pub(crate) not_reached: Vec<NotReached>,
    /// The cells of the grid.
    pub(crate) cells: Vec<CellSummary<'a>>,
    /// The claims, decided.
    pub(crate) claims: &'a [Finding],
    /// The tables.
    pub(crate) tables: &'a [Answers],
}

/// One cell of [`Summary`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CellSummary<'a> {
    /// The value on each axis.
    pub(crate) at: BTreeMap<&'a str, &'a str>,
    /// Completed runs.
    pub(crate) runs: usize,
    /// Mean and 95 % confidence interval, over the repetitions that have the number.
    pub(crate) metrics: BTreeMap<&'a str, Spread>,
}

/// A mean over repetitions with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// Repetitions that have the number.
    pub(crate) n: usize,
    /// Their mean.
    pub(crate) mean: f64,
    /// Their standard deviation.
    pub(crate) sd: f64,
    /// Lower end of the 95 % confidence interval.
    pub(crate) low: f64,
    /// Upper end of it.
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let statistics::Estimate { n, mean, sd, low, high } = statistics::estimate(values);
        Self { n, mean, sd, low, high }
    }
}

/// Summarizes all cells.
pub(crate) fn summary<'a>(
    runs: &'a Runs<'a>,
    mode: Mode,
    claims: &'a [Finding],
    tables: &'a [Answers],
) -> Summary<'a> {
    let metrics = runs.metrics();
    let cell = |cell: &'a Cell| {
        let values = |name: &str| -> Vec<f64> {
            runs.of(cell).filter_map(|record| record.metrics.get(name).copied()).collect()
        };
        let known = metrics.iter().map(|&name| (name, values(name)));
        let known = known.filter(|(_, values)| !values.is_empty());
        CellSummary {
            at: at(runs, cell),
            runs: runs.of(cell).count(),
            metrics: known.map(|(name, values)| (name, Spread::of(&values))).collect(),
        }
    };
    Summary {
        experiment: &runs.spec.name,
        title: &runs.spec.title,
        source: &runs.spec.source,
        mode,
        pstrain: runs.builds(),
        reps: runs.spec.reps,
        done: runs.records.len(),
        of: runs.cells.len() * runs.spec.reps as usize,
        not_reached: runs.not_reached(),
        cells: runs.cells.iter().map(cell).collect(),
        claims,
        tables,
    }
}

fn at<'a>(runs: &Runs<'a>, cell: &Cell) -> BTreeMap<&'a str, &'a str> {
    let axes = runs.spec.axis.iter().enumerate();
    axes.map(|(number, axis)| (axis.name.as_str(), cell.value(runs.spec, number))).collect()
}

/// Writes `runs.csv`, `curve.csv`, `staleness.csv` and `timeline.csv`.
pub(crate) fn write(runs: &Runs<'_>, store: &Store) -> anyhow::Result<()> {
    // Axes have columns of their own.
    let is_new = |name: &&str| runs.spec.axis(name).is_none();
    let metrics: Vec<&str> = runs.metrics().into_iter().filter(is_new).collect();
    let texts = runs.records.values().flat_map(|record| record.texts.keys().map(String::as_str));
    let texts: BTreeSet<&str> = texts.filter(is_new).collect();
    let seed: Vec<&str> = ["seed"].into_iter().filter(is_new).collect();
    let columns: Vec<&str> = seed.iter().chain(&metrics).chain(&texts).copied().collect();
    table(runs, store, "runs.csv", &columns, |record, row| {
        let number =
            |name: &&str| record.metrics.get(*name).map_or_else(String::new, f64::to_string);
        let text = |name: &&str| record.texts.get(*name).cloned().unwrap_or_default();
        let seeds = seed.iter().map(|_| record.seed.to_string());
        row(seeds.chain(metrics.iter().map(number)).chain(texts.iter().map(text)).collect())
    })?;
    let metrics = runs.curve_metrics();
    let (main, others) = metrics.split_at(metrics.len().min(1));
    let columns = [&POINT.map(|(name, _)| name), main, &["loss"], others].concat();
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    table(runs, store, "curve.csv", &columns, |record, row| {
        record.curve.iter().try_for_each(|point| {
            let metric = |name: &&str| optional(point.metrics.get(*name).copied().flatten());
            let at = [
                point.version.to_string(),
                point.samples.to_string(),
                point.epoch.to_string(),
                point.time_s.to_string(),
            ];
            let numbers = main.iter().map(metric).chain([optional(point.loss)]);
            row(at.into_iter().chain(numbers).chain(others.iter().map(metric)).collect())
        })
    })?;
    table(runs, store, "staleness.csv", &STALENESS.map(|(name, _)| name), |record, row| {
        let mut counts = record.staleness.iter();
        counts
            .try_for_each(|(staleness, count)| row(vec![staleness.to_string(), count.to_string()]))
    })?;
    let shares = SHARES.map(|(name, _)| name);
    let columns = ["worker"].into_iter().chain(PARTS).chain(shares).chain(WAYS);
    table(runs, store, "timeline.csv", &columns.collect::<Vec<_>>(), |record, row| {
        record.workers().try_for_each(|worker| {
            let seconds = PARTS.map(|part| of_worker(record, worker, part).unwrap_or_default());
            let all = of_worker(record, worker, "elapsed_s").unwrap_or_default();
            let shares = seconds.map(|part| if all > 0.0 { part / all } else { 0.0 });
            let numbers = seconds.iter().chain(&shares).map(f64::to_string);
            let ways = WAYS.map(|way| optional(of_worker(record, worker, way)));
            row([worker.to_string()].into_iter().chain(numbers).chain(ways).collect())
        })
    })
}

/// The columns of staleness.csv and their meaning.
pub(crate) const STALENESS: [(&str, &str); 2] = [
    ("staleness", "Updates between the parameters of a gradient and its update"),
    ("gradients", "Applied gradients with that staleness"),
];

/// Parts of a worker's time, by their keys in a report.
pub(crate) const PARTS: [&str; 3] = ["compute_s", "network_s", "barrier_s"];
/// Their shares, and the meaning of these.
pub(crate) const SHARES: [(&str, &str); 3] = [
    ("compute_share", "`compute_s / elapsed_s`"),
    ("network_share", "`network_s / elapsed_s`"),
    ("barrier_share", "`barrier_s / elapsed_s`"),
];
/// Communication by direction, where the directions can be told apart.
pub(crate) const WAYS: [&str; 2] = ["send_s", "receive_s"];

fn of_worker(record: &Record, worker: usize, part: &str) -> Option<f64> {
    record.metrics.get(&format!("workers.{worker}.{part}")).copied()
}

type Row<'a> = &'a mut dyn FnMut(Vec<String>) -> anyhow::Result<()>;

/// Writes a table: columns for axes and repetition, then the columns that `rows` fills for each
/// run.
fn table(
    runs: &Runs<'_>,
    store: &Store,
    name: &str,
    columns: &[&str],
    rows: impl Fn(&Record, Row<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    let axes = runs.spec.axis.iter().map(|axis| axis.name.as_str());
    csv.write_record(axes.chain(["rep"]).chain(columns.iter().copied()))
        .with_context(|| format!("cannot write {name}"))?;
    for cell in runs.cells {
        for record in runs.of(cell) {
            let values = (0..runs.spec.axis.len()).map(|number| cell.value(runs.spec, number));
            // Users count repetitions from 1.
            let rep = (record.rep + 1).to_string();
            let place: Vec<&str> = values.chain([rep.as_str()]).collect();
            rows(record, &mut |row| {
                let fields = place.iter().copied().chain(row.iter().map(String::as_str));
                csv.write_record(fields).with_context(|| format!("cannot write {name}"))
            })?;
        }
    }
    let bytes =
        csv.into_inner().map_err(|error| anyhow::anyhow!("cannot write {name}: {error}"))?;
    store.write(name, &bytes)
}
