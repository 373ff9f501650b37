//! Quantities: what claims ask of all runs of a cell, or of several cells.
//!
//! `[AGGREGATE] [STATISTIC] METRIC [over AXIS] [; AXIS = VALUE, ...]`: the statistic is taken over
//! the repetitions of a cell (`mean` if nothing is said), the aggregate over the values of an axis.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::bounds::Bounds;
use super::grid::Cell;
use super::metric::{Answer, Metric};
use super::runs::Runs;
use super::spec::Spec;
use crate::statistics;

/// Something that can be asked of the runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantity {
    over: Option<(Aggregate, String)>,
    statistic: Statistic,
    metric: Metric,
    at: BTreeMap<String, String>,
}

/// What is made of the repetitions of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    Mean,
    /// The standard deviation.
    Deviation,
    /// The ends of the 95 % confidence interval of the mean.
    Low,
    High,
    /// The least and the greatest value.
    Least,
    Most,
}

/// What is made of the cells along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Min,
    Max,
    /// Greatest minus least.
    Range,
    /// The value of the axis at which the quantity is least or greatest.
    ArgMin,
    ArgMax,
    /// 1 if each is greater (less) than the one before, else 0.
    Rising,
    Falling,
}

const STATISTICS: [(&str, Statistic); 6] = [
    ("mean", Statistic::Mean),
    ("sd", Statistic::Deviation),
    ("low", Statistic::Low),
    ("high", Statistic::High),
    ("least", Statistic::Least),
    ("most", Statistic::Most),
];

const AGGREGATES: [(&str, Aggregate); 7] = [
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("range", Aggregate::Range),
    ("argmin", Aggregate::ArgMin),
    ("argmax", Aggregate::ArgMax),
    ("rising", Aggregate::Rising),
    ("falling", Aggregate::Falling),
];

fn called<T: Copy>(table: &[(&str, T)], word: Option<&&str>) -> Option<T> {
    table.iter().find(|(name, _)| Some(name) == word).map(|(_, meaning)| *meaning)
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (what, place) = text.split_once(';').unwrap_or((text, ""));
        let mut at = BTreeMap::new();
        for item in place.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let Some((axis, value)) = item.split_once('=') else {
                return Err(format!("{{{text}}}: {item:?} is not of the form AXIS = VALUE"));
            };
            at.insert(axis.trim().to_owned(), value.trim().to_owned());
        }
        let mut words: Vec<&str> = what.split_whitespace().collect();
        let aggregate = called(&AGGREGATES, words.first());
        let over = match (aggregate, words.as_slice()) {
            (Some(aggregate), [_, middle @ .., "over", axis]) => {
                let over = Some((aggregate, (*axis).to_owned()));
                words = middle.to_vec();
                over
            }
            (None, [.., "over", _]) => {
                let names: Vec<_> = AGGREGATES.iter().map(|(name, _)| *name).collect();
                return Err(format!("{{{text}}}: over an axis, begin with {}", names.join(", ")));
            }
            (Some(_), [word, _, ..]) => {
                return Err(format!("{{{text}}}: {word} of what? add: over AXIS"));
            }
            _ => None,
        };
        let mut statistic = Statistic::Mean;
        if words.len() > 1
            && let Some(named) = called(&STATISTICS, words.first())
        {
            statistic = named;
            words.remove(0);
        }
        let metric = words.join(" ").parse().map_err(|why| format!("{{{text}}}: {why}"))?;
        Ok(Self { over, statistic, metric, at })
    }
}

impl Quantity {
    /// Says what is wrong with it, given the axes there are.
    pub(crate) fn check(&self, spec: &Spec) -> Result<(), String> {
        self.metric.setting().map_or(Ok(()), super::check::is_setting)?;
        for (name, value) in &self.at {
            let axis = spec.axis(name).ok_or_else(|| super::check::no_axis(spec, name))?;
            if axis.position(value).is_none() {
                return Err(super::check::no_value(axis, value));
            }
        }
        let mut open = spec.open_axes();
        open.retain(|axis| !self.at.contains_key(*axis));
        if let Some((_, axis)) = &self.over {
            if spec.axis(axis).is_none() {
                return Err(super::check::no_axis(spec, axis));
            }
            if self.at.contains_key(axis) {
                return Err(format!("it goes over {axis} and names one value of it"));
            }
            open.remove(axis.as_str());
        }
        match open.first() {
            Some(axis) => Err(format!("it names no value of {axis}: add {axis} = VALUE")),
            None => Ok(()),
        }
    }

    /// Its value, or why it cannot be told.
    pub(crate) fn of(&self, runs: &Runs<'_>) -> Result<Bounds, String> {
        let cells = runs.cells_at(&self.at);
        let Some((aggregate, axis)) = &self.over else {
            let [cell] = cells.as_slice() else {
                return Err("the experiment has no such cell".into());
            };
            return self.of_cell(runs, cell);
        };
        let number = runs.spec.axis.iter().position(|other| other.name == *axis).unwrap_or(0);
        let mut values = Vec::new();
        for cell in cells {
            let value = self.of_cell(runs, cell)?;
            let value = value.exact().ok_or_else(|| {
                format!("of {} only bounds are known: {value}", cell.describe(runs.spec))
            })?;
            values.push((cell.value(runs.spec, number), value));
        }
        aggregate.of(&values).map(Bounds::exactly)
    }

    fn of_cell(&self, runs: &Runs<'_>, cell: &Cell) -> Result<Bounds, String> {
        let sample = runs.sample(&self.metric, cell)?;
        self.statistic.of(&sample).map_err(|why| format!("{}: {why}", cell.describe(runs.spec)))
    }
}

/// The answers of the repetitions of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) values: Vec<f64>,
    /// How many of the values are only a lower bound.
    pub(crate) cut_short: usize,
}

impl Sample {
    /// Adds an answer.
    pub(crate) fn push(&mut self, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::Is(value) => self.values.push(value),
            Answer::MoreThan(value) => {
                self.values.push(value);
                self.cut_short += 1;
            }
            Answer::Missing(why) => return Err(why),
        }
        Ok(())
    }
}

impl Statistic {
    fn of(self, sample: &Sample) -> Result<Bounds, String> {
        let estimate = statistics::estimate(&sample.values);
        let least = sample.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = sample.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let value = match self {
            Self::Mean => estimate.mean,
            Self::Deviation => estimate.sd,
            Self::Low => estimate.low,
            Self::High => estimate.high,
            Self::Least => least,
            Self::Most => most,
        };
        let of_place = matches!(self, Self::Mean | Self::Least | Self::Most);
        if !of_place && estimate.n < 2 {
            return Err("one repetition has no spread; it takes two (--reps)".into());
        }
        Ok(match sample.cut_short {
            0 => Bounds::exactly(value),
            _ if of_place => Bounds::at_least(value),
            _ => Bounds::at_least(0.0),
        })
    }
}

impl Aggregate {
    fn of(self, values: &[(&str, f64)]) -> Result<f64, String> {
        let by_value = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
        let least = values.iter().min_by(by_value).ok_or("there are no such cells")?;
        let most = values.iter().max_by(by_value).ok_or("there are no such cells")?;
        let place = |(text, _): &(&str, f64)| {
            text.parse().map_err(|_| format!("the axis has values that are no numbers: {text}"))
        };
        let steps = |right: fn(f64, f64) -> bool| {
            f64::from(u8::from(values.windows(2).all(|pair| right(pair[0].1, pair[1].1))))
        };
        Ok(match self {
            Self::Min => least.1,
            Self::Max => most.1,
            Self::Range => most.1 - least.1,
            Self::ArgMin => place(least)?,
            Self::ArgMax => place(most)?,
            Self::Rising => steps(|before, after| after > before),
            Self::Falling => steps(|before, after| after < before),
        })
    }
}
