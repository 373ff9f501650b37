//! Training examples in the models' format: compact, with dense, one-hot or sparse columns.

mod entries;
mod records;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::entries::Entries;
pub(crate) use self::records::Records;

/// Examples in memory: `len` rows of `inputs` columns, each with a class label.
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
}

/// The shape of an example: the number of columns of each kind, and the number of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// All input columns, dense and one-hot.
    pub inputs: u32,
    /// Columns stored as values; they precede the others.
    pub dense: u32,
    /// One-hot groups, one stored index each.
    pub hot: u32,
    /// Number of classes.
    pub classes: u32,
}

impl Shape {
    /// Creates the shape of sparse rows with `inputs` columns.
    #[must_use]
    pub const fn sparse(inputs: u32, classes: u32) -> Self {
        Self { inputs, dense: 0, hot: 0, classes }
    }

    /// True if rows are sparse: no column is dense or one-hot.
    #[must_use]
    pub const fn is_sparse(self) -> bool {
        self.inputs > 0 && self.dense == 0 && self.hot == 0
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
    /// The class.
    pub label: u16,
}

impl<'a> Row<'a> {
    /// A row of numbers.
    #[must_use]
    pub const fn dense(values: &'a [f32], label: u16) -> Self {
        Self { dense: values, hot: &[], columns: &[], values: &[], label }
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
        let records = Records::new(shape.dense as usize, shape.hot as usize);
        Self { shape, records, entries: Entries::new() }
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
    pub fn push(&mut self, dense: &[f32], hot: &[u16], label: u16) -> Result<(), ShapeError> {
        let Shape { inputs, dense: values, hot: indices, classes } = self.shape;
        let wanted = (values as usize, indices as usize);
        if (dense.len(), hot.len()) != wanted {
            let (dense, hot) = ((dense.len(), wanted.0), (hot.len(), wanted.1));
            return Err(ShapeError::Width { dense, hot });
        }
        if let Some(&index) = hot.iter().find(|&&index| !(values..inputs).contains(&index.into())) {
            return Err(ShapeError::Column { index, inputs: inputs as usize });
        }
        if u32::from(label) >= classes {
            return Err(ShapeError::Label { label, classes: classes as usize });
        }
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
        label: u16,
    ) -> Result<(), ShapeError> {
        let Shape { inputs, classes, .. } = self.shape;
        let fits = self.shape.is_sparse()
            && columns.len() == values.len()
            && columns.is_sorted_by(|one, next| one < next)
            && columns.last().is_none_or(|&last| last < inputs);
        if !fits {
            let (columns, values) = (columns.len(), values.len());
            return Err(ShapeError::Entries { columns, values, inputs: inputs as usize });
        }
        if u32::from(label) >= classes {
            return Err(ShapeError::Label { label, classes: classes as usize });
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(ShapeError::NotFinite { column: columns[place] as usize });
        }
        self.entries.push(columns, values);
        self.records.push(&[], &[], label);
        Ok(())
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
    pub fn label(&self, index: usize) -> u16 {
        self.records.label(index)
    }

    /// Iterates over the labels of all examples.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        (0..self.len()).map(|index| self.records.label(index))
    }

    /// Iterates over the dense columns of each example, for standardising them in place.
    pub fn dense_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.records.dense_mut()
    }

    /// Returns the examples with these numbers, in that order.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn select(&self, indices: &[u32]) -> Self {
        let mut chosen = Self::new(self.shape);
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
        Self { shape: self.shape, records, entries }
    }

    /// Returns the number of examples of each class.
    #[must_use]
    pub fn class_counts(&self) -> Vec<u64> {
        let mut counts = alloc::vec![0; self.shape.classes as usize];
        for label in self.labels() {
            counts[usize::from(label)] += 1;
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
        let size = 4 * values + 2 * indices + 2;
        if !bytes.len().is_multiple_of(size) {
            return Err(ShapeError::Packed { bytes: bytes.len(), row: size });
        }
        let (mut dense, mut hot) = (Vec::with_capacity(values), Vec::with_capacity(indices));
        for row in bytes.chunks_exact(size) {
            let (values, rest) = row.split_at(4 * values);
            let (values, _) = values.as_chunks::<4>();
            let (indices, _) = rest.as_chunks::<2>();
            let Some((&label, indices)) = indices.split_last() else { continue };
            dense.clear();
            dense.extend(values.iter().map(|&value| f32::from_le_bytes(value)));
            hot.clear();
            hot.extend(indices.iter().map(|&index| u16::from_le_bytes(index)));
            self.push(&dense, &hot, u16::from_le_bytes(label))?;
        }
        Ok(())
    }

    fn unpack_sparse(&mut self, mut bytes: &[u8]) -> Result<(), ShapeError> {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        while let Some((count, rest)) = bytes.split_first_chunk() {
            let count = u32::from_le_bytes(*count) as usize;
            let cut = || ShapeError::Packed { bytes: bytes.len(), row: count.saturating_mul(8) };
            let (entries, rest) = rest.split_at_checked(count.saturating_mul(8)).ok_or_else(cut)?;
            let (label, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            let (ones, others) = entries.split_at(4 * count);
            columns.clear();
            columns.extend(ones.as_chunks().0.iter().map(|&column| u32::from_le_bytes(column)));
            values.clear();
            values.extend(others.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)));
            self.push_sparse(&columns, &values, u16::from_le_bytes(*label))?;
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
        sparse + 4 * self.dense.len() + 2 * self.hot.len() + 2
    }

    const fn is_sparse(&self) -> bool {
        self.dense.is_empty() && self.hot.is_empty()
    }

    /// Appends the row to `bytes`, all little-endian: the dense values (`f32`), the one-hot indices
    /// (`u16`) and the label (`u16`). A sparse row consists of its number of entries (`u32`), their
    /// columns (`u32`), their values (`f32`) and the label.
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
        bytes.extend_from_slice(&self.label.to_le_bytes());
    }
}
