//! Sparse rows in LIBSVM files, which [`read_file`] parses.

use std::path::PathBuf;
use std::sync::Arc;

use super::sparse::{self as rows, SparseRows};
use super::{Format, Paths, paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::Info;
use crate::sparse::{LibsvmError, SparseRow, read_file};

const FORM: &str = "libsvm:PATH[,PATH...]";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "sparse rows, the files one after the other",
    paths: Paths::All,
    open: |arguments, _| {
        Ok(Arc::new(Libsvm { files: paths(arguments, FORM)?.map(PathBuf::from).collect() }))
    },
};

/// The rows of LIBSVM files, one file after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libsvm {
    /// The files.
    pub files: Vec<PathBuf>,
}

impl SparseRows for Libsvm {
    fn sparse_rows(
        &self,
        visit: &mut dyn FnMut(&SparseRow) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.files.iter().try_for_each(|file| read_file(file, &mut *visit))
    }

    fn columns(&self) -> Result<u32, DataError> {
        let mut columns = 1;
        self.sparse_rows(&mut |row| {
            let last = row.features.iter().max().map_or(0, |&last| last + 1);
            columns = columns.max(last);
            Ok(())
        })?;
        Ok(columns)
    }
}

impl Dataset for Libsvm {
    fn kind(&self) -> &'static str {
        rows::KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        rows::schema(self, features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        rows::visit(self, schema, visit)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn info(&self) -> Result<Info, DataError> {
        rows::info(self, self.describe())
    }
}

impl From<LibsvmError> for DataError {
    fn from(error: LibsvmError) -> Self {
        Self::format(error)
    }
}
