//! Synthetic sparse rows, and the encoding that all sparse rows share.

use std::sync::Arc;

use pstrain_compute::examples::Examples;

use super::{Format, Paths, numbers};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::info::{Features as Facts, Info};
use crate::sparse::{
    CLASSES, DEFAULT_COLUMNS, DEFAULT_ROWS, Hashing, SparseGenerator, SparseRow, SparseSpec,
};

pub(super) const FORMAT: Format = Format {
    form: "sparse[:ROWS[,COLUMNS[,SEED]]]",
    summary: "sparse rows with features of widely different frequency",
    paths: Paths::None,
    open: |arguments, seed| {
        let defaults = [DEFAULT_ROWS, DEFAULT_COLUMNS.into(), seed];
        let write = "write sparse[:ROWS[,COLUMNS[,SEED]]], with 1 column or more";
        let [rows, columns, seed] =
            numbers(arguments, defaults).map_err(|error| format!("{error}; {write}"))?;
        let columns = u32::try_from(columns).ok().filter(|&columns| columns > 0);
        Ok(Arc::new(SyntheticSparse { rows, columns: columns.ok_or(write)?, seed }))
    },
};

/// The kind of all sparse rows.
pub(super) const KIND: &str = "sparse";

/// Sparse rows that are drawn from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticSparse {
    /// Number of rows.
    pub rows: u64,
    /// Number of features to draw from.
    pub columns: u32,
    /// The seed.
    pub seed: u64,
}

/// A dataset of sparse rows.
pub(super) trait SparseRows {
    /// Passes every row to `visit`, in order.
    fn sparse_rows(
        &self,
        visit: &mut dyn FnMut(&SparseRow) -> Result<(), DataError>,
    ) -> Result<(), DataError>;

    /// The number of columns, if features are not hashed.
    fn columns(&self) -> Result<u32, DataError>;
}

/// The schema of sparse rows.
pub(super) fn schema(data: &impl SparseRows, features: &Features) -> Result<Schema, DataError> {
    let spec = match features.hashing {
        Hashing::To(columns) => SparseSpec { columns, hashed: true },
        Hashing::None => SparseSpec { columns: data.columns()?, hashed: false },
    };
    Ok(Schema {
        kind: KIND.into(),
        encoding: if spec.hashed { "hashed" } else { "columns" }.into(),
        shape: spec.shape(),
        classes: CLASSES.map(String::from).into(),
        standardised: false,
    })
}

/// Passes every row to `visit`, encoded by `schema`.
pub(super) fn visit(
    data: &impl SparseRows,
    schema: &Schema,
    visit: &mut Visit<'_>,
) -> Result<(), DataError> {
    let spec = SparseSpec { columns: schema.shape.inputs, hashed: schema.encoding == "hashed" };
    let mut encoder = spec.encoder();
    data.sparse_rows(&mut |row| visit(encoder.encode(row)))
}

/// Collects the facts about sparse rows.
pub(super) fn info(data: &impl SparseRows, name: String) -> Result<Info, DataError> {
    let schema = schema(data, &Features::default())?;
    let mut all = Examples::new(schema.shape);
    visit(data, &schema, &mut |row| Ok(all.push_sparse(row.columns, row.values, row.label)?))?;
    let entries: usize = (0..all.len()).map(|row| all.row(row).columns.len()).sum();
    let facts = Facts {
        columns: schema.shape.inputs,
        touched: all.touched().len() as u64,
        entries: entries as u64,
    };
    Ok(Info::of_sparse(name, &all, &schema.classes, facts))
}

impl SparseRows for SyntheticSparse {
    fn sparse_rows(
        &self,
        visit: &mut dyn FnMut(&SparseRow) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let generator = SparseGenerator::new(self.columns, self.seed);
        (0..self.rows).try_for_each(|row| visit(&generator.row(row)))
    }

    fn columns(&self) -> Result<u32, DataError> {
        Ok(self.columns)
    }
}

impl Dataset for SyntheticSparse {
    fn describe(&self) -> String {
        let Self { rows, columns, seed } = self;
        format!("synthetic sparse rows, {rows} of {columns} columns, seed {seed}")
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        schema(self, features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        self::visit(self, schema, visit)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn words(&self) -> Option<String> {
        let Self { rows, columns, seed } = self;
        Some(format!("sparse:{rows},{columns},{seed}"))
    }

    fn info(&self) -> Result<Info, DataError> {
        info(self, self.describe())
    }
}
