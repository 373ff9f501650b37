//! Training examples as the models read them: compact, columns dense, one-hot or sparse.

mod entries;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use self::entries::Entries;

/// Examples in memory: `len` rows of `inputs` columns, and a class label each.
///
/// The first `dense_width` columns of a row are stored as values. The others are one-hot groups:
/// of each group exactly one column is 1, and only its index is stored. A row of the reference
/// task (9 numbers, 3 one-hot groups over 84 columns) so takes 44 bytes instead of 374.
///
/// Where columns are neither dense nor one-hot, rows are sparse ([`Shape::is_sparse`]): each has
/// the columns and values of its entries, and is 0 elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    inputs: usize,
    dense_width: usize,
    hot_width: usize,
    classes: usize,
    dense: Vec<f32>,
    hot: Vec<u16>,
    entries: Entries,
    labels: Vec<u16>,
}

/// The shape of one example: how many columns, of which kind, and how many classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
                "a sparse row of {columns} columns and {values} values does not fit: as many of each \
                 are needed, the columns ascending and below {inputs}"
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
        Self {
            inputs: shape.inputs as usize,
            dense_width: shape.dense as usize,
            hot_width: shape.hot as usize,
            classes: shape.classes as usize,
            dense: Vec::new(),
            hot: Vec::new(),
            entries: Entries::new(),
            labels: Vec::new(),
        }
    }

    /// The shape of each example.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        Shape {
            inputs: self.inputs as u32,
            dense: self.dense_width as u32,
            hot: self.hot_width as u32,
            classes: self.classes as u32,
        }
    }

    /// Makes room for `rows` more examples.
    pub fn reserve(&mut self, rows: usize) {
        self.dense.reserve_exact(rows * self.dense_width);
        self.hot.reserve_exact(rows * self.hot_width);
        self.labels.reserve_exact(rows);
    }

    /// Adds one example.
    ///
    /// # Errors
    /// [`ShapeError`] if it does not fit the shape; nothing is added then.
    pub fn push(&mut self, dense: &[f32], hot: &[u16], label: u16) -> Result<(), ShapeError> {
        if dense.len() != self.dense_width || hot.len() != self.hot_width {
            return Err(ShapeError::Width {
                dense: (dense.len(), self.dense_width),
                hot: (hot.len(), self.hot_width),
            });
        }
        if let Some(&index) =
            hot.iter().find(|&&i| !(self.dense_width..self.inputs).contains(&usize::from(i)))
        {
            return Err(ShapeError::Column { index, inputs: self.inputs });
        }
        if usize::from(label) >= self.classes {
            return Err(ShapeError::Label { label, classes: self.classes });
        }
        if let Some(column) = dense.iter().position(|value| !value.is_finite()) {
            return Err(ShapeError::NotFinite { column });
        }
        self.dense.extend_from_slice(dense);
        self.hot.extend_from_slice(hot);
        self.labels.push(label);
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
        let fits = self.shape().is_sparse()
            && columns.len() == values.len()
            && columns.is_sorted_by(|one, next| one < next)
            && columns.last().is_none_or(|&last| (last as usize) < self.inputs);
        if !fits {
            let (columns, values) = (columns.len(), values.len());
            return Err(ShapeError::Entries { columns, values, inputs: self.inputs });
        }
        if usize::from(label) >= self.classes {
            return Err(ShapeError::Label { label, classes: self.classes });
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(ShapeError::NotFinite { column: columns[place] as usize });
        }
        self.entries.push(columns, values);
        self.labels.push(label);
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
        self.inputs = kept.len();
        self
    }

    /// The number of examples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no example.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Example number `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    #[must_use]
    pub fn row(&self, index: usize) -> Row<'_> {
        let (columns, values) = self.entries.row(index);
        Row {
            dense: &self.dense[index * self.dense_width..(index + 1) * self.dense_width],
            hot: &self.hot[index * self.hot_width..(index + 1) * self.hot_width],
            columns,
            values,
            label: self.labels[index],
        }
    }

    /// Replaces what is in `dense`, `hot` and `labels` by what the examples `rows` have, row by row.
    ///
    /// # Panics
    /// If a row is not below [`Self::len`].
    pub fn gather(
        &self,
        rows: impl ExactSizeIterator<Item = usize>,
        dense: &mut Vec<f32>,
        hot: &mut Vec<u16>,
        labels: &mut Vec<u16>,
    ) {
        dense.resize(rows.len() * self.dense_width, 0.0);
        hot.resize(rows.len() * self.hot_width, 0);
        labels.clear();
        // Widths of 0 have nothing to copy, and chunks of 0 there are none of.
        let mut to_dense = dense.chunks_exact_mut(self.dense_width.max(1));
        let mut to_hot = hot.chunks_exact_mut(self.hot_width.max(1));
        for row in rows {
            if let Some(to) = to_dense.next() {
                to.copy_from_slice(&self.dense[row * self.dense_width..][..self.dense_width]);
            }
            if let Some(to) = to_hot.next() {
                to.copy_from_slice(&self.hot[row * self.hot_width..][..self.hot_width]);
            }
            labels.push(self.labels[row]);
        }
    }

    /// The labels of all examples.
    #[must_use]
    pub fn labels(&self) -> &[u16] {
        &self.labels
    }

    /// The dense columns of all examples, row by row, to be standardised in place.
    pub fn dense_mut(&mut self) -> &mut [f32] {
        &mut self.dense
    }

    /// The examples with the given numbers, in that order.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn select(&self, indices: &[u32]) -> Self {
        let mut chosen = Self::new(self.shape());
        chosen.reserve(indices.len());
        for &index in indices {
            let row = self.row(index as usize);
            chosen.dense.extend_from_slice(row.dense);
            chosen.hot.extend_from_slice(row.hot);
            if self.shape().is_sparse() {
                chosen.entries.push(row.columns, row.values);
            }
            chosen.labels.push(row.label);
        }
        chosen
    }

    /// Takes the examples with the given numbers, which must ascend, out: returns them, and keeps the
    /// others in their order. Columns of one kind are moved after the other, so that those of one
    /// kind alone are there twice, and what is left over is given back.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn extract(&mut self, indices: &[u32]) -> Self {
        let mut taken = Self::new(self.shape());
        taken.dense = extract_rows(&mut self.dense, self.dense_width, indices);
        taken.hot = extract_rows(&mut self.hot, self.hot_width, indices);
        if self.shape().is_sparse() {
            taken.entries = self.entries.extract(indices);
        }
        taken.labels = extract_rows(&mut self.labels, 1, indices);
        taken
    }

    /// How many examples there are of each class.
    #[must_use]
    pub fn class_counts(&self) -> Vec<u64> {
        let mut counts = alloc::vec![0; self.classes];
        for &label in &self.labels {
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
        if self.shape().is_sparse() {
            return self.unpack_sparse(bytes);
        }
        let size = 4 * self.dense_width + 2 * self.hot_width + 2;
        if !bytes.len().is_multiple_of(size) {
            return Err(ShapeError::Packed { bytes: bytes.len(), row: size });
        }
        let mut dense = Vec::with_capacity(self.dense_width);
        let mut hot = Vec::with_capacity(self.hot_width);
        for row in bytes.chunks_exact(size) {
            let (values, rest) = row.split_at(4 * self.dense_width);
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

/// Takes rows of `width` values, whose numbers ascend, out of `values`.
fn extract_rows<T: Copy>(values: &mut Vec<T>, width: usize, rows: &[u32]) -> Vec<T> {
    let mut taken = Vec::with_capacity(rows.len() * width);
    let mut kept = 0;
    let mut begin = 0;
    for gone in rows.iter().map(|&row| row as usize * width) {
        taken.extend_from_slice(&values[gone..gone + width]);
        values.copy_within(begin..gone, kept);
        kept += gone - begin;
        begin = gone + width;
    }
    values.copy_within(begin.., kept);
    values.truncate(kept + values.len() - begin);
    values.shrink_to_fit();
    taken
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
