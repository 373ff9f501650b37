//! Measurements of `pstrain bench`, in units of users: a training step, a push-pull, plain or
//! encrypted, pushes at a server of many workers, a simulated run.
//!
//! Each measurement alternates with its limit (bare sockets that move the same bytes, the gradients
//! alone), so that other load on the machine affects both. Ratios of one run can therefore be
//! compared; times of different runs cannot.

mod bare;
mod cluster;
mod crowd;
mod secure;
mod server;
mod simulate;
mod step;
mod transport;

use std::time::Duration;

use clap::ValueEnum as _;
use serde::Serialize;

use crate::args::{BenchArgs, BenchPart, CrowdArgs};
use crate::progress;
use crate::table::{self, Column};

/// Time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Extent of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Measurements of each figure.
    rounds: usize,
    /// True if slow measurements are included.
    long: bool,
}

/// A quantity that was measured several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The part of the benchmark that it belongs to.
    part: BenchPart,
    what: String,
    /// Unit of the numbers below.
    unit: &'static str,
    median: f64,
    least: f64,
    greatest: f64,
    rounds: usize,
    /// Time of each round.
    #[serde(skip)]
    seconds: Vec<f64>,
    /// Throughput, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Limit>,
}

/// Things per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Rate {
    per_s: f64,
    of: &'static str,
}

/// The limit that a figure is compared with, in the same unit and from the same rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Limit {
    what: &'static str,
    median: f64,
    /// Measurement divided by limit: the median over the rounds.
    ratio: f64,
}

impl Figure {
    /// A figure of times in seconds, one for each round.
    fn of_times(part: BenchPart, what: String, seconds: Vec<f64>) -> Self {
        let us = sorted(seconds.iter().map(|seconds| 1e6 * seconds));
        let (unit, scale) = match middle(&us) {
            us if us >= 1e6 => ("s", 1e-6),
            us if us >= 1e3 => ("ms", 1e-3),
            _ => ("µs", 1.0),
        };
        let values = us.iter().map(|us| us * scale).collect();
        Self { seconds, ..Self::of_values(part, what, unit, values) }
    }

    /// A figure of other quantities than times, with its values in `unit`.
    fn of_values(part: BenchPart, what: String, unit: &'static str, values: Vec<f64>) -> Self {
        let values = sorted(values.into_iter());
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        let (least, greatest) = (end(values.first()), end(values.last()));
        let (median, rounds, seconds) = (middle(&values), values.len(), Vec::new());
        Self { part, what, unit, median, least, greatest, rounds, seconds, rate: None, limit: None }
    }

    /// Adds the throughput, where each measurement covers `count` things.
    fn with_rate(mut self, count: f64, of: &'static str) -> Self {
        let median = middle(&sorted(self.seconds.iter().copied()));
        self.rate = Some(Rate { per_s: count / median, of });
        self
    }

    /// Adds the limit, measured in the same rounds.
    fn with_limit(mut self, limit: &[f64], what: &'static str) -> Self {
        let of_this = middle(&sorted(self.seconds.iter().copied()));
        let median = middle(&sorted(limit.iter().copied()));
        let ratios = sorted(self.seconds.iter().zip(limit).map(|(time, limit)| time / limit));
        let in_unit = median * self.median / of_this;
        self.limit = Some(Limit { what, median: in_unit, ratio: middle(&ratios) });
        self
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle one of sorted values; NaN if there are none.
fn middle(values: &[f64]) -> f64 {
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures the parts that `args` names.
///
/// # Errors
/// If something cannot be set up: no port, no memory, too few connections.
pub(crate) fn measure(args: &BenchArgs) -> anyhow::Result<Vec<Figure>> {
    let effort = if args.long {
        Effort { rounds: 11, long: true }
    } else {
        Effort { rounds: 5, long: false }
    };
    let all = BenchPart::value_variants().iter();
    let wanted = all.filter(|what| args.what.is_empty() || args.what.contains(what));
    let bar = progress::bar(0, "{spinner} {wide_msg}", args.form.json);
    bar.enable_steady_tick(TICK);
    let mut figures = Vec::new();
    for what in wanted {
        figures.extend(match what {
            BenchPart::Step => step::measure(effort, &bar)?,
            BenchPart::Transport => transport::measure(effort, &bar)?,
            BenchPart::Secure => secure::measure(effort, &bar)?,
            BenchPart::Server => server::measure(effort, &bar)?,
            BenchPart::Simulate => simulate::measure(effort, &bar)?,
        });
    }
    bar.finish_and_clear();
    Ok(figures)
}

/// Plays the workers of a server that another process measures.
///
/// # Errors
/// If the server cannot be reached, or loses or refuses a worker.
pub(crate) fn play(args: &CrowdArgs) -> anyhow::Result<()> {
    server::play(args.crowded, &args.server.parse()?)
}

/// The figures as a table.
pub(crate) fn show(figures: &[Figure], width: usize) -> String {
    let digits = |value: f64| match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let rows = figures.iter().map(|figure| {
        let Figure { what, unit, median, least, greatest, .. } = figure;
        let (limit, ratio) = figure.limit.as_ref().map_or_else(Default::default, |limit| {
            let text = format!("{} {unit} {}", digits(limit.median), limit.what);
            (text, format!("{:.2}", limit.ratio))
        });
        vec![
            what.clone(),
            format!("{} {unit}", digits(*median)),
            format!("{} to {}", digits(*least), digits(*greatest)),
            figure.rate.as_ref().map_or_else(String::new, rate),
            limit,
            ratio,
        ]
    });
    const COLUMNS: [Column<'_>; 6] = [
        Column::text("measured"),
        Column::number("median"),
        Column::number("range").spare(2),
        Column::number("a second"),
        Column::number("limit").spare(1),
        Column::number("times the limit"),
    ];
    table::fitting(&COLUMNS, rows.collect(), width)
}

fn rate(rate: &Rate) -> String {
    let (number, prefix) = match rate.per_s {
        number if number >= 1e9 => (number / 1e9, "G"),
        number if number >= 1e6 => (number / 1e6, "M"),
        number if number >= 1e4 => (number / 1e3, "k"),
        number => (number, ""),
    };
    let digits = if number >= 100.0 { 0 } else { 1 };
    format!("{number:.digits$} {prefix}{}", rate.of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_and_times_in_a_unit_of_their_size() {
        let (times, limits) = ([3e-3, 1e-3, 8e-3], [1e-3, 1e-3, 2e-3]);
        let figure = Figure::of_times(BenchPart::Step, "work".into(), times.to_vec())
            .with_rate(6.0, "samples")
            .with_limit(&limits, "bare work");
        assert_eq!((figure.unit, figure.rounds), ("ms", 3));
        assert!((figure.median - 3.0).abs() < 1e-9 && (figure.greatest - 8.0).abs() < 1e-9);
        assert!((figure.least - 1.0).abs() < 1e-9);
        let limit = figure.limit.clone().unwrap();
        assert!((limit.median - 1.0).abs() < 1e-9 && (limit.ratio - 3.0).abs() < 1e-9);
        let narrow =
            show(&[Figure { what: "a push-pull of many keys ".repeat(3), ..figure.clone() }], 80);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.contains("left out at this width: range"), "{narrow}");
        let table = show(&[figure], 100);
        for cell in ["work", "3.00 ms", "1.00 to 8.00", "2000 samples", "1.00 ms bare work"] {
            assert!(table.contains(cell), "no {cell} in\n{table}");
        }
    }
}
