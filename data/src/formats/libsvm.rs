//! Sparse rows in LIBSVM files, which [`read_file`] parses.

use std::path::PathBuf;
use std::sync::Arc;

use super::sparse::{self as rows, SparseFacts, SparseRows, VisitSparse};
use super::{Format, Paths, paths};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::Info;
use crate::sparse::{CLASSES, LibsvmError, read_file};

const FORM: &str = "libsvm:PATH[,PATH...][,rows=dense]";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "sparse rows, the files one after the other; dense for more than two classes",
    paths: Paths::AllBut(&["rows"]),
    open: |arguments, _| {
        let (files, dense) = match arguments.rsplit_once(",rows=") {
            Some((files, "dense")) => (files, true),
            Some((_, rows)) => {
                return Err(format!("rows={rows}: write rows=dense, or leave it out"));
            }
            None => (arguments, false),
        };
        let files = paths(files, FORM)?.map(PathBuf::from).collect();
        Ok(Arc::new(Libsvm { files, dense, numbers: false }))
    },
};

const REGRESSION_FORM: &str = "libsvm-regression:PATH[,PATH...]";

pub(super) const REGRESSION: Format = Format {
    form: REGRESSION_FORM,
    summary: "sparse rows with numbers to predict, the files one after the other",
    paths: Paths::All,
    open: |arguments, _| {
        let files = paths(arguments, REGRESSION_FORM)?.map(PathBuf::from).collect();
        Ok(Arc::new(Libsvm { files, dense: false, numbers: true }))
    },
};

/// Most different labels.
const MOST_LABELS: usize = 1000;

/// The rows of LIBSVM files, one file after the other.
///
/// Rows with the labels -1 (or 0) and +1 have two classes and stay sparse, unless `dense` is set.
/// Otherwise each label is a class, and rows are dense. Labels that are numbers to predict are of
/// sparse rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libsvm {
    /// The files.
    pub files: Vec<PathBuf>,
    /// True if rows of two classes are dense, too.
    pub dense: bool,
    /// True if the labels are numbers to predict, of sparse rows.
    pub numbers: bool,
}

impl SparseRows for Libsvm {
    fn sparse_rows(&self, visit: &mut VisitSparse<'_>) -> Result<(), DataError> {
        self.files
            .iter()
            .try_for_each(|file| read_file(file, |line, row| visit(Some((file, line)), row)))
    }

    fn predicts_numbers(&self) -> bool {
        self.numbers
    }

    fn facts(&self) -> Result<SparseFacts, DataError> {
        let (mut columns, mut labels) = (1, Vec::<f32>::new());
        self.sparse_rows(&mut |place, row| {
            let last = row.features.iter().max().map_or(0, |&last| last + 1);
            columns = columns.max(last);
            if self.numbers {
                return Ok(());
            }
            // Zero has two signs.
            let label = row.label + 0.0;
            if let Err(at) = labels.binary_search_by(|other| other.total_cmp(&label)) {
                labels.insert(at, label);
            }
            if labels.len() > MOST_LABELS {
                let file = place.map(|(file, _)| file.display().to_string()).unwrap_or_default();
                return Err(DataError::format(format!(
                    "{file}: more than {MOST_LABELS} different labels; if they are numbers to \
                     predict, say libsvm-regression"
                )));
            }
            Ok(())
        })?;
        if self.numbers {
            return Ok(SparseFacts { columns, classes: Vec::new(), dense: false });
        }
        let classes: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let are_signs = labels.iter().all(|label| [-1.0, 0.0, 1.0].contains(label));
        let is_sparse = !self.dense && are_signs;
        // Of sparse rows, 0 is another name of -1.
        if classes.len() < 2 || (is_sparse && !labels.contains(&1.0)) {
            let problem =
                format!("all labels are {}; two classes or more are needed", classes.join(" or "));
            return Err(DataError::format(format!("{}: {problem}", self.describe())));
        }
        if is_sparse {
            let classes = CLASSES.map(String::from).into();
            return Ok(SparseFacts { columns, classes, dense: false });
        }
        Ok(SparseFacts { columns, classes, dense: true })
    }
}

impl Dataset for Libsvm {
    fn kind(&self) -> &'static str {
        rows::kind(self)
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
