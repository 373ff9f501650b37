//! Pooling of the pixels under a window.

use super::{Context, Input, Layer, Picture, Propagation, Total, Window};
use crate::simd::Simd;

/// What becomes of the pixels under the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Pooling {
    /// The greatest value; the first one, of several: PyTorch's `MaxPool2d`.
    Greatest,
    /// The mean over all places of the window, of which those outside the picture are zeros:
    /// PyTorch's `AvgPool2d`.
    Mean,
}

/// The greatest value or the mean of each channel under a window.
#[derive(Debug)]
pub(in crate::model) struct Pool {
    input: Picture,
    output: Picture,
    window: Window,
    pooling: Pooling,
}

impl Pool {
    /// `None` if the window does not fit the picture.
    pub(in crate::model) fn new(input: Picture, window: Window, pooling: Pooling) -> Option<Self> {
        Some(Self { input, output: window.places(input)?, window, pooling })
    }

    /// The weight of a pixel in a mean.
    fn share(&self) -> f32 {
        1.0 / self.window.len() as f32
    }
}

impl Layer for Pool {
    #[inline(always)]
    fn output(&self) -> Picture {
        self.output
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let Context { simd, samples, kept, .. } = context;
        let (input, strips) = (input.one(), self.input.strips(S::LANES));
        let (before, pixels) = (self.input.pixels() as usize * strips, self.output.pixels());
        let winners = kept.write::<S::V>(output.len());
        let share = simd.splat(self.share());
        let mut rows = output.chunks_exact_mut(strips).zip(winners.chunks_exact_mut(strips));
        for picture in input[..samples * before].chunks_exact(before) {
            for place in 0..pixels {
                let Some((out, winners)) = rows.next() else { return };
                let first = match self.pooling {
                    Pooling::Greatest => f32::NEG_INFINITY,
                    Pooling::Mean => 0.0,
                };
                out.fill(simd.splat(first));
                winners.fill(simd.splat(0.0));
                self.window.taps(self.input, self.output, place, |tap, pixel| {
                    let tap = simd.splat(tap as f32);
                    let row = &picture[pixel as usize * strips..][..strips];
                    match self.pooling {
                        Pooling::Greatest => {
                            for ((out, winner), value) in out.iter_mut().zip(&mut *winners).zip(row)
                            {
                                *winner = simd.if_less(*out, *value, tap, *winner);
                                // A NaN stays: no value is less, and it is not less than a value.
                                *out = simd.if_less(*value, *out, *out, *value);
                            }
                        }
                        Pooling::Mean => {
                            for (out, value) in out.iter_mut().zip(row) {
                                *out = simd.mul_add(*value, share, *out);
                            }
                        }
                    }
                });
            }
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
        let Context { simd, samples, kept, .. } = context;
        let Propagation { delta: before, .. } = input.one();
        let strips = self.input.strips(S::LANES);
        let (length, pixels) = (self.input.pixels() as usize * strips, self.output.pixels());
        let winners = kept.read::<S::V>(delta.len());
        let (zero, share) = (simd.splat(0.0), simd.splat(self.share()));
        let mut rows = delta.chunks_exact(strips).zip(winners.chunks_exact(strips));
        for picture in before[..samples * length].chunks_exact_mut(length) {
            for place in 0..pixels {
                let Some((delta, winners)) = rows.next() else { return };
                self.window.taps(self.input, self.output, place, |tap, pixel| {
                    let (low, high) = (simd.splat(tap as f32 - 0.5), simd.splat(tap as f32 + 0.5));
                    let row = &mut picture[pixel as usize * strips..][..strips];
                    match self.pooling {
                        Pooling::Greatest => {
                            for ((to, delta), winner) in row.iter_mut().zip(delta).zip(winners) {
                                let won = simd.if_less(low, *winner, *delta, zero);
                                let won = simd.if_less(*winner, high, won, zero);
                                *to = simd.add(*to, won);
                            }
                        }
                        Pooling::Mean => {
                            for (to, delta) in row.iter_mut().zip(delta) {
                                *to = simd.mul_add(*delta, share, *to);
                            }
                        }
                    }
                });
            }
        }
    }
}
