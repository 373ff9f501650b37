//! Sparse rows: files in the format of LIBSVM, and rows drawn from a seed, of any size.
//!
//! A row is a label (-1 or +1) and the features that it has. Feature numbers are columns, or are
//! hashed to columns ([`Hashing`]) where there are more of them than parameters are wanted.

mod generator;
mod hashing;
mod libsvm;

use pstrain_compute::examples::{Row, Shape};
use serde::{Deserialize, Serialize};

pub use generator::{DEFAULT_COLUMNS, DEFAULT_ROWS, SparseGenerator};
pub use hashing::Hashing;
pub use libsvm::{LibsvmError, read_file};

/// The names of the two classes: the labels.
pub const CLASSES: [&str; 2] = ["-1", "+1"];

/// A row as it stands in a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparseRow {
    /// The class: 0 for the label -1, 1 for +1.
    pub class: u16,
    /// Numbers of features, counted from 0, each once.
    pub features: Vec<u32>,
    /// Their values.
    pub values: Vec<f32>,
}

/// The columns of a sparse data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparseSpec {
    /// How many there are.
    pub columns: u32,
    /// Whether features are hashed to them.
    pub hashed: bool,
}

impl SparseSpec {
    /// The shape of the rows.
    #[must_use]
    pub const fn shape(self) -> Shape {
        Shape::sparse(self.columns, CLASSES.len() as u32)
    }

    /// Whoever turns rows into examples of these columns.
    pub(crate) fn encoder(self) -> SparseEncoder {
        SparseEncoder { spec: self, entries: Vec::new(), columns: Vec::new(), values: Vec::new() }
    }
}

/// Turns rows into examples, one at a time.
#[derive(Debug)]
pub(crate) struct SparseEncoder {
    spec: SparseSpec,
    entries: Vec<(u32, f32)>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl SparseEncoder {
    /// A row with its features in columns, in ascending order. Features that come to the same
    /// column are added up.
    pub(crate) fn encode(&mut self, row: &SparseRow) -> Row<'_> {
        let SparseSpec { columns, hashed } = self.spec;
        let place =
            |&feature: &u32| if hashed { hashing::column(feature, columns) } else { feature };
        self.entries.clear();
        self.entries.extend(row.features.iter().map(place).zip(row.values.iter().copied()));
        self.entries.sort_by_key(|&(column, _)| column);
        self.columns.clear();
        self.values.clear();
        for &(column, value) in &self.entries {
            if self.columns.last() == Some(&column)
                && let Some(sum) = self.values.last_mut()
            {
                *sum += value;
            } else {
                self.columns.push(column);
                self.values.push(value);
            }
        }
        Row { dense: &[], hot: &[], columns: &self.columns, values: &self.values, label: row.class }
    }
}
