//! Standardisation: every dense column gets mean 0 and deviation 1 over the training split.

use pstrain_compute::examples::{Label, Target};
use serde::{Deserialize, Serialize};

/// Shift and scale of one dense column: `(value - mean) / scale`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standard {
    /// The mean over the training split.
    pub mean: f32,
    /// The population standard deviation over the training split; 1 for a constant column.
    pub scale: f32,
}

/// The statistics of all dense columns. They are part of the job, so that all servers and workers
/// encode alike, whichever part of the data they hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Standardisation(pub Vec<Standard>);

impl Standard {
    /// Fits mean and deviation to the numbers to predict; `None` for classes. `visit` is called
    /// twice and must pass all labels in the same order each time.
    ///
    /// # Errors
    /// The error of `visit`.
    pub(crate) fn of_labels<E>(
        target: Target,
        mut visit: impl FnMut(&mut dyn FnMut(Label)) -> Result<(), E>,
    ) -> Result<Option<Self>, E> {
        if target != Target::Value {
            return Ok(None);
        }
        let fitted = Standardisation::fit(1, |take| {
            visit(&mut |label| {
                if let Label::Value(value) = label {
                    take(&[value]);
                }
            })
        })?;
        Ok(fitted.0.first().copied())
    }

    /// The standardised value.
    pub(crate) fn of(self, value: f32) -> f32 {
        (value - self.mean) / self.scale
    }
}

impl Standardisation {
    /// Fits the statistics to rows of `width` columns. `visit` is called twice and must pass all
    /// rows in the same order each time.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn fit<E>(
        width: usize,
        mut visit: impl FnMut(&mut dyn FnMut(&[f32])) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut rows = 0_u64;
        let mut means = vec![0.0_f64; width];
        visit(&mut |row| {
            rows += 1;
            for (mean, &value) in means.iter_mut().zip(row) {
                *mean += f64::from(value);
            }
        })?;
        let rows = rows.max(1) as f64;
        means.iter_mut().for_each(|mean| *mean /= rows);
        let mut squares = vec![0.0_f64; width];
        visit(&mut |row| {
            for ((square, mean), &value) in squares.iter_mut().zip(&means).zip(row) {
                *square += (f64::from(value) - mean) * (f64::from(value) - mean);
            }
        })?;
        let standard = |(mean, square): (f64, f64)| {
            let scale = (square / rows).sqrt() as f32;
            Standard { mean: mean as f32, scale: if scale > 0.0 { scale } else { 1.0 } }
        };
        Ok(Self(means.into_iter().zip(squares).map(standard).collect()))
    }

    /// Standardises a row in place. It must have one column for each entry of the statistics.
    ///
    /// # Errors
    /// The index of the first column whose value exceeds `f32`. The columns before it are already
    /// standardised.
    pub fn apply(&self, row: &mut [f32]) -> Result<(), usize> {
        for (column, (value, standard)) in row.iter_mut().zip(&self.0).enumerate() {
            *value = standard.of(*value);
            if !value.is_finite() {
                return Err(column);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(width: usize, rows: &[&[f32]]) -> Standardisation {
        let fitted: Result<_, ()> = Standardisation::fit(width, |take| {
            rows.iter().for_each(|row| take(row));
            Ok(())
        });
        fitted.unwrap()
    }

    #[test]
    fn columns_get_mean_0_and_deviation_1_and_constants_stay_finite() {
        let mut rows = [[1.0, 7.0], [3.0, 7.0], [5.0, 7.0]];
        let standards = fit(2, &rows.each_ref().map(|row| &row[..]));
        assert_eq!(standards.0[1], Standard { mean: 7.0, scale: 1.0 });
        rows.iter_mut().for_each(|row| standards.apply(row).unwrap());
        let root = (8.0_f32 / 3.0).sqrt();
        assert_eq!(rows, [[-2.0 / root, 0.0], [0.0, 0.0], [2.0 / root, 0.0]]);
        assert_eq!(standards.apply(&mut [0.0, f32::INFINITY]), Err(1));
    }

    #[test]
    fn no_rows_or_no_columns_are_no_trouble() {
        let unit = Standard { mean: 0.0, scale: 1.0 };
        assert_eq!(fit(2, &[]).0, [unit, unit]);
        assert!(fit(0, &[&[][..]; 3]).0.is_empty());
    }
}
