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
}

/// A picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PictureSpec {
    /// Its name below `pictures/`, without the ending.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) kind: Kind,
    /// Curve: epoch, time_s, samples or updates. Line: an axis or a metric. Others: an axis.
    pub(crate) x: String,
    /// Curve: accuracy or loss. Line and bar: a metric. Heat map: an axis.
    pub(crate) y: String,
    /// The metric of a heat map.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    /// An expression in brackets stands for its value, here and in `y_label`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) x_label: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) y_label: String,
    /// Curve and line: what is drawn begins here on the x axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<f64>,
    /// A line, or kind of bar, for each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<String>,
    /// A picture for each combination of the values of these axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) each: Vec<String>,
    /// Only the cells with these values.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) only: BTreeMap<String, Text>,
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
}

/// Something the source says, as a comparison that the runs decide.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) text: String,
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

    /// The settings it makes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let own = self.set.is_empty().then_some(self.name.as_str());
        own.into_iter().chain(self.set.keys().map(String::as_str))
    }

    /// What people call a value.
    pub(crate) fn value_label(&self, index: usize) -> String {
        let label = self.labels.get(index).cloned();
        label.or_else(|| self.values.get(index).map(|text| text.0.clone())).unwrap_or_default()
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
