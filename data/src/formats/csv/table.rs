//! The columns of a table that a model sees, and the encoding of its rows.

use std::collections::BTreeMap;

use pstrain_compute::examples::{Label, Row, Shape, Target};
use serde::{Deserialize, Serialize};

use super::KIND;
use super::dates::days;
use super::reader::Reader;
use crate::dataset::Schema;
use crate::error::DataError;
use crate::profile::{self, Missing, Profile, code};

/// Most columns of an encoded row: a one-hot column has 16 bits.
const MOST_INPUTS: usize = u16::MAX as usize;

/// The roles of the columns, as the schema carries them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The name of the column with the classes or the numbers to predict.
    pub(super) label: String,
    /// The dense columns.
    pub(super) numbers: Vec<Numbers>,
    /// The one-hot groups.
    pub(super) texts: Vec<Texts>,
    /// True if rows with a missing value are left out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) skip: bool,
}

/// A column of numbers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Numbers {
    pub(super) name: String,
    /// The mean, which stands for missing values.
    pub(super) mean: f32,
    /// The deviation by which values are standardised here, if the training rows at hand do not
    /// decide it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deviation: Option<f32>,
    /// The beginning from which days are counted, in seconds since 1970, if the values are dates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<i64>,
}

/// A one-hot group: the texts of a column, and columns for all other values.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Texts {
    pub(super) name: String,
    /// The texts, in the order of their columns. One more column is for all other values.
    pub(super) texts: Vec<String>,
    /// True if a column before that one is for missing values, which are else other values.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) missing: bool,
}

const fn is_false(value: &bool) -> bool {
    !*value
}

impl Texts {
    /// The number of columns.
    pub(super) const fn columns(&self) -> usize {
        self.texts.len() + if self.missing { 2 } else { 1 }
    }

    /// Names the values in each column, with the counts of rows. The `missing` ones, which are
    /// among all other values if they have no column, are none.
    pub(super) fn values(&self, counts: &[u64], missing: u64) -> Vec<(&str, u64)> {
        let texts = self.texts.iter().map(String::as_str);
        let all = counts.last().copied().unwrap_or_default();
        let others = if self.missing { all } else { all.saturating_sub(missing) };
        texts.zip(counts.iter().copied()).chain([("(other)", others)]).collect()
    }
}

impl Table {
    /// Reads the table of a schema.
    pub(super) fn of(schema: &Schema) -> Result<Self, DataError> {
        let problem = "the schema has no columns of a table";
        serde_json::from_str(&schema.encoding)
            .map_err(|_error| DataError::Specification { problem })
    }

    /// The table of a profile.
    pub(super) fn of_profile(profile: &Profile) -> Self {
        let own_column = |missing: u64| profile.missing == Missing::Category && missing > 0;
        let number = |column: &profile::Numbers| Numbers {
            name: column.name.clone(),
            mean: column.mean,
            deviation: profile.standardise.then_some(match column.deviation {
                0.0 => 1.0,
                deviation => deviation,
            }),
            origin: column.origin,
        };
        let unknown = profile.numbers.iter().filter(|column| own_column(column.missing));
        // A group without texts: a number is an "other" value.
        let unknown =
            unknown.map(|it| Texts { name: it.name.clone(), texts: Vec::new(), missing: true });
        let texts = profile.texts.iter().map(|column| Texts {
            name: column.name.clone(),
            texts: column.texts.clone(),
            missing: own_column(column.missing),
        });
        Self {
            label: profile.predicted().clone(),
            numbers: profile.numbers.iter().map(number).collect(),
            texts: unknown.chain(texts).collect(),
            skip: profile.missing == Missing::Skip,
        }
    }

    /// Refuses rows of more columns than can be numbered.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.inputs() {
            0..=MOST_INPUTS => Ok(()),
            inputs => Err(format!(
                "with all texts a row has {inputs} inputs, and at most {MOST_INPUTS} are possible: \
                 leave out columns with drop=COLUMN"
            )),
        }
    }

    /// The columns of `reader` that a row needs, or none if it may have missing values.
    pub(super) fn needed(&self, reader: &Reader) -> Result<Vec<usize>, DataError> {
        if !self.skip {
            return Ok(Vec::new());
        }
        self.columns().into_iter().map(|name| reader.place(name)).collect()
    }

    /// The names of the columns that the encoding reads.
    pub(super) fn columns(&self) -> Vec<&str> {
        let numbers = self.numbers.iter().map(|column| &column.name);
        let names = numbers.chain(self.texts.iter().map(|group| &group.name)).chain([&self.label]);
        names.map(String::as_str).collect()
    }

    /// The names of the dense columns.
    pub(super) fn names(&self) -> Vec<String> {
        self.numbers.iter().map(|column| column.name.clone()).collect()
    }

    /// The number of columns of an encoded row.
    pub(super) fn inputs(&self) -> usize {
        self.numbers.len() + self.texts.iter().map(Texts::columns).sum::<usize>()
    }

    /// The schema of rows with these columns, and these classes or a number to predict.
    pub(super) fn schema(
        &self,
        classes: Option<Vec<String>>,
        standardised: bool,
    ) -> Result<Schema, DataError> {
        let shape = Shape {
            inputs: self.inputs() as u32,
            dense: self.numbers.len() as u32,
            hot: self.texts.len() as u32,
            target: match &classes {
                Some(classes) => Target::Classes(classes.len() as u32),
                None => Target::Value,
            },
            picture: None,
        };
        let classes = classes.unwrap_or_default();
        let encoding = serde_json::to_string(self).map_err(DataError::format)?;
        Ok(Schema { kind: KIND.into(), encoding, shape, classes, standardised })
    }
}

/// Encodes records, one at a time.
pub(super) struct Encoder {
    label: usize,
    target: Target,
    /// The number of each class, by its code.
    classes: BTreeMap<String, u16>,
    /// The columns of numbers.
    numbers: Vec<Dense>,
    texts: Vec<(usize, Group)>,
    /// The columns that a row needs, or none if it may have missing values.
    needed: Vec<usize>,
    dense: Vec<f32>,
    hot: Vec<u16>,
}

/// A column of numbers or dates.
struct Dense {
    column: usize,
    mean: f32,
    deviation: Option<f32>,
    origin: Option<i64>,
}

impl Dense {
    /// The number of a record; the mean if it is missing.
    fn read(&self, reader: &Reader) -> Result<f32, DataError> {
        let Self { column, mean, deviation, origin } = *self;
        let value = match origin {
            None => reader.finite(column, |text| {
                format!("is no finite number: repair it, or say na={text} if it is a missing value")
            })?,
            Some(origin) => reader.date(column)?.map(|seconds| days(seconds, origin)),
        };
        let value = value.unwrap_or(mean);
        let Some(deviation) = deviation else { return Ok(value) };
        let scaled = (value - mean) / deviation;
        if scaled.is_finite() {
            return Ok(scaled);
        }
        Err(reader.refused(column, "is too far from the column's mean"))
    }
}

/// A one-hot group: the columns of its texts by their codes, of missing and of all other values.
struct Group {
    columns: BTreeMap<String, u16>,
    missing: u16,
    other: u16,
}

impl Encoder {
    /// An encoder of the records of `reader`, whose columns may be in another order than in the
    /// schema.
    pub(super) fn new(schema: &Schema, reader: &Reader) -> Result<Self, DataError> {
        let table = Table::of(schema)?;
        let (label, needed) = (reader.place(&table.label)?, table.needed(reader)?);
        if table.inputs() != schema.shape.inputs as usize {
            let problem = "its shape is not the shape of its table";
            return Err(DataError::Specification { problem });
        }
        let mut numbers = Vec::new();
        for &Numbers { ref name, mean, deviation, origin } in &table.numbers {
            numbers.push(Dense { column: reader.place(name)?, mean, deviation, origin });
        }
        let mut texts = Vec::new();
        let mut next = numbers.len() as u16;
        for group in table.texts {
            let (missing, other) =
                (next + group.texts.len() as u16, next + group.columns() as u16 - 1);
            let codes = group.texts.iter().map(|text| code(text).into_owned());
            let columns = codes.zip(next..).collect();
            texts.push((reader.place(&group.name)?, Group { columns, missing, other }));
            next = other + 1;
        }
        let (dense, hot) = (vec![0.0; numbers.len()], vec![0; texts.len()]);
        let classes = schema.classes.iter().map(|class| code(class).into_owned());
        let classes = classes.zip(0..).collect();
        let target = schema.shape.target;
        Ok(Self { label, target, classes, numbers, texts, needed, dense, hot })
    }

    /// Encodes the current record of `reader`; none if it is left out.
    pub(super) fn encode(&mut self, reader: &Reader) -> Result<Option<Row<'_>>, DataError> {
        let Self { label, target, classes, numbers, texts, needed, dense, hot } = self;
        if reader.lacks(needed)? {
            return Ok(None);
        }
        for (value, column) in dense.iter_mut().zip(&*numbers) {
            *value = column.read(reader)?;
        }
        for (index, (column, group)) in hot.iter_mut().zip(&*texts) {
            *index = match reader.value(*column)? {
                Some(text) => group.columns.get(&*code(text)).copied().unwrap_or(group.other),
                None => group.missing,
            };
        }
        let missing = |what| {
            let problem = format!("is a missing {what}; remove the line, or say missing=skip");
            reader.refused(*label, &problem)
        };
        let label = match *target {
            Target::Classes(_) => {
                let class = reader.value(*label)?.ok_or_else(|| missing("class"))?;
                let class = classes.get(&*code(class));
                Label::Class(
                    *class.ok_or_else(|| reader.refused(*label, "is no class of the job"))?,
                )
            }
            Target::Value => {
                let value = reader.finite(*label, |_| "is no finite number to predict".into())?;
                Label::Value(value.ok_or_else(|| missing("number to predict"))?)
            }
        };
        Ok(Some(Row { dense, hot, columns: &[], values: &[], label }))
    }
}
