//! Metrics: values of a single run.
//!
//! - `accuracy`, `time_s`, `staleness.mean`, `workers.1.share`, ...: a number of the final report;
//! - `workers.*.idleness`: the mean of all numbers whose paths differ only in that part;
//! - `workers.1.share away from workers.1.data_share`: the absolute difference of two such numbers;
//! - `batches.discarded per batches.assigned`: their quotient;
//! - `accuracy @ epoch = 10`: the evaluation nearest to a point of the curve;
//! - `epoch to accuracy 0.94`: where the mean of three evaluations first reaches a target;
//! - `target.time_s`: when an evaluation first reached the `target` of the job;
//! - `setting compute`, `setting link.2.delay`: a setting of the run, in seconds if it is a time.

use std::fmt;
use std::str::FromStr;

use pstrain_compute::evaluation::{METRICS, Metric as Quality};
use pstrain_compute::likeness::nearest;

use super::bounds::readable;
use super::grid::Cell;
use super::record::{CurvePoint, Record};

/// A value that a run has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Metric {
    /// A number of the report, by its path.
    Final(String),
    /// The absolute difference of two numbers of the report.
    Apart(String, String),
    /// One number of the report divided by another.
    Per(String, String),
    /// A number of the evaluation nearest to a point of the curve.
    At { field: Field, along: Field, at: f64 },
    /// Where the mean of the last [`WINDOW`] evaluations first reaches a target.
    To { along: Field, field: Field, target: f64 },
    /// A setting, or an item of a list setting.
    Setting { key: String, item: String },
}

/// Last path components of numbers that are shares, besides metrics of models.
const SHARES: [&str; 5] = ["recall", "share", "data_share", "idleness", "jain"];

/// Evaluations whose mean must reach a target.
const WINDOW: usize = 3;

/// A column of the curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Updates,
    Samples,
    Epoch,
    Time,
    Loss,
    Objective,
    /// A metric of models, by its name: one of pstrain's, or one that a compute process names.
    Metric(String),
}

/// The value of a metric for one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Is(f64),
    /// The run ended before the target; the value would have been greater.
    MoreThan(f64),
    /// The reason why there is no value.
    Missing(String),
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "updates" => Self::Updates,
            "samples" => Self::Samples,
            "epoch" => Self::Epoch,
            "time_s" => Self::Time,
            "loss" => Self::Loss,
            "objective" => Self::Objective,
            "" => return Err("it names no column of the curve, such as accuracy".into()),
            name => Self::Metric(name.to_owned()),
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Updates => "updates",
            Self::Samples => "samples",
            Self::Epoch => "epoch",
            Self::Time => "time_s",
            Self::Loss => "loss",
            Self::Objective => "objective",
            Self::Metric(name) => name,
        })
    }
}

impl Field {
    pub(crate) fn of(&self, point: &CurvePoint) -> Option<f64> {
        match self {
            Self::Updates => Some(point.version as f64),
            Self::Samples => Some(point.samples as f64),
            Self::Epoch => Some(point.epoch),
            Self::Time => Some(point.time_s),
            Self::Metric(name) => point.metrics.get(name).copied().flatten(),
            Self::Loss => point.loss,
            Self::Objective => point.objective,
        }
    }

    /// True if the field measures the progress of a run rather than its quality.
    pub(crate) const fn is_progress(&self) -> bool {
        !matches!(self, Self::Metric(_) | Self::Loss | Self::Objective)
    }

    /// The metric of models that it is, if it is one.
    pub(crate) fn metric(&self) -> Option<&str> {
        match self {
            Self::Metric(name) => Some(name),
            _ => None,
        }
    }

    fn reached(&self, value: f64, target: f64) -> bool {
        let is_higher_better = match self {
            Self::Metric(name) => Quality::find(name).is_some_and(|it| it.is_higher_better),
            Self::Loss | Self::Objective => false,
            _ => true,
        };
        if is_higher_better { value >= target } else { value <= target }
    }

    /// True if the field lies between 0 and 1 by definition.
    pub(crate) fn is_share(&self) -> bool {
        matches!(self, Self::Metric(name) if Quality::find(name).is_some_and(|it| it.is_share))
    }
}

/// The names of all fields of the curve that measure the quality of a model.
fn qualities() -> String {
    let metrics: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    format!("loss, objective, {}", metrics.join(", "))
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spaced = text.replace('=', " = ").replace('@', " @ ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let number = |text: &str| {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("{text:?} is no number"))
        };
        Ok(match words.as_slice() {
            [path] => Self::Final((*path).to_owned()),
            [one, "away", "from", other] => Self::Apart((*one).to_owned(), (*other).to_owned()),
            [one, "per", other] => Self::Per((*one).to_owned(), (*other).to_owned()),
            ["setting", key] => {
                let (key, item) = key.split_once('.').unwrap_or((key, ""));
                Self::Setting { key: key.to_owned(), item: item.to_owned() }
            }
            [field, "@", along, "=", at] => {
                Self::At { field: field.parse()?, along: progress(along)?, at: number(at)? }
            }
            [along, "to", field, target] => {
                let field: Field = field.parse()?;
                let name = field.metric();
                if field.is_progress() || name.is_some_and(|name| Quality::find(name).is_none()) {
                    return Err(format!(
                        "a target is one of {}; for a metric that a compute process names, ask \
                         for target.time_s, and set the job's target",
                        qualities()
                    ));
                }
                Self::To { along: progress(along)?, field, target: number(target)? }
            }
            _ => {
                return Err(format!(
                    "{text:?} is no metric; write for example accuracy, workers.1.share, \
                     accuracy @ epoch = 10, time_s to accuracy 0.94 or setting link.2.delay"
                ));
            }
        })
    }
}

fn progress(text: &str) -> Result<Field, String> {
    let field: Field = text.parse()?;
    if field.is_progress() {
        Ok(field)
    } else {
        Err(format!("{text:?} does not say how far a run is; use epoch, time_s, samples, updates"))
    }
}

impl Metric {
    /// True if the metric lies between 0 and 1 by definition.
    pub(crate) fn is_share(&self) -> bool {
        match self {
            Self::Final(path) => {
                let name = path.rsplit('.').next().unwrap_or(path);
                let is_metric = Quality::find(path).is_some_and(|metric| metric.is_share);
                path.starts_with("recall.") || is_metric || SHARES.contains(&name)
            }
            Self::At { field, .. } => field.is_share(),
            Self::Apart(..) | Self::Per(..) | Self::To { .. } | Self::Setting { .. } => false,
        }
    }

    /// Paths of the numbers that the metric reads.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Self::Final(path) => vec![path],
            Self::Apart(one, other) | Self::Per(one, other) => vec![one, other],
            Self::At { .. } | Self::To { .. } | Self::Setting { .. } => Vec::new(),
        }
    }

    /// The metric of models that the metric reads from the curve.
    pub(crate) fn of_curve(&self) -> Option<&str> {
        match self {
            Self::At { field, .. } | Self::To { field, .. } => field.metric(),
            Self::Final(_) | Self::Apart(..) | Self::Per(..) | Self::Setting { .. } => None,
        }
    }

    /// The setting that the metric reads.
    pub(crate) fn setting(&self) -> Option<&str> {
        match self {
            Self::Setting { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Its value for `record`, a run of `cell`.
    pub(crate) fn of(&self, record: &Record, cell: &Cell) -> Answer {
        match self {
            Self::Final(path) => match number(path, record) {
                Ok(number) => Answer::Is(number),
                Err(why) => missed(path, record).map_or(Answer::Missing(why), Answer::MoreThan),
            },
            Self::Apart(one, other) => {
                let apart = || Ok((number(one, record)? - number(other, record)?).abs());
                apart().map_or_else(Answer::Missing, Answer::Is)
            }
            Self::Per(one, other) => {
                let ratio = || Ok((number(one, record)?, number(other, record)?));
                match ratio() {
                    Ok((_, 0.0)) => Answer::Missing(format!("{other} is 0")),
                    Ok((part, whole)) => Answer::Is(part / whole),
                    Err(why) => Answer::Missing(why),
                }
            }
            Self::At { field, along, at } => look_up(&record.curve, field, along, *at),
            Self::To { along, field, target } => reach(&record.curve, along, field, *target),
            Self::Setting { key, item } => match setting(cell, key, item) {
                Ok(value) => Answer::Is(value),
                Err(why) => Answer::Missing(why),
            },
        }
    }
}

/// Numbers of a target that was reached, and those of the whole run that they are part of.
const TARGET: [(&str, &str); 5] = [
    ("target.time_s", "time_s"),
    ("target.update", "updates"),
    ("target.epochs", "epochs"),
    ("energy.modelled.joules_to_target", "energy.modelled.joules"),
    ("energy.measured.joules_to_target", "energy.measured.joules"),
];

/// The length of a run that ended before it reached its target; `None` if it has none.
fn missed(path: &str, record: &Record) -> Option<f64> {
    let (_, whole) = TARGET.into_iter().find(|(its, _)| *its == path)?;
    record.texts.get("target.goal")?;
    record.metrics.get(whole).copied()
}

/// A number of the report or, with `*`, the mean of several; or the reason why there is none.
fn number(path: &str, record: &Record) -> Result<f64, String> {
    if !path.contains('*') {
        return record.metrics.get(path).copied().ok_or_else(|| missing(path, record));
    }
    let all = record.metrics.iter().filter(|(name, _)| is_meant(path, name));
    let values: Vec<f64> = all.map(|(_, value)| *value).collect();
    if values.is_empty() {
        return Err(missing(path, record));
    }
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}

/// True if `path` matches the number called `name`: `*` stands for any component.
pub(super) fn is_meant(path: &str, name: &str) -> bool {
    let mut names = name.split('.');
    path.split('.').all(|part| names.next().is_some_and(|name| part == "*" || part == name))
        && names.next().is_none()
}

fn missing(path: &str, record: &Record) -> String {
    if is_usual(path) && !record.reached_its_goal() {
        return format!("there is no {path}; the run ended: {}", record.ended());
    }
    no_metric(path, record.metrics.keys().map(String::as_str))
}

/// True for numbers that every run has, unless it ended badly.
pub(super) fn is_usual(path: &str) -> bool {
    Quality::find(path).is_some()
        || ["worst_class.recall", "loss"].contains(&path)
        || TARGET.iter().any(|(its, _)| *its == path)
        || path.starts_with("recall.")
}

/// Error message for a number that is not among `names`.
pub(super) fn no_metric<'a>(path: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(path, names) {
        Some(near) => format!("there is no metric {path:?}; did you mean {near:?}?"),
        None => format!("there is no metric {path:?}; runs.csv has them all in its first line"),
    }
}

fn look_up(curve: &[CurvePoint], field: &Field, along: &Field, at: f64) -> Answer {
    let far = |point: &CurvePoint| (along.of(point).unwrap_or(f64::INFINITY) - at).abs();
    let Some(nearest) = curve.iter().min_by(|a, b| far(a).total_cmp(&far(b))) else {
        return Answer::Missing("the curve is empty".into());
    };
    // Beyond its end plus one mean step, the curve has no value.
    let end = curve.last().and_then(|point| along.of(point)).unwrap_or(0.0);
    let step = end / curve.len() as f64;
    if at > end + step {
        let end = readable(end);
        return Answer::Missing(format!("the curve ends at {along} = {end}, before {at}"));
    }
    let value = field.of(nearest);
    value.map_or_else(|| Answer::Missing(format!("{field} was no number there")), Answer::Is)
}

fn reach(curve: &[CurvePoint], along: &Field, field: &Field, target: f64) -> Answer {
    for window in curve.windows(WINDOW) {
        let sum: Option<f64> = window.iter().map(|point| field.of(point)).sum();
        let at = window.last().and_then(|point| along.of(point));
        if let (Some(sum), Some(at)) = (sum, at)
            && field.reached(sum / WINDOW as f64, target)
        {
            return Answer::Is(at);
        }
    }
    let end = curve.last().and_then(|point| along.of(point));
    end.map_or_else(|| Answer::Missing("the curve is empty".into()), Answer::MoreThan)
}

/// The number in a setting, or in an item of it.
fn setting(cell: &Cell, key: &str, item: &str) -> Result<f64, String> {
    let Some(text) = cell.job.get(key) else { return Err(format!("there is no setting {key:?}")) };
    if item.is_empty() {
        // In a list, the item without a key.
        let mut words = text.split_whitespace().filter(|word| !word.contains('='));
        return quantity(words.next().unwrap_or(text));
    }
    let for_all = item.trim_start_matches(|c: char| c.is_ascii_digit());
    let for_all = for_all.strip_prefix('.').unwrap_or(for_all);
    let ways = [item.to_owned(), format!("all.{for_all}"), for_all.to_owned()];
    let found = ways.iter().find_map(|way| {
        let items = text.split_whitespace().filter_map(|word| word.split_once('='));
        items.filter(|(name, _)| name == way).map(|(_, value)| value).next_back()
    });
    found.map_or_else(|| Err(format!("{key} = {text:?} says nothing of {item}")), quantity)
}

/// Parses a number with a unit: times in seconds, shares from 0 to 1, rates in bit/s, powers in W,
/// energies in J.
fn quantity(text: &str) -> Result<f64, String> {
    let digits = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let (number, unit) = text.split_at(text.find(|c| !digits(c)).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "s" | "bit" | "W" | "J" => 1.0,
        "ms" | "mW" | "mJ" => 1e-3,
        "us" | "uW" | "uJ" => 1e-6,
        "ns" | "nJ" => 1e-9,
        "pJ" => 1e-12,
        "kW" => 1e3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "%" => 1e-2,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(format!("{text:?} is no number with a unit such as ms, % or mbit")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no number"))?;
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn curve(accuracies: &[f64]) -> Vec<CurvePoint> {
        (1..)
            .zip(accuracies)
            .map(|(epoch, &accuracy)| CurvePoint {
                version: epoch * 10,
                samples: epoch * 100,
                epoch: epoch as f64 + 0.001,
                time_s: epoch as f64 * 0.5,
                loss: None,
                objective: None,
                // An error that falls as the accuracy rises.
                metrics: [("accuracy", accuracy), ("rmse", 10.0 - 10.0 * accuracy)]
                    .map(|(name, value)| (name.into(), Some(value)))
                    .into(),
            })
            .collect()
    }

    fn ask(metric: &str, accuracies: &[f64]) -> Answer {
        let mut record = Record { curve: curve(accuracies), ..Record::default() };
        record.metrics.insert("staleness.mean".into(), 1.5);
        record.metrics.insert("staleness.max".into(), 4.0);
        let settings = [
            ("link", "1.delay=1ms delay=7ms 2.delay=3ms 2.delay=100ms"),
            ("compute", "4.5ms 2.factor=4"),
            ("learning-rate", "0.01"),
            ("partition", "iid"),
        ];
        let job = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let cell = Cell { index: 0, at: Vec::new(), job: BTreeMap::from(job) };
        metric.parse::<Metric>().unwrap().of(&record, &cell)
    }

    #[test]
    fn the_end_of_a_run_is_asked_by_path() {
        assert_eq!(ask("staleness.mean", &[]), Answer::Is(1.5));
        let Answer::Missing(why) = ask("stalenes.mean", &[]) else { panic!("it is not there") };
        assert!(why.contains("did you mean \"staleness.mean\""), "{why}");
    }

    #[test]
    fn two_numbers_of_the_end_are_compared() {
        assert_eq!(ask("staleness.mean away from staleness.max", &[]), Answer::Is(2.5));
        assert_eq!(ask("staleness.max away from staleness.mean", &[]), Answer::Is(2.5));
        assert!(matches!(ask("staleness.max away from rows", &[]), Answer::Missing(_)));
    }

    #[test]
    fn a_star_is_the_mean_of_all() {
        assert_eq!(ask("staleness.*", &[]), Answer::Is(2.75));
        assert_eq!(ask("*.max", &[]), Answer::Is(4.0));
        for metric in ["workers.*.share", "*", "staleness.*.mean"] {
            assert!(matches!(ask(metric, &[]), Answer::Missing(_)), "{metric}");
        }
    }

    #[test]
    fn one_number_is_divided_by_another() {
        assert_eq!(ask("staleness.mean per staleness.max", &[]), Answer::Is(0.375));
        assert!(matches!(ask("staleness.mean per rows", &[]), Answer::Missing(_)));
    }

    #[test]
    fn the_curve_is_looked_up_at_its_nearest_point() {
        assert_eq!(ask("accuracy @ epoch=2", &[0.1, 0.2, 0.3]), Answer::Is(0.2));
        assert_eq!(ask("updates @ time_s = 1.6", &[0.1, 0.2, 0.3]), Answer::Is(30.0));
        assert!(matches!(ask("accuracy @ epoch=9", &[0.1, 0.2]), Answer::Missing(_)));
        assert!(matches!(ask("loss @ epoch=1", &[0.1, 0.2]), Answer::Missing(_)));
    }

    #[test]
    fn a_target_is_reached_by_the_mean_of_three_evaluations() {
        let accuracies = [0.5, 0.97, 0.5, 0.93, 0.94, 0.95, 0.96];
        assert_eq!(ask("updates to accuracy 0.94", &accuracies), Answer::Is(60.0));
        assert_eq!(ask("time_s to accuracy 0.99", &accuracies), Answer::MoreThan(3.5));
        assert_eq!(ask("updates to rmse 0.61", &accuracies), Answer::Is(60.0));
        assert_eq!(ask("updates to rmse 0.1", &accuracies), Answer::MoreThan(70.0));
        assert!(matches!(ask("updates to mae 1", &accuracies), Answer::MoreThan(_)));
        assert!(matches!(ask("time_s to accuracy 0.9", &[]), Answer::Missing(_)));
    }

    #[test]
    fn settings_are_read_with_their_units() {
        let close = |metric: &str, wanted: f64| {
            let Answer::Is(value) = ask(metric, &[]) else { panic!("{metric} is there") };
            assert!((value - wanted).abs() < 1e-12, "{metric}: {value}");
        };
        close("setting link.2.delay", 0.1);
        close("setting link.1.delay", 0.001);
        close("setting link.3.delay", 0.007);
        close("setting compute", 0.0045);
        close("setting compute.2.factor", 4.0);
        close("setting learning-rate", 0.01);
        assert!(matches!(ask("setting partition", &[]), Answer::Missing(_)));
        assert!(matches!(ask("setting link.2.rate", &[]), Answer::Missing(_)));
    }

    #[test]
    fn what_is_no_metric_is_an_error() {
        for text in
            ["", "a b", "accuracy @ 10", "epoch to time_s 3", "loss to accuracy 1", "x @ y = 1"]
        {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
        // It is unknown if more of it is better.
        let why = "time_s to bleu 20".parse::<Metric>().unwrap_err();
        assert!(why.contains("ask for target.time_s"), "{why}");
    }
}
