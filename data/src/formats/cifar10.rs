//! The images of CIFAR-10 in their binary version.
//!
//! A record is a label and 3,072 pixels: 32 rows of 32 values for red, then green, then blue
//! (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::examples::{Label, Row};

use super::arguments::Arguments;
use super::bytes::{Bytes, broken};
use super::pixels::scale;
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::decompress::find;
use crate::error::DataError;

const FORM: &str = "cifar10:PATH[,PATH...]";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "images of CIFAR-10, binary version: the folder of the training batches, or files",
    paths: Paths::All,
    open: |arguments, _| {
        let paths = Arguments::read(arguments, FORM, &[])?.paths()?;
        let files = paths.iter().map(|path| batches(path));
        Ok(Arc::new(Cifar10 { files: files.collect::<Result<Vec<_>, _>>()?.concat() }))
    },
};

const KIND: &str = "images of CIFAR-10";

const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Pixels of an image.
const PIXELS: usize = 3 * 32 * 32;

/// The images of some files, one file after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cifar10 {
    /// The files.
    pub files: Vec<PathBuf>,
}

/// The training batches in a folder, or the file at a path.
fn batches(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let batch = |number| {
        let name = format!("data_batch_{number}.bin");
        find(path, &name)
            .ok_or_else(|| format!("there is no {name}[.gz|.xz|.zst] in {}", path.display()))
    };
    (1..=5).map(batch).collect()
}

impl Cifar10 {
    /// Passes each label with its pixels to `visit`.
    fn each(
        &self,
        mut visit: impl FnMut(u8, &[u8]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut record = [0; 1 + PIXELS];
        for file in &self.files {
            let mut bytes = Bytes::open(file)?;
            let mut row = 0_u64;
            while bytes.fill(&mut record)? {
                let [label, pixels @ ..] = &record;
                if usize::from(*label) >= CLASSES.len() {
                    let problem = format!(
                        "record {row} has label {label}, and not 0 to 9: give files of the binary \
                         version"
                    );
                    return Err(broken(file, problem));
                }
                visit(*label, pixels)?;
                row += 1;
            }
        }
        Ok(())
    }
}

impl Dataset for Cifar10 {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        Ok(Schema { standardised: false, ..Schema::dense(KIND, PIXELS as u32, &CLASSES) })
    }

    fn visit(&self, _: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut values = [0.0; PIXELS];
        self.each(|label, pixels| {
            values.iter_mut().zip(pixels).for_each(|(value, &pixel)| *value = pixel.into());
            scale(&mut values);
            visit(Row::dense(&values, u16::from(label)))
        })
    }

    fn visit_labels(&self, _: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        self.each(|label, _| {
            visit(Label::Class(label.into()));
            Ok(())
        })
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }
}
