//! Product of a block of rows and a weight matrix or its transpose.

use core::ops::Range;

use bytemuck::cast_slice_mut;

use super::lanes::load;
use super::memory::Memory;
use super::tiles::{Tiles, cover};
use crate::simd::{Kernel, Simd};

/// Rows of the weights per pass: a panel of that depth and a few strips fits the first-level cache.
const DEPTH: usize = 256;

/// A weight matrix as stored in the parameters: one row per input, one column per output.
#[derive(Clone, Copy)]
pub(in crate::model) struct Weights<'a> {
    /// The values, row by row; other values may follow.
    pub(in crate::model) values: &'a [f32],
    /// The number of rows.
    pub(in crate::model) inputs: usize,
    /// The length of a row.
    pub(in crate::model) outputs: usize,
    /// True for the product with the transpose, as in the backward pass.
    pub(in crate::model) transposed: bool,
}

impl Weights<'_> {
    /// Rows of the right factor.
    const fn depth(&self) -> usize {
        if self.transposed { self.outputs } else { self.inputs }
    }

    /// Columns of the right factor.
    const fn width(&self) -> usize {
        if self.transposed { self.inputs } else { self.outputs }
    }

    /// Copies the strips from `column` on, for `rows`, into `panel`: one entry of `G` strips per
    /// row.
    #[inline(always)]
    fn pack<S: Simd, const G: usize>(
        &self,
        rows: Range<usize>,
        column: usize,
        panel: &mut [[S::V; G]],
    ) {
        if self.transposed {
            let width = (G * S::LANES).min(self.width() - column);
            let panel: &mut [f32] = cast_slice_mut(panel.as_flattened_mut());
            for lane in 0..width {
                let line = &self.values[(column + lane) * self.outputs..][rows.clone()];
                let mut at = lane;
                for value in line {
                    panel[at] = *value;
                    at += G * S::LANES;
                }
            }
        } else {
            let mut at = rows.start * self.outputs + column;
            for strips in panel {
                for g in 0..G {
                    strips[g] = load::<S>(&self.values[at + g * S::LANES..]);
                }
                at += self.outputs;
            }
        }
    }
}

/// Adds the product of `input` (rows of `stride` values) and `weights` to `out` (rows of `strips`).
#[inline(always)]
pub(in crate::model) fn multiply<S: Simd>(
    simd: S,
    out: &mut [S::V],
    strips: usize,
    (input, stride): (&[f32], usize),
    weights: Weights<'_>,
    panel: &mut Memory,
) {
    let depth = weights.depth();
    for begin in (0..depth).step_by(DEPTH) {
        let range = begin..depth.min(begin + DEPTH);
        let input = &input[begin..];
        simd.apart(Product { simd, out, strips, input, stride, weights, range, panel });
    }
}

struct Product<'a, S: Simd> {
    simd: S,
    out: &'a mut [S::V],
    strips: usize,
    input: &'a [f32],
    stride: usize,
    weights: Weights<'a>,
    /// The rows of the right factor in this pass.
    range: Range<usize>,
    panel: &'a mut Memory,
}

impl<S: Simd> Kernel for Product<'_, S> {
    #[inline(always)]
    fn run(mut self) {
        let rows = self.out.len() / self.strips;
        cover::<S>(rows, self.strips, &mut self);
    }
}

impl<S: Simd> Tiles for Product<'_, S> {
    #[inline(always)]
    fn begin<const G: usize>(&mut self, strip: usize) {
        let panel = self.panel.write(self.range.len() * G).as_chunks_mut::<G>().0;
        self.weights.pack::<S, G>(self.range.clone(), strip * S::LANES, panel);
    }

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let depth = self.range.len();
        let panel = &self.panel.read::<S::V>(depth * G).as_chunks::<G>().0[..depth];
        let mut input: [&[f32]; R] = [&[]; R];
        let mut total = [[self.simd.splat(0.0); G]; R];
        for r in 0..R {
            input[r] = &self.input[(row + r) * self.stride..][..depth];
            let out = &self.out[(row + r) * self.strips + strip..][..G];
            for g in 0..G {
                total[r][g] = out[g];
            }
        }
        for k in 0..depth {
            for r in 0..R {
                let value = self.simd.splat(input[r][k]);
                for g in 0..G {
                    total[r][g] = self.simd.mul_add(value, panel[k][g], total[r][g]);
                }
            }
        }
        for r in 0..R {
            let out = &mut self.out[(row + r) * self.strips + strip..][..G];
            for g in 0..G {
                out[g] = total[r][g];
            }
        }
    }
}
