//! Batch normalisation.
#![expect(
    clippy::needless_range_loop,
    clippy::manual_memcpy,
    reason = "as in the kernels: iterators and slices of arrays keep values in memory"
)]

use alloc::vec;
use alloc::vec::Vec;

use super::{Context, Input, Layer, Picture, Propagation, State, Total};
use crate::model::kernels::{self, Terms};
use crate::rng::Random;
use crate::simd::Simd;

/// Added to the variance.
const EPSILON: f32 = 1e-5;

/// The weight of a mini-batch in the running statistics.
const MOMENTUM: f32 = 0.1;

/// Each channel less its mean over all pixels of the mini-batch, divided by its standard deviation,
/// times a weight, plus a bias (Ioffe and Szegedy, ICML 2015): PyTorch's `BatchNorm2d`, and
/// `BatchNorm1d` of rows.
///
/// The running mean and the running variance, with which examples are evaluated, are state of the
/// model. The variance that they follow is the unbiased one.
#[derive(Debug)]
pub(in crate::model) struct BatchNorm {
    pub(in crate::model) size: Picture,
}

impl BatchNorm {
    const fn channels(&self) -> usize {
        self.size.channels as usize
    }
}

impl Layer for BatchNorm {
    #[inline(always)]
    fn output(&self) -> Picture {
        self.size
    }

    fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        vec![("weight", vec![self.channels()]), ("bias", vec![self.channels()])]
    }

    fn state(&self) -> Vec<State> {
        let running = |name| State { name, shape: vec![self.channels()], is_count: false };
        let count = State { name: "num_batches_tracked", shape: Vec::new(), is_count: true };
        vec![running("running_mean"), running("running_var"), count]
    }

    fn initial(&self, _: &mut Random, params: &mut [f32]) {
        let (weight, bias) = params.split_at_mut(self.channels());
        weight.fill(1.0);
        bias.fill(0.0);
    }

    fn initial_state(&self, state: &mut [f32]) {
        state.fill(0.0);
        state[self.channels()..2 * self.channels()].fill(1.0);
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let Context { simd, params, state, draws, kept, .. } = context;
        let is_training = draws.is_some();
        let (strips, input) = (self.size.strips(S::LANES), input.one());
        let kept = kept.write::<S::V>(3 * strips);
        let running = &state[..2 * self.channels()];
        let mut pass = Forward { simd, params, running, is_training, input, output, strips, kept };
        // A row is read in whole cache lines.
        for strip in (0..strips - strips % 2).step_by(2) {
            pass.normalise::<2>(strip);
        }
        if strips % 2 == 1 {
            pass.normalise::<1>(strips - 1);
        }
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        gradient: Total<'_>,
    ) {
        let Context { simd, params, state, kept, .. } = context;
        let Propagation { output: input, delta: before } = input.one();
        let (channels, strips) = (self.channels(), self.size.strips(S::LANES));
        let (changes, count) = gradient.state.split_at_mut(2 * channels);
        count.fill(1.0);
        let (running, kept) = (&state[..2 * channels], kept.read::<S::V>(3 * strips));
        let of_params = gradient.values;
        let mut pass = Backward {
            simd,
            params,
            running,
            input,
            delta,
            before,
            strips,
            of_params,
            changes,
            kept,
        };
        for strip in (0..strips - strips % 2).step_by(2) {
            pass.propagate::<2>(strip);
        }
        if strips % 2 == 1 {
            pass.propagate::<1>(strips - 1);
        }
    }
}

/// The forward pass.
struct Forward<'a, S: Simd> {
    simd: S,
    params: &'a [f32],
    running: &'a [f32],
    is_training: bool,
    input: &'a [S::V],
    output: &'a mut [S::V],
    /// Strips per row.
    strips: usize,
    /// Of each strip the mean, one over the standard deviation, and the variance.
    kept: &'a mut [S::V],
}

impl<S: Simd> Forward<'_, S> {
    /// Normalises the `G` strips from `strip` on.
    #[inline(always)]
    fn normalise<const G: usize>(&mut self, strip: usize) {
        let (simd, rows) = (self.simd, self.input.len() / self.strips);
        if self.is_training {
            self.keep_statistics::<G>(strip);
        }
        let (weight, bias) = self.params.split_at(self.params.len() / 2);
        let (means, variances) = self.running.split_at(self.running.len() / 2);
        let (mut mean, mut scale, mut shift) =
            ([simd.splat(0.0); G], [simd.splat(0.0); G], [simd.splat(0.0); G]);
        for g in 0..G {
            let inverse = if self.is_training {
                mean[g] = self.kept[3 * (strip + g)];
                self.kept[3 * (strip + g) + 1]
            } else {
                mean[g] = strip_of::<S>(means, strip + g);
                inverse::<S>(strip_of::<S>(variances, strip + g))
            };
            scale[g] = simd.mul(strip_of::<S>(weight, strip + g), inverse);
            shift[g] = strip_of::<S>(bias, strip + g);
        }
        for row in 0..rows {
            let at = row * self.strips + strip;
            let (input, output) = (&self.input[at..][..G], &mut self.output[at..][..G]);
            for g in 0..G {
                output[g] = simd.mul_add(simd.sub(input[g], mean[g]), scale[g], shift[g]);
            }
        }
    }

    /// Keeps the statistics of the mini-batch.
    #[inline(always)]
    fn keep_statistics<const G: usize>(&mut self, strip: usize) {
        let (simd, strips, input) = (self.simd, self.strips, self.input);
        let rows = input.len() / strips;
        let one = simd.splat(1.0 / rows as f32);
        let values = Rows { simd, values: input, strip, strips };
        let mut mean: [S::V; G] = kernels::total(simd, rows, &values);
        for g in 0..G {
            mean[g] = simd.mul(mean[g], one);
        }
        let squares = kernels::total(simd, rows, &Squares { values, mean });
        for g in 0..G {
            let variance = simd.mul(squares[g], one);
            let kept = &mut self.kept[3 * (strip + g)..][..3];
            (kept[0], kept[1], kept[2]) = (mean[g], inverse::<S>(variance), variance);
        }
    }
}

/// The backward pass.
struct Backward<'a, S: Simd> {
    simd: S,
    params: &'a [f32],
    running: &'a [f32],
    input: &'a [S::V],
    delta: &'a [S::V],
    before: &'a mut [S::V],
    /// Strips per row.
    strips: usize,
    of_params: &'a mut [f32],
    /// Of the running statistics.
    changes: &'a mut [f32],
    kept: &'a [S::V],
}

impl<S: Simd> Backward<'_, S> {
    /// Back-propagates the `G` strips from `strip` on.
    #[inline(always)]
    fn propagate<const G: usize>(&mut self, strip: usize) {
        let (simd, strips) = (self.simd, self.strips);
        let (input, delta) = (self.input, self.delta);
        let rows = delta.len() / strips;
        let (one, momentum) = (simd.splat(1.0 / rows as f32), simd.splat(MOMENTUM));
        let unbiased = simd.splat(rows as f32 / (rows.max(2) - 1) as f32);
        let (mut mean, mut inverse) = ([simd.splat(0.0); G], [simd.splat(0.0); G]);
        for g in 0..G {
            (mean[g], inverse[g]) = (self.kept[3 * (strip + g)], self.kept[3 * (strip + g) + 1]);
        }
        let deltas = Rows { simd, values: delta, strip, strips };
        let mut bias: [S::V; G] = kernels::total(simd, rows, &deltas);
        let inputs = Rows { values: input, ..deltas };
        let mut weight = kernels::total(simd, rows, &Products { deltas, inputs, mean, inverse });
        let channels = self.params.len() / 2;
        let mut scale = inverse;
        for g in 0..G {
            let at = (strip + g) * S::LANES..channels.min((strip + g + 1) * S::LANES);
            let (means, variances) = self.running.split_at(channels);
            let variance = simd.mul(self.kept[3 * (strip + g) + 2], unbiased);
            let of_mean = simd.sub(mean[g], strip_of::<S>(means, strip + g));
            let of_variance = simd.sub(variance, strip_of::<S>(variances, strip + g));
            let (of_weight, of_bias) = self.of_params.split_at_mut(channels);
            let (means, variances) = self.changes.split_at_mut(channels);
            for (values, change) in [
                (of_weight, weight[g]),
                (of_bias, bias[g]),
                (means, simd.mul(of_mean, momentum)),
                (variances, simd.mul(of_variance, momentum)),
            ] {
                kernels::put(simd, &mut values[at.clone()], &[change], true);
            }
            scale[g] = simd.mul(strip_of::<S>(&self.params[..channels], strip + g), inverse[g]);
            (bias[g], weight[g]) = (simd.mul(bias[g], one), simd.mul(weight[g], one));
        }
        for row in 0..rows {
            let at = row * strips + strip;
            let (input, delta) = (&input[at..][..G], &delta[at..][..G]);
            let before = &mut self.before[at..][..G];
            for g in 0..G {
                let normal = simd.mul(simd.sub(input[g], mean[g]), inverse[g]);
                let rest = simd.sub(simd.sub(delta[g], bias[g]), simd.mul(normal, weight[g]));
                before[g] = simd.mul_add(rest, scale[g], before[g]);
            }
        }
    }
}

/// The `G` strips from `strip` on of rows of `strips`.
struct Rows<'a, S: Simd> {
    simd: S,
    values: &'a [S::V],
    strip: usize,
    strips: usize,
}

impl<S: Simd> Clone for Rows<'_, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Simd> Copy for Rows<'_, S> {}

impl<S: Simd, const G: usize> Terms<S, G> for Rows<'_, S> {
    #[inline(always)]
    fn of_row(&self, row: usize) -> [S::V; G] {
        let values = &self.values[row * self.strips + self.strip..][..G];
        let mut read = [self.simd.splat(0.0); G];
        for g in 0..G {
            read[g] = values[g];
        }
        read
    }
}

/// The squares of the values less their mean.
struct Squares<'a, S: Simd, const G: usize> {
    values: Rows<'a, S>,
    mean: [S::V; G],
}

impl<S: Simd, const G: usize> Terms<S, G> for Squares<'_, S, G> {
    #[inline(always)]
    fn of_row(&self, row: usize) -> [S::V; G] {
        let (simd, mut values): (_, [_; G]) = (self.values.simd, self.values.of_row(row));
        for g in 0..G {
            let error = simd.sub(values[g], self.mean[g]);
            values[g] = simd.mul(error, error);
        }
        values
    }
}

/// The products of derivatives and normalised values.
struct Products<'a, S: Simd, const G: usize> {
    deltas: Rows<'a, S>,
    inputs: Rows<'a, S>,
    mean: [S::V; G],
    inverse: [S::V; G],
}

impl<S: Simd, const G: usize> Terms<S, G> for Products<'_, S, G> {
    #[inline(always)]
    fn of_row(&self, row: usize) -> [S::V; G] {
        let (simd, mut values): (_, [_; G]) = (self.deltas.simd, self.deltas.of_row(row));
        let input: [_; G] = self.inputs.of_row(row);
        for g in 0..G {
            let normal = simd.mul(simd.sub(input[g], self.mean[g]), self.inverse[g]);
            values[g] = simd.mul(values[g], normal);
        }
        values
    }
}

/// A strip of one value per channel.
#[inline(always)]
fn strip_of<S: Simd>(values: &[f32], strip: usize) -> S::V {
    kernels::load::<S>(&values[strip * S::LANES..])
}

/// One over the standard deviation.
#[inline(always)]
fn inverse<S: Simd>(variance: S::V) -> S::V {
    let mut lanes = variance;
    for lane in bytemuck::cast_slice_mut::<S::V, f32>(core::slice::from_mut(&mut lanes)) {
        *lane = 1.0 / libm::sqrtf(*lane + EPSILON);
    }
    lanes
}
