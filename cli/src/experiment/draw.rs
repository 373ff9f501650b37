//! Pictures of the runs, as the specification describes them.

use std::collections::BTreeMap;

use super::PICTURES;
use super::claims::{evaluate, filled};
use super::grid::Cell;
use super::metric::{Answer, Field, Metric};
use super::runs::Runs;
use super::sampled::Sampled;
use super::spec::{Axis as SpecAxis, Kind, PictureSpec, Text};
use crate::metric_text;
use crate::picture::{Axis, Bar, BarSeries, Bars, Chart, HeatMap, Mark, Names, Picture, Series};
use crate::statistics;

/// A picture with the name of its files.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) picture: Picture,
}

impl Drawn {
    /// Its file of a format, within a results folder.
    pub(crate) fn path(&self, format: &str) -> String {
        format!("{PICTURES}/{}.{format}", self.file)
    }
}

/// All pictures of the specification.
pub(crate) fn draw(runs: &Runs<'_>) -> Result<Vec<Drawn>, String> {
    let mut drawn: Vec<Drawn> = Vec::new();
    if let Some(why) = unknown_metrics(runs).into_iter().next() {
        return Err(why);
    }
    for wanted in &runs.spec.picture {
        let first = drawn.len();
        for (place, name, title) in places(runs, &wanted.each) {
            let only = wanted.only.iter().map(|(axis, Text(value))| (axis.clone(), value.clone()));
            let place: BTreeMap<String, String> = only.chain(place).collect();
            let suffix = if name.is_empty() { name } else { format!("-{name}") };
            let title = if title.is_empty() {
                wanted.title.clone()
            } else {
                format!("{}: {title}", wanted.title)
            };
            let panel = Panel { runs, wanted, place, title: title.clone() };
            let picture = match wanted.kind {
                Kind::Curve => panel.curve()?,
                Kind::Usage => panel.usage(),
                Kind::Line => panel.line()?,
                Kind::Bar => panel.bars()?,
                Kind::Heatmap => panel.heat_map()?,
            };
            drawn.push(Drawn { file: format!("{}{suffix}", wanted.file), title, picture });
        }
        share_colours(&mut drawn[first..]);
    }
    Ok(drawn)
}

/// Errors of pictures that ask for numbers that none of their runs has. A picture without runs so
/// far has no error.
pub(crate) fn unknown_metrics(runs: &Runs<'_>) -> Vec<String> {
    let is_begun = |wanted: &&PictureSpec| {
        let mut there = runs.cells.iter().filter(|cell| runs.of(cell).next().is_some());
        there.any(|cell| {
            let only = wanted.only.iter().map(|(axis, Text(value))| (axis, value.as_str()));
            cell.is_among(runs.spec, &wanted.among) && cell.is_at(runs.spec, only)
        })
    };
    let unknown = |wanted: &PictureSpec| {
        let asked = match wanted.kind {
            Kind::Curve => {
                let field: Field = wanted.y.parse().ok()?;
                let why = runs.curves_lack(field.metric()?)?;
                return Some(format!("picture {:?}: y = {:?}: {why}", wanted.file, wanted.y));
            }
            Kind::Usage => vec![],
            Kind::Line => vec![("x", &wanted.x), ("y", &wanted.y)],
            Kind::Bar if is_expression(&wanted.y) => vec![],
            Kind::Bar => vec![("y", &wanted.y)],
            Kind::Heatmap if is_expression(&wanted.value) => vec![],
            Kind::Heatmap => vec![("value", &wanted.value)],
        };
        let metrics = asked.into_iter().filter(|(_, text)| runs.spec.axis(text).is_none());
        let mut metrics = metrics.filter_map(|(key, text)| Some((key, text, text.parse().ok()?)));
        metrics.find_map(|(key, text, metric)| {
            let why = runs.lacks(&metric)?;
            Some(format!("picture {:?}: {key} = {text:?}: {why}", wanted.file))
        })
    };
    runs.spec.picture.iter().filter(is_begun).filter_map(unknown).collect()
}

/// Gives all heat maps in `drawn` the same colour scale.
fn share_colours(drawn: &mut [Drawn]) {
    let values = drawn.iter().flat_map(|drawn| match &drawn.picture {
        Picture::HeatMap(map) => map.values.iter().flatten().flatten().copied().collect(),
        Picture::Chart(_) | Picture::Bars(_) => Vec::new(),
    });
    let span = values.filter(|value| value.is_finite()).fold(None, |span, value| {
        let (low, high) = span.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    });
    for drawn in drawn {
        if let Picture::HeatMap(map) = &mut drawn.picture {
            map.span = span;
        }
    }
}

type Place = (BTreeMap<String, String>, String, String);

/// Every combination of the values of some axes: the values, a name for files, a label.
fn places(runs: &Runs<'_>, axes: &[String]) -> Vec<Place> {
    let mut places = vec![Place::default()];
    for axis in axes.iter().filter_map(|name| runs.spec.axis(name)) {
        let with = |(place, name, title): &Place, index: usize, value: &str| {
            let mut place = place.clone();
            place.insert(axis.name.clone(), value.to_owned());
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
            let value_name: String = value.chars().map(plain).collect();
            let label = axis.full_label(index);
            (place, joined(name, "-", &value_name), joined(title, ", ", &label))
        };
        places = places
            .iter()
            .flat_map(|place| {
                let values = axis.values.iter().enumerate();
                values.map(move |(index, Text(value))| with(place, index, value))
            })
            .collect();
    }
    places
}

fn labelled(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_owned() } else { format!("{label} ({unit})") }
}

/// The label of the value that a place has on an axis.
fn values_of(place: &BTreeMap<String, String>, axis: &SpecAxis) -> Option<String> {
    Some(axis.value_label(axis.position(place.get(&axis.name)?)?))
}

fn joined(before: &str, between: &str, after: &str) -> String {
    if before.is_empty() { after.to_owned() } else { format!("{before}{between}{after}") }
}

/// Number of time slices over which the use of a link is averaged.
const SLICES: usize = 150;

/// One picture, of some of the cells.
struct Panel<'a> {
    runs: &'a Runs<'a>,
    wanted: &'a PictureSpec,
    /// Values that all its cells share.
    place: BTreeMap<String, String>,
    title: String,
}

impl Panel<'_> {
    /// The axis that the legend names: the single axis of the lines, if its values are bare
    /// numbers.
    fn legend(&self) -> Option<&SpecAxis> {
        let [axis] = self.wanted.lines.as_slice() else { return None };
        self.runs.spec.axis(axis).filter(|axis| axis.is_bare())
    }

    /// Title of the legend.
    fn legend_title(&self) -> String {
        self.legend().map_or_else(String::new, |axis| labelled(axis.title(), &axis.unit))
    }

    /// The cells of each line, by the name of the line.
    fn lines(&self) -> Vec<(String, Vec<&Cell>)> {
        let lines = places(self.runs, &self.wanted.lines).into_iter().map(|(values, _, title)| {
            // The values that are fixed for the whole picture must not be overruled.
            let fixed = self
                .place
                .iter()
                .all(|(axis, value)| values.get(axis).is_none_or(|other| other == value));
            let at: BTreeMap<_, _> = self.place.clone().into_iter().chain(values).collect();
            let mut cells = if fixed { self.runs.cells_at(&at) } else { Vec::new() };
            cells.retain(|cell| cell.is_among(self.runs.spec, &self.wanted.among));
            let bare = self.legend().and_then(|axis| values_of(&at, axis));
            (bare.unwrap_or(title), cells)
        });
        lines.filter(|(_, cells)| !cells.is_empty()).collect()
    }

    fn axis(&self, label: &str, what: &str, log: bool) -> Axis {
        let (own, unit) = match self.runs.spec.axis(what) {
            Some(axis) => (axis.title().to_owned(), axis.unit.clone()),
            None => described(what),
        };
        let label = if label.is_empty() { own } else { filled(self.runs, label) };
        Axis { label, unit, log }
    }

    fn names(&self, label: &str, what: &str) -> Names {
        let Axis { label, unit, .. } = self.axis(label, what, false);
        let names = self.runs.spec.axis(what).map_or_else(Vec::new, |axis| {
            (0..axis.values.len()).map(|index| axis.value_label(index)).collect()
        });
        Names { label, unit, names }
    }

    fn chart(&self, mut series: Vec<Series>) -> Chart {
        if let Some(from) = self.wanted.from {
            for series in &mut series {
                // Points that are not finite interrupt the line, so they stay.
                series.marks.retain(|mark| !mark.x.is_finite() || mark.x >= from);
            }
        }
        Chart {
            title: self.title.clone(),
            x: self.axis(&self.wanted.x_label, &self.wanted.x, self.wanted.x_log),
            x_names: Vec::new(),
            y: self.axis(&self.wanted.y_label, &self.wanted.y, self.wanted.y_log),
            legend: self.legend_title(),
            series,
        }
    }

    /// The course of the runs of each line: the mean of the repetitions, at each evaluation that
    /// all of them have.
    fn curve(&self) -> Result<Picture, String> {
        let (x, y): (Field, Field) = (self.wanted.x.parse()?, self.wanted.y.parse()?);
        let series = self.lines().into_iter().map(|(name, cells)| {
            let curves: Vec<_> =
                cells.iter().flat_map(|cell| self.runs.of(cell)).map(|run| &run.curve).collect();
            let length = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
            let mark = |index: usize| {
                let at = |field: &Field| -> Vec<f64> {
                    let points = curves.iter().filter_map(|curve| curve.get(index));
                    points.filter_map(|point| field.of(point)).collect()
                };
                mark(&at(&x), &at(&y), y.is_share())
            };
            Series { name, marks: (0..length).map(mark).collect() }
        });
        Ok(Picture::Chart(self.chart(series.collect())))
    }

    /// The end of the runs of each line, against an axis or a metric.
    fn line(&self) -> Result<Picture, String> {
        let y: Metric = self.wanted.y.parse()?;
        let x = match self.runs.spec.axis(&self.wanted.x) {
            Some(_) => None,
            None => Some(self.wanted.x.parse::<Metric>()?),
        };
        let number = self.number(&self.wanted.x);
        // Values that are not numbers are placed at equal distances.
        let names = self.shown(&self.wanted.x);
        let is_named = names.iter().any(|(value, _)| value.parse::<f64>().is_err());
        let series = self.lines().into_iter().map(|(name, cells)| {
            let mark = |cell: &&Cell| {
                let at = match &x {
                    Some(metric) => self.answers(metric, cell).unwrap_or_default(),
                    None => {
                        let value = cell.value(self.runs.spec, number);
                        let place = || names.iter().position(|(name, _)| name == value);
                        let named = || place().map(|place| place as f64);
                        let at = if is_named { named() } else { value.parse().ok() };
                        at.into_iter().collect()
                    }
                };
                match self.answers(&y, cell) {
                    None if !at.is_empty() => never(statistics::estimate(&at).mean),
                    values => mark(&at, &values.unwrap_or_default(), y.is_share()),
                }
            };
            let mut marks: Vec<Mark> = cells.iter().map(mark).collect();
            if x.is_some() {
                marks.sort_by(|a, b| a.x.total_cmp(&b.x));
            }
            Series { name, marks }
        });
        let mut chart = self.chart(series.collect());
        if x.is_none() && is_named {
            chart.x_names = names.into_iter().map(|(_, label)| label).collect();
        }
        Ok(Picture::Chart(chart))
    }

    /// The values of an axis that the picture includes, with their labels.
    fn shown(&self, axis: &str) -> Vec<(String, String)> {
        let Some(axis) = self.runs.spec.axis(axis) else { return Vec::new() };
        let among = self.wanted.among.get(&axis.name);
        let values = axis.values.iter().enumerate();
        let shown = values.filter(|(_, value)| among.is_none_or(|among| among.0.contains(value)));
        shown.map(|(index, Text(value))| (value.clone(), axis.value_label(index))).collect()
    }

    /// Use of the shared link: of the first run of each line, in slices of time.
    fn usage(&self) -> Picture {
        let (from, to) = (self.wanted.from.unwrap_or(0.0), self.wanted.to.unwrap_or(0.0));
        let series = self.lines().into_iter().map(|(name, cells)| {
            let run = cells.iter().find_map(|cell| self.runs.of(cell).next());
            let spans = run.map_or(&[][..], |run| match self.wanted.y.as_str() {
                "down" => &run.link_use.down,
                _ => &run.link_use.up,
            });
            let slice = (to - from) / SLICES as f64;
            let mark = |number: usize| {
                let begin = from + number as f64 * slice;
                let within = |&(a, b): &(f64, f64)| (b.min(begin + slice) - a.max(begin)).max(0.0);
                let y = spans.iter().map(within).sum::<f64>() / slice;
                Mark { x: begin + slice / 2.0, y, low: y, high: y }
            };
            Series { name, marks: (0..SLICES).map(mark).collect() }
        });
        Picture::Chart(self.chart(series.collect()))
    }

    fn bars(&self) -> Result<Picture, String> {
        let (mut x, number) =
            (self.names(&self.wanted.x_label, &self.wanted.x), self.number(&self.wanted.x));
        let mut series = Vec::new();
        for (name, cells) in self.lines() {
            let mut bars = vec![None; x.names.len()];
            for cell in cells {
                let slot = cell.at.get(number).and_then(|&at| bars.get_mut(at));
                if let Some(slot @ None) = slot {
                    *slot = self.bar(cell)?;
                }
            }
            series.push(BarSeries { name, bars });
        }
        self.keep_among(&mut x.names, &mut series);
        let y = self.axis(&self.wanted.y_label, &self.wanted.y, self.wanted.y_log);
        let legend = self.legend_title();
        let (title, from) = (self.title.clone(), self.wanted.from);
        Ok(Picture::Bars(Bars { title, x, y, from, legend, series }))
    }

    /// Removes the groups of bars that are not included.
    fn keep_among(&self, names: &mut Vec<String>, series: &mut [BarSeries]) {
        let axis = self.runs.spec.axis(&self.wanted.x);
        let Some((axis, shown)) = axis.zip(self.wanted.among.get(&self.wanted.x)) else { return };
        let keep: Vec<bool> = axis.values.iter().map(|value| shown.0.contains(value)).collect();
        let mut kept = keep.iter();
        names.retain(|_| kept.next().is_some_and(|keep| *keep));
        for series in series {
            let mut kept = keep.iter();
            series.bars.retain(|_| kept.next().is_some_and(|keep| *keep));
        }
    }

    /// The bar of a cell, with its confidence interval.
    fn bar(&self, cell: &Cell) -> Result<Option<Bar>, String> {
        let wanted = &self.wanted.y;
        if is_expression(wanted) {
            return Ok(self.expressed(wanted, cell).and_then(|sampled| {
                let value = sampled.observed().exact().filter(|value| value.is_finite())?;
                let interval = sampled.interval();
                let (low, high) = interval.map_or((value, value), |it| (it.low, it.high));
                Some(Bar { value, low, high })
            }));
        }
        let y: Metric = wanted.parse()?;
        Ok(match self.answers(&y, cell) {
            None => Some(Bar { value: f64::INFINITY, low: f64::INFINITY, high: f64::INFINITY }),
            Some(values) => (!values.is_empty()).then(|| {
                let estimate = statistics::estimate(&values);
                let (low, high) = interval(&estimate, y.is_share());
                Bar { value: estimate.mean, low, high }
            }),
        })
    }

    fn heat_map(&self) -> Result<Picture, String> {
        let x = self.names(&self.wanted.x_label, &self.wanted.x);
        let y = self.names(&self.wanted.y_label, &self.wanted.y);
        let (column, row) = (self.number(&self.wanted.x), self.number(&self.wanted.y));
        let mut values = vec![vec![None; x.names.len()]; y.names.len()];
        for cell in self.runs.cells_at(&self.place) {
            let (Some(&column), Some(&row)) = (cell.at.get(column), cell.at.get(row)) else {
                continue;
            };
            if let Some(slot) = values.get_mut(row).and_then(|row: &mut Vec<_>| row.get_mut(column))
            {
                *slot = self.colour(cell)?;
            }
        }
        let value = self.axis(&self.wanted.value_label, &self.wanted.value, self.wanted.y_log);
        Ok(Picture::HeatMap(HeatMap { title: self.title.clone(), x, y, value, span: None, values }))
    }

    /// The value behind the colour of a heat map's cell, if it is known.
    fn colour(&self, cell: &Cell) -> Result<Option<f64>, String> {
        let wanted = &self.wanted.value;
        if is_expression(wanted) {
            let value = self.expressed(wanted, cell).and_then(|value| value.observed().exact());
            return Ok(value.filter(|value| value.is_finite()));
        }
        let metric: Metric = wanted.parse()?;
        let Some(answers) = self.answers(&metric, cell) else { return Ok(Some(f64::INFINITY)) };
        // The map shows a dash if a run lacks the value.
        let whole = answers.len() == self.runs.of(cell).count() && !answers.is_empty();
        Ok(whole.then(|| statistics::estimate(&answers).mean))
    }

    /// The value of an expression at the place of a cell, reduced to the axes that the picture
    /// shows. `None` if the runs do not determine it.
    fn expressed(&self, text: &str, cell: &Cell) -> Option<Sampled> {
        let wanted = self.wanted;
        let shown =
            |name: &String| *name == wanted.x || *name == wanted.y || wanted.lines.contains(name);
        let axes = self.runs.spec.axis.iter().enumerate().filter(|(_, axis)| shown(&axis.name));
        let values = axes
            .map(|(number, axis)| (axis.name.clone(), cell.value(self.runs.spec, number).into()));
        let place = self.place.clone().into_iter().chain(values).collect();
        evaluate(self.runs, text, &[], &place).ok()
    }

    /// Index of an axis.
    fn number(&self, name: &str) -> usize {
        self.runs.spec.axis.iter().position(|axis| axis.name == name).unwrap_or(usize::MAX)
    }

    /// The values of the runs of a cell that have one. None if a run never reached its target: then
    /// there is no mean.
    fn answers(&self, metric: &Metric, cell: &Cell) -> Option<Vec<f64>> {
        let mut values = Vec::new();
        for record in self.runs.of(cell) {
            match metric.of(record, cell) {
                Answer::Is(value) => values.push(value),
                Answer::MoreThan(_) => return None,
                Answer::Missing(_) => {}
            }
        }
        Some(values)
    }
}

/// A value that was never reached.
fn never(x: f64) -> Mark {
    Mark { x, y: f64::INFINITY, low: f64::INFINITY, high: f64::INFINITY }
}

/// The mean of the values with its interval, at the mean of the positions.
fn mark(at: &[f64], values: &[f64], is_share: bool) -> Mark {
    if at.is_empty() || values.is_empty() {
        return Mark { x: f64::NAN, y: f64::NAN, low: f64::NAN, high: f64::NAN };
    }
    let estimate = statistics::estimate(values);
    let (low, high) = interval(&estimate, is_share);
    Mark { x: statistics::estimate(at).mean, y: estimate.mean, low, high }
}

/// The ends of the interval; for a single value, the value. Student's interval is not limited to 0
/// to 1, as a share is.
fn interval(estimate: &statistics::Estimate, is_share: bool) -> (f64, f64) {
    let (low, high) = (estimate.low, estimate.high);
    if !low.is_finite() || !high.is_finite() {
        (estimate.mean, estimate.mean)
    } else if is_share {
        (low.max(0.0), high.min(1.0))
    } else {
        (low, high)
    }
}

/// True if the text is an expression over quantities instead of a metric.
pub(super) fn is_expression(text: &str) -> bool {
    text.contains('{')
}

/// Label and unit of a metric.
fn described(metric: &str) -> (String, String) {
    let words: Vec<&str> = metric.split_whitespace().collect();
    if let [along, "to", field, target] = words.as_slice() {
        let (along, unit) = described(along);
        return (format!("{along} to {field} {target}"), unit);
    }
    let (name, unit) = match metric {
        "time_s" => ("Training time", "s"),
        "epoch" | "epochs" => ("Epoch", ""),
        "loss" => ("Loss", ""),
        "up" => ("Use of the server's link, to it", ""),
        "down" => ("Use of the server's link, from it", ""),
        "samples" => ("Examples", ""),
        "updates" => ("Updates", ""),
        "accuracy" => ("Accuracy", ""),
        "samples_per_s" => ("Examples a second", ""),
        "updates_per_s" => ("Updates a second", ""),
        "staleness.mean" => ("Mean staleness", "updates"),
        other => match other.strip_suffix("_s") {
            Some(name) => (name, "s"),
            None => (metric_text::title(other), ""),
        },
    };
    (name.to_owned(), unit.to_owned())
}
