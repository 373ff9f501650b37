//! Product of rows of values and weight matrices or their transposes.

use alloc::vec::Vec;
use core::ops::Range;

use bytemuck::cast_slice_mut;

use super::memory::Memory;
use super::places::{Places, Tap};
use super::tiles::{Tiles, cover};
use crate::simd::{Kernel, Simd};

/// Rows of the weights per pass: a panel of that depth and a few strips fits the first-level cache.
const DEPTH: usize = 288;

/// Weight matrices as stored in the parameters, one per tap: one row per input, one column per
/// output.
#[derive(Clone, Copy)]
pub(in crate::model) struct Weights<'a> {
    /// The values, matrix by matrix and row by row; other values may follow.
    pub(in crate::model) values: &'a [f32],
    /// The number of rows of a matrix.
    pub(in crate::model) inputs: usize,
    /// The length of a row.
    pub(in crate::model) outputs: usize,
    /// True for the product with the transpose, as in the backward pass.
    pub(in crate::model) transposed: bool,
}

impl Weights<'_> {
    /// Rows of the right factor per tap.
    const fn depth(&self) -> usize {
        if self.transposed { self.outputs } else { self.inputs }
    }

    /// Columns of the right factor.
    const fn width(&self) -> usize {
        if self.transposed { self.inputs } else { self.outputs }
    }

    /// Copies the strips from `column` on, for the rows of `piece`, into `panel`: one entry of `G`
    /// strips per row.
    #[inline(always)]
    fn pack<S: Simd, const G: usize>(&self, piece: Piece, column: usize, panel: &mut [[S::V; G]]) {
        let matrix = piece.matrix * self.inputs * self.outputs;
        if self.transposed {
            let width = (G * S::LANES).min(self.width() - column);
            let panel: &mut [f32] = cast_slice_mut(panel.as_flattened_mut());
            for lane in 0..width {
                let line = matrix + (column + lane) * self.outputs + piece.begin;
                let mut at = lane;
                for value in &self.values[line..][..piece.length] {
                    panel[at] = *value;
                    at += G * S::LANES;
                }
            }
        } else {
            let panel: &mut [f32] = cast_slice_mut(panel.as_flattened_mut());
            let mut at = matrix + piece.begin * self.outputs + column;
            for strips in panel.chunks_exact_mut(G * S::LANES) {
                match self.values.get(at..at + G * S::LANES) {
                    Some(values) => strips.copy_from_slice(values),
                    // The last values of the parameters.
                    None => {
                        let values = &self.values[at..];
                        strips[..values.len()].copy_from_slice(values);
                        strips[values.len()..].fill(0.0);
                    }
                }
                at += self.outputs;
            }
        }
    }
}

/// Adjacent rows of one weight matrix.
#[derive(Clone, Copy, Debug)]
struct Piece {
    matrix: usize,
    begin: usize,
    length: usize,
}

/// Adjacent values of the left factor, counted from the first one of a row.
#[derive(Clone, Copy, Debug)]
struct Run {
    begin: usize,
    length: usize,
}

/// A part of the depth of a product: rows of the weights, and the values that they multiply.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pieces: Vec<Piece>,
    runs: Vec<Run>,
    depth: usize,
}

impl Section {
    fn clear(&mut self) {
        self.pieces.clear();
        self.runs.clear();
        self.depth = 0;
    }

    /// Appends a piece, which multiplies the values from `from` on. Values that follow each other
    /// are one run, as are the channels of adjacent pixels without a gap.
    #[inline(always)]
    fn push(&mut self, piece: Piece, from: usize) {
        self.depth += piece.length;
        match self.runs.last_mut() {
            Some(run) if run.begin + run.length == from => run.length += piece.length,
            _ => self.runs.push(Run { begin: from, length: piece.length }),
        }
        self.pieces.push(piece);
    }
}

/// Values of the rows of a part of a product, which pass through all weights together: they stay in
/// the second-level cache.
const VALUES: usize = 1 << 16;

/// Adds to rows of `out`, of `strips` each, the products of values of `input` and the weights of
/// `taps`, tap by tap and input by input. `places` has the rows; pixels are `stride` values apart.
#[inline(always)]
pub(in crate::model) fn multiply<S: Simd>(
    simd: S,
    (out, strips): (&mut [S::V], usize),
    (input, stride): (&[f32], usize),
    places: &mut Places,
    (weights, taps): (Weights<'_>, &[Tap]),
    panel: &mut Memory,
) {
    let Places { from, to, section, .. } = places;
    let (rows, depth) = (to.len(), weights.depth());
    // Whole tiles, but for the last part.
    let part = (VALUES / (depth + weights.width())).max(48) / 12 * 12;
    for begin in (0..rows).step_by(part) {
        let last = rows.min(begin + part);
        let (from, to) = (&from[begin..last], &to[begin..last]);
        // The weights are packed for the first part. Only later parts need all of them again.
        let (is_packed, keeps) = (begin > 0, rows > part);
        let (mut taps, mut next) = (taps.iter(), None);
        let mut packed = 0;
        loop {
            section.clear();
            while section.depth < DEPTH
                && let Some((tap, begin)) = next.or_else(|| taps.next().map(|tap| (tap, 0)))
            {
                let (matrix, length) =
                    (tap.matrix as usize, (DEPTH - section.depth).min(depth - begin));
                let from = tap.pixel as usize * stride + begin;
                section.push(Piece { matrix, begin, length }, from);
                next = (begin + length < depth).then_some((tap, begin + length));
            }
            if section.depth == 0 {
                break;
            }
            let at = if keeps { packed * strips } else { 0 };
            packed += section.depth;
            let (section, out, panel) = (&*section, &mut *out, &mut *panel);
            simd.apart(Product {
                simd,
                out,
                strips,
                input,
                from,
                to,
                weights,
                section,
                panel,
                at,
                is_packed,
            });
        }
    }
}

struct Product<'a, S: Simd> {
    simd: S,
    out: &'a mut [S::V],
    strips: usize,
    input: &'a [f32],
    /// The rows of this part, as [`Places`] has them.
    from: &'a [u32],
    to: &'a [u32],
    weights: Weights<'a>,
    section: &'a Section,
    panel: &'a mut Memory,
    /// The place of the packed section.
    at: usize,
    is_packed: bool,
}

impl<S: Simd> Product<'_, S> {
    /// The registers of `G` strips of the packed section, from `strip` on.
    #[inline(always)]
    fn packed(&self, strip: usize, strips: usize) -> Range<usize> {
        let begin = self.at + strip * self.section.depth;
        begin..begin + strips * self.section.depth
    }
}

impl<S: Simd> Kernel for Product<'_, S> {
    #[inline(always)]
    fn run(mut self) {
        cover::<S>(self.to.len(), self.strips, &mut self);
    }
}

impl<S: Simd> Tiles for Product<'_, S> {
    #[inline(always)]
    fn begin<const G: usize>(&mut self, strip: usize) {
        if self.is_packed {
            return;
        }
        let range = self.packed(strip, G);
        let panel = &mut self.panel.write(range.end)[range];
        let mut panel = panel.as_chunks_mut::<G>().0;
        for piece in &self.section.pieces {
            let (rows, rest) = panel.split_at_mut(piece.length);
            self.weights.pack::<S, G>(*piece, strip * S::LANES, rows);
            panel = rest;
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let range = self.packed(strip, G);
        let panel = self.panel.read::<S::V>(range.end)[range].as_chunks::<G>().0;
        let (from, to) = (&self.from[row..][..R], &self.to[row..][..R]);
        let mut total = [[self.simd.splat(0.0); G]; R];
        for r in 0..R {
            let out = &self.out[to[r] as usize * self.strips + strip..][..G];
            for g in 0..G {
                total[r][g] = out[g];
            }
        }
        let mut done = 0;
        for &Run { begin, length } in &self.section.runs {
            let panel = &panel[done..][..length];
            let mut input: [&[f32]; R] = [&[]; R];
            for r in 0..R {
                input[r] = &self.input[from[r] as usize + begin..][..length];
            }
            total = add_products(self.simd, total, input, panel);
            done += length;
        }
        for r in 0..R {
            let out = &mut self.out[to[r] as usize * self.strips + strip..][..G];
            for g in 0..G {
                out[g] = total[r][g];
            }
        }
    }
}

/// Adds the products of `R` rows of values and the rows of the panel to `total`, which is passed by
/// value: the compiler then keeps it in registers.
#[inline(always)]
fn add_products<S: Simd, const R: usize, const G: usize>(
    simd: S,
    mut total: [[S::V; G]; R],
    input: [&[f32]; R],
    panel: &[[S::V; G]],
) -> [[S::V; G]; R] {
    for k in 0..panel.len() {
        for r in 0..R {
            let value = simd.splat(input[r][k]);
            for g in 0..G {
                total[r][g] = simd.mul_add(value, panel[k][g], total[r][g]);
            }
        }
    }
    total
}
