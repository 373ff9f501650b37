//! One-hot columns: each sample names one column per group, so that rows of the weights are
//! selected instead of multiplied.

use super::lanes::{add, load};
use super::tiles::{MOST_STRIPS, Tiles, cover};
use crate::examples::Records;
use crate::simd::Simd;

/// Sets the outputs of every sample to the bias plus the rows of the weights that its one-hot
/// columns name; without `samples`, to the bias. `params` are the weights, one row per input, and
/// all parameters after them.
#[inline(always)]
pub(in crate::model) fn start<S: Simd>(
    simd: S,
    out: &mut [S::V],
    strips: usize,
    bias: &[f32],
    params: &[f32],
    samples: Option<&Records>,
) {
    let rows = out.len() / strips;
    let first = [simd.splat(0.0); MOST_STRIPS];
    cover::<S>(rows, strips, &mut Start { simd, out, strips, bias, first, params, samples });
}

struct Start<'a, S: Simd> {
    simd: S,
    out: &'a mut [S::V],
    strips: usize,
    bias: &'a [f32],
    /// The bias of the current strips.
    first: [S::V; MOST_STRIPS],
    params: &'a [f32],
    samples: Option<&'a Records>,
}

impl<S: Simd> Tiles for Start<'_, S> {
    #[inline(always)]
    fn begin<const G: usize>(&mut self, strip: usize) {
        for g in 0..G {
            self.first[g] = load::<S>(&self.bias[(strip + g) * S::LANES..]);
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let column = strip * S::LANES;
        let mut first = [self.simd.splat(0.0); G];
        for g in 0..G {
            first[g] = self.first[g];
        }
        for sample in row..row + R {
            let mut total = first;
            for &input in self.samples.map_or(&[][..], |samples| samples.hot(sample)) {
                let from = usize::from(input) * self.bias.len() + column;
                let weights = &self.params[from..];
                // The last rows may end within a tile: `load` then fills the missing lanes with
                // zeros.
                match weights.get(..G * S::LANES) {
                    Some(weights) => {
                        for g in 0..G {
                            let weights = load::<S>(&weights[g * S::LANES..]);
                            total[g] = self.simd.add(total[g], weights);
                        }
                    }
                    None => {
                        for g in 0..G {
                            let weights = weights.get(g * S::LANES..).unwrap_or_default();
                            total[g] = self.simd.add(total[g], load::<S>(weights));
                        }
                    }
                }
            }
            let out = &mut self.out[sample * self.strips + strip..][..G];
            for g in 0..G {
                out[g] = total[g];
            }
        }
    }
}

/// Adds each sample's `delta` to the rows of `gradient` that the sample's one-hot columns name.
#[inline(always)]
pub(in crate::model) fn scatter<S: Simd>(
    simd: S,
    gradient: &mut [f32],
    outputs: usize,
    samples: &Records,
    (delta, strips): (&[S::V], usize),
) {
    let rows = delta.len() / strips;
    cover::<S>(rows, strips, &mut Scatter { simd, gradient, outputs, samples, delta, strips });
}

struct Scatter<'a, S: Simd> {
    simd: S,
    gradient: &'a mut [f32],
    outputs: usize,
    samples: &'a Records,
    delta: &'a [S::V],
    strips: usize,
}

impl<S: Simd> Tiles for Scatter<'_, S> {
    #[inline(always)]
    fn begin<const G: usize>(&mut self, _: usize) {}

    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize) {
        let column = strip * S::LANES;
        let width = (G * S::LANES).min(self.outputs - column);
        for sample in row..row + R {
            let from = &self.delta[sample * self.strips + strip..][..G];
            let mut delta = [self.simd.splat(0.0); G];
            for g in 0..G {
                delta[g] = from[g];
            }
            for &input in self.samples.hot(sample) {
                let from = usize::from(input) * self.outputs + column;
                add(self.simd, &mut self.gradient[from..][..width], &delta);
            }
        }
    }
}
