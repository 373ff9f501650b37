//! Rows in NumPy's .npy files: an array of features and an array of labels.
//!
//! A file begins with `\x93NUMPY`, the two bytes of a version, the length of its header (`u16` in
//! version 1, `u32` in versions 2 and 3), and the header: a Python dictionary with the type of the
//! values, their order and the shape (NumPy Enhancement Proposal 1).

use std::path::PathBuf;
use std::sync::Arc;

use pstrain_compute::examples::Label;

use super::arguments::Arguments;
use super::array::{self, Array, Kind, Labels};
use super::bytes::{Bytes, broken};
use super::predict::{self, Predict};
use super::{Format, Paths, yes};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "npy:FEATURES,LABELS[,predict=numbers][,standardise=no]";
const OPTIONS: &[&str] = &[predict::OPTION, "standardise"];

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "two arrays of NumPy: rows of numbers, and their classes or numbers to predict",
    paths: Paths::AllBut(OPTIONS),
    open: |arguments, _| {
        let arguments = Arguments::read(arguments, FORM, OPTIONS)?;
        let predict = arguments.parsed(predict::OPTION, Predict::read)?;
        let standardised = arguments.parsed("standardise", yes)?.unwrap_or(true);
        let [features, labels] = arguments.exactly()?;
        Ok(Arc::new(Npy { features, labels, predict, standardised }))
    },
};

/// The kind of rows of arrays.
pub(super) const KIND: &str = "rows of an array";

const MAGIC: &[u8] = b"\x93NUMPY";
/// Limit for the bytes of a header; NumPy's own limit is 10,000.
const LONGEST_HEADER: u32 = 1 << 20;

/// The rows of an array, with the labels in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npy {
    /// The file of features.
    pub features: PathBuf,
    /// The file of labels.
    pub labels: PathBuf,
    /// Meaning of the labels; without it whole numbers are classes.
    pub predict: Option<Predict>,
    /// True if columns get mean 0 and deviation 1.
    pub standardised: bool,
}

impl Npy {
    fn features(&self) -> Result<Array<'_>, DataError> {
        opened(Bytes::open(&self.features)?)
    }

    fn labels(&self, predict: Option<Predict>) -> Result<Labels, DataError> {
        Labels::read(opened(Bytes::open(&self.labels)?)?, predict)
    }
}

/// Reads the header of an array.
pub(super) fn opened(mut bytes: Bytes<'_>) -> Result<Array<'_>, DataError> {
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
    let (kind, shape) =
        header_of(&String::from_utf8_lossy(&header)).map_err(|problem| broken(path, problem))?;
    Ok(Array::new(bytes, kind, shape))
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
    let kind = Kind::of_numpy(name.split('\'').next().unwrap_or_default())?;
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

impl Dataset for Npy {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let columns = self.features()?.check()?;
        self.labels(self.predict)?.schema(KIND, columns, self.standardised)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let labels = self.labels(Some(Predict::of(schema, self.predict, self)?))?;
        array::visit(self.features()?, &labels, schema, |_| {}, visit)
    }

    fn visit_labels(&self, schema: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        let labels = self.labels(Some(Predict::of(schema, self.predict, self)?))?;
        labels.of(&schema.classes)?.into_iter().for_each(visit);
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.features.clone(), self.labels.clone()]
    }
}
