//! The images of CIFAR-10 and CIFAR-100 in their binary versions.
//!
//! A record is a label and 3,072 pixels: 32 rows of 32 values for red, then green, then blue
//! (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009). In CIFAR-100 the
//! label of the class follows the one of its superclass, which is not read.

use std::path::PathBuf;
use std::sync::Arc;

use pstrain_compute::examples::{Label, Picture, Row};

use super::arguments::Arguments;
use super::bytes::{Bytes, broken};
use super::pixels::{interleave, scale};
use super::{Format, Paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::decompress::find;
use crate::error::DataError;

const FORM_10: &str = "cifar10:PATH[,PATH...]";
const FORM_100: &str = "cifar100:PATH[,PATH...]";

pub(super) const FORMAT_10: Format = Format {
    form: FORM_10,
    summary: "images of CIFAR-10, binary version: the folder of the training batches, or files",
    paths: Paths::All,
    open: |arguments, _| Ok(Arc::new(Cifar::open(CifarSet::Ten, FORM_10, arguments)?)),
};

pub(super) const FORMAT_100: Format = Format {
    form: FORM_100,
    summary: "images of CIFAR-100, binary version: the folder of train.bin, or files",
    paths: Paths::All,
    open: |arguments, _| Ok(Arc::new(Cifar::open(CifarSet::Hundred, FORM_100, arguments)?)),
};

const PICTURE: Picture = Picture { height: 32, width: 32, channels: 3 };

/// Values of an image.
const PIXELS: usize = PICTURE.values() as usize;

/// One of the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CifarSet {
    /// CIFAR-10.
    Ten,
    /// CIFAR-100.
    Hundred,
}

impl CifarSet {
    const fn kind(self) -> &'static str {
        match self {
            Self::Ten => "images of CIFAR-10",
            Self::Hundred => "images of CIFAR-100",
        }
    }

    /// The labels of a record. The last one is the class.
    const fn labels(self) -> usize {
        match self {
            Self::Ten => 1,
            Self::Hundred => 2,
        }
    }

    /// The names of the classes, by label.
    fn classes(self) -> Vec<&'static str> {
        let names = match self {
            Self::Ten => "airplane automobile bird cat deer dog frog horse ship truck",
            Self::Hundred => HUNDRED,
        };
        names.split_whitespace().collect()
    }

    /// The files of the training images in a folder.
    fn batches(self) -> Vec<String> {
        match self {
            Self::Ten => (1..=5).map(|batch| format!("data_batch_{batch}.bin")).collect(),
            Self::Hundred => vec!["train.bin".into()],
        }
    }
}

/// The classes of CIFAR-100.
const HUNDRED: &str = "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl \
    boy bridge bus butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud \
    cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster \
    house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle \
    mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree \
    plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew \
    skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank \
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf \
    woman worm";

/// The images of some files, one file after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cifar {
    /// The set.
    pub set: CifarSet,
    /// The files.
    pub files: Vec<PathBuf>,
}

impl Cifar {
    fn open(set: CifarSet, form: &'static str, arguments: &str) -> Result<Self, String> {
        let mut files = Vec::new();
        for path in Arguments::read(arguments, form, &[])?.paths()? {
            if !path.is_dir() {
                files.push(path);
                continue;
            }
            for name in set.batches() {
                let missing = || format!("there is no {name}[.gz|.xz|.zst] in {}", path.display());
                files.push(find(&path, &name).ok_or_else(missing)?);
            }
        }
        Ok(Self { set, files })
    }

    /// Passes each label with its pixels to `visit`.
    fn each(
        &self,
        mut visit: impl FnMut(u8, &[u8]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (labels, classes) = (self.set.labels(), self.set.classes().len());
        let mut record = vec![0; labels + PIXELS];
        for file in &self.files {
            let mut bytes = Bytes::open(file)?;
            let mut row = 0_u64;
            while bytes.fill(&mut record)? {
                let label = record[labels - 1];
                if usize::from(label) >= classes {
                    let problem = format!(
                        "record {row} has label {label}, and not 0 to {}: give files of the binary \
                         version",
                        classes - 1
                    );
                    return Err(broken(file, problem));
                }
                visit(label, &record[labels..])?;
                row += 1;
            }
        }
        Ok(())
    }
}

impl Dataset for Cifar {
    fn kind(&self) -> &'static str {
        self.set.kind()
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let schema = Schema::dense(self.set.kind(), PIXELS as u32, &self.set.classes())
            .with_picture(Some(PICTURE));
        Ok(Schema { standardised: false, ..schema })
    }

    fn visit(&self, _: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let (mut values, mut image) = ([0.0; PIXELS], Vec::new());
        self.each(|label, pixels| {
            values.iter_mut().zip(pixels).for_each(|(value, &pixel)| *value = pixel.into());
            scale(&mut values);
            interleave(PICTURE.channels as usize, &values, &mut image);
            visit(Row::dense(&image, u16::from(label)))
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
