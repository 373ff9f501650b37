//! An array of numbers in a file, read row by row: its first dimension is the rows, and all others
//! are flattened to the columns of a row.

mod labels;
mod number;

use std::path::Path;

use pstrain_compute::counted::counted;
use pstrain_compute::examples::{Picture, Row};

pub(super) use self::labels::Labels;
pub(super) use self::number::Kind;
use super::bytes::{Bytes, broken};
use super::pixels::interleave;
use super::range::{Range, problem_of};
use crate::dataset::{Schema, Visit};
use crate::error::DataError;

/// The most channels of a picture.
const MOST_CHANNELS: u64 = 4;

/// Limit for the values of a row.
const MOST_COLUMNS: u32 = 1 << 24;

/// An array in a file, read up to some row.
pub(super) struct Array<'a> {
    bytes: Bytes<'a>,
    kind: Kind,
    shape: Vec<u64>,
    row: Vec<u8>,
    /// Rows that were read.
    read: u64,
}

impl<'a> Array<'a> {
    /// An array whose header was read.
    pub(super) const fn new(bytes: Bytes<'a>, kind: Kind, shape: Vec<u64>) -> Self {
        Self { bytes, kind, shape, row: Vec::new(), read: 0 }
    }

    pub(super) const fn path(&self) -> &'a Path {
        self.bytes.path()
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or_default()
    }

    /// The values of a row.
    fn columns(&self) -> Result<u32, DataError> {
        let product = |values: u32, &size: &u64| values.checked_mul(u32::try_from(size).ok()?);
        let columns = self.shape.iter().skip(1).try_fold(1, product);
        let is_possible = |&columns: &u32| (1..=MOST_COLUMNS).contains(&columns);
        columns.filter(|_| self.shape.len() > 1).filter(is_possible).ok_or_else(|| {
            let call = match self.shape.len() {
                1 => ": save array.reshape(-1, 1) if each value is a row",
                _ => "",
            };
            let problem = format!(
                "shape {} has no rows of values; (ROWS, COLUMNS) is needed, with at most \
                 {MOST_COLUMNS} columns{call}",
                shown(&self.shape)
            );
            broken(self.path(), problem)
        })
    }

    /// The size of the pictures that the rows are, and true if a picture is stored channel by
    /// channel. Arrays of (ROWS, HEIGHT, WIDTH) are pictures, and those with the channels of a
    /// pixel as the last dimension or the second one.
    fn picture(&self) -> (Option<Picture>, bool) {
        let (height, width, channels, is_by_channel) = match self.shape[..] {
            [_, height, width] => (height, width, 1, false),
            [_, height, width, channels] if channels <= MOST_CHANNELS => {
                (height, width, channels, false)
            }
            [_, channels, height, width] if channels <= MOST_CHANNELS => {
                (height, width, channels, true)
            }
            _ => return (None, false),
        };
        let [height, width, channels] = [height, width, channels].map(|size| size as u32);
        (Some(Picture { height, width, channels }), is_by_channel)
    }

    /// Reads the next row.
    fn read(&mut self, columns: u32, values: &mut Vec<f32>) -> Result<(), DataError> {
        let size = self.kind.size();
        self.next(columns as usize * size)?;
        values.clear();
        values.extend(self.row.chunks_exact(size).map(|bytes| self.kind.number(bytes) as f32));
        // Values beyond the range of `f32` are infinite now.
        let Some(column) = values.iter().position(|value| !value.is_finite()) else {
            return Ok(());
        };
        let row = self.read - 1;
        let value = self.kind.number(self.value(column));
        let problem = format!("row {row}, column {column}: {value:?} is no finite number (f32)");
        Err(broken(self.path(), problem))
    }

    /// The bytes of a value of the row that was read last.
    fn value(&self, column: usize) -> &[u8] {
        let size = self.kind.size();
        &self.row[column * size..][..size]
    }

    /// Reads the bytes of the next row.
    fn next(&mut self, length: usize) -> Result<(), DataError> {
        if !self.bytes.record(length, &mut self.row)? {
            let problem = format!("it ends after {} of {}", self.read, counted(self.rows(), "row"));
            return Err(broken(self.path(), problem));
        }
        self.read += 1;
        Ok(())
    }

    /// Refuses bytes after the last row.
    fn end(&mut self) -> Result<(), DataError> {
        let contents = format!("the {} of its header", counted(self.rows(), "row"));
        self.bytes.end(&contents)
    }

    /// Reads the rows, of which a type whose values may be lost as `f32` needs all; refuses columns
    /// whose values are. Returns the number of columns, and the size of the pictures, if they are.
    pub(super) fn check(mut self) -> Result<(u32, Option<Picture>), DataError> {
        let (picture, _) = self.picture();
        let columns = self.columns()?;
        let (mut values, mut ranges) = (Vec::new(), Vec::<Range<u64>>::new());
        let rows = if self.kind.is_small() { self.rows().min(1) } else { self.rows() };
        for _ in 0..rows {
            self.read(columns, &mut values)?;
            ranges.resize_with(values.len(), Range::default);
            for (column, (range, &value)) in ranges.iter_mut().zip(&values).enumerate() {
                range.add(value, || self.kind.bits(self.value(column)));
            }
        }
        problem_of(&ranges)
            .map_or(Ok((columns, picture)), |problem| Err(broken(self.path(), problem)))
    }
}

/// Passes each row of `features` with its label to `visit`. `change` changes the values of a row.
pub(super) fn visit(
    mut features: Array<'_>,
    labels: &Labels,
    schema: &Schema,
    change: impl Fn(&mut [f32]),
    visit: &mut Visit<'_>,
) -> Result<(), DataError> {
    let path: &Path = features.path();
    let (columns, wanted) = (features.columns()?, schema.shape.dense);
    if columns != wanted {
        let values = counted(columns, "value");
        let problem = format!("its rows have {values}, and the rows of the job {wanted}");
        return Err(broken(path, problem));
    }
    if features.rows() != labels.len() as u64 {
        let labels = counted(labels.len() as u64, "label");
        let rows = counted(features.rows(), "row");
        return Err(broken(path, format!("it has {rows}, but the other file has {labels}")));
    }
    let (mut values, mut pixels) = (Vec::new(), Vec::new());
    let (picture, is_by_channel) = features.picture();
    for label in labels.of(&schema.classes)? {
        features.read(columns, &mut values)?;
        change(&mut values);
        let row = match picture {
            Some(picture) if is_by_channel => {
                interleave(picture.channels as usize, &values, &mut pixels);
                &pixels
            }
            _ => &values,
        };
        visit(Row::dense(row, label))?;
    }
    features.end()
}

/// Writes a shape as Python does.
fn shown(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("({}{})", sizes.join(", "), if shape.len() == 1 { "," } else { "" })
}
