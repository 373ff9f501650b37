//! Rows in an archive of NumPy's arrays (.npz): a ZIP file of .npy files, stored or deflated.

use std::io::{BufReader, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use pstrain_compute::examples::Label;
use zip::ZipArchive;
use zip::result::ZipError;

use super::arguments::Arguments;
use super::array::{self, Array, Labels};
use super::bytes::{Bytes, broken};
use super::predict::{self, Predict};
use super::{Format, Paths, npy, yes};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::decompress::open_file;
use crate::error::DataError;

const FORM: &str = "npz:PATH[,features=NAME][,labels=NAME][,predict=numbers][,standardise=no]";
const OPTIONS: &[&str] = &["features", "labels", predict::OPTION, "standardise"];

/// Bytes per read from the archive.
const BUFFER: usize = 64 * 1024;

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "an archive of NumPy's arrays: rows of numbers (x), and their classes or numbers to \
              predict (y)",
    paths: Paths::First,
    open: |arguments, _| {
        let arguments = Arguments::read(arguments, FORM, OPTIONS)?;
        let name = |option, usual: &str| arguments.option(option).unwrap_or(usual).to_owned();
        let (features, labels) = (name("features", "x"), name("labels", "y"));
        let predict = arguments.parsed(predict::OPTION, Predict::read)?;
        let standardised = arguments.parsed("standardise", yes)?.unwrap_or(true);
        let [path] = arguments.exactly()?;
        Ok(Arc::new(Npz { path, features, labels, predict, standardised }))
    },
};

/// The rows of an array in an archive, with the labels in another array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npz {
    /// The archive.
    pub path: PathBuf,
    /// The name of the array of features.
    pub features: String,
    /// The name of the array of labels.
    pub labels: String,
    /// Meaning of the labels; without it whole numbers are classes.
    pub predict: Option<Predict>,
    /// True if columns get mean 0 and deviation 1.
    pub standardised: bool,
}

impl Npz {
    /// Opens the array called `name`, and passes it to `read`.
    fn array<T>(
        &self,
        name: &str,
        read: impl FnOnce(Array<'_>) -> Result<T, DataError>,
    ) -> Result<T, DataError> {
        let refused = |error: ZipError| {
            let problem = match error {
                ZipError::Io(error) if error.kind() != ErrorKind::UnexpectedEof => {
                    format!("cannot be read: {error}")
                }
                error => format!("no archive that can be read: {error}"),
            };
            broken(&self.path, problem)
        };
        let file = open_file(&self.path).map_err(|error| refused(error.into()))?;
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(refused)?;
        let member = format!("{name}.npy");
        let path = self.path.join(&member);
        let Some(index) = archive.index_for_name(&member) else {
            let names: Vec<String> = archive
                .file_names()
                .filter_map(|name| Some(name.ok()?.trim_end_matches(".npy").to_owned()))
                .collect();
            let problem = format!(
                "it has no array {name}; its arrays are {}: name two by features=NAME and \
                 labels=NAME",
                names.join(", ")
            );
            return Err(broken(&self.path, problem));
        };
        let bytes = BufReader::with_capacity(BUFFER, archive.by_index(index).map_err(refused)?);
        read(npy::opened(Bytes::of(&path, bytes))?)
    }

    fn labels(&self, predict: Option<Predict>) -> Result<Labels, DataError> {
        self.array(&self.labels, |array| Labels::read(array, predict))
    }
}

impl Dataset for Npz {
    fn kind(&self) -> &'static str {
        npy::KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let columns = self.array(&self.features, |array| array.check())?;
        self.labels(self.predict)?.schema(npy::KIND, columns, self.standardised)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let labels = self.labels(Some(Predict::of(schema, self.predict, self)?))?;
        let visit_all =
            |features: Array<'_>| array::visit(features, &labels, schema, |_| {}, visit);
        self.array(&self.features, visit_all)
    }

    fn visit_labels(&self, schema: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        let labels = self.labels(Some(Predict::of(schema, self.predict, self)?))?;
        labels.of(&schema.classes)?.into_iter().for_each(visit);
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}
