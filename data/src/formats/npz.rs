//! Rows in an archive of NumPy's arrays (.npz): a ZIP file of .npy files, stored or deflated.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use pstrain_compute::examples::Label;
use zip::ZipArchive;
use zip::result::ZipError;

use super::bytes::{Bytes, broken};
use super::npy::{self, Array, Labels};
use super::{Format, Paths, option, yes};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "npz:PATH[,features=NAME][,labels=NAME][,standardise=no]";

/// Bytes per read from the archive.
const BUFFER: usize = 64 * 1024;

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "an archive of NumPy's arrays: rows of numbers (x) and their classes (y)",
    paths: Paths::First,
    open: |arguments, _| {
        let mut arguments = arguments.split(',');
        let path = arguments.next().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("a path is missing; write {FORM}"))?.into();
        let (features, labels) = ("x".into(), "y".into());
        let mut data = Npz { path, features, labels, standardised: true };
        for argument in arguments {
            match option(argument) {
                Some(("features", name)) => data.features = name.into(),
                Some(("labels", name)) => data.labels = name.into(),
                Some(("standardise", value)) => data.standardised = yes("standardise", value)?,
                _ => return Err(format!("there is no option {argument}; write {FORM}")),
            }
        }
        Ok(Arc::new(data))
    },
};

/// The rows of an array in an archive, with the classes in another array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npz {
    /// The archive.
    pub path: PathBuf,
    /// The name of the array of features.
    pub features: String,
    /// The name of the array of labels.
    pub labels: String,
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
        let file = File::open(&self.path).map_err(|error| refused(error.into()))?;
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(refused)?;
        let member = format!("{name}.npy");
        let path = self.path.join(&member);
        let Some(index) = archive.index_for_name(&member) else {
            let names: Vec<String> = archive
                .file_names()
                .filter_map(|name| Some(name.ok()?.trim_end_matches(".npy").to_owned()))
                .collect();
            let problem = format!("it has no array {name}; its arrays are {}", names.join(", "));
            return Err(broken(&self.path, problem));
        };
        let bytes = BufReader::with_capacity(BUFFER, archive.by_index(index).map_err(refused)?);
        read(Array::open(Bytes::of(&path, bytes))?)
    }

    fn labels(&self) -> Result<Labels, DataError> {
        self.array(&self.labels, Labels::read)
    }
}

impl Dataset for Npz {
    fn kind(&self) -> &'static str {
        npy::KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let labels = self.labels()?;
        let schema = |array: Array<'_>| npy::schema(&array, &labels, self.standardised);
        self.array(&self.features, schema)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let labels = self.labels()?;
        self.array(&self.features, |array| npy::visit(array, &labels, schema, visit))
    }

    fn visit_labels(&self, schema: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        self.labels()?.numbered(&schema.classes)?.into_iter().map(Label::Class).for_each(visit);
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}
