//! Facts about a data set, for `pstrain data info`.

use pstrain_compute::examples::{Examples, Row, Shape};
use pstrain_compute::fingerprint::{Fingerprint, Fingerprinter};
use serde::Serialize;

/// Facts about all rows of a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// A description of the source.
    pub source: String,
    /// The number of rows.
    pub rows: u64,
    /// All classes, in label order.
    pub classes: Vec<Occurrence>,
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
    /// The values that occur, in the order of the one-hot columns.
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
    /// Minimum, sum and maximum of each dense column.
    columns: Vec<(f32, f64, f32)>,
}

impl Tally {
    pub(crate) fn new(shape: Shape) -> Self {
        let none = (f32::INFINITY, 0.0, f32::NEG_INFINITY);
        let columns = vec![none; shape.dense as usize];
        Self { fingerprinter: Fingerprinter::new(shape), columns }
    }

    pub(crate) fn add(&mut self, row: Row<'_>) {
        for ((least, sum, most), &value) in self.columns.iter_mut().zip(row.dense) {
            *least = least.min(value);
            *sum += f64::from(value);
            *most = most.max(value);
        }
        self.fingerprinter.add(row);
    }

    /// Returns the facts; `names` are the names of the dense columns.
    pub(crate) fn finish(self, source: String, classes: &[String], names: Vec<String>) -> Info {
        let fingerprint = self.fingerprinter.finish();
        let rows = fingerprint.rows;
        let column = |(name, (min, sum, max)): (String, (f32, f64, f32))| Column {
            name,
            min,
            mean: sum / rows as f64,
            max,
        };
        Info {
            source,
            rows,
            classes: Occurrence::of_classes(classes, &fingerprint.class_counts, rows),
            attacks: Vec::new(),
            categories: Vec::new(),
            columns: names.into_iter().zip(self.columns).map(column).collect(),
            roles: Vec::new(),
            left_out: 0,
            features: None,
            fingerprint,
        }
    }
}
