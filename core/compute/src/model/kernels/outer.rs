//! Sums over samples: gradients of weights and biases.

use super::lanes::add;
use super::tiles::{Tiles, cover};
use crate::simd::{Kernel, Simd};

/// Adds to `gradient` (one row per input, as the weights) the sum over the samples of input times
/// `delta`. `input` has rows of `stride` values, `delta` rows of `strips`.
#[inline(always)]
pub(in crate::model) fn outer<S: Simd>(
    simd: S,
    gradient: &mut [f32],
    outputs: usize,
    (input, stride): (&[f32], usize),
    (delta, strips): (&[S::V], usize),
) {
    simd.apart(Outer { simd, gradient, outputs, input, stride, delta, strips });
}

struct Outer<'a, S: Simd> {
    simd: S,
    gradient: &'a mut [f32],
    outputs: usize,
    input: &'a [f32],
    stride: usize,
    delta: &'a [S::V],
    strips: usize,
}

impl<S: Simd> Kernel for Outer<'_, S> {
    #[inline(always)]
    fn run(mut self) {
        let inputs = self.gradient.len() / self.outputs;
        cover::<S>(inputs, self.strips, &mut self);
    }
}

impl<S: Simd> Tiles for Outer<'_, S> {
    #[inline(always)]
    fn begin<const G: usize>(&mut self, _: usize) {}

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let mut total = [[self.simd.splat(0.0); G]; R];
        let (mut from, mut at) = (row, strip);
        // Sums over all samples in registers, so that `gradient` is read and written once.
        while let (Some(input), Some(delta)) =
            (self.input.get(from..from + R), self.delta.get(at..at + G))
        {
            for r in 0..R {
                let value = self.simd.splat(input[r]);
                for g in 0..G {
                    total[r][g] = self.simd.mul_add(value, delta[g], total[r][g]);
                }
            }
            (from, at) = (from + self.stride, at + self.strips);
        }
        let column = strip * S::LANES;
        let width = (G * S::LANES).min(self.outputs - column);
        for r in 0..R {
            let from = (row + r) * self.outputs + column;
            add(self.simd, &mut self.gradient[from..][..width], &total[r]);
        }
    }
}

/// Adds the sum of `delta` over the samples to `gradient`: the gradient of the bias.
#[inline(always)]
pub(in crate::model) fn sum<S: Simd>(simd: S, gradient: &mut [f32], delta: &[S::V], strips: usize) {
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
        add(simd, &mut gradient[column..][..width], &[total]);
    }
}
