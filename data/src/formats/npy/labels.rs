//! Labels of rows: whole numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::bytes::broken;
use super::array::Array;
use crate::error::DataError;

/// Most classes: a class is a `u16`.
const MOST_CLASSES: usize = u16::MAX as usize;

/// The labels of all rows.
pub(in super::super) struct Labels {
    path: PathBuf,
    labels: Vec<i64>,
    different: BTreeSet<i64>,
}

impl Labels {
    pub(in super::super) fn read(array: Array<'_>) -> Result<Self, DataError> {
        let path = array.path().to_owned();
        let labels = array.whole()?;
        let mut different = BTreeSet::new();
        for &label in &labels {
            if different.insert(label) && different.len() > MOST_CLASSES {
                let problem = format!("it has more than {MOST_CLASSES} different labels");
                return Err(broken(&path, problem));
            }
        }
        Ok(Self { path, labels, different })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the different labels.
    pub(super) fn classes(&self) -> Vec<String> {
        self.different.iter().map(ToString::to_string).collect()
    }

    /// The number of each label's class among `classes`.
    pub(in super::super) fn numbered(&self, classes: &[String]) -> Result<Vec<u16>, DataError> {
        let mut numbers = BTreeMap::new();
        for (class, number) in classes.iter().zip(0..) {
            let problem = "the classes are not whole numbers";
            let label: i64 =
                class.parse().map_err(|_error| DataError::Specification { problem })?;
            numbers.insert(label, number);
        }
        let number = |(row, label): (usize, &i64)| {
            numbers.get(label).copied().ok_or_else(|| {
                broken(&self.path, format!("row {row}: {label} is no class of the job"))
            })
        };
        self.labels.iter().enumerate().map(number).collect()
    }
}
