//! Images in the IDX format of MNIST: a file of images and a file of labels.
//!
//! A file begins with two zero bytes, the type of its values (8: unsigned bytes, 9: signed bytes,
//! 11 and 12: whole numbers of 2 and 4 bytes, 13 and 14: floating-point numbers of 4 and 8), the
//! number of dimensions, and each dimension as a big-endian `u32` (LeCun, Cortes and Burges, "The
//! MNIST database").

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::examples::Label;

use super::arguments::Arguments;
use super::array::{self, Array, Kind, Labels};
use super::bytes::{Bytes, broken};
use super::pixels::scale;
use super::predict::{self, Predict};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "idx:IMAGES,LABELS[,predict=numbers]";
const OPTIONS: &[&str] = &[predict::OPTION];

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "images in the format of MNIST, and their classes or numbers to predict",
    paths: Paths::AllBut(OPTIONS),
    open: |arguments, _| {
        let arguments = Arguments::read(arguments, FORM, OPTIONS)?;
        let predict = arguments.parsed(predict::OPTION, Predict::read)?;
        let [images, labels] = arguments.exactly()?;
        Ok(Arc::new(Idx { images, labels, predict }))
    },
};

const KIND: &str = "images in IDX files";

/// The images of a file, with the labels in another. Unsigned bytes are pixels from -1 to 1; other
/// values are standardised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The file of images.
    pub images: PathBuf,
    /// The file of labels.
    pub labels: PathBuf,
    /// Meaning of the labels; without it whole numbers are classes.
    pub predict: Option<Predict>,
}

/// Opens a file and reads its header.
fn opened(path: &Path) -> Result<Array<'_>, DataError> {
    let mut bytes = Bytes::open(path)?;
    let mut magic = [0; 4];
    let (kind, dimensions) = match bytes.fill(&mut magic)?.then_some(magic) {
        Some([0, 0, kind, dimensions]) if dimensions > 0 => (kind, dimensions),
        _ => return Err(broken(path, "no IDX file: give the files of images and labels")),
    };
    let Some(kind) = Kind::of_idx(kind) else {
        let problem = format!("its values have type {kind}, and not 8, 9 or 11 to 14");
        return Err(broken(path, problem));
    };
    let mut sizes = Vec::new();
    for _ in 0..dimensions {
        let mut size = [0; 4];
        bytes.fill(&mut size)?;
        sizes.push(u32::from_be_bytes(size).into());
    }
    Ok(Array::new(bytes, kind, sizes))
}

impl Idx {
    fn labels(&self, predict: Option<Predict>) -> Result<Labels, DataError> {
        Labels::read(opened(&self.labels)?, predict)
    }
}

impl Dataset for Idx {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let images = opened(&self.images)?;
        let standardised = images.kind() != Kind::BYTES;
        let columns = images.check()?;
        self.labels(self.predict)?.schema(KIND, columns, standardised)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let images = opened(&self.images)?;
        let are_pixels = images.kind() == Kind::BYTES;
        let labels = self.labels(Some(Predict::of(schema, self.predict, self)?))?;
        let change = |values: &mut [f32]| {
            if are_pixels {
                scale(values);
            }
        };
        array::visit(images, &labels, schema, change, visit)
    }

    fn visit_labels(&self, schema: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        let labels = self.labels(Some(Predict::of(schema, self.predict, self)?))?;
        labels.of(&schema.classes)?.into_iter().for_each(visit);
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.images.clone(), self.labels.clone()]
    }
}
