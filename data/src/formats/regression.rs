//! Synthetic rows with a number to predict.

use std::sync::Arc;

use pstrain_compute::examples::Row;
use pstrain_compute::rng::{Random, Stream};

use super::{Format, Paths, numbers};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "regression[:ROWS[,COLUMNS[,SEED]]]";

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "rows of numbers, and a number to predict that is linear in them but for noise",
    paths: Paths::None,
    open: |arguments, seed| {
        let write = format!("write {FORM}, with 1 column or more");
        let [rows, columns, seed] =
            numbers(arguments, [10_000, 10, seed]).map_err(|error| format!("{error}; {write}"))?;
        let columns = u32::try_from(columns).ok().filter(|&columns| columns > 0);
        Ok(Arc::new(SyntheticRegression { rows, columns: columns.ok_or(write)?, seed }))
    },
};

const KIND: &str = "rows of numbers with a number to predict";

/// Rows of numbers whose label is a known linear function of them plus noise.
///
/// Column `j` is roughly normal with the mean `j % 3` and the deviation 1. The weights are between
/// -2 and 2, and depend on the seed, as the rows do. The noise is roughly normal with the deviation
/// [`NOISE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticRegression {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u32,
    /// The seed.
    pub seed: u64,
}

/// The deviation of the noise: no model has a lower RMSE on many rows.
pub const NOISE: f64 = 0.5;
/// The label of a row of zeros, without noise.
const INTERCEPT: f64 = 3.0;

impl SyntheticRegression {
    /// Calls `visit` with every row.
    fn each(
        &self,
        mut visit: impl FnMut(&[f32], f32) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let stream = Stream::new(self.seed).fork("regression", 0);
        let mut truth = stream.fork("truth", 0).rng();
        let weights: Vec<f64> = (0..self.columns).map(|_| 4.0 * truth.unit() - 2.0).collect();
        let mut values = vec![0.0; weights.len()];
        for row in 0..self.rows {
            let mut rng = stream.fork("row", row).rng();
            let mut label = INTERCEPT + NOISE * normal(&mut rng);
            for (column, (value, weight)) in values.iter_mut().zip(&weights).enumerate() {
                *value = (normal(&mut rng) + (column % 3) as f64) as f32;
                label += weight * f64::from(*value);
            }
            visit(&values, label as f32)?;
        }
        Ok(())
    }
}

/// The sum of twelve uniform numbers, which has the deviation 1: only additions, so that all
/// machines draw the same.
fn normal(rng: &mut Random) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

impl Dataset for SyntheticRegression {
    fn describe(&self) -> String {
        let Self { rows, columns, seed } = self;
        format!("synthetic regression, {rows} rows of {columns} columns, seed {seed}")
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        Ok(Schema::of_values(KIND, self.columns))
    }

    fn visit(&self, _: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        self.each(|values, label| visit(Row::dense(values, label)))
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn words(&self) -> Option<String> {
        let Self { rows, columns, seed } = self;
        Some(format!("regression:{rows},{columns},{seed}"))
    }
}
