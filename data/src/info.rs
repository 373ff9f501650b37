//! Facts about a data set, for `pstrain data info`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::DataError;
use crate::nsl_kdd::{Attack, CLASSES, Columns, NUMERIC, Record, category_groups, numeric_name};
use crate::recipe::RecipeName;
use crate::source::Source;
use crate::sparse::{self, Hashing, SparseSpec};
use pstrain_compute::examples::Row;
use pstrain_compute::fingerprint::{Fingerprint, Fingerprinter};

/// Facts about all rows of a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// A description of the source.
    pub source: String,
    /// The number of rows.
    pub rows: u64,
    /// All five classes, in label order.
    pub classes: Vec<Occurrence>,
    /// The attacks that occur, and normal traffic, in the order of the data set's list.
    pub attacks: Vec<Occurrence>,
    /// The symbolic columns, each with the values that occur.
    pub categories: Vec<Category>,
    /// The numeric features.
    pub columns: Vec<Column>,
    /// Facts about the features, if the rows are sparse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// Identifies the contents: all rows under recipe `nsl-kdd-122`, not standardised, or all
    /// sparse rows.
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

/// Reads every row of `source` and collects the facts.
///
/// # Errors
/// [`DataError`] if the source cannot be read.
pub fn info(source: &Source) -> Result<Info, DataError> {
    if let Some(sparse) = source.sparse_spec(Hashing::None)? {
        return sparse_info(source, sparse);
    }
    let mut tally = Tally::default();
    let recipe = RecipeName::NslKdd122;
    let mut fingerprinter = Fingerprinter::new(recipe.shape());
    let mut dense = [0.0; NUMERIC];
    source.visit(Columns::ALL, |record| {
        tally.add(record);
        let hot = recipe.encode(record, &mut dense);
        let label = record.attack.class().into();
        fingerprinter.add(Row { dense: &dense, hot: &hot, columns: &[], values: &[], label });
        Ok(())
    })?;
    Ok(tally.finish(source.describe(), fingerprinter.finish()))
}

/// Collects the facts about sparse rows.
fn sparse_info(source: &Source, sparse: SparseSpec) -> Result<Info, DataError> {
    let all = source.encode_sparse(sparse)?;
    let rows = all.len() as u64;
    let entries: usize = (0..all.len()).map(|row| all.row(row).columns.len()).sum();
    let class = |(&name, &count): (&&str, &u64)| Occurrence {
        name: name.to_owned(),
        count,
        share: count as f64 / rows.max(1) as f64,
    };
    Ok(Info {
        source: source.describe(),
        rows,
        classes: sparse::CLASSES.iter().zip(&all.class_counts()).map(class).collect(),
        attacks: Vec::new(),
        categories: Vec::new(),
        columns: Vec::new(),
        features: Some(Features {
            columns: sparse.columns,
            touched: all.touched().len() as u64,
            entries: entries as u64,
        }),
        fingerprint: Fingerprint::of(&all),
    })
}

#[derive(Default)]
struct Tally {
    rows: u64,
    attacks: BTreeMap<Attack, u64>,
    categories: [BTreeMap<u8, u64>; 3],
    /// Minimum, sum and maximum of each feature.
    numbers: Vec<(f32, f64, f32)>,
}

impl Tally {
    fn add(&mut self, record: &Record) {
        self.rows += 1;
        *self.attacks.entry(record.attack).or_default() += 1;
        let values = [record.protocol, record.service, record.flag];
        for (counts, value) in self.categories.iter_mut().zip(values) {
            *counts.entry(value).or_default() += 1;
        }
        self.numbers.resize(NUMERIC, (f32::INFINITY, 0.0, f32::NEG_INFINITY));
        for ((least, sum, most), &value) in self.numbers.iter_mut().zip(&record.numbers) {
            *least = least.min(value);
            *sum += f64::from(value);
            *most = most.max(value);
        }
    }

    fn finish(self, source: String, fingerprint: Fingerprint) -> Info {
        let occurrence = |name: &str, count: u64| Occurrence {
            name: name.to_owned(),
            count,
            share: count as f64 / self.rows.max(1) as f64,
        };
        let class = |(class, name): (usize, &&str)| {
            occurrence(name, fingerprint.class_counts.get(class).copied().unwrap_or(0))
        };
        let category = |((name, values), counts): ((&str, &[&str]), &BTreeMap<u8, u64>)| Category {
            name: name.to_owned(),
            values: counts
                .iter()
                .map(|(&value, &count)| occurrence(values[usize::from(value)], count))
                .collect(),
        };
        let column = |(numeric, &(min, sum, max)): (usize, &(f32, f64, f32))| Column {
            name: numeric_name(numeric).to_owned(),
            min,
            mean: sum / self.rows as f64,
            max,
        };
        Info {
            source,
            rows: self.rows,
            classes: CLASSES.iter().enumerate().map(class).collect(),
            attacks: self
                .attacks
                .iter()
                .map(|(attack, &count)| occurrence(attack.name(), count))
                .collect(),
            categories: category_groups().into_iter().zip(&self.categories).map(category).collect(),
            columns: self.numbers.iter().enumerate().map(column).collect(),
            features: None,
            fingerprint,
        }
    }
}
