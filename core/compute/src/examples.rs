//! Training examples as the models read them: compact, columns dense, one-hot or sparse.

mod entries;
mod records;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use self::entries::Entries;
pub(crate) use self::records::Records;

/// Examples in memory: `len` rows of `inputs` columns, and a class label each.
///
/// The first columns of a row ([`Shape::dense`]) are stored as values. The others are one-hot
/// groups: of each group exactly one column is 1, and only its index is stored. A row of the
/// reference task (9 numbers, 3 one-hot groups over 84 columns) so takes 44 bytes instead of 374.
///
/// Where columns are neither dense nor one-hot, rows are sparse ([`Shape::is_sparse`]): each has
/// the columns and values of its entries, and is 0 elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    shape: Shape,
    records: Records,
    entries: Entries,
}

/// The shape of one example: how many columns, of which kind, and how many classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// All input columns, dense and one-hot together.
    pub inputs: u32,
    /// Columns stored as values; they come first.
    pub dense: u32,
    /// One-hot groups, one stored index each.
    pub hot: u32,
    /// Number of classes.
    pub classes: u32,
}

impl Shape {
    /// The shape of sparse rows of so many columns.
    #[must_use]
    pub const fn sparse(inputs: u32, classes: u32) -> Self {
        Self { inputs, dense: 0, hot: 0, classes }
    }

    /// Whether rows are sparse: no column is dense, and none one-hot.
    #[must_use]
    pub const fn is_sparse(self) -> bool {
        self.inputs > 0 && self.dense == 0 && self.hot == 0
    }
}

/// One example, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Values of the dense columns.
    pub dense: &'a [f32],
    /// Indices (among all inputs) of the columns that are 1.
    pub hot: &'a [u16],
    /// The columns of a sparse row that have an entry, in ascending order.
    pub columns: &'a [u32],
    /// The values of those columns.
    pub values: &'a [f32],
    /// The class.
    pub label: u16,
}

/// An example that does not fit the shape it was added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// The number of dense values or one-hot indices is wrong.
    Width {
        /// Dense values given and wanted.
        dense: (usize, usize),
        /// One-hot indices given and wanted.
        hot: (usize, usize),
    },
    /// A one-hot index lies among the dense columns or past the last one.
    Column {
        /// The index.
        index: u16,
        /// Columns in all.
        inputs: usize,
    },
    /// The label is no class.
    Label {
        /// The label.
        label: u16,
        /// Number of classes.
        classes: usize,
    },
    /// A dense value is NaN or infinite.
    NotFinite {
        /// Its column.
        column: usize,
    },
    /// The entries of a sparse row: other columns than values, columns that do not ascend, or one
    /// past the last.
    Entries {
        /// Columns given.
        columns: usize,
        /// Values given.
        values: usize,
        /// Columns in all.
        inputs: usize,
    },
    /// Packed bytes that are not a whole number of rows.
    Packed {
        /// Bytes given.
        bytes: usize,
        /// Bytes of one row.
        row: usize,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Width { dense, hot } => write!(
                f,
                "example has {} dense values and {} one-hot indices, but the shape needs {} and {}",
                dense.0, hot.0, dense.1, hot.1
            ),
            Self::Column { index, inputs } => {
                write!(f, "one-hot index {index} is not a one-hot column of {inputs} inputs")
            }
            Self::Label { label, classes } => {
                write!(f, "label {label} is not below the {classes} classes")
            }
            Self::NotFinite { column } => write!(f, "value of column {column} is not finite"),
            Self::Entries { columns, values, inputs } => write!(
                f,
                "a sparse row of {columns} columns and {values} values does not fit: as many of \
                 each are needed, the columns ascending and below {inputs}"
            ),
            Self::Packed { bytes, row } => {
                write!(f, "{bytes} bytes are not a whole number of {row}-byte examples")
            }
        }
    }
}

impl core::error::Error for ShapeError {}

impl Examples {
    /// No examples yet, of the given shape.
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

    /// Makes room for `rows` more examples.
    pub fn reserve(&mut self, rows: usize) {
        self.records.reserve(rows);
    }

    /// Adds one example.
    ///
    /// # Errors
    /// [`ShapeError`] if it does not fit the shape; nothing is added then.
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

    /// Adds one example of sparse rows: the columns of its entries in ascending order, and their
    /// values.
    ///
    /// # Errors
    /// [`ShapeError`] if it does not fit the shape; nothing is added then.
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

    /// The columns that have an entry in any row, ascending.
    #[must_use]
    pub fn touched(&self) -> Vec<u32> {
        let mut columns = self.entries.columns().to_vec();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The same sparse rows over the columns `kept` alone, counted from the first of them. They
    /// must ascend, and all that are touched be among them.
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

    /// Whether there is no example.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Example number `index`.
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

    /// All but the entries of sparse rows, as a mini-batch is gathered from it.
    pub(crate) const fn records(&self) -> &Records {
        &self.records
    }

    /// The label of example number `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    #[must_use]
    pub fn label(&self, index: usize) -> u16 {
        self.records.label(index)
    }

    /// The label of each example.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        (0..self.len()).map(|index| self.records.label(index))
    }

    /// The dense columns of each example, to be standardised in place.
    pub fn dense_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.records.dense_mut()
    }

    /// The examples with the given numbers, in that order.
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

    /// Takes the examples with the given numbers, which must ascend, out: returns them, and keeps
    /// the others in their order. Those that are taken are there twice for a moment, and then the
    /// room that they had is given back.
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

    /// How many examples there are of each class.
    #[must_use]
    pub fn class_counts(&self) -> Vec<u64> {
        let mut counts = alloc::vec![0; self.shape.classes as usize];
        for label in self.labels() {
            counts[usize::from(label)] += 1;
        }
        counts
    }

    /// How many examples from number `first` on take no more than `bytes` as [`Self::pack`] writes
    /// them: at least one, if there is one.
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

    /// Appends examples `rows` to `bytes`, each as [`Row::pack`] writes it.
    ///
    /// # Panics
    /// If `rows` reaches past the last example.
    pub fn pack(&self, rows: core::ops::Range<usize>, bytes: &mut Vec<u8>) {
        rows.for_each(|index| self.row(index).pack(bytes));
    }

    /// Adds the examples that [`Self::pack`] wrote.
    ///
    /// # Errors
    /// [`ShapeError`] if the bytes are no whole rows, or at the first row that does not fit; the
    /// rows before it stay.
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
    /// Bytes that [`Self::pack`] writes.
    #[must_use]
    pub const fn packed_bytes(&self) -> usize {
        let sparse = if self.is_sparse() { 4 + 8 * self.columns.len() } else { 0 };
        sparse + 4 * self.dense.len() + 2 * self.hot.len() + 2
    }

    const fn is_sparse(&self) -> bool {
        self.dense.is_empty() && self.hot.is_empty()
    }

    /// Appends the dense values (`f32`), the one-hot indices (`u16`) and the label (`u16`) to
    /// `bytes`, all little-endian; of a sparse row the number of its entries (`u32`), their columns
    /// (`u32`), their values (`f32`) and the label.
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
