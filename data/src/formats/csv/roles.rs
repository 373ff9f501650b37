//! Finds the roles of a table's columns: numbers, texts, classes.

use std::collections::BTreeSet;

use pstrain_compute::examples::Shape;

use super::reader::Reader;
use super::table::{Numbers, Table, Texts, number};
use super::{Csv, KIND};
use crate::dataset::Schema;
use crate::error::DataError;

/// Most different texts of a column.
const MOST_TEXTS: usize = 1000;
/// Most columns of an encoded row: a one-hot column has 16 bits.
const MOST_INPUTS: usize = u16::MAX as usize;

/// The values of a column, summed up.
#[derive(Clone, Default)]
struct Column {
    /// A value is no number.
    has_text: bool,
    count: u64,
    sum: f64,
}

impl Column {
    fn add(&mut self, text: &str) {
        match number(text) {
            Some(value) => {
                self.count += 1;
                self.sum += f64::from(value);
            }
            None => self.has_text = true,
        }
    }

    fn mean(&self) -> f32 {
        (self.sum / self.count.max(1) as f64) as f32
    }
}

/// Returns the schema of a table. Reads it twice, and keeps the different texts of its columns.
pub(super) fn schema(csv: &Csv) -> Result<Schema, DataError> {
    let mut reader = Reader::open(&csv.path)?;
    let last = reader.header().len() - 1;
    let label = csv.label.as_ref().map_or(Ok(last), |name| reader.place(name))?;
    let mut unseen = vec![label];
    for name in &csv.dropped {
        unseen.push(reader.place(name)?);
    }
    let seen: Vec<usize> = (0..=last).filter(|column| !unseen.contains(column)).collect();
    let mut columns = vec![Column::default(); last + 1];
    while reader.advance()? {
        for &column in &seen {
            if let Some(text) = reader.value(column)? {
                columns[column].add(text);
            }
        }
    }
    let (texts, numbers): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|&column| columns[column].has_text);
    let mut different = different_texts(csv, &[&texts[..], &[label]].concat())?;
    let classes = classes(different.pop().unwrap_or_default());
    let name = |column: usize| reader.header()[column].clone();
    let number = |&column: &usize| Numbers { name: name(column), mean: columns[column].mean() };
    let group = |(&column, texts): (&usize, BTreeSet<String>)| Texts {
        name: name(column),
        texts: texts.into_iter().collect(),
    };
    let table = Table {
        label: name(label),
        numbers: numbers.iter().map(number).collect(),
        texts: texts.iter().zip(different).map(group).collect(),
    };
    if classes.len() < 2 {
        let found = classes.join(", ");
        let problem = format!("all its values are {found:?}; two classes or more are needed");
        return Err(reader.refused_column(label, &problem));
    }
    let inputs = table.inputs();
    if inputs > MOST_INPUTS {
        let problem = format!(
            "with all texts a row has {inputs} inputs, and at most {MOST_INPUTS} are possible: \
             leave out columns with drop=COLUMN"
        );
        return Err(reader.refused_column(texts.first().copied().unwrap_or(label), &problem));
    }
    let shape = Shape {
        inputs: inputs as u32,
        dense: numbers.len() as u32,
        hot: texts.len() as u32,
        classes: classes.len() as u32,
    };
    let encoding = serde_json::to_string(&table).map_err(DataError::format)?;
    Ok(Schema { kind: KIND.into(), encoding, shape, classes, standardised: true })
}

/// Returns the different texts of some columns.
fn different_texts(csv: &Csv, columns: &[usize]) -> Result<Vec<BTreeSet<String>>, DataError> {
    let mut reader = Reader::open(&csv.path)?;
    let mut different = vec![BTreeSet::<String>::new(); columns.len()];
    while reader.advance()? {
        for (texts, &column) in different.iter_mut().zip(columns) {
            let Some(text) = reader.value(column)? else { continue };
            if !texts.contains(text) {
                texts.insert(text.to_owned());
            }
            if texts.len() > MOST_TEXTS {
                let name = &reader.header()[column];
                let problem = format!(
                    "it has more than {MOST_TEXTS} different values: leave it out with \
                     drop={name}; if it has the classes, name another column with label=COLUMN, \
                     since only classes are predicted, and no numbers"
                );
                return Err(reader.refused_column(column, &problem));
            }
        }
    }
    Ok(different)
}

/// Sorts classes, as numbers if all of them are numbers.
fn classes(texts: BTreeSet<String>) -> Vec<String> {
    let mut classes: Vec<String> = texts.into_iter().collect();
    if classes.iter().all(|class| number(class).is_some()) {
        let value = |class: &String| number(class).unwrap_or_default();
        classes.sort_by(|one, other| value(one).total_cmp(&value(other)));
    }
    classes
}
