//! Sums over samples: gradients of weights and biases.

use alloc::vec::Vec;
use core::ops::Range;

use super::lanes::{load, put};
use super::memory::Memory;
use super::places::{Class, Places};
use super::tiles::{Tiles, cover_by_rows, prepare};
use crate::simd::{Kernel, Simd};

/// Rows of a part of the sums: their values stay in the first-level cache.
const PART: usize = 256;

/// Fewer inputs than this leave registers idle, unless the inputs of adjacent pixels are taken
/// together.
const FEW: usize = 6;

/// Sums over the rows of a product: values of `input` times `delta`, as the weights, with one row
/// per input of each tap. The sums replace the values of `gradient` if they are the first, and are
/// added otherwise. `places` has the rows of all `classes`, one class after the other: for each its
/// first value, and its row of `delta`, of `strips` each. Pixels are `stride` values apart.
/// `gradient` has some rows of the weights, from `begin` on: all, unless it [is divisible].
///
/// A sum runs over parts of [`PART`] rows.
///
/// [is divisible]: is_divisible
#[inline(always)]
pub(in crate::model) fn outer<S: Simd>(
    simd: S,
    (gradient, is_first, begin): (&mut [f32], bool, usize),
    (inputs, outputs): (usize, usize),
    (input, stride): (&[f32], usize),
    (delta, strips): (&[S::V], usize),
    (places, classes): (&mut Places, &[Class]),
    panel: &mut Memory,
) {
    if inputs == 0 {
        return;
    }
    let Places { from, to, classes: of_class, sums, .. } = places;
    simd.apart(Outer {
        simd,
        gradient,
        begin,
        is_first,
        inputs,
        outputs,
        input,
        stride,
        delta,
        strips,
        from,
        to,
        classes,
        of_class,
        rows: 0..0,
        first: 0,
        sums,
        panel,
    });
}

/// True if [`outer`] can sum the rows of the weights apart.
pub(in crate::model) const fn is_divisible(inputs: usize, classes: &[Class]) -> bool {
    // With few inputs a class is summed alone, so that its taps can be taken together.
    inputs >= FEW || classes.len() <= 1
}

struct Outer<'a, S: Simd> {
    simd: S,
    gradient: &'a mut [f32],
    /// The first row of the weights in `gradient`.
    begin: usize,
    is_first: bool,
    inputs: usize,
    outputs: usize,
    input: &'a [f32],
    stride: usize,
    delta: &'a [S::V],
    strips: usize,
    from: &'a [u32],
    to: &'a [u32],
    classes: &'a [Class],
    /// The rows of each class.
    of_class: &'a [Range<usize>],
    /// The rows of the current part.
    rows: Range<usize>,
    /// The first row of the gradient for the current sums.
    first: usize,
    /// The rows of the current sums in the part, with the first of their values.
    sums: &'a mut Vec<(Range<usize>, usize)>,
    panel: &'a mut Memory,
}

impl<S: Simd> Kernel for Outer<'_, S> {
    #[inline(always)]
    fn run(mut self) {
        let classes = self.classes;
        let alone = !is_divisible(self.inputs, classes);
        if alone && self.is_first {
            self.gradient.fill(0.0);
            self.is_first = false;
        }
        let rows = self.to.len();
        for begin in (0..rows).step_by(PART) {
            self.rows = begin..rows.min(begin + PART);
            prepare::<S>(self.strips, &mut self);
            if alone {
                for (class, rows) in classes.iter().zip(self.of_class) {
                    self.sum_class(class, rows);
                }
            } else {
                let end = self.begin + self.gradient.len() / self.outputs;
                for tap in self.begin / self.inputs..end.div_ceil(self.inputs) {
                    let first = tap * self.inputs;
                    let rows = self.begin.max(first)..end.min(first + self.inputs);
                    self.sum_tap(tap as u32, rows.start - first..rows.end - first);
                }
            }
            self.is_first = false;
        }
    }
}

impl<S: Simd> Outer<'_, S> {
    /// The rows of a class in the current part.
    #[inline(always)]
    fn in_part(&self, rows: &Range<usize>) -> Range<usize> {
        let begin = rows.start.clamp(self.rows.start, self.rows.end) - self.rows.start;
        begin..rows.end.clamp(self.rows.start, self.rows.end) - self.rows.start
    }

    /// Sums the products of some inputs of one tap over all classes.
    #[inline(always)]
    fn sum_tap(&mut self, matrix: u32, of: Range<usize>) {
        self.sums.clear();
        for (class, rows) in self.classes.iter().zip(self.of_class) {
            let tap = class.taps.iter().find(|tap| tap.matrix == matrix);
            let rows = self.in_part(rows);
            if let (Some(tap), false) = (tap, rows.is_empty()) {
                self.sums.push((rows, tap.pixel as usize * self.stride + of.start));
            }
        }
        if !self.sums.is_empty() || self.is_first {
            self.sum(matrix as usize * self.inputs + of.start, of.len());
        }
    }

    /// Sums the products of all taps of one class. The channels of adjacent pixels without a gap
    /// are summed together.
    #[inline(always)]
    fn sum_class(&mut self, class: &Class, rows: &Range<usize>) {
        let rows = self.in_part(rows);
        let mut taps = class.taps.iter().peekable();
        while let Some(first) = taps.next()
            && !rows.is_empty()
        {
            let (mut last, mut length) = (first, self.inputs);
            while let Some(next) = taps.next_if(|next| {
                let gap = (next.pixel - last.pixel) as usize * self.stride;
                gap == self.inputs && next.matrix == last.matrix + 1
            }) {
                (last, length) = (next, length + self.inputs);
            }
            self.sums.clear();
            self.sums.push((rows.clone(), first.pixel as usize * self.stride));
            self.sum(first.matrix as usize * self.inputs, length);
        }
    }

    /// Sums for `length` rows of the gradient from `row` on.
    #[inline(always)]
    fn sum(&mut self, row: usize, length: usize) {
        self.first = row - self.begin;
        cover_by_rows::<S>(length, self.strips, self);
    }
}

impl<S: Simd> Tiles for Outer<'_, S> {
    /// Copies the strips of all rows of the part: each is read once for every few inputs, and two
    /// adjacent rows are far apart.
    #[inline(always)]
    fn begin<const G: usize>(&mut self, strip: usize) {
        let to = &self.to[self.rows.clone()];
        let panel = self.panel.write::<S::V>(to.len() * self.strips);
        let panel = panel[strip * to.len()..].as_chunks_mut::<G>().0;
        for row in 0..to.len() {
            let delta = &self.delta[to[row] as usize * self.strips + strip..][..G];
            for g in 0..G {
                panel[row][g] = delta[g];
            }
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let from = &self.from[self.rows.clone()];
        let panel = self.panel.read::<S::V>(from.len() * self.strips);
        let panel = &panel[strip * from.len()..].as_chunks::<G>().0[..from.len()];
        let mut total = [[self.simd.splat(0.0); G]; R];
        // Sums in registers, so that `gradient` is read and written once.
        for (rows, first) in &*self.sums {
            let (from, panel) = (&from[rows.clone()], &panel[rows.clone()]);
            let input = &self.input[first + row..];
            total = add_products(self.simd, total, (input, from), panel);
        }
        let column = strip * S::LANES;
        let width = (G * S::LANES).min(self.outputs - column);
        for r in 0..R {
            let from = (self.first + row + r) * self.outputs + column;
            put(self.simd, &mut self.gradient[from..][..width], &total[r], self.is_first);
        }
    }
}

/// Adds the products of `R` values from each place on and the rows of the panel to `total`, which
/// is passed by value: the compiler then keeps it in registers.
#[inline(always)]
fn add_products<S: Simd, const R: usize, const G: usize>(
    simd: S,
    mut total: [[S::V; G]; R],
    (input, from): (&[f32], &[u32]),
    panel: &[[S::V; G]],
) -> [[S::V; G]; R] {
    let mut at = 0;
    while at < from.len()
        && at < panel.len()
        && let Some(input) = input.get(from[at] as usize..from[at] as usize + R)
    {
        for r in 0..R {
            let value = simd.splat(input[r]);
            for g in 0..G {
                total[r][g] = simd.mul_add(value, panel[at][g], total[r][g]);
            }
        }
        at += 1;
    }
    total
}

/// Sums `delta` over the samples: the gradient of the bias. The first sums replace the values of
/// `gradient`, later ones are added.
#[inline(always)]
pub(in crate::model) fn sum<S: Simd>(
    simd: S,
    (gradient, is_first): (&mut [f32], bool),
    delta: &[S::V],
    strips: usize,
) {
    let samples = delta.len() / strips;
    for strip in 0..strips {
        // Four accumulators: with a single one, each addition would wait for the previous one.
        let mut total = [simd.splat(0.0); 4];
        let mut sample = 0;
        while sample + 4 <= samples {
            for r in 0..4 {
                total[r] = simd.add(total[r], delta[(sample + r) * strips + strip]);
            }
            sample += 4;
        }
        for r in 0..samples - sample {
            total[r] = simd.add(total[r], delta[(sample + r) * strips + strip]);
        }
        let total = simd.add(simd.add(total[0], total[1]), simd.add(total[2], total[3]));
        let column = strip * S::LANES;
        let width = S::LANES.min(gradient.len() - column);
        put(simd, &mut gradient[column..][..width], &[total], is_first);
    }
}

/// Rows of a part of a [`total`]: sums of few values lose few digits.
const ROWS: usize = 256;

/// The terms of a sum over rows. Not a closure: those are compiled for any processor if they are
/// not inlined, and cannot be told to be.
pub(in crate::model) trait Terms<S: Simd, const N: usize> {
    /// The terms of a row. Must be inlined.
    fn of_row(&self, row: usize) -> [S::V; N];
}

/// Sums `N` vectors over `rows` rows, in parts of [`ROWS`] rows.
#[inline(always)]
pub(in crate::model) fn total<S: Simd, const N: usize>(
    simd: S,
    rows: usize,
    terms: &impl Terms<S, N>,
) -> [S::V; N] {
    let mut all = [simd.splat(0.0); N];
    for begin in (0..rows).step_by(ROWS) {
        // Four accumulators, as in `sum`.
        let mut total = [[simd.splat(0.0); N]; 4];
        let (mut row, end) = (begin, rows.min(begin + ROWS));
        while row < end {
            for r in 0..4 {
                if row + r < end {
                    let values = terms.of_row(row + r);
                    for n in 0..N {
                        total[r][n] = simd.add(total[r][n], values[n]);
                    }
                }
            }
            row += 4;
        }
        for n in 0..N {
            let pairs = [0, 2].map(|r| simd.add(total[r][n], total[r + 1][n]));
            all[n] = simd.add(all[n], simd.add(pairs[0], pairs[1]));
        }
    }
    all
}

/// Sets all rows to the bias, or to zeros if there is none.
#[inline(always)]
pub(in crate::model) fn repeat<S: Simd>((out, strips): (&mut [S::V], usize), bias: &[f32]) {
    for strip in 0..strips {
        let value = load::<S>(bias.get(strip * S::LANES..).unwrap_or_default());
        let mut at = strip;
        while at < out.len() {
            out[at] = value;
            at += strips;
        }
    }
}
