//! Incremental gradients of a sparse model: caches the loss and slope of every row, which change
//! only if the parameter of one of the row's entries changes.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::SparseObjective;
use crate::examples::Examples;

/// The entries of sparse rows by column, and the cached loss and slope of each row at the last
/// parameters.
///
/// The cost of a gradient at some keys is proportional to the entries of these keys and to the rows
/// that have an entry at a changed parameter, plus one comparison per parameter and one addition
/// per row. A cached value equals a freshly computed one, so gradients match
/// [`Model::gradient_at`](super::Model::gradient_at) bit for bit, regardless of earlier calls.
#[derive(Clone, Debug)]
pub struct Margins {
    /// End of each column's entries in `rows` and `values`.
    ends: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f32>,
    /// The parameters for which slopes and losses were computed.
    params: Vec<f32>,
    /// The derivative of the mean loss with respect to each row's product with the parameters.
    slopes: Vec<f32>,
    losses: Vec<f64>,
    /// True for rows whose slope and loss belong to earlier parameters.
    stale: Vec<bool>,
}

impl Margins {
    /// Builds the cache for all `examples`, which must be sparse rows.
    #[must_use]
    pub fn new(examples: &Examples) -> Self {
        let (count, columns) = (examples.len(), examples.shape().inputs as usize);
        let rows = || (0..count).map(|row| (row as u32, examples.row(row)));
        // Counting sort. The counts are shifted by one column, so that `ends` holds the begin of
        // each column now and its end once all entries are in place.
        let mut ends = vec![0; columns + 1];
        for column in rows().flat_map(|(_, row)| row.columns) {
            ends[*column as usize + 1] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        let (mut numbers, mut values) = (vec![0; sum], vec![0.0; sum]);
        for (number, row) in rows() {
            for (&column, &value) in row.columns.iter().zip(row.values) {
                let place = &mut ends[column as usize];
                (numbers[*place], values[*place]) = (number, value);
                *place += 1;
            }
        }
        ends.pop();
        Self {
            ends,
            rows: numbers,
            values,
            params: vec![0.0; columns],
            slopes: vec![0.0; count],
            losses: vec![0.0; count],
            stale: vec![true; count],
        }
    }

    /// Returns the positions of a column's entries.
    fn column(&self, column: usize) -> Range<usize> {
        let begin = column.checked_sub(1).map_or(0, |before| self.ends[before]);
        begin..self.ends[column]
    }

    /// Adopts new parameters and marks the rows that they affect as stale.
    fn go_to(&mut self, params: &[f32]) {
        const AT_ONCE: usize = 64;
        for (piece, new) in params.chunks(AT_ONCE).enumerate() {
            let first = piece * AT_ONCE;
            let differs = |(new, old): (&f32, &f32)| new.to_bits() != old.to_bits();
            let old = &self.params[first..first + new.len()];
            // Most pieces are unchanged: a loop without an early exit vectorises.
            if !new.iter().zip(old).fold(false, |any, pair| any | differs(pair)) {
                continue;
            }
            for (column, value) in (first..).zip(new) {
                if differs((value, &self.params[column])) {
                    self.params[column] = *value;
                    for row in &self.rows[self.column(column)] {
                        self.stale[*row as usize] = true;
                    }
                }
            }
        }
    }
}

impl Margins {
    /// Writes the gradient of the mean loss over all rows of `examples` at `keys` into `gradient`,
    /// and returns the mean loss.
    pub(super) fn gradient(
        &mut self,
        objective: &dyn SparseObjective,
        keys: Range<usize>,
        params: &[f32],
        examples: &Examples,
        gradient: &mut [f32],
    ) -> f32 {
        assert_eq!(self.params.len(), params.len(), "columns of the margins");
        assert_eq!(self.losses.len(), examples.len(), "rows of the margins");
        self.go_to(params);
        let scale = 1.0 / examples.len() as f64;
        let mut loss = 0.0;
        for row in 0..examples.len() {
            if core::mem::take(&mut self.stale[row]) {
                let (of_row, slope) = objective.loss(params, examples.row(row), scale);
                (self.losses[row], self.slopes[row]) = (of_row, slope);
            }
            loss += self.losses[row];
        }
        // The rows of a column ascend, as in `Model::gradient_at`, so that sums have the same bits.
        for key in keys {
            let entries = self.column(key);
            let entries = self.rows[entries.clone()].iter().zip(&self.values[entries]);
            gradient[key] =
                entries.fold(0.0, |sum, (row, value)| sum + self.slopes[*row as usize] * value);
        }
        if examples.is_empty() { 0.0 } else { (loss / examples.len() as f64) as f32 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::examples::{Shape, Target};
    use crate::model::MiniBatch;
    use crate::model::{Model, ModelSpec, Workspace};

    const COLUMNS: u32 = 12;

    /// Random sparse rows; each column has an entry or none.
    fn rows() -> impl Strategy<Value = Examples> {
        let value = prop_oneof![3 => Just(None), 1 => (-3.0_f32..3.0).prop_map(Some)];
        let row = (proptest::collection::vec(value, COLUMNS as usize), 0_u16..2);
        proptest::collection::vec(row, 1..20).prop_map(|rows| {
            let mut examples = Examples::new(Shape::sparse(COLUMNS, Target::Classes(2)));
            for (row, label) in rows {
                let entries = (0..).zip(row).filter_map(|(column, value)| Some((column, value?)));
                let (columns, values): (Vec<u32>, Vec<f32>) = entries.unzip();
                examples.push_sparse(&columns, &values, label).unwrap();
            }
            examples
        })
    }

    /// Parameter changes, and the two bounds of the keys of the gradient.
    type Step = (Vec<(usize, f32)>, usize, usize);

    /// Sequences of parameter changes, including non-finite values.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let place = 0..COLUMNS as usize;
        let value = prop_oneof![
            4 => -2.0_f32..2.0,
            1 => prop_oneof![Just(0.0), Just(-0.0), Just(1e30), Just(f32::NAN), Just(f32::INFINITY)],
        ];
        let changes = proptest::collection::vec((place.clone(), value), 0..4);
        proptest::collection::vec((changes, place.clone(), place), 1..12)
    }

    /// The bits of numbers; all NaNs are equal.
    fn bits(values: &[f32]) -> Vec<Option<u32>> {
        values.iter().map(|value| (!value.is_nan()).then(|| value.to_bits())).collect()
    }

    proptest! {
        #[test]
        fn gradients_are_those_without_margins_bit_for_bit(examples in rows(), steps in steps()) {
            let model = Model::new(&ModelSpec::Logistic, examples.shape()).unwrap();
            let all: Vec<u32> = (0..examples.len() as u32).collect();
            let mut margins = Margins::new(&examples);
            let mut params = vec![0.0; COLUMNS as usize];
            let (mut plain, mut quick) = (vec![1.0; params.len()], vec![2.0; params.len()]);
            for (changes, one, other) in steps {
                for (place, value) in changes {
                    params[place] = value;
                }
                let keys = one.min(other)..one.max(other);
                let rows = MiniBatch::new(&examples, &all);
                let workspace = &mut Workspace::new();
                let slow = model.gradient_at(keys.clone(), &params, rows, &mut plain, workspace);
                let rows = (&examples, &mut margins);
                let fast = model.gradient_by_margins(keys, &params, rows, &mut quick);
                prop_assert_eq!(bits(&[slow]), bits(&[fast]));
                prop_assert_eq!(bits(&plain), bits(&quick));
            }
        }
    }
}
