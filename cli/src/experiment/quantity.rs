//! Quantities: values that claims compute from the runs of one or several cells.
//!
//! `[AGGREGATE] [STATISTIC] METRIC [over AXIS [but VALUE, ...]] [; AXIS = VALUE, ...]`: the
//! statistic (`mean` by default) is taken over the repetitions of a cell, the aggregate over the
//! values of an axis, except the values after `but`.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::bounds::Bounds;
use super::draws::Draws;
use super::grid::Cell;
use super::metric::{Answer, Metric};
use super::runs::Runs;
use super::sampled::{Sampled, candidates};
use super::spec::Spec;
use crate::statistics;

/// A value that can be computed from the runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantity {
    over: Option<Over>,
    statistic: Statistic,
    metric: Metric,
    at: BTreeMap<String, String>,
}

/// An aggregate over several cells, and the cells.
#[derive(Clone, Debug, PartialEq)]
struct Over {
    aggregate: Aggregate,
    axis: String,
    /// Values of the axis that are left out.
    but: Vec<String>,
}

/// Statistic over the repetitions of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    Mean,
    /// The standard deviation.
    Deviation,
    /// The ends of the 95 % confidence interval of the mean.
    Low,
    High,
    /// The smallest and the largest value.
    Least,
    Most,
    /// The mean. It exists only for cells in which every repetition reaches the target; an
    /// aggregate leaves out the other cells.
    Reached,
}

/// Aggregate over the cells along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Min,
    Max,
    /// Largest minus smallest.
    Range,
    /// The value of the axis at which the quantity is smallest or largest.
    ArgMin,
    ArgMax,
    /// 1 if each value is greater (less) than the one before, else 0.
    Rising,
    Falling,
}

const STATISTICS: [(&str, Statistic); 7] = [
    ("mean", Statistic::Mean),
    ("sd", Statistic::Deviation),
    ("low", Statistic::Low),
    ("high", Statistic::High),
    ("least", Statistic::Least),
    ("most", Statistic::Most),
    ("reached", Statistic::Reached),
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
        let (what, but) = what.split_once(" but ").unwrap_or((what, ""));
        let but = but.split(',').map(str::trim).filter(|value| !value.is_empty());
        let but: Vec<String> = but.map(str::to_owned).collect();
        let mut words: Vec<&str> = what.split_whitespace().collect();
        let aggregate = called(&AGGREGATES, words.first());
        let over = match (aggregate, words.as_slice()) {
            (Some(aggregate), [_, middle @ .., "over", axis]) => {
                let over = Over { aggregate, axis: (*axis).to_owned(), but };
                words = middle.to_vec();
                Some(over)
            }
            (None, [.., "over", _]) => {
                let names: Vec<_> = AGGREGATES.iter().map(|(name, _)| *name).collect();
                return Err(format!("{{{text}}}: over an axis, begin with {}", names.join(", ")));
            }
            (Some(_), [word, _, ..]) => {
                return Err(format!("{{{text}}}: {word} of what? add: over AXIS"));
            }
            _ if !but.is_empty() => {
                return Err(format!("{{{text}}}: but belongs after over AXIS"));
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
    /// The same quantity at a place: the values of `place` fill in for axes that it does not name.
    pub(crate) fn at(mut self, place: &BTreeMap<String, String>) -> Self {
        for (axis, value) in place {
            if self.over.as_ref().is_none_or(|over| over.axis != *axis) {
                self.at.entry(axis.clone()).or_insert_with(|| value.clone());
            }
        }
        self
    }

    /// Checks the quantity. `each` are the axes whose values the place of the evaluation sets.
    pub(crate) fn check(&self, spec: &Spec, each: &[String]) -> Result<(), String> {
        self.metric.setting().map_or(Ok(()), super::check::is_setting)?;
        for (name, value) in &self.at {
            let axis = spec.axis(name).ok_or_else(|| super::check::no_axis(spec, name))?;
            if axis.position(value).is_none() {
                return Err(super::check::no_value(axis, value));
            }
        }
        let mut open = spec.open_axes();
        open.retain(|axis| !self.at.contains_key(*axis) && !each.iter().any(|own| own == axis));
        if let Some(Over { axis, but, .. }) = &self.over {
            let swept = spec.axis(axis).ok_or_else(|| super::check::no_axis(spec, axis))?;
            if let Some(value) = but.iter().find(|value| swept.position(value).is_none()) {
                return Err(super::check::no_value(swept, value));
            }
            if but.len() >= swept.values.len() {
                return Err(format!("it leaves out all values of {axis}"));
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

    /// Its value, or the reason why there is none.
    pub(crate) fn of(&self, runs: &Runs<'_>) -> Result<Sampled, String> {
        let Some(over) = &self.over else {
            let cells = runs.cells_at(&self.at);
            let [cell] = cells.as_slice() else {
                return Err("the experiment has no such cell".into());
            };
            let value = self.of_cell(runs, cell)?;
            return value.ok_or_else(|| NOT_REACHED.to_owned());
        };
        over.aggregate.of(&self.along(runs, over)?)
    }

    /// The labels of the axis values that argmin or argmax finds, followed by other values that the
    /// repetitions do not distinguish from them.
    pub(crate) fn which(&self, runs: &Runs<'_>) -> Result<String, String> {
        let over = self.over.as_ref().ok_or("it finds no value of an axis")?;
        let values = self.along(runs, over)?;
        let found = match over.aggregate {
            Aggregate::ArgMin => least,
            Aggregate::ArgMax => most,
            _ => return Err("it finds no value of an axis".into()),
        };
        let bounds = |draw: Option<usize>| -> Vec<Bounds> {
            let of = |value: &Sampled| match draw {
                Some(draw) => value.drawn(draw),
                None => value.observed(),
            };
            values.iter().map(|(_, value)| of(value)).collect()
        };
        let observed = found(&bounds(None)).map_err(|why| why.of(&values))?;
        let places = candidates(draws(&values), observed, |draw| found(&bounds(Some(draw))).ok());
        let axis = runs.spec.axis(&over.axis);
        let label = |place: usize| {
            let (value, _) = values.get(place)?;
            axis.and_then(|axis| Some(axis.value_label(axis.position(value)?)))
        };
        Ok(places.into_iter().filter_map(label).collect::<Vec<_>>().join(" or "))
    }

    /// True if [`Self::which`] has an answer.
    pub(crate) fn finds_a_value(&self) -> bool {
        let found = self.over.as_ref().map(|over| over.aggregate);
        matches!(found, Some(Aggregate::ArgMin | Aggregate::ArgMax))
    }

    /// Its value at each value of the axis.
    fn along<'a>(&self, runs: &Runs<'a>, over: &Over) -> Result<Vec<(&'a str, Sampled)>, String> {
        let number = runs.spec.axis.iter().position(|other| other.name == over.axis);
        let number = number.unwrap_or(usize::MAX);
        let mut values = Vec::new();
        let mut asked = false;
        for cell in runs.cells_at(&self.at) {
            let place = cell.value(runs.spec, number);
            if over.but.iter().any(|out| out == place) {
                continue;
            }
            asked = true;
            values.extend(self.of_cell(runs, cell)?.map(|value| (place, value)));
        }
        if values.is_empty() {
            return Err(if asked { NOT_REACHED } else { "there are no such cells" }.into());
        }
        Ok(values)
    }

    /// Its value for the runs of a cell. `None` if the statistic is `reached` and not every run
    /// reached the target.
    fn of_cell(&self, runs: &Runs<'_>, cell: &Cell) -> Result<Option<Sampled>, String> {
        let sample = runs.sample(&self.metric, cell)?;
        if self.statistic == Statistic::Reached && sample.cut_short > 0 {
            return Ok(None);
        }
        let value = self.statistic.of(&sample, &runs.draws);
        value.map(Some).map_err(|why| format!("{}: {why}", cell.describe(runs.spec)))
    }
}

const NOT_REACHED: &str = "not every repetition reaches what is asked";

/// Values of the repetitions of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Repetition and value.
    pub(crate) values: Vec<(u32, f64)>,
    /// Number of values that are only a lower bound.
    pub(crate) cut_short: usize,
}

impl Sample {
    /// Adds the value of a repetition.
    pub(crate) fn push(&mut self, rep: u32, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::Is(value) => self.values.push((rep, value)),
            Answer::MoreThan(value) => {
                self.values.push((rep, value));
                self.cut_short += 1;
            }
            Answer::Missing(why) => return Err(why),
        }
        Ok(())
    }
}

impl Statistic {
    /// The value for a sample. Draws exist for means only: they tell how far the mean may be from
    /// the mean of many repetitions. The other statistics describe the sample alone.
    fn of(self, sample: &Sample, draws: &Draws) -> Result<Sampled, String> {
        let values: Vec<f64> = sample.values.iter().map(|(_, value)| *value).collect();
        let estimate = statistics::estimate(&values);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let value = match self {
            Self::Mean | Self::Reached => estimate.mean,
            Self::Deviation => estimate.sd,
            Self::Low => estimate.low,
            Self::High => estimate.high,
            Self::Least => least,
            Self::Most => most,
        };
        let of_place = !matches!(self, Self::Deviation | Self::Low | Self::High);
        if !of_place && estimate.n < 2 {
            return Err("one repetition has no spread; it takes two (--reps)".into());
        }
        let varies = matches!(self, Self::Mean | Self::Reached);
        let sampled = if varies {
            Sampled::mean(&sample.values, draws)
        } else {
            Sampled::exactly(Bounds::exactly(value))
        };
        Ok(match sample.cut_short {
            0 => sampled,
            _ if of_place => sampled.map(|bounds| Bounds::at_least(bounds.low)),
            _ => Sampled::exactly(Bounds::at_least(0.0)),
        })
    }
}

impl Aggregate {
    fn of(self, values: &[(&str, Sampled)]) -> Result<Sampled, String> {
        let all = || values.iter().map(|(_, value)| value.clone());
        let fold = |apply: fn(Bounds, Bounds) -> Bounds| {
            let folded = all().reduce(|a, b| a.with(b, apply));
            folded.ok_or_else(|| "there are no such cells".to_owned())
        };
        let steps = |right: fn(Bounds, Bounds) -> Bounds| {
            let pairs =
                values.windows(2).map(|pair| pair[0].1.clone().with(pair[1].1.clone(), right));
            let all = Sampled::exactly(Bounds::exactly(1.0));
            pairs.fold(all, |all, pair| all.with(pair, Bounds::and))
        };
        match self {
            Self::Min => fold(Bounds::lesser),
            Self::Max => fold(Bounds::greater),
            Self::Range => Ok(fold(Bounds::greater)?.with(fold(Bounds::lesser)?, Bounds::minus)),
            Self::ArgMin => place(values, least),
            Self::ArgMax => place(values, most),
            Self::Rising => Ok(steps(Bounds::below)),
            Self::Falling => Ok(steps(|before, after| after.below(before))),
        }
    }
}

/// The value of the axis at the position that `find` returns; bounds of it if there are several.
fn place(
    values: &[(&str, Sampled)],
    find: fn(&[Bounds]) -> Result<Vec<usize>, Undecided>,
) -> Result<Sampled, String> {
    let numbers = values.iter().map(|(text, _)| {
        let number: Result<Bounds, _> = text.parse();
        number.map_err(|_| format!("the axis has values that are no numbers: {text}"))
    });
    let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
    let observed: Vec<Bounds> = values.iter().map(|(_, value)| value.observed()).collect();
    let found = find(&observed).map_err(|why| why.of(values))?;
    let drawn = (0..draws(values)).map(|draw| {
        let drawn: Vec<Bounds> = values.iter().map(|(_, value)| value.drawn(draw)).collect();
        // A draw that does not decide may have any of them.
        let places = find(&drawn).unwrap_or_else(|_| (0..numbers.len()).collect());
        any(&numbers, &places)
    });
    Ok(Sampled::new(any(&numbers, &found), drawn.collect()))
}

/// Bounds that contain the numbers at these positions.
fn any(numbers: &[Bounds], places: &[usize]) -> Bounds {
    let numbers = || places.iter().map(|place| numbers[*place]);
    let low = numbers().map(|number| number.low).fold(f64::INFINITY, f64::min);
    let high = numbers().map(|number| number.high).fold(f64::NEG_INFINITY, f64::max);
    Bounds { low, high }
}

fn draws(values: &[(&str, Sampled)]) -> usize {
    values.iter().map(|(_, value)| value.draws()).max().unwrap_or(0)
}

/// Why the smallest or the largest of several values is unknown.
#[derive(Clone, Copy, Debug)]
enum Undecided {
    None,
    /// Only bounds of the value at this position are known.
    Bounds(usize),
}

impl Undecided {
    fn of(self, values: &[(&str, Sampled)]) -> String {
        let place = match self {
            Self::None => None,
            Self::Bounds(place) => values.get(place),
        };
        place.map_or_else(
            || "there are no such cells".into(),
            |(name, value)| format!("of {name} only bounds are known: {}", value.observed()),
        )
    }
}

/// Positions of the smallest value. No other value may be smaller, wherever both lie within their
/// bounds.
fn least(values: &[Bounds]) -> Result<Vec<usize>, Undecided> {
    let least = (0..values.len()).min_by(|&a, &b| values[a].high.total_cmp(&values[b].high));
    certain(least, values, |least, other| least.high <= other.low)
}

/// Positions of the largest value.
fn most(values: &[Bounds]) -> Result<Vec<usize>, Undecided> {
    let most = (0..values.len()).max_by(|&a, &b| values[a].low.total_cmp(&values[b].low));
    certain(most, values, |most, other| most.low >= other.high)
}

fn certain(
    found: Option<usize>,
    values: &[Bounds],
    is_beyond: impl Fn(Bounds, Bounds) -> bool,
) -> Result<Vec<usize>, Undecided> {
    let found = found.ok_or(Undecided::None)?;
    let is_equal = |place: usize| {
        place == found || values[found].exact().is_some() && values[place] == values[found]
    };
    let mut others = (0..values.len()).filter(|&place| place != found);
    match others.find(|&place| !is_beyond(values[found], values[place])) {
        None => Ok((0..values.len()).filter(|place| is_equal(*place)).collect()),
        Some(place) => Err(Undecided::Bounds(place)),
    }
}
