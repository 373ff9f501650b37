//! The columns of a table that a model sees, and the encoding of its rows.

use std::collections::BTreeMap;

use pstrain_compute::examples::Row;
use serde::{Deserialize, Serialize};

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
}

/// A column of numbers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Numbers {
    pub(super) name: String,
    /// The mean, which stands for missing values.
    pub(super) mean: f32,
}

/// A column of texts.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Texts {
    pub(super) name: String,
    /// The texts, in the order of their columns. One more column is for all other texts and for
    /// missing values.
    pub(super) texts: Vec<String>,
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
        let hot = self.texts.iter().map(|group| group.texts.len() + 1);
        self.numbers.len() + hot.sum::<usize>()
    }
}

/// Encodes records, one at a time.
pub(super) struct Encoder {
    label: usize,
    classes: BTreeMap<String, u16>,
    /// The columns of numbers, each with its mean.
    numbers: Vec<(usize, f32)>,
    texts: Vec<(usize, Group)>,
    dense: Vec<f32>,
    hot: Vec<u16>,
}

/// A one-hot group: the columns of its texts, and the column of all others.
struct Group {
    columns: BTreeMap<String, u16>,
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
            let other = next + group.texts.len() as u16;
            let columns = group.texts.into_iter().zip(next..).collect();
            texts.push((reader.place(&group.name)?, Group { columns, other }));
            next = other + 1;
        }
        let (dense, hot) = (vec![0.0; numbers.len()], vec![0; texts.len()]);
        let classes = schema.classes.iter().cloned().zip(0..).collect();
        Ok(Self { label: reader.place(&table.label)?, classes, numbers, texts, dense, hot })
    }

    /// Encodes the current record of `reader`.
    pub(super) fn encode(&mut self, reader: &Reader) -> Result<Row<'_>, DataError> {
        let Self { label, classes, numbers, texts, dense, hot } = self;
        for (value, &(column, mean)) in dense.iter_mut().zip(&*numbers) {
            *value = match reader.value(column)? {
                Some(text) => {
                    number(text).ok_or_else(|| reader.refused(column, "is no finite number"))?
                }
                None => mean,
            };
        }
        for (index, (column, group)) in hot.iter_mut().zip(&*texts) {
            let text = reader.value(*column)?;
            let known = text.and_then(|text| group.columns.get(text));
            *index = known.copied().unwrap_or(group.other);
        }
        let Some(class) = reader.value(*label)? else {
            return Err(reader.refused(*label, "is a missing class; remove the line"));
        };
        let label = classes.get(class).copied();
        let label = label.ok_or_else(|| reader.refused(self.label, "is no class of the job"))?;
        Ok(Row { dense, hot, columns: &[], values: &[], label })
    }
}

/// Reads a finite number.
pub(super) fn number(text: &str) -> Option<f32> {
    text.parse().ok().filter(|value: &f32| value.is_finite())
}
