//! Training examples as the models read them: compact, columns either dense or one-hot.

use alloc::vec::Vec;
use core::fmt;

/// Examples in memory: `len` rows of `inputs` columns, and a class label each.
///
/// The first `dense_width` columns of a row are stored as values. The others are one-hot groups:
/// of each group exactly one column is 1, and only its index is stored. A row of the reference
/// task (9 numbers, 3 one-hot groups over 84 columns) so takes 44 bytes instead of 374.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    inputs: usize,
    dense_width: usize,
    hot_width: usize,
    classes: usize,
    dense: Vec<f32>,
    hot: Vec<u16>,
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

/// One example, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Values of the dense columns.
    pub dense: &'a [f32],
    /// Indices (among all inputs) of the columns that are 1.
    pub hot: &'a [u16],
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
        Row {
            dense: &self.dense[index * self.dense_width..(index + 1) * self.dense_width],
            hot: &self.hot[index * self.hot_width..(index + 1) * self.hot_width],
            label: self.labels[index],
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
            chosen.labels.push(row.label);
        }
        chosen
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

    /// Bytes of one example as [`Self::pack`] writes it.
    #[must_use]
    pub const fn packed_row_bytes(&self) -> usize {
        4 * self.dense_width + 2 * self.hot_width + 2
    }

    /// Appends examples `rows` to `bytes`: per row the dense values (`f32`), the one-hot indices
    /// (`u16`) and the label (`u16`), all little-endian.
    ///
    /// # Panics
    /// If `rows` reaches past the last example.
    pub fn pack(&self, rows: core::ops::Range<usize>, bytes: &mut Vec<u8>) {
        bytes.reserve(rows.len() * self.packed_row_bytes());
        for row in rows.map(|index| self.row(index)) {
            for value in row.dense {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            for index in row.hot {
                bytes.extend_from_slice(&index.to_le_bytes());
            }
            bytes.extend_from_slice(&row.label.to_le_bytes());
        }
    }

    /// Adds the examples that [`Self::pack`] wrote.
    ///
    /// # Errors
    /// [`ShapeError`] if the bytes are no whole rows, or at the first row that does not fit; the
    /// rows before it stay.
    pub fn unpack(&mut self, bytes: &[u8]) -> Result<(), ShapeError> {
        let size = self.packed_row_bytes();
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprint;

    fn digest(examples: &Examples) -> [u8; 32] {
        Fingerprint::of(examples).digest
    }

    fn some() -> Examples {
        let mut examples = Examples::new(Shape { inputs: 7, dense: 2, hot: 2, classes: 3 });
        examples.push(&[1.5, -2.0], &[2, 5], 0).unwrap();
        examples.push(&[0.0, 3.25], &[4, 6], 2).unwrap();
        examples
    }

    #[test]
    fn packed_examples_come_back_unchanged() {
        let examples = some();
        let mut bytes = Vec::new();
        examples.pack(0..2, &mut bytes);
        assert_eq!(bytes.len(), 2 * examples.packed_row_bytes());
        let mut back = Examples::new(examples.shape());
        back.unpack(&bytes).unwrap();
        assert_eq!(back, examples);
        assert_eq!(digest(&back), digest(&examples));
        assert!(matches!(back.unpack(&bytes[1..]), Err(ShapeError::Packed { .. })));
    }

    #[test]
    fn examples_that_do_not_fit_are_refused() {
        let mut examples = some();
        assert!(matches!(examples.push(&[0.0], &[2, 5], 0), Err(ShapeError::Width { .. })));
        for index in [1, 7] {
            let refused = examples.push(&[0.0, 0.0], &[2, index], 0);
            assert_eq!(refused, Err(ShapeError::Column { index, inputs: 7 }));
        }
        assert!(matches!(examples.push(&[0.0, 0.0], &[2, 5], 3), Err(ShapeError::Label { .. })));
        let refused = examples.push(&[0.0, f32::NAN], &[2, 5], 0);
        assert_eq!(refused, Err(ShapeError::NotFinite { column: 1 }));
        assert_eq!(examples, some());
    }

    #[test]
    fn the_digest_sees_every_part() {
        let examples = some();
        let swapped = examples.select(&[1, 0]);
        assert_ne!(digest(&examples), digest(&swapped));
        assert_eq!(digest(&examples), digest(&swapped.select(&[1, 0])));
        assert_eq!(examples.class_counts(), [1, 0, 1]);
    }
}
