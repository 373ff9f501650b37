//! Counts over the rows of a table.

use pstrain_compute::examples::Label;

use super::Csv;
use super::table::Table;
use crate::dataset::{Dataset as _, Schema};
use crate::error::DataError;

/// Numbers of rows, and sums over them.
pub(super) struct Counts {
    /// Number of rows of each class; none if a number is predicted.
    pub(super) classes: Vec<u64>,
    /// Number of rows.
    pub(super) rows: u64,
    /// Number of rows with each one-hot column.
    hot: Vec<u64>,
    /// Sum of the squared differences of the numbers to predict from their mean.
    pub(super) target_squares: f64,
    /// Sum of the squared differences from the mean, for each column of numbers.
    pub(super) squares: Vec<f64>,
}

impl Counts {
    /// Counts the rows of `csv`, whose numbers `schema` does not scale. `target` is the mean of the
    /// numbers to predict.
    pub(super) fn of(
        csv: &Csv,
        table: &Table,
        schema: &Schema,
        target: f32,
    ) -> Result<Self, DataError> {
        let numbers = table.numbers.len();
        let mut counts = Self {
            classes: vec![0; schema.classes.len()],
            rows: 0,
            hot: vec![0; table.inputs() - numbers],
            target_squares: 0.0,
            squares: vec![0.0; numbers],
        };
        csv.visit(schema, &mut |row| {
            counts.rows += 1;
            match row.label {
                Label::Class(class) => counts.classes[usize::from(class)] += 1,
                Label::Value(value) => {
                    counts.target_squares += (f64::from(value) - f64::from(target)).powi(2);
                }
            }
            row.hot.iter().for_each(|&column| counts.hot[usize::from(column) - numbers] += 1);
            for ((square, value), column) in
                counts.squares.iter_mut().zip(row.dense).zip(&table.numbers)
            {
                *square += (f64::from(*value) - f64::from(column.mean)).powi(2);
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// The numbers of rows with each column of each one-hot group.
    pub(super) fn groups<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = &'a [u64]> {
        let mut rest = &self.hot[..];
        table.texts.iter().map(move |group| {
            let (its, others) = rest.split_at(group.columns());
            rest = others;
            its
        })
    }
}
