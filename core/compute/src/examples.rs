//! Training examples in the models' format: compact, with dense, one-hot or sparse columns.

mod entries;
mod records;
mod target;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use self::entries::Entries;
pub(crate) use self::records::Records;
pub use self::target::{Label, Target};

/// Examples in memory: `len` rows of `inputs` columns, each with a label: a class or a number.
///
/// The first columns of a row ([`Shape::dense`]) are stored as values. The others form one-hot
/// groups: exactly one column of each group is 1, and only its index is stored. A row of the
/// reference task (9 numbers, 3 one-hot groups over 84 columns) thus takes 44 bytes instead of 374.
///
/// If there are neither dense nor one-hot columns, rows are sparse ([`Shape::is_sparse`]): each
/// stores the columns and values of its entries, and is 0 elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    shape: Shape,
    records: Records,
    entries: Entries,
    /// See [`Self::unit`]; `None` is 1.
    unit: Option<f32>,
}

/// The shape of an example: the number of columns of each kind, and what its label is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// All input columns, dense and one-hot.
    pub inputs: u32,
    /// Columns stored as values; they precede the others.
    pub dense: u32,
    /// One-hot groups, one stored index each.
    pub hot: u32,
    /// The kind of the label. It is serialised as `classes`.
    #[serde(rename = "classes")]
    pub target: Target,
    /// The size of the picture that the dense columns are, if they are one.
    #[serde(default)]
    pub picture: Option<Picture>,
}

impl Shape {
    /// Creates the shape of sparse rows with `inputs` columns.
    #[must_use]
    pub const fn sparse(inputs: u32, target: Target) -> Self {
        Self { inputs, dense: 0, hot: 0, target, picture: None }
    }

    /// True if rows are sparse: no column is dense or one-hot.
    #[must_use]
    pub const fn is_sparse(self) -> bool {
        self.inputs > 0 && self.dense == 0 && self.hot == 0
    }
}

/// The size of a picture: pixels row by row, each a row of channels. A row of values is a picture
/// of one pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Picture {
    /// Rows of pixels.
    pub height: u32,
    /// Pixels per row.
    pub width: u32,
    /// Values per pixel.
    pub channels: u32,
}

impl Picture {
    /// A row of values.
    #[must_use]
    pub const fn row(values: u32) -> Self {
        Self { height: 1, width: 1, channels: values }
    }

    /// The number of pixels.
    #[must_use]
    pub const fn pixels(self) -> u32 {
        self.height.saturating_mul(self.width)
    }

    /// The number of values.
    #[must_use]
    pub const fn values(self) -> u32 {
        self.pixels().saturating_mul(self.channels)
    }

    /// Registers of this many lanes for a pixel.
    pub(crate) const fn strips(self, lanes: usize) -> usize {
        (self.channels as usize).div_ceil(lanes)
    }
}

impl fmt::Display for Picture {
    /// Writes height, width and channels: `28x28x1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.height, self.width, self.channels)
    }
}

/// A borrowed example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Values of the dense columns.
    pub dense: &'a [f32],
    /// Indices (among all inputs) of the columns that are 1.
    pub hot: &'a [u16],
    /// The columns of a sparse row's entries, in ascending order.
    pub columns: &'a [u32],
    /// The values of those columns.
    pub values: &'a [f32],
    /// The class, or the number to predict.
    pub label: Label,
}

impl<'a> Row<'a> {
    /// A row of numbers.
    #[must_use]
    pub fn dense(values: &'a [f32], label: impl Into<Label>) -> Self {
        Self { dense: values, hot: &[], columns: &[], values: &[], label: label.into() }
    }

    /// The class of a row of which classes are predicted.
    ///
    /// # Panics
    /// If a number is predicted.
    #[must_use]
    pub fn class(&self) -> usize {
        let Label::Class(class) = self.label else { panic!("the label of the row is a number") };
        class.into()
    }
}

/// Errors of examples that do not fit the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The number of dense values or one-hot indices is wrong.
    #[error(
        "example has {} dense values and {} one-hot indices, but the shape needs {} and {}",
        .dense.0, .hot.0, .dense.1, .hot.1
    )]
    Width {
        /// Dense values: actual and required number.
        dense: (usize, usize),
        /// One-hot indices: actual and required number.
        hot: (usize, usize),
    },
    /// A one-hot index lies among the dense columns or past the last one.
    #[error("one-hot index {index} is not a one-hot column of {inputs} inputs")]
    Column {
        /// The index.
        index: u16,
        /// Total columns.
        inputs: usize,
    },
    /// The label is not below the number of classes.
    #[error("label {label} is not below the {classes} classes")]
    Label {
        /// The label.
        label: u16,
        /// Number of classes.
        classes: usize,
    },
    /// The label is a class where a number is predicted, or the reverse, or is not finite.
    #[error("a label does not fit: the examples have {0}")]
    Target(Target),
    /// A value is NaN or infinite.
    #[error("value of column {column} is not finite")]
    NotFinite {
        /// The column of the value.
        column: usize,
    },
    /// Invalid entries of a sparse row: the numbers of columns and values differ, the columns do
    /// not ascend, or a column is past the last.
    #[error(
        "a sparse row of {columns} columns and {values} values does not fit: as many of each are \
         needed, the columns ascending and below {inputs}"
    )]
    Entries {
        /// Number of columns.
        columns: usize,
        /// Number of values.
        values: usize,
        /// Total columns of the shape.
        inputs: usize,
    },
    /// The packed bytes are not a whole number of rows.
    #[error("{bytes} bytes are not a whole number of {row}-byte examples")]
    Packed {
        /// Number of bytes.
        bytes: usize,
        /// Bytes of one row.
        row: usize,
    },
}

impl Examples {
    /// Creates an empty set of examples of this shape.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        let Shape { dense, hot, target, .. } = shape;
        let records = Records::new(dense as usize, hot as usize, target);
        Self { shape, records, entries: Entries::new(), unit: None }
    }

    /// The shape of each example.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Reserves memory for `rows` more examples.
    pub fn reserve(&mut self, rows: usize) {
        self.records.reserve(rows);
    }

    /// Adds one example.
    ///
    /// # Errors
    /// [`ShapeError`] if the example does not fit the shape; nothing is added then.
    pub fn push(
        &mut self,
        dense: &[f32],
        hot: &[u16],
        label: impl Into<Label>,
    ) -> Result<(), ShapeError> {
        let label = label.into();
        let Shape { inputs, dense: values, hot: indices, .. } = self.shape;
        let wanted = (values as usize, indices as usize);
        if (dense.len(), hot.len()) != wanted {
            let (dense, hot) = ((dense.len(), wanted.0), (hot.len(), wanted.1));
            return Err(ShapeError::Width { dense, hot });
        }
        if let Some(&index) = hot.iter().find(|&&index| !(values..inputs).contains(&index.into())) {
            return Err(ShapeError::Column { index, inputs: inputs as usize });
        }
        self.check_label(label)?;
        if let Some(column) = dense.iter().position(|value| !value.is_finite()) {
            return Err(ShapeError::NotFinite { column });
        }
        self.records.push(dense, hot, label);
        Ok(())
    }

    /// Adds one sparse example: the columns of its entries in ascending order, and their values.
    ///
    /// # Errors
    /// [`ShapeError`] if the example does not fit the shape; nothing is added then.
    pub fn push_sparse(
        &mut self,
        columns: &[u32],
        values: &[f32],
        label: impl Into<Label>,
    ) -> Result<(), ShapeError> {
        let (label, inputs) = (label.into(), self.shape.inputs);
        let fits = self.shape.is_sparse()
            && columns.len() == values.len()
            && columns.is_sorted_by(|one, next| one < next)
            && columns.last().is_none_or(|&last| last < inputs);
        if !fits {
            let (columns, values) = (columns.len(), values.len());
            return Err(ShapeError::Entries { columns, values, inputs: inputs as usize });
        }
        self.check_label(label)?;
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(ShapeError::NotFinite { column: columns[place] as usize });
        }
        self.entries.push(columns, values);
        self.records.push(&[], &[], label);
        Ok(())
    }

    fn check_label(&self, label: Label) -> Result<(), ShapeError> {
        match (label, self.shape.target) {
            (label, target) if label.fits(target) => Ok(()),
            (Label::Class(label), Target::Classes(classes)) => {
                Err(ShapeError::Label { label, classes: classes as usize })
            }
            (_, target) => Err(ShapeError::Target(target)),
        }
    }

    /// Returns the columns with an entry in any row, in ascending order.
    #[must_use]
    pub fn touched(&self) -> Vec<u32> {
        let mut columns = self.entries.columns().to_vec();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Restricts sparse rows to the columns `kept`, which are renumbered from 0. `kept` must ascend
    /// and contain all touched columns.
    #[must_use]
    pub fn over(mut self, kept: &[u32]) -> Self {
        self.entries.relocate(|column| kept.partition_point(|&other| other < column) as u32);
        self.shape.inputs = kept.len() as u32;
        self
    }

    /// The number of examples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// True if there are no examples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns example number `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    #[must_use]
    pub fn row(&self, index: usize) -> Row<'_> {
        let (columns, values) = self.entries.row(index);
        Row {
            dense: self.records.dense(index),
            hot: self.records.hot(index),
            columns,
            values,
            label: self.records.label(index),
        }
    }

    /// The part of all rows that a mini-batch gathers; it excludes the entries of sparse rows.
    pub(crate) const fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the label of example number `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    #[must_use]
    pub fn label(&self, index: usize) -> Label {
        self.records.label(index)
    }

    /// Iterates over the labels of all examples.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = Label> + '_ {
        (0..self.len()).map(|index| self.records.label(index))
    }

    /// Iterates over the dense columns of each example, for standardising them in place.
    pub fn dense_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.records.dense_mut()
    }

    /// Replaces each number to predict by `change` of it.
    pub fn change_values(&mut self, change: impl Fn(f32) -> f32) {
        if self.shape.target == Target::Value {
            self.records.values_mut().for_each(|value| *value = change(*value));
        }
    }

    /// The same examples, with numbers to predict in this unit.
    #[must_use]
    pub fn in_unit(self, unit: f32) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// The unit of the numbers to predict: errors of their predictions are reported times this.
    #[must_use]
    pub fn unit(&self) -> f64 {
        self.unit.map_or(1.0, f64::from)
    }

    /// Returns the examples with these numbers, in that order.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn select(&self, indices: &[u32]) -> Self {
        let mut chosen = Self { unit: self.unit, ..Self::new(self.shape) };
        chosen.records.gather(&self.records, indices.iter().map(|&index| index as usize));
        if self.shape.is_sparse() {
            for &index in indices {
                let (columns, values) = self.entries.row(index as usize);
                chosen.entries.push(columns, values);
            }
        }
        chosen
    }

    /// Removes the examples with the given numbers, which must ascend, and returns them; the others
    /// keep their order. The removed examples briefly exist twice, then their old memory is
    /// released.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn extract(&mut self, indices: &[u32]) -> Self {
        let records = self.records.extract(indices);
        let entries =
            if self.shape.is_sparse() { self.entries.extract(indices) } else { Entries::new() };
        Self { shape: self.shape, records, entries, unit: self.unit }
    }

    /// Returns the number of examples of each class; nothing if a number is predicted.
    #[must_use]
    pub fn class_counts(&self) -> Vec<u64> {
        let mut counts = alloc::vec![0; self.shape.target.classes().unwrap_or(0) as usize];
        for class in self.labels().filter_map(Label::class) {
            counts[usize::from(class)] += 1;
        }
        counts
    }

    /// Returns how many examples from number `first` on fit into `bytes` in the format of
    /// [`Self::pack`]; at least one, if there is one.
    #[must_use]
    pub fn packed_rows(&self, first: usize, bytes: usize) -> usize {
        let mut left = bytes;
        let fits = |row: &usize| {
            let row = self.row(*row).packed_bytes();
            let is_room = row <= left;
            left = left.saturating_sub(row);
            is_room
        };
        let rows = (first..self.len()).take_while(fits).count();
        rows.max(1).min(self.len() - first.min(self.len()))
    }

    /// Appends the examples `rows` to `bytes`, each in the format of [`Row::pack`].
    ///
    /// # Panics
    /// If `rows` exceeds the number of examples.
    pub fn pack(&self, rows: core::ops::Range<usize>, bytes: &mut Vec<u8>) {
        rows.for_each(|index| self.row(index).pack(bytes));
    }

    /// Adds examples in the format of [`Self::pack`].
    ///
    /// # Errors
    /// [`ShapeError`] if the bytes are not whole rows, or at the first row that does not fit; the
    /// rows before it remain added.
    pub fn unpack(&mut self, bytes: &[u8]) -> Result<(), ShapeError> {
        if self.shape.is_sparse() {
            return self.unpack_sparse(bytes);
        }
        let (values, indices) = (self.shape.dense as usize, self.shape.hot as usize);
        let size = 4 * values + 2 * indices + self.shape.target.bytes();
        if !bytes.len().is_multiple_of(size) {
            return Err(ShapeError::Packed { bytes: bytes.len(), row: size });
        }
        let (mut dense, mut hot) = (Vec::with_capacity(values), Vec::with_capacity(indices));
        for row in bytes.chunks_exact(size) {
            let (values, rest) = row.split_at(4 * values);
            let (indices, rest) = rest.split_at(2 * indices);
            let Some((label, _)) = self.shape.target.label(rest) else { continue };
            dense.clear();
            dense.extend(values.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)));
            hot.clear();
            hot.extend(indices.as_chunks().0.iter().map(|&index| u16::from_le_bytes(index)));
            self.push(&dense, &hot, label)?;
        }
        Ok(())
    }

    fn unpack_sparse(&mut self, mut bytes: &[u8]) -> Result<(), ShapeError> {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        while let Some((count, rest)) = bytes.split_first_chunk() {
            let count = u32::from_le_bytes(*count) as usize;
            let cut = || ShapeError::Packed { bytes: bytes.len(), row: count.saturating_mul(8) };
            let (entries, rest) = rest.split_at_checked(count.saturating_mul(8)).ok_or_else(cut)?;
            let (label, rest) = self.shape.target.label(rest).ok_or_else(cut)?;
            let (ones, others) = entries.split_at(4 * count);
            columns.clear();
            columns.extend(ones.as_chunks().0.iter().map(|&column| u32::from_le_bytes(column)));
            values.clear();
            values.extend(others.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)));
            self.push_sparse(&columns, &values, label)?;
            bytes = rest;
        }
        match bytes {
            [] => Ok(()),
            _ => Err(ShapeError::Packed { bytes: bytes.len(), row: 4 }),
        }
    }
}

impl Row<'_> {
    /// The number of bytes that [`Self::pack`] writes.
    #[must_use]
    pub const fn packed_bytes(&self) -> usize {
        let sparse = if self.is_sparse() { 4 + 8 * self.columns.len() } else { 0 };
        sparse + 4 * self.dense.len() + 2 * self.hot.len() + self.label.bytes()
    }

    const fn is_sparse(&self) -> bool {
        self.dense.is_empty() && self.hot.is_empty()
    }

    /// Appends the row to `bytes`, all little-endian: the dense values (`f32`), the one-hot indices
    /// (`u16`) and the label (`u16`, or `f32` for a number). A sparse row consists of its number of
    /// entries (`u32`), their columns (`u32`), their values (`f32`) and the label.
    pub fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.packed_bytes());
        if self.is_sparse() {
            bytes.extend_from_slice(&(self.columns.len() as u32).to_le_bytes());
            for column in self.columns {
                bytes.extend_from_slice(&column.to_le_bytes());
            }
        }
        for value in self.values.iter().chain(self.dense) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        for index in self.hot {
            bytes.extend_from_slice(&index.to_le_bytes());
        }
        self.label.pack(bytes);
    }
}
