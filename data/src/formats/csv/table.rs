//! The columns of a table that a model sees, and the encoding of its rows.

use std::collections::BTreeMap;

use pstrain_compute::examples::{Row, Shape};
use serde::{Deserialize, Serialize};

use super::KIND;
use super::reader::Reader;
use crate::dataset::Schema;
use crate::error::DataError;

/// The roles of the columns, as the schema carries them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The name of the column with the classes.
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
    const fn columns(&self) -> usize {
        self.texts.len() + if self.missing { 2 } else { 1 }
    }

    /// What is in each column.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        let (missing, other) = match (self.missing, self.texts.is_empty()) {
            (true, true) => (Some("(missing)"), "(a number)"),
            (true, false) => (Some("(missing)"), "(other)"),
            (false, _) => (None, "(other or missing)"),
        };
        self.texts.iter().map(String::as_str).chain(missing).chain([other])
    }
}

impl Table {
    /// Reads the table of a schema.
    pub(super) fn of(schema: &Schema) -> Result<Self, DataError> {
        let problem = "the schema has no columns of a table";
        serde_json::from_str(&schema.encoding)
            .map_err(|_error| DataError::Specification { problem })
    }

    /// The names of the dense columns.
    pub(super) fn names(&self) -> Vec<String> {
        self.numbers.iter().map(|column| column.name.clone()).collect()
    }

    /// The number of columns of an encoded row.
    pub(super) fn inputs(&self) -> usize {
        self.numbers.len() + self.texts.iter().map(Texts::columns).sum::<usize>()
    }

    /// The schema of rows with these columns.
    pub(super) fn schema(
        &self,
        classes: Vec<String>,
        standardised: bool,
    ) -> Result<Schema, DataError> {
        let shape = Shape {
            inputs: self.inputs() as u32,
            dense: self.numbers.len() as u32,
            hot: self.texts.len() as u32,
            classes: classes.len() as u32,
        };
        let encoding = serde_json::to_string(self).map_err(DataError::format)?;
        Ok(Schema { kind: KIND.into(), encoding, shape, classes, standardised })
    }
}

/// Encodes records, one at a time.
pub(super) struct Encoder {
    label: usize,
    classes: BTreeMap<String, u16>,
    /// The columns of numbers, each with its mean.
    numbers: Vec<(usize, f32)>,
    texts: Vec<(usize, Group)>,
    /// The columns that a row needs, or none if it may have missing values.
    needed: Vec<usize>,
    dense: Vec<f32>,
    hot: Vec<u16>,
}

/// A one-hot group: the columns of its texts, of missing and of all other values.
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
        if table.inputs() != schema.shape.inputs as usize {
            let problem = "its shape is not the shape of its table";
            return Err(DataError::Specification { problem });
        }
        let mut numbers = Vec::new();
        for Numbers { name, mean } in &table.numbers {
            numbers.push((reader.place(name)?, *mean));
        }
        let mut texts = Vec::new();
        let mut next = numbers.len() as u16;
        for group in table.texts {
            let (missing, other) =
                (next + group.texts.len() as u16, next + group.columns() as u16 - 1);
            let columns = group.texts.into_iter().zip(next..).collect();
            texts.push((reader.place(&group.name)?, Group { columns, missing, other }));
            next = other + 1;
        }
        let (dense, hot) = (vec![0.0; numbers.len()], vec![0; texts.len()]);
        let classes = schema.classes.iter().cloned().zip(0..).collect();
        let label = reader.place(&table.label)?;
        let mut needed = Vec::new();
        if table.skip {
            needed.push(label);
            needed.extend(numbers.iter().map(|&(column, _)| column));
            needed.extend(texts.iter().map(|(column, _)| *column));
        }
        Ok(Self { label, classes, numbers, texts, needed, dense, hot })
    }

    /// Encodes the current record of `reader`; none if it is left out.
    pub(super) fn encode(&mut self, reader: &Reader) -> Result<Option<Row<'_>>, DataError> {
        let Self { label, classes, numbers, texts, needed, dense, hot } = self;
        if reader.lacks(needed)? {
            return Ok(None);
        }
        for (value, &(column, mean)) in dense.iter_mut().zip(&*numbers) {
            *value = match reader.value(column)? {
                Some(text) => {
                    number(text).ok_or_else(|| reader.refused(column, "is no finite number"))?
                }
                None => mean,
            };
        }
        for (index, (column, group)) in hot.iter_mut().zip(&*texts) {
            *index = match reader.value(*column)? {
                Some(text) => group.columns.get(text).copied().unwrap_or(group.other),
                None => group.missing,
            };
        }
        let Some(class) = reader.value(*label)? else {
            return Err(
                reader.refused(*label, "is a missing class; remove the line, or say missing=skip")
            );
        };
        let label = classes.get(class).copied();
        let label = label.ok_or_else(|| reader.refused(self.label, "is no class of the job"))?;
        Ok(Some(Row { dense, hot, columns: &[], values: &[], label }))
    }
}

/// Reads a finite number.
pub(super) fn number(text: &str) -> Option<f32> {
    text.parse().ok().filter(|value: &f32| value.is_finite())
}
