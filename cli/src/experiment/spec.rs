//! Specification of an experiment in TOML: a base job, axes, pictures and claims.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use pstrain_compute::likeness::nearest;
use serde::{Deserialize, Serialize};

use super::check;

/// A specification, as its file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Spec {
    /// Name of the experiment, and of its results folder.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The publication that the claims come from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) source: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    /// Repetitions of each cell, with seeds that count up from the job's.
    #[serde(default = "one")]
    pub(crate) reps: u32,
    /// Settings of all runs.
    #[serde(default)]
    pub(crate) job: BTreeMap<String, Text>,
    /// The axes of the sweep; the last one changes fastest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) axis: Vec<Axis>,
    /// Excluded cells: each with values of all axes of one of these entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) exclude: Vec<BTreeMap<String, Values>>,
    /// Names for expressions that several claims use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) define: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) picture: Vec<PictureSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) table: Vec<TableSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) claim: Vec<Claim>,
}

const fn one() -> u32 {
    1
}

/// A setting that is swept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) label: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) unit: String,
    pub(crate) values: Vec<Text>,
    /// Labels of the values, one for each value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) labels: Vec<String>,
    /// Settings, with `{}` in place of the value. Without `set` and `settings`, the axis makes the
    /// setting of its own name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) set: BTreeMap<String, Text>,
    /// Settings of each value, by value, where no pattern can express them. A setting that only
    /// some values list keeps its common value for the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) settings: BTreeMap<String, BTreeMap<String, Text>>,
}

/// A picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PictureSpec {
    /// File name within `pictures/`, without extension.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) kind: Kind,
    /// Curve: epoch, time_s, samples or updates. Usage: time_s. Line: an axis or a metric. Others:
    /// an axis.
    pub(crate) x: String,
    /// Curve: loss or a metric such as accuracy. Usage: up or down. Line: a metric. Bar: a metric,
    /// or an expression over quantities at the place of each bar. Heat map: an axis.
    pub(crate) y: String,
    /// The metric of a heat map, or an expression over quantities at the place of each cell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    /// Label of the colours of a heat map.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value_label: String,
    /// In all labels, an expression in brackets stands for its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) x_label: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) y_label: String,
    /// Curve, line and usage: start of the x axis. Bar: start of the y axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<f64>,
    /// Usage: end of the x axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<f64>,
    /// One line, or kind of bar, for each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<String>,
    /// One picture for each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) each: Vec<String>,
    /// Only the cells with these values.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) only: BTreeMap<String, Text>,
    /// Only the cells with one of these values on each of these axes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) among: BTreeMap<String, Values>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) x_log: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) y_log: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Kind of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The course of runs.
    Curve,
    /// The end of runs, against an axis or a metric.
    Line,
    /// The end of runs, as bars for the values of an axis.
    Bar,
    /// The end of runs, against two axes.
    Heatmap,
    /// Use over time of the link that all workers share at the server.
    Usage,
}

/// A table: one row for each place, with expressions over the runs there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSpec {
    /// File name within `tables/`, without extension.
    pub(crate) file: String,
    pub(crate) title: String,
    /// One row for each combination of the values of these axes.
    pub(crate) rows: Vec<String>,
    pub(crate) column: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) title: String,
    /// An expression over the runs of the row's place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    /// Or a quantity with argmin or argmax: the label of the value that it finds is shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) which: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) unit: String,
}

/// A statement of the source, as a comparison that the runs decide.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) text: String,
    /// The claim is decided at each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) each: Vec<String>,
    /// Share of those places at which the claim must hold; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// Which of the measured values counts as the worst.
    #[serde(default, skip_serializing_if = "Worst::is_most")]
    pub(crate) worst: Worst,
    /// The words of the source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reported: String,
    /// An expression over the runs.
    pub(crate) measured: String,
    /// The expected value of `measured`, if it follows from other values.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) expected: String,
    /// A comparison; it may use the names `measured` and `expected`.
    pub(crate) holds: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) unit: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// True if the claim follows from the modelled times, so that it only checks this program.
    #[serde(default, rename = "self-check", skip_serializing_if = "is_false")]
    pub(crate) self_check: bool,
}

/// Which of several numbers is the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Worst {
    #[default]
    Most,
    Least,
}

impl Worst {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    fn is_most(&self) -> bool {
        *self == Self::Most
    }
}

/// Some values of an axis; a single one needs no brackets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMore", into = "OneOrMore")]
pub(crate) struct Values(pub(crate) Vec<Text>);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a value of an axis or a list of values")]
enum OneOrMore {
    More(Vec<Text>),
    One(Text),
}

impl From<OneOrMore> for Values {
    fn from(values: OneOrMore) -> Self {
        match values {
            OneOrMore::More(values) => Self(values),
            OneOrMore::One(value) => Self(vec![value]),
        }
    }
}

impl From<Values> for OneOrMore {
    fn from(Values(mut values): Values) -> Self {
        match values.pop() {
            Some(value) if values.is_empty() => Self::One(value),
            last => Self::More(values.into_iter().chain(last).collect()),
        }
    }
}

/// A value that is written as a number or a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Scalar", into = "Scalar")]
pub(crate) struct Text(pub(crate) String);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, a text or a list of texts")]
enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
    /// Items of a list setting.
    Items(Vec<String>),
}

impl From<Scalar> for Text {
    fn from(scalar: Scalar) -> Self {
        Self(match scalar {
            Scalar::Integer(number) => number.to_string(),
            Scalar::Float(number) => number.to_string(),
            Scalar::Text(text) => text,
            Scalar::Items(items) => items.join(" "),
        })
    }
}

impl From<Text> for Scalar {
    /// A bare number only if that reads back as the same text.
    fn from(Text(text): Text) -> Self {
        match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) if number.to_string() == text => Self::Integer(number),
            (_, Ok(number)) if number.to_string() == text && text.contains('.') => {
                Self::Float(number)
            }
            _ => Self::Text(text),
        }
    }
}

impl Axis {
    /// Index of `value` among the values.
    pub(crate) fn position(&self, value: &str) -> Option<usize> {
        self.values.iter().position(|Text(text)| text == value)
    }

    /// The settings that at least some of the values make.
    pub(crate) fn keys(&self) -> BTreeSet<&str> {
        let some = self.settings.values().flat_map(BTreeMap::keys);
        self.made_by_all().into_iter().chain(some.map(String::as_str)).collect()
    }

    /// The settings that every value makes.
    pub(crate) fn made_by_all(&self) -> BTreeSet<&str> {
        let own = self.set.is_empty() && self.settings.is_empty();
        let own = own.then_some(self.name.as_str());
        let keys = own.into_iter().chain(self.set.keys().map(String::as_str));
        let mut all: BTreeSet<&str> = keys.collect();
        let mut values = self.settings.values();
        let first = values.next().into_iter().flat_map(BTreeMap::keys);
        let by_others = |key: &&String| self.settings.values().all(|own| own.contains_key(*key));
        all.extend(first.filter(by_others).map(String::as_str));
        all
    }

    /// The settings that a value makes.
    pub(crate) fn settings_of(&self, value: &str) -> BTreeMap<String, String> {
        let mut made = BTreeMap::new();
        if self.set.is_empty() && self.settings.is_empty() {
            made.insert(self.name.clone(), value.to_owned());
        }
        for (key, Text(pattern)) in &self.set {
            made.insert(key.clone(), pattern.replace("{}", value));
        }
        for (key, Text(text)) in self.settings.get(value).into_iter().flatten() {
            made.insert(key.clone(), text.clone());
        }
        made
    }

    /// The label of a value.
    pub(crate) fn value_label(&self, index: usize) -> String {
        let label = self.labels.get(index).cloned();
        label.or_else(|| self.values.get(index).map(|text| text.0.clone())).unwrap_or_default()
    }

    /// True if the values are numbers without labels, so that they need the axis's name.
    pub(crate) fn is_bare(&self) -> bool {
        self.labels.is_empty() && self.values.iter().any(|Text(text)| text.parse::<f64>().is_ok())
    }

    /// The label of a value where the axis is not named next to it.
    pub(crate) fn full_label(&self, index: usize) -> String {
        let label = self.value_label(index);
        if self.is_bare() {
            let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
            format!("{} {label}{unit}", self.title())
        } else {
            label
        }
    }

    /// The label of the axis, by default its name.
    pub(crate) fn title(&self) -> &str {
        if self.label.is_empty() { &self.name } else { &self.label }
    }
}

impl Spec {
    /// Parses and checks a specification; messages name `place` as its source.
    pub(crate) fn parse(place: &str, text: &str) -> anyhow::Result<Self> {
        let spec: Self = toml::from_str(text).map_err(|error| {
            // The parser draws the place of the error, and ends with an empty line.
            anyhow::anyhow!("{place} is no experiment: {}", error.to_string().trim_end())
        })?;
        check::check(&spec).map_err(|why| anyhow::anyhow!("{place}: {why}"))?;
        Ok(spec)
    }

    /// The specification called `name`: a shipped one, or the one in that file.
    pub(crate) fn find(name: &str) -> anyhow::Result<Self> {
        Self::parse(name, &Self::text(name)?)
    }

    /// As [`Self::find`]; a job file becomes an experiment with one cell.
    pub(crate) fn find_or_job(name: &str) -> anyhow::Result<Self> {
        let text = Self::text(name)?;
        let is_experiment = |table: &toml::Table| {
            ["title", "job", "axis"].iter().any(|key| table.contains_key(*key))
        };
        match text.parse::<toml::Table>() {
            Ok(settings) if !is_experiment(&settings) => {
                let mut table = toml::Table::new();
                let title = settings.get("name").and_then(toml::Value::as_str).unwrap_or("a job");
                table.insert("name".into(), "job".into());
                table.insert("title".into(), title.into());
                table.insert("job".into(), settings.into());
                Self::parse(name, &table.to_string())
            }
            _ => Self::parse(name, &text),
        }
    }

    /// The text of the specification called `name`.
    pub(crate) fn text(name: &str) -> anyhow::Result<String> {
        let shipped = pstrain_data::experiments();
        if let Some(found) = shipped.iter().find(|shipped| shipped.name == name) {
            return Ok(found.text.to_owned());
        }
        let path = Path::new(name);
        if path.is_file() {
            return std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the experiment {name}"));
        }
        if path.is_dir() {
            bail!("{name} is a folder; name the file of an experiment, such as {name}/spec.toml");
        }
        if name.contains(['/', '.']) {
            bail!("{name}: there is no such file");
        }
        match nearest(name, shipped.iter().map(|shipped| shipped.name)) {
            Some(near) => bail!("there is no experiment {name:?}; did you mean {near:?}?"),
            None => bail!(
                "there is no experiment {name:?}, and no such file; `pstrain experiment list` \
                 lists those that are shipped"
            ),
        }
    }

    pub(crate) fn axis(&self, name: &str) -> Option<&Axis> {
        self.axis.iter().find(|axis| axis.name == name)
    }

    /// The axes with more than one value, of which one must be chosen.
    pub(crate) fn open_axes(&self) -> BTreeSet<&str> {
        let open = self.axis.iter().filter(|axis| axis.values.len() > 1);
        open.map(|axis| axis.name.as_str()).collect()
    }

    /// The specification in TOML.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(self).context("cannot write the specification")
    }
}
