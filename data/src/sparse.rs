//! Sparse rows: files in LIBSVM format, and synthetic rows of any number.
//!
//! A row is a label (-1 or +1, a number for each class, or a number to predict) and its features. A
//! feature's number is its column, or is hashed to a column ([`Hashing`]) if there should be fewer
//! parameters than features. Rows stay sparse for the model that reads them so, or are encoded as
//! dense ones.

mod generator;
mod hashing;
mod libsvm;

use pstrain_compute::examples::{Label, Row, Shape, ShapeError, Target};

pub use generator::{DEFAULT_COLUMNS, DEFAULT_ROWS, SparseGenerator};
pub use hashing::Hashing;
pub use libsvm::{LibsvmError, read_file};

/// The names of the two classes of sparse rows, which are their labels.
pub const CLASSES: [&str; 2] = ["-1", "+1"];

/// A row as it is in the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparseRow {
    /// The label: the number of a class, or the number to predict.
    pub label: f32,
    /// Numbers of the features, counted from 0, each at most once.
    pub features: Vec<u32>,
    /// Values of the features.
    pub values: Vec<f32>,
}

impl SparseRow {
    /// The number of columns, if features are not hashed: as many as the last feature needs.
    pub(crate) fn columns(&self) -> u32 {
        self.features.iter().max().map_or(0, |&last| last + 1)
    }
}

/// The columns of sparse data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseSpec {
    /// Number of columns.
    pub columns: u32,
    /// True if features are hashed to the columns.
    pub hashed: bool,
    /// True if rows are encoded as dense ones.
    pub dense: bool,
}

impl SparseSpec {
    /// Returns the shape of the rows.
    #[must_use]
    pub const fn shape(self, target: Target) -> Shape {
        let sparse = Shape::sparse(self.columns, target);
        if self.dense { Shape { dense: self.columns, ..sparse } } else { sparse }
    }

    /// Names the encoding of the rows.
    #[must_use]
    pub const fn encoding(self) -> &'static str {
        match (self.dense, self.hashed) {
            (false, false) => "columns",
            (false, true) => "hashed",
            (true, false) => "dense",
            (true, true) => "dense hashed",
        }
    }

    /// Returns the columns of rows with this shape and encoding; none if there is no such encoding.
    #[must_use]
    pub fn of(shape: Shape, encoding: &str) -> Option<Self> {
        let both = [false, true];
        let all = both.into_iter().flat_map(|dense| both.map(|hashed| (dense, hashed)));
        all.map(|(dense, hashed)| Self { columns: shape.inputs, hashed, dense })
            .find(|spec| spec.encoding() == encoding)
    }

    /// Makes an encoder of rows for these columns.
    pub(crate) fn encoder(self) -> SparseEncoder {
        let dense = vec![0.0; if self.dense { self.columns as usize } else { 0 }];
        SparseEncoder {
            spec: self,
            entries: Vec::new(),
            columns: Vec::new(),
            values: Vec::new(),
            dense,
        }
    }
}

/// Encodes rows, one at a time.
#[derive(Debug)]
pub(crate) struct SparseEncoder {
    spec: SparseSpec,
    entries: Vec<(u32, f32)>,
    columns: Vec<u32>,
    values: Vec<f32>,
    dense: Vec<f32>,
}

impl SparseEncoder {
    /// Encodes a row with this label: its columns are in ascending order. Values of features that
    /// share a column are added.
    ///
    /// # Errors
    /// [`ShapeError::Entries`] if the rows are dense and lack a column; sparse ones are checked
    /// when they are stored.
    pub(crate) fn encode(&mut self, row: &SparseRow, label: Label) -> Result<Row<'_>, ShapeError> {
        let SparseSpec { columns, hashed, dense } = self.spec;
        let place =
            |&feature: &u32| if hashed { hashing::column(feature, columns) } else { feature };
        self.entries.clear();
        self.entries.extend(row.features.iter().map(place).zip(row.values.iter().copied()));
        self.entries.sort_by_key(|&(column, _)| column);
        if dense {
            self.dense.fill(0.0);
            for &(column, value) in &self.entries {
                let (entries, inputs) = (self.entries.len(), columns as usize);
                let none = ShapeError::Entries { columns: entries, values: entries, inputs };
                *self.dense.get_mut(column as usize).ok_or(none)? += value;
            }
            return Ok(Row::dense(&self.dense, label));
        }
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
        Ok(Row { dense: &[], hot: &[], columns: &self.columns, values: &self.values, label })
    }
}
