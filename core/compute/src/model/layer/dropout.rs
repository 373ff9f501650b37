//! Dropout.

use bytemuck::cast_slice_mut;

use super::{Context, Input, Layer, Picture, Propagation, Total};
use crate::simd::Simd;

/// Sets each value to 0 with a probability while the network is trained, and scales the others so
/// that the mean stays (Srivastava et al., JMLR 2014): PyTorch's `Dropout`.
#[derive(Debug)]
pub(in crate::model) struct Dropout {
    pub(in crate::model) size: Picture,
    /// The probability, from 0 to below 1.
    pub(in crate::model) rate: f32,
}

impl Layer for Dropout {
    #[inline(always)]
    fn output(&self) -> Picture {
        self.size
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let Context { simd, draws, kept, .. } = context;
        let input = input.one();
        let Some(draws) = draws else { return output.copy_from_slice(input) };
        let factors = kept.write::<S::V>(input.len());
        let (pixels, strips) = (self.size.pixels() as usize, self.size.strips(S::LANES));
        // 16 bits for each value: a rate is met to 2^-17.
        let dropped = libm::roundf(self.rate * 65536.0) as u64;
        let factor = 1.0 / (1.0 - dropped as f32 / 65536.0);
        for (sample, factors) in factors.chunks_exact_mut(pixels * strips).enumerate() {
            let mut random = draws.of(sample);
            for pixel in factors.chunks_exact_mut(strips) {
                let values: &mut [f32] = cast_slice_mut(pixel);
                // The lanes after the last channel draw nothing, so that the number of lanes has
                // no effect.
                let (values, rest) = values.split_at_mut(self.size.channels as usize);
                rest.fill(factor);
                for four in values.chunks_mut(4) {
                    let mut bits = random.bits();
                    for value in four {
                        *value = if bits & 0xffff < dropped { 0.0 } else { factor };
                        bits >>= 16;
                    }
                }
            }
        }
        for ((out, value), factor) in output.iter_mut().zip(input).zip(factors) {
            *out = simd.mul(*value, *factor);
        }
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        _: Total<'_>,
    ) {
        let Context { simd, kept, .. } = context;
        let factors = kept.read::<S::V>(delta.len());
        for ((to, delta), factor) in input.one().delta.iter_mut().zip(delta).zip(factors) {
            *to = simd.mul_add(*delta, *factor, *to);
        }
    }
}
