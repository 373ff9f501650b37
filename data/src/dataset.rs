//! The seam for data formats: rows of examples with their labels.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use pstrain_compute::examples::{Label, Picture, Row, Shape, Target};
use serde::{Deserialize, Serialize};

use crate::decompress::{Opened, open};
use crate::error::DataError;
use crate::info::{Info, Tally};
use crate::nsl_kdd::RecipeName;
use crate::profile::Profile;
use crate::sparse::Hashing;
use crate::standardise::Standard;

/// Receives rows, and may stop the reading by an error.
pub type Visit<'a> = dyn FnMut(Row<'_>) -> Result<(), DataError> + 'a;

/// Rows of examples with their labels, in files or drawn by a generator.
///
/// All readings yield the same rows in the same order, on every machine. The `Debug` form tells
/// datasets with different rows apart: runs of one experiment share the rows of equal ones.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Describes the rows, by default with their words or the names of their files. Contains no
    /// path, because the text travels to workers.
    fn describe(&self) -> String {
        let names = || self.files().iter().map(|file| name_of(file)).collect::<Vec<_>>().join(", ");
        self.words().unwrap_or_else(names)
    }

    /// The kind of the rows, in the plural or as an adjective: `NSL-KDD records`, `sparse`. Rows
    /// can be encoded by the schema of another dataset of the same kind.
    fn kind(&self) -> &'static str;

    /// Returns what a model sees of the rows.
    ///
    /// # Errors
    /// [`DataError`] if the rows cannot be read, or do not have the requested features.
    fn schema(&self, features: &Features) -> Result<Schema, DataError>;

    /// Passes every row to `visit`, in order, as `schema` encodes it. Dense columns are not
    /// standardised yet.
    ///
    /// # Errors
    /// [`DataError`] at the first problem, or the error of `visit`.
    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError>;

    /// Passes the label of every row to `visit`, in order.
    ///
    /// # Errors
    /// As [`Self::visit`].
    fn visit_labels(&self, schema: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        self.visit(schema, &mut |row| {
            visit(row.label);
            Ok(())
        })
    }

    /// The number of rows, if it is known without reading them.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// The files of the rows; none if a generator draws them.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The words that [`open`](crate::open) turns into the same dataset on every machine; none if
    /// the rows are in files.
    fn words(&self) -> Option<String> {
        None
    }

    /// The names of the dense columns.
    fn columns(&self, schema: &Schema) -> Vec<String> {
        (1..=schema.shape.dense).map(|column| column.to_string()).collect()
    }

    /// The rows of each worker, if these are the rows of workers that each have their own.
    fn local(&self) -> &[Arc<dyn Dataset>] {
        &[]
    }

    /// Mean and scale of the numbers to predict, if a profile has them; otherwise those of the
    /// training rows count.
    ///
    /// # Errors
    /// [`DataError::Format`] if the profile cannot be read.
    fn values(&self) -> Result<Option<Standard>, DataError> {
        Ok(None)
    }

    /// True if a profile decides the schema and all statistics, so that no rows have to be read for
    /// them.
    fn has_profile(&self) -> bool {
        false
    }

    /// Refuses a column that `schema` lacks and that the user did not leave out: a worker that has
    /// rows of its own may have other columns than the job.
    ///
    /// # Errors
    /// [`DataError::Format`] with the name of the column.
    fn check_columns(&self, _schema: &Schema) -> Result<(), DataError> {
        Ok(())
    }

    /// What is odd about the rows as they were read last, with the cure, a line each: signs that
    /// the user means something else. With the schema of a `job` whose columns other rows decide:
    /// what these rows have that the job does not know.
    fn remarks(&self, _job: Option<&Schema>) -> Vec<String> {
        Vec::new()
    }

    /// Writes down roles and statistics of a table's columns, and its classes.
    ///
    /// # Errors
    /// [`DataError::Format`] if the rows are no table, and the errors of [`Self::visit`].
    fn profile(&self) -> Result<Profile, DataError> {
        let problem = "its rows are no table: only csv has columns with roles to write down";
        Err(DataError::format(format!("{}: {problem}", self.describe())))
    }

    /// Collects facts about all rows.
    ///
    /// # Errors
    /// As [`Self::visit`].
    fn info(&self) -> Result<Info, DataError> {
        let schema = self.schema(&Features::default())?;
        let mut tally = Tally::new(schema.shape);
        self.visit(&schema, &mut |row| {
            tally.add(row);
            Ok(())
        })?;
        Ok(tally.finish(self.describe(), &schema.classes, self.columns(&schema)))
    }
}

impl dyn Dataset + '_ {
    /// True if the rows are cheap to read repeatedly: they are in regular files that are not
    /// compressed.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_plain = |path: &PathBuf| {
            // Excludes pipes: opening one for this check would consume its first bytes.
            path.is_file() && matches!(open(path), Ok(Opened { compression: None, .. }))
        };
        let files = self.files();
        !files.is_empty() && files.iter().all(is_plain)
    }

    /// Returns length and modification time of each file, to detect changes.
    pub(crate) fn stamp(&self) -> Vec<Option<(u64, SystemTime)>> {
        let of = |path: PathBuf| {
            let known = std::fs::metadata(path).ok()?;
            Some((known.len(), known.modified().ok()?))
        };
        self.files().into_iter().map(of).collect()
    }
}

/// The user's choice of the features that a model sees. Each applies to some kinds of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The features of NSL-KDD records.
    pub recipe: RecipeName,
    /// How the features of sparse rows map to columns.
    pub hashing: Hashing,
}

impl Features {
    /// Refuses hashing, for rows that are not sparse.
    ///
    /// # Errors
    /// [`DataError::Setting`] if features are to be hashed.
    pub fn unhashed(&self) -> Result<(), DataError> {
        match self.hashing {
            Hashing::None => Ok(()),
            Hashing::To(columns) => Err(DataError::Setting {
                name: "hash-features",
                value: columns.to_string(),
                allowed: "none for data whose rows are not sparse",
            }),
        }
    }
}

/// The columns and labels that a model sees: the part of a job's data that all nodes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The kind of the rows, as [`Dataset::kind`] names it.
    pub kind: String,
    /// How the dataset encodes rows, in its own words.
    pub encoding: String,
    /// The shape of an encoded row.
    pub shape: Shape,
    /// The names of the classes, in the order of the labels; none if a number is predicted.
    pub classes: Vec<String>,
    /// True if dense columns get mean 0 and deviation 1; false if they stay as they are encoded.
    pub standardised: bool,
}

impl Schema {
    /// The schema of rows of `columns` numbers, in the only encoding of their kind.
    #[must_use]
    pub fn dense(kind: &str, columns: u32, classes: &[&str]) -> Self {
        let target = Target::Classes(classes.len() as u32);
        let shape = Shape { inputs: columns, dense: columns, hot: 0, target, picture: None };
        let classes = classes.iter().map(|&class| class.to_owned()).collect();
        let (kind, encoding) = (kind.to_owned(), "columns".to_owned());
        Self { kind, encoding, shape, classes, standardised: true }
    }

    /// The schema of rows of `columns` numbers with a number to predict, in the only encoding of
    /// their kind.
    #[must_use]
    pub fn of_values(kind: &str, columns: u32) -> Self {
        let mut schema = Self::dense(kind, columns, &[]);
        schema.shape.target = Target::Value;
        schema
    }

    /// The same schema of rows that are pictures of this size, pixel by pixel.
    pub(crate) fn with_picture(mut self, picture: Option<Picture>) -> Self {
        self.shape.picture = picture;
        self
    }

    /// The number of dense columns that are standardised: all of them, or none.
    pub(crate) const fn standard_columns(&self) -> usize {
        if self.standardised { self.shape.dense as usize } else { 0 }
    }
}

/// The name and the generator of a dataset, which suffice once its rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The description.
    pub(crate) name: String,
    /// The words by which every worker can generate the rows.
    pub(crate) words: Option<String>,
}

impl Origin {
    pub(crate) fn of(dataset: &dyn Dataset) -> Self {
        Self { name: dataset.describe(), words: dataset.words() }
    }
}

/// Returns the last component of a path.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into())
}
