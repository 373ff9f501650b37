//! Reads an array in NumPy's format, row by row.
//!
//! A file begins with `\x93NUMPY`, the two bytes of a version, the length of its header (`u16` in
//! version 1, `u32` in versions 2 and 3), and the header: a Python dictionary with the type of the
//! values, their order and the shape (NumPy Enhancement Proposal 1).

use std::path::Path;

use super::super::bytes::{Bytes, broken};
use crate::error::DataError;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Limit for the bytes of a header; NumPy's own limit is 10,000.
const LONGEST_HEADER: u32 = 1 << 20;

/// Limit for the values of a row: a damaged header asks for no more memory.
const MOST_COLUMNS: u32 = 1 << 24;

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F4,
    F8,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    Bool,
}

impl Kind {
    /// Reads NumPy's name of a type, such as `<f4`.
    fn of(name: &str) -> Result<Self, String> {
        let (order, kind) = name.split_at_checked(1).unwrap_or_default();
        let known = match kind {
            "f4" => Some(Self::F4),
            "f8" => Some(Self::F8),
            "i1" => Some(Self::I1),
            "i2" => Some(Self::I2),
            "i4" => Some(Self::I4),
            "i8" => Some(Self::I8),
            "u1" => Some(Self::U1),
            "u2" => Some(Self::U2),
            "u4" => Some(Self::U4),
            "b1" => Some(Self::Bool),
            _ => None,
        };
        match (known, order, kind) {
            (Some(known), "<" | "|", _) => Ok(known),
            (Some(_), ..) => Err(format!(
                "its values are big-endian ({name}); save array.astype('<{kind}') instead"
            )),
            (None, _, "O") => {
                Err("its values are Python objects (dtype object), no numbers; save \
                                   array.astype('float32') instead"
                    .into())
            }
            _ => Err(format!(
                "its values have type {name:?}; f4, f8, i1 to i8, u1 to u4 and bool can be read: \
                 save {} instead",
                converted(kind)
            )),
        }
    }

    /// The bytes of a value.
    const fn size(self) -> usize {
        match self {
            Self::I1 | Self::U1 | Self::Bool => 1,
            Self::I2 | Self::U2 => 2,
            Self::F4 | Self::I4 | Self::U4 => 4,
            Self::F8 | Self::I8 => 8,
        }
    }

    /// The value of little-endian bytes, as a number.
    fn number(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F4 => f32::from_bits(unsigned(bytes) as u32).into(),
            Self::F8 => f64::from_bits(unsigned(bytes)),
            _ => self.whole(bytes) as f64,
        }
    }

    /// The value of little-endian bytes of a whole number.
    fn whole(self, bytes: &[u8]) -> i64 {
        let bits = unsigned(bytes);
        match self {
            Self::I1 => (bits as i8).into(),
            Self::I2 => (bits as i16).into(),
            Self::I4 => (bits as i32).into(),
            _ => bits as i64,
        }
    }
}

/// The call of NumPy that converts an array of another type, such as `c8`.
fn converted(kind: &str) -> &'static str {
    match kind.chars().next() {
        // Neither part is lost.
        Some('c') => "numpy.hstack([array.real, array.imag]).astype('float32')",
        // Whole numbers and times may be labels.
        Some('u' | 'i' | 'M' | 'm') => "array.astype('int64')",
        Some('U' | 'S') => {
            "numpy.unique(array, return_inverse=True)[1] of labels, array.astype('float32') of \
             numbers"
        }
        _ => "array.astype('float32')",
    }
}

/// The number of little-endian bytes, at most 8.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}

/// An array in a file, read up to some row.
pub(in super::super) struct Array<'a> {
    bytes: Bytes<'a>,
    kind: Kind,
    shape: Vec<u64>,
    row: Vec<u8>,
    /// Rows that were read.
    read: u64,
}

impl<'a> Array<'a> {
    /// Reads the header of an array.
    pub(in super::super) fn open(mut bytes: Bytes<'a>) -> Result<Self, DataError> {
        let path = bytes.path();
        let mut begin = [0; 8];
        let known = bytes.fill(&mut begin)? && begin.starts_with(MAGIC);
        let length = match begin[6] {
            _ if !known => return Err(broken(path, "no .npy file: write it with numpy.save")),
            1 => 2,
            2 | 3 => 4,
            version => {
                let problem = format!("version {version} of the format; 1 to 3 can be read");
                return Err(broken(path, problem));
            }
        };
        let mut size = [0; 4];
        bytes.fill(&mut size[..length])?;
        let size = u32::from_le_bytes(size);
        if size > LONGEST_HEADER {
            return Err(broken(path, format!("a header of {size} bytes; it is damaged")));
        }
        let mut header = vec![0; size as usize];
        bytes.fill(&mut header)?;
        let (kind, shape) = header_of(&String::from_utf8_lossy(&header))
            .map_err(|problem| broken(path, problem))?;
        Ok(Self { bytes, kind, shape, row: Vec::new(), read: 0 })
    }

    pub(super) const fn path(&self) -> &'a Path {
        self.bytes.path()
    }

    pub(super) fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or_default()
    }

    /// The values of a row.
    pub(super) fn columns(&self) -> Result<u32, DataError> {
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

    /// Reads the next row.
    pub(super) fn read(&mut self, values: &mut [f32]) -> Result<(), DataError> {
        let size = self.kind.size();
        self.next(values.len() * size)?;
        for (value, bytes) in values.iter_mut().zip(self.row.chunks_exact(size)) {
            *value = self.kind.number(bytes) as f32;
        }
        // Values beyond the range of `f32` are infinite now.
        let Some(column) = values.iter().position(|value| !value.is_finite()) else {
            return Ok(());
        };
        let row = self.read - 1;
        let value = self.kind.number(&self.row[column * size..][..size]);
        let problem = format!("row {row}, column {column}: {value} is no finite number (f32)");
        Err(broken(self.path(), problem))
    }

    /// Reads all values, which must be whole numbers in one dimension.
    pub(super) fn whole(mut self) -> Result<Vec<i64>, DataError> {
        if self.shape.len() != 1 {
            let is_column = self.shape.iter().skip(1).all(|&size| size == 1);
            let problem = format!(
                "shape {} is none of labels: one dimension is needed, a class for each row; save \
                 {} instead",
                shown(&self.shape),
                match is_column {
                    true => "labels.ravel()",
                    // A column for each class.
                    false => "labels.argmax(axis=1) if they are one-hot, or one column of them",
                }
            );
            return Err(broken(self.path(), problem));
        }
        if matches!(self.kind, Kind::F4 | Kind::F8) {
            let problem = "labels are whole numbers; save labels.astype('int64') instead";
            return Err(broken(self.path(), problem));
        }
        let mut labels = Vec::new();
        for _ in 0..self.rows() {
            self.next(self.kind.size())?;
            labels.push(self.kind.whole(&self.row));
        }
        Ok(labels)
    }

    /// Reads the bytes of the next row.
    fn next(&mut self, length: usize) -> Result<(), DataError> {
        self.row.resize(length, 0);
        if !self.bytes.fill(&mut self.row)? {
            let problem = format!("it ends after {} of {} rows", self.read, self.rows());
            return Err(broken(self.path(), problem));
        }
        self.read += 1;
        Ok(())
    }
}

/// Writes a shape as Python does.
fn shown(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("({}{})", sizes.join(", "), if shape.len() == 1 { "," } else { "" })
}

/// Reads a header such as `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`.
fn header_of(header: &str) -> Result<(Kind, Vec<u64>), String> {
    let entry = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start())
    };
    let damaged = || format!("its header is damaged: {:?}", header.trim_end());
    let descr = entry("descr").ok_or_else(damaged)?;
    let Some(name) = descr.strip_prefix('\'') else {
        return Err("its values are records (a structured dtype); save \
                    numpy.lib.recfunctions.structured_to_unstructured(array) instead"
            .into());
    };
    let kind = Kind::of(name.split('\'').next().unwrap_or_default())?;
    let sizes = entry("shape").and_then(|text| text.strip_prefix('(')?.split_once(')'));
    let (sizes, _) = sizes.ok_or_else(damaged)?;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Vec<u64> =
        sizes.map(|size| size.parse().map_err(|_| damaged())).collect::<Result<_, _>>()?;
    // One dimension has the same bytes in both orders.
    if shape.len() > 1 && !entry("fortran_order").ok_or_else(damaged)?.starts_with("False") {
        return Err("its columns come one after the other (Fortran order); save \
                    numpy.ascontiguousarray(array) instead"
            .into());
    }
    Ok((kind, shape))
}
