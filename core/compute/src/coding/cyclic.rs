//! Cyclic repetition, by a construction that keeps its digits.
//!
//! A row of the code must be orthogonal to `S` vectors that do not depend on the row, any `S`
//! workers' entries of which are independent. Random vectors do (Tandon et al., algorithm 2), but
//! then decoding multiplies rounding errors by hundreds. Vectors of neighbouring frequencies do
//! too, since their entries are powers of different numbers on the unit circle: this is a BCH code
//! over the real numbers (Marshall 1984; for gradients Raviv et al., ICML 2018). The frequencies
//! are the `S` around the highest, so that they come in conjugate pairs and all coefficients are
//! positive. Where `N - S` is odd those are whole frequencies and the code is cyclic. Where it is
//! even they lie half-way between, and going once round changes the sign; the vector of ones is
//! then no combination of rows, but one near it is, and each partition is scaled by that.

use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;

/// A cyclic code of `N` workers of which `S` may be missing.
#[derive(Clone, Debug)]
pub(super) struct Cyclic {
    workers: usize,
    /// The coefficients of a row, before scaling; their sum is 1.
    row: Vec<f64>,
    /// Whether an entry that goes once round changes its sign.
    turns: bool,
    /// The combination of rows that stands for all ones; each partition is divided by its entry.
    target: Vec<f64>,
}

impl Cyclic {
    /// The code; `tolerance` is below `workers`.
    pub(super) fn new(workers: usize, tolerance: usize) -> Self {
        let mut row = vec![1.0];
        for angle in angles(workers, tolerance) {
            // A pair of frequencies on both sides of the highest, or that one itself.
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

    /// What partition `worker + number` counts in the vector of `worker`.
    pub(super) fn coefficient(&self, worker: usize, number: usize) -> f64 {
        let part = worker + number;
        self.entry(worker, number) / self.target[part % self.workers]
    }

    /// The same before scaling.
    pub(super) fn entry(&self, worker: usize, number: usize) -> f64 {
        let wraps = worker + number >= self.workers;
        if wraps && self.turns { -self.row[number] } else { self.row[number] }
    }

    /// The combination of rows that decoding aims at.
    pub(super) fn target(&self) -> &[f64] {
        &self.target
    }

    /// Vectors of unit length, orthogonal to one another, to which every row and, since the code
    /// is its own mirror image, every column is orthogonal.
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

/// How far the frequencies lie from the highest, as angles; 0 is the highest itself and stands
/// alone, the others are pairs.
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
