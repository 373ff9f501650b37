//! Facts about a data set, for `pstrain data info`.

use pstrain_compute::examples::{Examples, Label, Row, Shape};
use pstrain_compute::fingerprint::{Fingerprint, Fingerprinter};
use serde::Serialize;

/// Facts about all rows of a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// A description of the source.
    pub source: String,
    /// The number of rows.
    pub rows: u64,
    /// All classes, in label order; none if a number is predicted.
    pub classes: Vec<Occurrence>,
    /// The number to predict, if the labels are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Column>,
    /// Of NSL-KDD records: the attacks that occur, and normal traffic, in the order of the list of
    /// attacks.
    pub attacks: Vec<Occurrence>,
    /// The symbolic columns, each with the values that occur.
    pub categories: Vec<Category>,
    /// The numeric features.
    pub columns: Vec<Column>,
    /// The roles of a table's columns, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// Rows that are left out because they have a missing value; they are not in `rows`.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Facts about the features, if the rows are sparse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// Identifies the contents: all rows with all their features, not standardised. Of NSL-KDD
    /// records these are the features of recipe `nsl-kdd-122`.
    pub fingerprint: Fingerprint,
}

/// Facts about the features of sparse rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Features {
    /// Number of columns.
    pub columns: u32,
    /// Number of columns with an entry in at least one row.
    pub touched: u64,
    /// Number of entries in all rows.
    pub entries: u64,
}

/// The role of a table's column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Role {
    /// The column's name.
    pub column: String,
    /// The role.
    pub role: String,
    /// The reason: what the user said, or what the column has.
    pub why: String,
    /// The number of missing values.
    pub missing: u64,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The number of rows with some property.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Occurrence {
    /// The name of the property.
    pub name: String,
    /// Number of rows that have it.
    pub count: u64,
    /// Fraction of all rows that have it.
    pub share: f64,
}

/// A symbolic column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Category {
    /// The column's name.
    pub name: String,
    /// The values that occur, in the order of the one-hot columns. Missing ones are no values: the
    /// column's role counts them.
    pub values: Vec<Occurrence>,
}

/// A numeric feature.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// The feature's name.
    pub name: String,
    /// The smallest value.
    pub min: f32,
    /// The mean.
    pub mean: f64,
    /// The largest value.
    pub max: f32,
}

impl Occurrence {
    pub(crate) fn new(name: &str, count: u64, rows: u64) -> Self {
        Self { name: name.to_owned(), count, share: count as f64 / rows.max(1) as f64 }
    }

    /// The classes with their rows.
    fn of_classes(classes: &[String], counts: &[u64], rows: u64) -> Vec<Self> {
        let class = |(name, &count): (&String, &u64)| Self::new(name, count, rows);
        classes.iter().zip(counts).map(class).collect()
    }
}

impl Info {
    /// The facts about sparse rows.
    pub(crate) fn of_sparse(
        source: String,
        all: &Examples,
        classes: &[String],
        features: Features,
    ) -> Self {
        let rows = all.len() as u64;
        Self {
            source,
            rows,
            classes: Occurrence::of_classes(classes, &all.class_counts(), rows),
            predicted: {
                let mut labels = Range::default();
                all.labels().for_each(|label| labels.add_label(label));
                labels.column(PREDICTED)
            },
            attacks: Vec::new(),
            categories: Vec::new(),
            columns: Vec::new(),
            roles: Vec::new(),
            left_out: 0,
            features: Some(features),
            fingerprint: Fingerprint::of(all),
        }
    }
}

/// Collects facts about encoded rows.
pub(crate) struct Tally {
    fingerprinter: Fingerprinter,
    /// Of each dense column.
    columns: Vec<Range>,
    /// Of the labels that are numbers.
    labels: Range,
}

/// Minimum, sum, maximum and number of some values.
#[derive(Clone, Copy)]
struct Range {
    least: f32,
    sum: f64,
    most: f32,
    count: u64,
}

/// The name of the numbers to predict, if they have no other.
pub(crate) const PREDICTED: &str = "to predict";

impl Default for Range {
    fn default() -> Self {
        Self { least: f32::INFINITY, sum: 0.0, most: f32::NEG_INFINITY, count: 0 }
    }
}

impl Range {
    fn add(&mut self, value: f32) {
        self.least = self.least.min(value);
        self.sum += f64::from(value);
        self.most = self.most.max(value);
        self.count += 1;
    }

    fn add_label(&mut self, label: Label) {
        if let Label::Value(value) = label {
            self.add(value);
        }
    }

    /// The column called `name`; `None` without values.
    fn column(self, name: impl Into<String>) -> Option<Column> {
        let Self { least: min, sum, most: max, count } = self;
        (count > 0).then(|| Column { name: name.into(), min, mean: sum / count as f64, max })
    }
}

impl Tally {
    pub(crate) fn new(shape: Shape) -> Self {
        let columns = vec![Range::default(); shape.dense as usize];
        Self { fingerprinter: Fingerprinter::new(shape), columns, labels: Range::default() }
    }

    pub(crate) fn add(&mut self, row: Row<'_>) {
        for (column, &value) in self.columns.iter_mut().zip(row.dense) {
            column.add(value);
        }
        self.labels.add_label(row.label);
        self.fingerprinter.add(row);
    }

    /// Returns the facts; `names` are the names of the dense columns.
    pub(crate) fn finish(self, source: String, classes: &[String], names: Vec<String>) -> Info {
        let fingerprint = self.fingerprinter.finish();
        let rows = fingerprint.rows;
        Info {
            source,
            rows,
            classes: Occurrence::of_classes(classes, &fingerprint.class_counts, rows),
            predicted: self.labels.column(PREDICTED),
            attacks: Vec::new(),
            categories: Vec::new(),
            columns: names
                .into_iter()
                .zip(self.columns)
                .filter_map(|(name, column)| column.column(name))
                .collect(),
            roles: Vec::new(),
            left_out: 0,
            features: None,
            fingerprint,
        }
    }
}
