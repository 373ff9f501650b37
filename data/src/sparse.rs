//! Sparse rows: files in LIBSVM format, and synthetic rows of any number.
//!
//! A row is a label (-1 or +1) and its features. A feature's number is its column, or is hashed to
//! a column ([`Hashing`]) if there should be fewer parameters than features.

mod generator;
mod hashing;
mod libsvm;

use pstrain_compute::examples::{Row, Shape};
use serde::{Deserialize, Serialize};

pub use generator::{DEFAULT_COLUMNS, DEFAULT_ROWS, SparseGenerator};
pub use hashing::Hashing;
pub use libsvm::{LibsvmError, read_file};

/// The names of the two classes, which are the labels.
pub const CLASSES: [&str; 2] = ["-1", "+1"];

/// A row as it is in the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparseRow {
    /// The class: 0 for the label -1, 1 for +1.
    pub class: u16,
    /// Numbers of the features, counted from 0, each at most once.
    pub features: Vec<u32>,
    /// Values of the features.
    pub values: Vec<f32>,
}

/// The columns of sparse data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparseSpec {
    /// Number of columns.
    pub columns: u32,
    /// True if features are hashed to the columns.
    pub hashed: bool,
}

impl SparseSpec {
    /// Returns the shape of the rows.
    #[must_use]
    pub const fn shape(self) -> Shape {
        Shape::sparse(self.columns, CLASSES.len() as u32)
    }

    /// Makes an encoder of rows for these columns.
    pub(crate) fn encoder(self) -> SparseEncoder {
        SparseEncoder { spec: self, entries: Vec::new(), columns: Vec::new(), values: Vec::new() }
    }
}

/// Encodes rows, one at a time.
#[derive(Debug)]
pub(crate) struct SparseEncoder {
    spec: SparseSpec,
    entries: Vec<(u32, f32)>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl SparseEncoder {
    /// Encodes a row: its columns are in ascending order. Values of features that share a column
    /// are added.
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
