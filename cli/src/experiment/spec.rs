//! What an experiment is: a base job, axes that are swept, pictures and claims, as TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::check;

/// A specification, as a file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Spec {
    /// Also the name of the results folder.
    pub(crate) name: String,
    pub(crate) title: String,
    /// What the claims are taken from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) source: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    /// Repetitions of each cell, with seeds that follow the job's.
    #[serde(default = "one")]
    pub(crate) reps: u32,
    /// The settings that all runs share.
    #[serde(default)]
    pub(crate) job: BTreeMap<String, Text>,
    /// What is swept; the last one changes fastest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) axis: Vec<Axis>,
    /// Cells that are left out: those that have all the values of one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) exclude: Vec<BTreeMap<String, Text>>,
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
    /// What people call the values, one each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) labels: Vec<String>,
    /// Settings with `{}` where the value goes; without it, the setting called like the axis.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) set: BTreeMap<String, Text>,
    /// Settings of each value, by the value: what no pattern can say. What only some values say is
    /// for the others what all runs share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) settings: BTreeMap<String, BTreeMap<String, Text>>,
}

/// A picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PictureSpec {
    /// Its name below `pictures/`, without the ending.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) kind: Kind,
    /// Curve: epoch, time_s, samples or updates. Usage: time_s. Line: an axis or a metric. Others:
    /// an axis.
    pub(crate) x: String,
    /// Curve: accuracy or loss. Usage: up or down. Line: a metric. Bar: a metric,
    /// or an expression over quantities at the place of each bar. Heat map: an axis.
    pub(crate) y: String,
    /// The metric of a heat map, or an expression over quantities at the place of each cell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    /// What the colours of a heat map mean.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value_label: String,
    /// An expression in brackets stands for its value, here and in the other labels.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) x_label: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) y_label: String,
    /// Curve, line and usage: what is drawn begins here on the x axis. Bar: the height does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<f64>,
    /// Usage: and ends here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<f64>,
    /// A line, or kind of bar, for each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<String>,
    /// A picture for each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) each: Vec<String>,
    /// Only the cells with these values.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) only: BTreeMap<String, Text>,
    /// Only the cells with one of these values on each of these axes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) among: BTreeMap<String, Vec<Text>>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) x_log: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) y_log: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// How runs go on.
    Curve,
    /// How runs end, against an axis or a metric.
    Line,
    /// How runs end, side by side for the values of an axis.
    Bar,
    /// How runs end, against two axes.
    Heatmap,
    /// How much of the link that all share at the server is in use as time goes on.
    Usage,
}

/// A table: a row for each place, with what the runs say there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSpec {
    /// Its name below `tables/`, without the ending.
    pub(crate) file: String,
    pub(crate) title: String,
    /// A row for each combination of the values of these axes.
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
    /// Or a quantity that finds a place on an axis: what people call that value is shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) which: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) unit: String,
}

/// Something the source says, as a comparison that the runs decide.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) text: String,
    /// It is decided at each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) each: Vec<String>,
    /// In which share of those places it must hold: 1 if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// What is worst of what is measured there.
    #[serde(default, skip_serializing_if = "Worst::is_most")]
    pub(crate) worst: Worst,
    /// What the source reports, in its words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reported: String,
    /// An expression over the runs.
    pub(crate) measured: String,
    /// What `measured` should be, where that follows from something else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) expected: String,
    /// A comparison; it may use the names `measured` and `expected`.
    pub(crate) holds: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) unit: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// Whether it follows from the times that are set, so that only this program is checked.
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

/// A value that files write as a number or as a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Scalar", into = "Scalar")]
pub(crate) struct Text(pub(crate) String);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, a text or a list of texts")]
enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
    /// Items of a setting that lists some, one after the other.
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
    /// Bare only if it comes back as the same text.
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
    /// The place of `value` among the values.
    pub(crate) fn position(&self, value: &str) -> Option<usize> {
        self.values.iter().position(|Text(text)| text == value)
    }

    /// The settings it makes, for some of its values at least.
    pub(crate) fn keys(&self) -> BTreeSet<&str> {
        let some = self.settings.values().flat_map(BTreeMap::keys);
        self.made_by_all().into_iter().chain(some.map(String::as_str)).collect()
    }

    /// The settings that each of its values makes.
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

    /// The settings of a value.
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

    /// What people call a value.
    pub(crate) fn value_label(&self, index: usize) -> String {
        let label = self.labels.get(index).cloned();
        label.or_else(|| self.values.get(index).map(|text| text.0.clone())).unwrap_or_default()
    }

    /// Whether the values do not say what they are of.
    pub(crate) fn is_bare(&self) -> bool {
        self.labels.is_empty() && self.values.iter().any(|Text(text)| text.parse::<f64>().is_ok())
    }

    /// What people call a value where the axis is not named beside it.
    pub(crate) fn full_label(&self, index: usize) -> String {
        let label = self.value_label(index);
        if self.is_bare() {
            let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
            format!("{} {label}{unit}", self.title())
        } else {
            label
        }
    }

    /// What people call the axis.
    pub(crate) fn title(&self) -> &str {
        if self.label.is_empty() { &self.name } else { &self.label }
    }
}

impl Spec {
    /// Reads and checks a specification; `place` is where it comes from.
    pub(crate) fn parse(place: &str, text: &str) -> anyhow::Result<Self> {
        let spec: Self = toml::from_str(text).map_err(|error| {
            // The parser's drawing of the place ends with an empty line.
            anyhow::anyhow!("{place} is no experiment: {}", error.to_string().trim_end())
        })?;
        check::check(&spec).map_err(|why| anyhow::anyhow!("{place}: {why}"))?;
        Ok(spec)
    }

    /// The specification called `name`: a shipped one, or that in a file.
    pub(crate) fn find(name: &str) -> anyhow::Result<Self> {
        Self::parse(name, &Self::text(name)?)
    }

    /// As [`Self::find`]; a job file stands for an experiment with one cell.
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
        match check::nearest(name, shipped.iter().map(|shipped| shipped.name)) {
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

    /// The axes on which a value must be chosen, since they have more than one.
    pub(crate) fn open_axes(&self) -> BTreeSet<&str> {
        let open = self.axis.iter().filter(|axis| axis.values.len() > 1);
        open.map(|axis| axis.name.as_str()).collect()
    }

    /// The specification as a file.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(self).context("cannot write the specification")
    }
}
