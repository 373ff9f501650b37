//! The values of a picture as one row.

use bytemuck::{cast_slice, cast_slice_mut};

use super::{Context, Input, Layer, Picture, Propagation, Total};
use crate::simd::Simd;

/// All values of a picture as one row, channel by channel: PyTorch's `Flatten`.
#[derive(Debug)]
pub(in crate::model) struct Flatten {
    input: Picture,
}

impl Flatten {
    pub(in crate::model) const fn new(input: Picture) -> Self {
        Self { input }
    }

    /// Calls `each` with the place of each value in the picture and in the row of a sample.
    #[inline(always)]
    fn values(&self, samples: usize, lanes: usize, mut each: impl FnMut(usize, usize)) {
        let (pixels, channels) = (self.input.pixels() as usize, self.input.channels as usize);
        let pixel_length = self.input.strips(lanes) * lanes;
        let row_length = self.output().strips(lanes) * lanes;
        for sample in 0..samples {
            for pixel in 0..pixels {
                let from = (sample * pixels + pixel) * pixel_length;
                for channel in 0..channels {
                    each(from + channel, sample * row_length + channel * pixels + pixel);
                }
            }
        }
    }
}

impl Layer for Flatten {
    #[inline(always)]
    fn output(&self) -> Picture {
        Picture::row(self.input.values())
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let (values, out): (&[f32], &mut [f32]) = (cast_slice(input.one()), cast_slice_mut(output));
        self.values(context.samples, S::LANES, |from, to| out[to] = values[from]);
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        _: Total<'_>,
    ) {
        let previous = input.one();
        let (delta, out): (&[f32], &mut [f32]) =
            (cast_slice(delta), cast_slice_mut(previous.delta));
        self.values(context.samples, S::LANES, |to, from| out[to] += delta[from]);
    }
}
