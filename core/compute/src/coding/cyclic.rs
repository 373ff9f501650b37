//! Cyclic repetition with a numerically stable construction.
//!
//! Each row of the code must be orthogonal to `S` vectors that do not depend on the row, and the
//! entries of these vectors for any `S` workers must be linearly independent. Random vectors
//! satisfy this (Tandon et al., algorithm 2), but then decoding amplifies rounding errors by
//! hundreds. Vectors of adjacent frequencies satisfy it, too, since their entries are powers of
//! different numbers on the unit circle: this is a BCH code over the real numbers (Marshall 1984;
//! for gradients Raviv et al., ICML 2018). The `S` frequencies around the highest are used, so that
//! they come in conjugate pairs and all coefficients are positive. If `N - S` is odd, these are
//! integer frequencies and the code is cyclic. If `N - S` is even, they are half-integer
//! frequencies, and a full turn changes the sign. The vector of ones is then not a combination of
//! rows, but a vector near it is, and each partition is scaled by that vector's entry.

use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;

/// A cyclic code of `N` workers, `S` of which may be missing.
#[derive(Clone, Debug)]
pub(super) struct Cyclic {
    workers: usize,
    /// The coefficients of a row before scaling; their sum is 1.
    row: Vec<f64>,
    /// True if a full turn changes the sign of an entry.
    turns: bool,
    /// The combination of rows that replaces the vector of ones; each partition is divided by its
    /// entry.
    target: Vec<f64>,
}

impl Cyclic {
    /// Builds the code; `tolerance` is below `workers`.
    pub(super) fn new(workers: usize, tolerance: usize) -> Self {
        let mut row = vec![1.0];
        for angle in angles(workers, tolerance) {
            // A pair of frequencies symmetric about the highest, or the highest itself.
            let factor = match angle {
                0.0 => vec![1.0, 1.0],
                angle => vec![1.0, 2.0 * libm::cos(angle), 1.0],
            };
            row = product(&row, &factor);
        }
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|value| *value /= sum);
        let mut cyclic = Self {
            workers,
            row,
            turns: (workers - tolerance).is_multiple_of(2),
            target: vec![1.0; workers],
        };
        if cyclic.turns {
            for column in cyclic.null_vectors() {
                let along: f64 = column.iter().sum();
                for (value, entry) in cyclic.target.iter_mut().zip(&column) {
                    *value -= along * entry;
                }
            }
        }
        cyclic
    }

    /// Returns the coefficient of partition `worker + number` in the vector of `worker`.
    pub(super) fn coefficient(&self, worker: usize, number: usize) -> f64 {
        let part = worker + number;
        self.entry(worker, number) / self.target[part % self.workers]
    }

    /// Returns the coefficient before scaling.
    pub(super) fn entry(&self, worker: usize, number: usize) -> f64 {
        let wraps = worker + number >= self.workers;
        if wraps && self.turns { -self.row[number] } else { self.row[number] }
    }

    /// The combination of rows that decoding must produce.
    pub(super) fn target(&self) -> &[f64] {
        &self.target
    }

    /// Returns orthonormal vectors to which every row is orthogonal and, since the code is its own
    /// mirror image, every column.
    pub(super) fn null_vectors(&self) -> Vec<Vec<f64>> {
        let tolerance = self.row.len() - 1;
        let mut vectors = Vec::with_capacity(tolerance);
        for angle in angles(self.workers, tolerance) {
            let waves: &[fn(f64) -> f64] =
                if angle == 0.0 { &[libm::cos] } else { &[libm::cos, libm::sin] };
            for wave in waves {
                let mut vector: Vec<f64> = (0..self.workers)
                    .map(|i| {
                        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
                        sign * wave(angle * i as f64)
                    })
                    .collect();
                let length = libm::sqrt(vector.iter().map(|value| value * value).sum());
                vector.iter_mut().for_each(|value| *value /= length);
                vectors.push(vector);
            }
        }
        vectors
    }
}

/// Returns the distances of the frequencies from the highest, as angles. 0 is the highest itself, a
/// single frequency; each other angle stands for a pair.
fn angles(workers: usize, tolerance: usize) -> impl Iterator<Item = f64> {
    let offset = if tolerance.is_multiple_of(2) { 0.5 } else { 0.0 };
    let count = tolerance.div_ceil(2);
    (0..count).map(move |pair| 2.0 * PI * (pair as f64 + offset) / workers as f64)
}

/// The product of two polynomials.
fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; a.len() + b.len() - 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            product[i + j] += x * y;
        }
    }
    product
}
