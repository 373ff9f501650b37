//! The arithmetic of a network's layers: products, sums and activations, in one fixed order.
//!
//! A block of samples is held in *strips*: eight neighbouring columns of every sample, one sample
//! after another, then the next eight columns. Every kernel so reads and writes short arrays of a
//! known length, which the compiler keeps in registers and turns into vector instructions without
//! help; no kernel names an instruction set. The last strip of a row may be wider than the row:
//! what its surplus lanes hold means nothing, and no kernel lets it into another lane.
//!
//! Results depend on the input alone: there is no fused multiply-add, sums run in the order
//! written here, and `tanh` comes from `libm`.

use alloc::vec::Vec;
use core::ops::Range;

/// Columns in a strip.
pub(super) const LANES: usize = 8;

/// Samples a product works on at once: four strips of sums fit the registers of any target.
const SAMPLES: usize = 4;

/// Rows of a weight matrix a product goes through at once: 8 KiB of them stay in the first cache.
const DEPTH: usize = 256;

/// Neighbouring columns of one sample.
pub(super) type Strip = [f32; LANES];

/// Strips that hold `columns` columns.
pub(super) const fn strips(columns: usize) -> usize {
    columns.div_ceil(LANES)
}

/// Calls `$kernel::<N>` with `N` the number of lanes, 1 to 8, so that its loops have a known length.
macro_rules! with_lanes {
    ($lanes:expr, $kernel:ident($($argument:expr),*)) => {
        match $lanes {
            1 => $kernel::<1>($($argument),*),
            2 => $kernel::<2>($($argument),*),
            3 => $kernel::<3>($($argument),*),
            4 => $kernel::<4>($($argument),*),
            5 => $kernel::<5>($($argument),*),
            6 => $kernel::<6>($($argument),*),
            7 => $kernel::<7>($($argument),*),
            _ => $kernel::<8>($($argument),*),
        }
    };
}

/// A weight matrix as the parameters hold it: a row for each input, a column for each output.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    /// The values, row by row.
    pub(super) values: &'a [f32],
    /// The length of a row.
    pub(super) outputs: usize,
    /// Whether the product is with the transpose, as on the way back.
    pub(super) transposed: bool,
}

impl Weights<'_> {
    /// Rows of the matrix that is multiplied with.
    const fn depth(&self) -> usize {
        if self.transposed { self.outputs } else { self.values.len() / self.outputs }
    }

    /// Columns of the matrix that is multiplied with.
    const fn width(&self) -> usize {
        if self.transposed { self.values.len() / self.outputs } else { self.outputs }
    }

    /// Copies the strip of columns that starts at `column`, rows `rows`, into `panel`.
    fn pack(&self, rows: Range<usize>, column: usize, panel: &mut [Strip]) {
        let lanes = LANES.min(self.width() - column);
        if self.transposed {
            let lines = self.values[column * self.outputs..].chunks_exact(self.outputs);
            for (lane, line) in lines.take(lanes).enumerate() {
                for (strip, value) in panel.iter_mut().zip(&line[rows.clone()]) {
                    strip[lane] = *value;
                }
            }
        } else {
            let lines = &self.values[rows.start * self.outputs..];
            with_lanes!(lanes, copy_columns(lines, self.outputs, column, panel));
        }
    }
}

fn copy_columns<const N: usize>(lines: &[f32], width: usize, column: usize, panel: &mut [Strip]) {
    for (strip, line) in panel.iter_mut().zip(lines.chunks_exact(width)) {
        if let Some(values) = line[column..].first_chunk::<N>() {
            strip[..N].copy_from_slice(values);
        }
    }
}

/// Sets the outputs of every sample to the bias plus the rows of `weight` its one-hot columns
/// name: `hot` has `groups` of them for each sample.
pub(super) fn start(
    out: &mut [Strip],
    samples: usize,
    bias: &[f32],
    weight: &[f32],
    hot: &[u16],
    groups: usize,
) {
    for (strip, out) in out.chunks_exact_mut(samples).enumerate() {
        let column = strip * LANES;
        let lanes = LANES.min(bias.len() - column);
        with_lanes!(lanes, start_strip(out, bias, column, weight, hot, groups));
    }
}

fn start_strip<const N: usize>(
    out: &mut [Strip],
    bias: &[f32],
    column: usize,
    weight: &[f32],
    hot: &[u16],
    groups: usize,
) {
    let width = bias.len();
    let mut first = [0.0; LANES];
    first[..N].copy_from_slice(&bias[column..column + N]);
    if groups == 0 {
        out.fill(first);
        return;
    }
    for (out, hot) in out.iter_mut().zip(hot.chunks_exact(groups)) {
        let mut sums = first;
        for &index in hot {
            let begin = usize::from(index) * width + column;
            let row = &weight[begin..begin + N];
            for lane in 0..N {
                sums[lane] += row[lane];
            }
        }
        *out = sums;
    }
}

/// Adds the product of `input` (a row a sample) and `weights` to `out`.
pub(super) fn multiply(
    out: &mut [Strip],
    input: &[Strip],
    samples: usize,
    weights: Weights<'_>,
    panel: &mut Vec<Strip>,
) {
    let depth = weights.depth();
    for (strip, out) in out.chunks_exact_mut(samples).enumerate() {
        for begin in (0..depth).step_by(DEPTH) {
            let rows = begin..depth.min(begin + DEPTH);
            panel.resize(rows.len(), [0.0; LANES]);
            weights.pack(rows, strip * LANES, panel);
            let input = &input[begin / LANES * samples..];
            let (blocks, rest) = out.as_chunks_mut::<SAMPLES>();
            let done = blocks.len() * SAMPLES;
            for (block, sums) in blocks.iter_mut().enumerate() {
                multiply_block(sums, &input[block * SAMPLES..], samples, panel);
            }
            for (sample, sums) in rest.iter_mut().enumerate() {
                let sums = core::array::from_mut(sums);
                multiply_block(sums, &input[done + sample..], samples, panel);
            }
        }
    }
}

/// Adds the product of `R` samples and one panel to `sums`. `input` starts at the first sample's
/// first strip; its next strip is `samples` further on.
#[inline]
fn multiply_block<const R: usize>(
    sums: &mut [Strip; R],
    input: &[Strip],
    samples: usize,
    panel: &[Strip],
) {
    let mut total = *sums;
    let mut columns = input.chunks(samples).filter_map(|strip| strip.first_chunk::<R>());
    let (whole, rest) = panel.as_chunks::<LANES>();
    for (weights, values) in whole.iter().zip(&mut columns) {
        for (k, weights) in weights.iter().enumerate() {
            for r in 0..R {
                for lane in 0..LANES {
                    total[r][lane] += values[r][k] * weights[lane];
                }
            }
        }
    }
    if let Some(values) = columns.next() {
        for (k, weights) in rest.iter().enumerate().take(LANES) {
            for r in 0..R {
                for lane in 0..LANES {
                    total[r][lane] += values[r][k] * weights[lane];
                }
            }
        }
    }
    *sums = total;
}

/// Adds to `gradient` (a row for each each input, as the weights have) the sum over the
/// samples of input times `delta`.
pub(super) fn outer(
    gradient: &mut [f32],
    outputs: usize,
    input: &[Strip],
    delta: &[Strip],
    samples: usize,
) {
    for (strip, input) in input.chunks_exact(samples).enumerate() {
        let begin = strip * LANES * outputs;
        let Some(rows) = gradient.get_mut(begin..) else { break };
        let (low, high) = rows.split_at_mut(rows.len().min(LANES / 2 * outputs));
        outer_half::<0>(low, outputs, input, delta);
        let length = high.len().min(LANES / 2 * outputs);
        outer_half::<{ LANES / 2 }>(&mut high[..length], outputs, input, delta);
    }
}

/// The rows of half an input strip, the one from lane `FIRST`.
fn outer_half<const FIRST: usize>(
    rows: &mut [f32],
    outputs: usize,
    input: &[Strip],
    delta: &[Strip],
) {
    if rows.is_empty() {
        return;
    }
    for (strip, delta) in delta.chunks_exact(input.len()).enumerate() {
        let mut total = [[0.0; LANES]; LANES / 2];
        for (values, delta) in input.iter().zip(delta) {
            for (r, total) in total.iter_mut().enumerate() {
                for lane in 0..LANES {
                    total[lane] += values[FIRST + r] * delta[lane];
                }
            }
        }
        let column = strip * LANES;
        let lanes = LANES.min(outputs - column);
        for (row, total) in rows.chunks_exact_mut(outputs).zip(&total) {
            let row = &mut row[column..];
            with_lanes!(lanes, add_lanes(row, total));
        }
    }
}

fn add_lanes<const N: usize>(row: &mut [f32], total: &Strip) {
    if let Some(row) = row.first_chunk_mut::<N>() {
        for lane in 0..N {
            row[lane] += total[lane];
        }
    }
}

/// Adds to `gradient` the sum of `delta` over the samples: the bias's gradient.
pub(super) fn sum(gradient: &mut [f32], delta: &[Strip], samples: usize) {
    for (gradient, delta) in gradient.chunks_mut(LANES).zip(delta.chunks_exact(samples)) {
        // Four sums at once: one alone would wait for each addition to end.
        let mut total = [[0.0; LANES]; 4];
        let (fours, rest) = delta.as_chunks::<4>();
        for four in fours {
            for (total, delta) in total.iter_mut().zip(four) {
                for lane in 0..LANES {
                    total[lane] += delta[lane];
                }
            }
        }
        for (total, delta) in total.iter_mut().zip(rest) {
            for lane in 0..LANES {
                total[lane] += delta[lane];
            }
        }
        for (lane, gradient) in gradient.iter_mut().enumerate() {
            *gradient += (total[0][lane] + total[1][lane]) + (total[2][lane] + total[3][lane]);
        }
    }
}

/// Adds each sample's `delta` to the rows of `gradient` that its one-hot columns name.
pub(super) fn scatter(
    gradient: &mut [f32],
    outputs: usize,
    hot: &[u16],
    groups: usize,
    delta: &[Strip],
    samples: usize,
) {
    if groups == 0 {
        return;
    }
    for (strip, delta) in delta.chunks_exact(samples).enumerate() {
        let column = strip * LANES;
        let lanes = LANES.min(outputs - column);
        with_lanes!(lanes, scatter_strip(gradient, outputs, column, hot, groups, delta));
    }
}

fn scatter_strip<const N: usize>(
    gradient: &mut [f32],
    outputs: usize,
    column: usize,
    hot: &[u16],
    groups: usize,
    delta: &[Strip],
) {
    for (delta, hot) in delta.iter().zip(hot.chunks_exact(groups)) {
        for &index in hot {
            let begin = usize::from(index) * outputs + column;
            let row = &mut gradient[begin..begin + N];
            for lane in 0..N {
                row[lane] += delta[lane];
            }
        }
    }
}

/// Replaces the values of all samples by `max(0, value)`; NaN stays NaN.
pub(super) fn relu(values: &mut [Strip]) {
    for value in values.as_flattened_mut() {
        *value = if *value < 0.0 { 0.0 } else { *value };
    }
}

/// Takes `delta` back through [`relu`], whose result was `output`.
pub(super) fn relu_backward(delta: &mut [Strip], output: &[Strip]) {
    for (delta, output) in delta.as_flattened_mut().iter_mut().zip(output.as_flattened()) {
        *delta = if *output > 0.0 { *delta } else { 0.0 };
    }
}

/// Replaces the values of all samples by their hyperbolic tangent.
pub(super) fn tanh(values: &mut [Strip], samples: usize, columns: usize) {
    for (strip, values) in values.chunks_exact_mut(samples).enumerate() {
        let lanes = LANES.min(columns - strip * LANES);
        for value in values.iter_mut().flat_map(|values| &mut values[..lanes]) {
            *value = libm::tanhf(*value);
        }
    }
}

/// Takes `delta` back through [`tanh`], whose result was `output`.
pub(super) fn tanh_backward(delta: &mut [Strip], output: &[Strip]) {
    for (delta, output) in delta.as_flattened_mut().iter_mut().zip(output.as_flattened()) {
        *delta *= 1.0 - *output * *output;
    }
}
