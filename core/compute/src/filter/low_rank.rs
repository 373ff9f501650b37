//! Low-rank approximation of matrices: one step of the power method per gradient, starting from the
//! result of the previous one (Vogels, Karimireddy and Jaggi 2019). The paper averages the workers'
//! factors; here each worker's product is a gradient of its own, and the server averages these.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::encoded::Values;
use super::{Memory, ValueEncoder};
use crate::params::Layout;
use crate::rng::{Random, Stream};

/// The low-rank filter of a model's matrices.
#[derive(Debug)]
pub(super) struct PowerSgd {
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    keys: Range<usize>,
    rows: usize,
    columns: usize,
    /// 0 if the tensor is sent unchanged: a vector, or a matrix whose factors would not be smaller.
    rank: usize,
}

/// A section of a gradient: a matrix as a product, or plain values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Plain(Vec<f32>),
    /// `left` times the transpose of `right`; both are stored row by row.
    Product {
        columns: usize,
        rank: usize,
        left: Vec<f32>,
        right: Vec<f32>,
    },
}

impl Piece {
    /// The number of values of the piece.
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Plain(values) => values.len(),
            Self::Product { columns, rank, left, .. } => left.len() / *rank * *columns,
        }
    }
}

impl PowerSgd {
    pub(super) fn new(rank: u8, layout: &Layout) -> Self {
        let tensor = |tensor: &crate::params::Tensor| {
            let (rows, columns) = match tensor.shape[..] {
                [rows, columns] => (rows, columns),
                _ => (1, tensor.keys.len() as usize),
            };
            let rank = usize::from(rank);
            let pays = rank * (rows + columns) < rows * columns;
            Tensor { keys: tensor.keys.indices(), rows, columns, rank: if pays { rank } else { 0 } }
        };
        let trained = layout.trained() as u64;
        let tensors = layout.tensors().iter().filter(|tensor| tensor.keys.end() <= trained);
        Self { tensors: tensors.map(tensor).collect() }
    }

    /// Returns random initial factors for the first step, one per tensor.
    pub(super) fn begin(&self, stream: Stream) -> Memory {
        let factor = |(number, tensor): (u64, &Tensor)| {
            let mut random = stream.fork("power", number).rng();
            (0..tensor.columns * tensor.rank).map(|_| random.unit() as f32 - 0.5).collect()
        };
        (0..).zip(&self.tensors).map(factor).collect()
    }
}

impl ValueEncoder for PowerSgd {
    fn code(&self, values: Vec<f32>, memory: &mut Memory, _random: &mut Random) -> Values {
        let pieces = self.tensors.iter().zip(memory).map(|(tensor, warm)| {
            let matrix = &values[tensor.keys.clone()];
            if tensor.rank == 0 {
                return Piece::Plain(matrix.to_vec());
            }
            let (left, right) = approximate(tensor, matrix, warm);
            remember(warm, &right, tensor.rank);
            Piece::Product { columns: tensor.columns, rank: tensor.rank, left, right }
        });
        Values::Pieces(pieces.collect())
    }
}

/// One step of the power method: `X = M Q`, orthonormalised, then `Y = M^T X`.
fn approximate(tensor: &Tensor, matrix: &[f32], warm: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let &Tensor { rows, columns, rank, .. } = tensor;
    let mut left = vec![0.0_f32; rows * rank];
    for (row, out) in matrix.chunks_exact(columns).zip(left.chunks_exact_mut(rank)) {
        for (value, factors) in row.iter().zip(warm.chunks_exact(rank)) {
            out.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += value * factor);
        }
    }
    orthonormalise(&mut left, rank);
    let mut right = vec![0.0_f32; columns * rank];
    for (row, factors) in matrix.chunks_exact(columns).zip(left.chunks_exact(rank)) {
        for (value, out) in row.iter().zip(right.chunks_exact_mut(rank)) {
            out.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += value * factor);
        }
    }
    (left, right)
}

/// Makes the columns of a matrix with `rank` columns orthonormal (Gram-Schmidt). A column that
/// depends linearly on earlier ones leaves only rounding errors, and becomes 0.
fn orthonormalise(matrix: &mut [f32], rank: usize) {
    const LEFT: f64 = 1e-5;
    for column in 0..rank {
        let length = dot(matrix, rank, column, column);
        for before in 0..column {
            let share = dot(matrix, rank, before, column) as f32;
            matrix.chunks_exact_mut(rank).for_each(|row| row[column] -= share * row[before]);
        }
        let rest = dot(matrix, rank, column, column);
        let factor = if rest > length * LEFT * LEFT { 1.0 / libm::sqrt(rest) } else { 0.0 };
        for row in matrix.chunks_exact_mut(rank) {
            row[column] = (f64::from(row[column]) * factor) as f32;
        }
    }
}

fn dot(matrix: &[f32], rank: usize, one: usize, other: usize) -> f64 {
    matrix.chunks_exact(rank).map(|row| f64::from(row[one]) * f64::from(row[other])).sum()
}

/// Stores `right` for the next step, except for columns of zeros: from these the power method would
/// never recover.
fn remember(warm: &mut [f32], right: &[f32], rank: usize) {
    for column in 0..rank {
        if right.chunks_exact(rank).any(|row| row[column] != 0.0) {
            for (warm, right) in warm.chunks_exact_mut(rank).zip(right.chunks_exact(rank)) {
                warm[column] = right[column];
            }
        }
    }
}
