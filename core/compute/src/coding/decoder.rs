//! Decoding weights of the received vectors.

use alloc::vec;
use alloc::vec::Vec;

use nalgebra::{DMatrix, DVector};

use super::cyclic::Cyclic;
use super::{Code, CodeError, Kind, MOST_AMPLIFICATION};
use crate::id::WorkerId;

/// Computes decoding weights from the set of workers whose vectors have arrived.
///
/// All solutions of a cyclic code are one particular solution plus any combination of `S` null
/// vectors. A solution with weight 0 for the missing workers thus follows from a system of at most
/// `S` equations. The weights then take `N S` operations per round, about as many as the
/// combination of `S` gradient values, so that nothing is cached between rounds.
#[derive(Clone, Debug)]
pub struct Decoder {
    code: Code,
    /// Weights if no worker is missing; empty for fractional repetition.
    full: Vec<f64>,
    /// The null vectors; empty for fractional repetition.
    null: Vec<Vec<f64>>,
}

impl Decoder {
    /// Builds a decoder of `code`.
    ///
    /// # Errors
    /// [`CodeError::Amplification`] if decoding would lose too many digits.
    pub fn new(code: Code) -> Result<Self, CodeError> {
        let (full, null) = match &code.kind {
            Kind::Fractional => (Vec::new(), Vec::new()),
            Kind::Cyclic(cyclic) => {
                let null = cyclic.null_vectors();
                (full_weights(cyclic, &null, code.workers as usize), null)
            }
        };
        let decoder = Self { code, full, null };
        let Code { workers, tolerance, .. } = decoder.code;
        match decoder.amplification() {
            amplification if amplification <= MOST_AMPLIFICATION => Ok(decoder),
            amplification => Err(CodeError::Amplification { tolerance, workers, amplification }),
        }
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the weights of the vectors of `present`, which is in ascending order without
    /// duplicates; `None` if they do not suffice. With `a` the weights and `B` the coefficients,
    /// `sum_i a_i B_ij = 1` for every partition `j`.
    #[must_use]
    pub fn weights(&self, present: &[WorkerId]) -> Option<Vec<f64>> {
        if !self.code.is_enough(present.iter().copied()) {
            return None;
        }
        let Kind::Cyclic(_) = self.code.kind else {
            // The first vector of each group counts; others of the group are duplicates.
            let mut last = None;
            let first = |worker: &WorkerId| {
                let group = self.code.group(*worker);
                if core::mem::replace(&mut last, group) == group { 0.0 } else { 1.0 }
            };
            return Some(present.iter().map(first).collect());
        };
        let mut is_present = vec![false; self.full.len()];
        for worker in present {
            *is_present.get_mut(worker.0 as usize)? = true;
        }
        let missing: Vec<usize> =
            (0..self.full.len()).filter(|&worker| !is_present[worker]).collect();
        let shift = self.shift(&missing)?;
        let weight = |worker: &WorkerId| {
            let worker = worker.0 as usize;
            let by_null: f64 =
                self.null.iter().zip(&shift).map(|(vector, by)| by * vector[worker]).sum();
            self.full[worker] + by_null
        };
        Some(present.iter().map(weight).collect())
    }

    /// Returns the smallest combination of null vectors that makes the weights of `missing` 0.
    fn shift(&self, missing: &[usize]) -> Option<Vec<f64>> {
        if missing.is_empty() {
            return Some(vec![0.0; self.null.len()]);
        }
        // Each column has the entries of one missing worker.
        let entries = DMatrix::from_fn(self.null.len(), missing.len(), |row, column| {
            self.null[row][missing[column]]
        });
        let wanted =
            DVector::from_iterator(missing.len(), missing.iter().map(|&worker| -self.full[worker]));
        // The columns are independent for any missing workers. With `QR` the matrix, the smallest
        // solution is `Q (R^T)^-1` times the wanted values. The singular values of `nalgebra` lose
        // half of the digits of two nearly parallel columns.
        let (orthogonal, upper) = entries.qr().unpack();
        let solution = orthogonal * upper.tr_solve_upper_triangular(&wanted)?;
        Some(solution.as_slice().to_vec())
    }

    /// Estimates the largest possible ratio of the rounding error of a decoded sum to the error of
    /// a plain sum. The worst case is that adjacent workers are missing, since their entries of the
    /// null vectors are similar.
    pub(super) fn amplification(&self) -> f64 {
        let Code { workers, tolerance, .. } = self.code;
        let missing = |first: u32, worker: u32| (worker + workers - first) % workers < tolerance;
        let sum = |first: u32| {
            let present: Vec<WorkerId> =
                (0..workers).filter(|&worker| !missing(first, worker)).map(WorkerId).collect();
            let Some(weights) = self.weights(&present) else { return f64::INFINITY };
            let mut sums = vec![0.0; workers as usize];
            for (worker, weight) in present.iter().zip(weights) {
                for piece in self.code.pieces(*worker) {
                    sums[piece.part.0 as usize] += libm::fabs(weight * piece.coefficient);
                }
            }
            sums.into_iter().fold(0.0, f64::max)
        };
        if self.full.is_empty() {
            return 1.0;
        }
        // A code with `turns` is not exactly the same at every position.
        [0, workers / 4, workers / 2, 3 * workers / 4, workers - 1]
            .into_iter()
            .map(sum)
            .fold(0.0, f64::max)
    }
}

/// Returns weights, orthogonal to the null vectors, that combine all rows to the target.
fn full_weights(cyclic: &Cyclic, null: &[Vec<f64>], workers: usize) -> Vec<f64> {
    if null.is_empty() {
        return vec![1.0; workers];
    }
    // Rows and columns have the same null space: adding the projection onto it makes the code
    // invertible and changes nothing else.
    let mut columns = DMatrix::from_fn(workers, workers, |row, column| {
        null.iter().map(|vector| vector[row] * vector[column]).sum::<f64>()
    });
    for worker in 0..workers {
        for number in 0..=null.len() {
            columns[((worker + number) % workers, worker)] += cyclic.entry(worker, number);
        }
    }
    let target = DVector::from_column_slice(cyclic.target());
    let solution = columns.lu().solve(&target);
    solution.map_or_else(|| vec![f64::NAN; workers], |solution| solution.as_slice().to_vec())
}
