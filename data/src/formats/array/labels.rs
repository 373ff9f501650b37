//! The labels of an array's rows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pstrain_compute::examples::{Label, Picture};

use super::super::bytes::broken;
use super::super::predict::{self, Predict};
use super::{Array, shown};
use crate::dataset::Schema;
use crate::error::DataError;

/// Most classes: a class is a `u16`.
const MOST_CLASSES: usize = u16::MAX as usize;

/// The labels of all rows.
pub(in super::super) struct Labels {
    path: PathBuf,
    labels: Values,
}

enum Values {
    /// Whole numbers; each different one is a class.
    Classes(Vec<i64>),
    /// Numbers to predict.
    Numbers(Vec<f32>),
}

impl Labels {
    /// Reads the labels of an array. If `predict` does not say what they are, they are classes, but
    /// not if they have fractions, or are nearly all different.
    pub(in super::super) fn read(
        mut array: Array<'_>,
        predict: Option<Predict>,
    ) -> Result<Self, DataError> {
        let is_flat = array.shape.len() == 1;
        let is_column = !is_flat && array.shape.iter().skip(1).all(|&size| size == 1);
        if array.shape.is_empty() || !(is_flat || is_column) {
            let problem = format!(
                "shape {} is none of labels: one dimension is needed, a label for each row; save \
                 labels.argmax(axis=1) instead if they are one-hot, or one column of them",
                shown(&array.shape),
            );
            return Err(broken(array.path(), problem));
        }
        let path = array.path().to_owned();
        let labels = match predict {
            Some(Predict::Numbers) => Values::Numbers(array.numbers()?),
            _ => Values::Classes(array.classes(predict)?),
        };
        array.end()?;
        Ok(Self { path, labels })
    }

    /// The number of labels.
    pub(super) const fn len(&self) -> usize {
        match &self.labels {
            Values::Classes(labels) => labels.len(),
            Values::Numbers(labels) => labels.len(),
        }
    }

    /// The schema of rows of `columns` numbers with these labels.
    pub(in super::super) fn schema(
        &self,
        kind: &str,
        (columns, picture): (u32, Option<Picture>),
        standardised: bool,
    ) -> Result<Schema, DataError> {
        let schema = match &self.labels {
            _ if self.len() == 0 => {
                return Err(broken(&self.path, "it has no rows; give arrays of one row or more"));
            }
            Values::Numbers(_) => Schema::of_values(kind, columns),
            Values::Classes(labels) => {
                let different: BTreeSet<i64> = labels.iter().copied().collect();
                let classes: Vec<String> = different.iter().map(ToString::to_string).collect();
                if let [class] = &classes[..] {
                    let problem = format!("its labels are all {class}; two classes are needed");
                    return Err(broken(&self.path, problem));
                }
                let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
                Schema::dense(kind, columns, &classes)
            }
        };
        Ok(Schema { standardised, ..schema.with_picture(picture) })
    }

    /// Each label: the number of its class among `classes`, or the number to predict.
    pub(in super::super) fn of(&self, classes: &[String]) -> Result<Vec<Label>, DataError> {
        let labels = match &self.labels {
            Values::Classes(labels) => labels,
            Values::Numbers(labels) => {
                return Ok(labels.iter().copied().map(Label::Value).collect());
            }
        };
        let mut numbers = BTreeMap::new();
        for (class, number) in classes.iter().zip(0..) {
            let problem = "the classes are not whole numbers";
            let label: i64 =
                class.parse().map_err(|_error| DataError::Specification { problem })?;
            numbers.insert(label, number);
        }
        let class = |(row, label): (usize, &i64)| {
            numbers.get(label).copied().map(Label::Class).ok_or_else(|| {
                broken(&self.path, format!("row {row}: {label} is no class of the job"))
            })
        };
        labels.iter().enumerate().map(class).collect()
    }
}

impl Array<'_> {
    /// Reads all values as numbers to predict.
    fn numbers(&mut self) -> Result<Vec<f32>, DataError> {
        let mut labels = Vec::new();
        let mut value = Vec::new();
        for _ in 0..self.rows() {
            self.read(1, &mut value)?;
            labels.extend(&value);
        }
        Ok(labels)
    }

    /// Reads all values as whole numbers that are classes.
    fn classes(&mut self, predict: Option<Predict>) -> Result<Vec<i64>, DataError> {
        let (mut labels, mut different) = (Vec::new(), BTreeSet::new());
        for row in 0..self.rows() {
            self.next(self.kind.size())?;
            let Some(label) = self.kind.whole(&self.row) else {
                let number = self.kind.number(&self.row);
                let problem = match number.is_finite() && number.fract() != 0.0 {
                    true if predict.is_none() => predict::fraction(number),
                    _ => format!("row {row}: {number:?} is no whole number of 64 bits as a class"),
                };
                return Err(broken(self.path(), problem));
            };
            labels.push(label);
            if different.insert(label) && different.len() > MOST_CLASSES {
                let problem = format!(
                    "it has more than {MOST_CLASSES} different labels: say predict=numbers if they \
                     are numbers to predict"
                );
                return Err(broken(self.path(), problem));
            }
        }
        let problem = predict::too_many(different.len(), labels.len());
        match problem.filter(|_| predict.is_none()) {
            Some(problem) => Err(broken(self.path(), problem)),
            None => Ok(labels),
        }
    }
}
