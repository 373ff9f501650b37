//! Rows in NumPy's .npy files: an array of features and an array of classes.
//!
//! The first dimension of the features is the rows; all others are flattened to the columns of a
//! row. Classes are the different whole numbers among the labels, in ascending order.

mod array;
mod labels;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::examples::{Label, Row};

pub(super) use self::array::Array;
pub(super) use self::labels::Labels;
use super::bytes::{Bytes, broken};
use super::{Format, Paths, yes};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "npy:FEATURES,LABELS[,standardise=no]";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "two arrays of NumPy: rows of numbers, and their classes as whole numbers",
    paths: Paths::AllBut(&["standardise"]),
    open: |arguments, _| {
        let (arguments, standardised) = match arguments.rsplit_once(",standardise=") {
            Some((paths, text)) => (paths, yes("standardise", text)?),
            None => (arguments, true),
        };
        match arguments.split_once(',') {
            Some((features, labels)) if !features.is_empty() && !labels.is_empty() => {
                let (features, labels) = (features.into(), labels.into());
                Ok(Arc::new(Npy { features, labels, standardised }))
            }
            _ => Err(format!("two files are needed; write {FORM}")),
        }
    },
};

/// The kind of rows of arrays.
pub(super) const KIND: &str = "rows of an array";

/// The rows of an array, with the classes in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npy {
    /// The file of features.
    pub features: PathBuf,
    /// The file of labels.
    pub labels: PathBuf,
    /// True if columns get mean 0 and deviation 1.
    pub standardised: bool,
}

impl Npy {
    fn features(&self) -> Result<Array<'_>, DataError> {
        Array::open(Bytes::open(&self.features)?)
    }

    fn labels(&self) -> Result<Labels, DataError> {
        Labels::read(Array::open(Bytes::open(&self.labels)?)?)
    }
}

/// Returns the schema of an array of features.
pub(super) fn schema(
    features: &Array<'_>,
    labels: &Labels,
    standardised: bool,
) -> Result<Schema, DataError> {
    let classes = labels.classes();
    let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
    if let [] | [_] = classes[..] {
        let problem = match classes.first() {
            Some(class) => format!("its labels are all {class}; two classes are needed"),
            None => "it has no rows; give arrays of one row or more".into(),
        };
        return Err(broken(labels.path(), problem));
    }
    Ok(Schema { standardised, ..Schema::dense(KIND, features.columns()?, &classes) })
}

/// Passes each row of `features` with its label to `visit`.
pub(super) fn visit(
    mut features: Array<'_>,
    labels: &Labels,
    schema: &Schema,
    visit: &mut Visit<'_>,
) -> Result<(), DataError> {
    let path: &Path = features.path();
    let (columns, wanted) = (features.columns()?, schema.shape.dense);
    if columns != wanted {
        let problem = format!("its rows have {columns} values, those of the job {wanted}");
        return Err(broken(path, problem));
    }
    let labels = labels.numbered(&schema.classes)?;
    if features.rows() != labels.len() as u64 {
        let (rows, labels) = (features.rows(), labels.len());
        return Err(broken(path, format!("it has {rows} rows, but there are {labels} labels")));
    }
    let mut values = vec![0.0; columns as usize];
    for label in labels {
        features.read(&mut values)?;
        visit(Row::dense(&values, label))?;
    }
    Ok(())
}

impl Dataset for Npy {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        schema(&self.features()?, &self.labels()?, self.standardised)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        self::visit(self.features()?, &self.labels()?, schema, visit)
    }

    fn visit_labels(&self, schema: &Schema, visit: &mut dyn FnMut(Label)) -> Result<(), DataError> {
        self.labels()?.numbered(&schema.classes)?.into_iter().map(Label::Class).for_each(visit);
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.features.clone(), self.labels.clone()]
    }
}
