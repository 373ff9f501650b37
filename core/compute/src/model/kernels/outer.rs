//! Sums over samples: gradients of weights and biases.

use super::lanes::put;
use super::memory::Memory;
use super::tiles::{Tiles, cover_by_rows};
use crate::simd::{Kernel, Simd};

/// Sums over the samples: input times `delta`, with one row per input, as the weights. The first
/// sums replace the values of `gradient`, later ones are added. `input` has rows of `stride`
/// values, `delta` rows of `strips`.
#[inline(always)]
pub(in crate::model) fn outer<S: Simd>(
    simd: S,
    (gradient, is_first): (&mut [f32], bool),
    outputs: usize,
    (input, stride): (&[f32], usize),
    (delta, strips): (&[S::V], usize),
    panel: &mut Memory,
) {
    let samples = delta.len() / strips;
    simd.apart(Outer {
        simd,
        gradient,
        is_first,
        outputs,
        input,
        stride,
        delta,
        strips,
        samples,
        panel,
    });
}

struct Outer<'a, S: Simd> {
    simd: S,
    gradient: &'a mut [f32],
    is_first: bool,
    outputs: usize,
    input: &'a [f32],
    stride: usize,
    delta: &'a [S::V],
    strips: usize,
    samples: usize,
    panel: &'a mut Memory,
}

impl<S: Simd> Kernel for Outer<'_, S> {
    #[inline(always)]
    fn run(mut self) {
        let inputs = self.gradient.len() / self.outputs;
        cover_by_rows::<S>(inputs, self.strips, &mut self);
    }
}

impl<S: Simd> Tiles for Outer<'_, S> {
    /// Copies the strips of all samples: each is read once for every few inputs, and two adjacent
    /// samples are a whole row apart.
    #[inline(always)]
    fn begin<const G: usize>(&mut self, strip: usize) {
        let panel = self.panel.write::<S::V>(self.delta.len());
        let panel = panel[strip * self.samples..].as_chunks_mut::<G>().0;
        let mut at = strip;
        for sample in 0..self.samples {
            let delta = &self.delta[at..][..G];
            for g in 0..G {
                panel[sample][g] = delta[g];
            }
            at += self.strips;
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let panel = self.panel.read::<S::V>(self.delta.len());
        let panel = &panel[strip * self.samples..].as_chunks::<G>().0[..self.samples];
        let mut total = [[self.simd.splat(0.0); G]; R];
        let (mut from, mut sample) = (row, 0);
        // Sums over all samples in registers, so that `gradient` is read and written once.
        while let Some(input) = self.input.get(from..from + R)
            && sample < panel.len()
        {
            for r in 0..R {
                let value = self.simd.splat(input[r]);
                for g in 0..G {
                    total[r][g] = self.simd.mul_add(value, panel[sample][g], total[r][g]);
                }
            }
            (from, sample) = (from + self.stride, sample + 1);
        }
        let column = strip * S::LANES;
        let width = (G * S::LANES).min(self.outputs - column);
        for r in 0..R {
            let from = (row + r) * self.outputs + column;
            put(self.simd, &mut self.gradient[from..][..width], &total[r], self.is_first);
        }
    }
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
