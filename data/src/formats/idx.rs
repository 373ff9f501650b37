//! Images in the IDX format of MNIST: a file of images and a file of labels.
//!
//! A file begins with two zero bytes, the type of its values (8: unsigned bytes), the number of
//! dimensions, and each dimension as a big-endian `u32` (LeCun, Cortes and Burges, "The MNIST
//! database").

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::examples::{Label, Row};

use super::bytes::{Bytes, broken};
use super::pixels::numbers;
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

pub(super) const FORMAT: Format = Format {
    form: "idx:IMAGES,LABELS",
    summary: "images in the format of MNIST, and their classes",
    paths: Paths::All,
    open: |arguments, _| match arguments.split_once(',') {
        Some((images, labels)) if !images.is_empty() && !labels.is_empty() => {
            Ok(Arc::new(Idx { images: images.into(), labels: labels.into() }))
        }
        _ => Err("two files are needed; write idx:IMAGES,LABELS".into()),
    },
};

const KIND: &str = "images in IDX files";

/// The images of a file, with the classes in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The file of images.
    pub images: PathBuf,
    /// The file of labels.
    pub labels: PathBuf,
}

/// Opens a file of unsigned bytes; returns it with its dimensions.
fn opened(path: &Path) -> Result<(Bytes<'_>, Vec<u32>), DataError> {
    let mut bytes = Bytes::open(path)?;
    let mut magic = [0; 4];
    let dimensions = match bytes.fill(&mut magic)?.then_some(magic) {
        Some([0, 0, 8, dimensions]) if dimensions > 0 => dimensions,
        Some([0, 0, kind, _]) if kind != 8 => {
            let problem = format!("its values have type {kind}, and not 8, unsigned bytes");
            return Err(broken(path, problem));
        }
        _ => return Err(broken(path, "no IDX file: give the files of images and labels")),
    };
    let mut sizes = Vec::new();
    for _ in 0..dimensions {
        let mut size = [0; 4];
        bytes.fill(&mut size)?;
        sizes.push(u32::from_be_bytes(size));
    }
    Ok((bytes, sizes))
}

impl Idx {
    /// The images and the number of pixels of each.
    fn images(&self) -> Result<(Bytes<'_>, u32, u32), DataError> {
        let (bytes, sizes) = opened(&self.images)?;
        let pixels = sizes[1..].iter().try_fold(1_u32, |product, &size| product.checked_mul(size));
        match pixels {
            Some(1..) if sizes[0] == 0 => {
                Err(broken(&self.images, "it has no images; give files of one image or more"))
            }
            Some(pixels @ 1..) => Ok((bytes, sizes[0], pixels)),
            _ => Err(broken(&self.images, format!("its images have no usable size: {sizes:?}"))),
        }
    }

    /// Passes each label to `visit`.
    fn each_label(&self, visit: &mut dyn FnMut(u8)) -> Result<(), DataError> {
        let (mut bytes, sizes) = opened(&self.labels)?;
        if sizes.len() != 1 {
            return Err(broken(&self.labels, "no file of labels: it has several dimensions"));
        }
        let mut label = [0];
        for row in 0..sizes[0] {
            if !bytes.fill(&mut label)? {
                return Err(broken(
                    &self.labels,
                    format!("it ends after {row} of {} labels", sizes[0]),
                ));
            }
            visit(label[0]);
        }
        Ok(())
    }
}

impl Dataset for Idx {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let (_, _, pixels) = self.images()?;
        let mut greatest = 0;
        self.each_label(&mut |label| greatest = greatest.max(label))?;
        let classes: Vec<String> = (0..=greatest).map(|class| class.to_string()).collect();
        let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
        Ok(Schema { standardised: false, ..Schema::dense(KIND, pixels, &classes) })
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let (mut images, rows, pixels) = self.images()?;
        if pixels != schema.shape.dense {
            let wanted = schema.shape.dense;
            let problem = format!("its images have {pixels} pixels, those of the job {wanted}");
            return Err(broken(&self.images, problem));
        }
        let mut labels = Vec::new();
        self.each_label(&mut |label| labels.push(label))?;
        if labels.len() != rows as usize {
            let problem = format!("it has {rows} images, but there are {} labels", labels.len());
            return Err(broken(&self.images, problem));
        }
        let mut image = vec![0; pixels as usize];
        let mut values = vec![0.0; pixels as usize];
        for (row, label) in labels.into_iter().enumerate() {
            if !images.fill(&mut image)? {
                return Err(broken(&self.images, format!("it ends after {row} of {rows} images")));
            }
            numbers(&image, &mut values);
            visit(Row::dense(&values, u16::from(label)))?;
        }
        Ok(())
    }

    fn visit_labels(&self, _: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        self.each_label(&mut |label| visit(Label::Class(label.into())))
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.images.clone(), self.labels.clone()]
    }
}
