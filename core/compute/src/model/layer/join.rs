//! Layers with two inputs.

use bytemuck::{cast_slice, cast_slice_mut};

use super::{Context, Input, Layer, Picture, Propagation, Total};
use crate::simd::Simd;

/// The sum of two pictures of the same size.
#[derive(Debug)]
pub(in crate::model) struct Add {
    pub(in crate::model) size: Picture,
}

impl Layer for Add {
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
        let [a, b] = input.two();
        for ((out, a), b) in output.iter_mut().zip(a).zip(b) {
            *out = context.simd.add(*a, *b);
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
        let both = input.two();
        for Propagation { delta: before, .. } in both {
            for (to, delta) in before.iter_mut().zip(delta) {
                *to = context.simd.add(*to, *delta);
            }
        }
    }
}

/// The channels of one picture, then the channels of another with as many pixels.
#[derive(Debug)]
pub(in crate::model) struct Concatenate {
    /// The pictures.
    pub(in crate::model) inputs: [Picture; 2],
}

impl Concatenate {
    /// The first channel of each input in the output, and the number of its channels.
    fn parts(&self) -> [(usize, usize); 2] {
        let [first, second] = self.inputs.map(|input| input.channels as usize);
        [(0, first), (first, second)]
    }
}

impl Layer for Concatenate {
    #[inline(always)]
    fn output(&self) -> Picture {
        let [first, second] = self.inputs;
        Picture { channels: first.channels.saturating_add(second.channels), ..first }
    }

    #[inline(always)]
    fn forward<S: Simd>(&self, _: Context<'_, S>, input: Input<'_, &[S::V]>, output: &mut [S::V]) {
        let both = input.two();
        let output: &mut [f32] = cast_slice_mut(output);
        let length = self.output().strips(S::LANES) * S::LANES;
        for ((values, (begin, channels)), of) in both.into_iter().zip(self.parts()).zip(self.inputs)
        {
            let rows = cast_slice::<_, f32>(values).chunks_exact(of.strips(S::LANES) * S::LANES);
            for (out, row) in output.chunks_exact_mut(length).zip(rows) {
                out[begin..begin + channels].copy_from_slice(&row[..channels]);
            }
        }
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        _: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        _: Total<'_>,
    ) {
        let both = input.two();
        let delta: &[f32] = cast_slice(delta);
        let length = self.output().strips(S::LANES) * S::LANES;
        for ((before, (begin, channels)), of) in both.into_iter().zip(self.parts()).zip(self.inputs)
        {
            let rows: &mut [f32] = cast_slice_mut(before.delta);
            let rows = rows.chunks_exact_mut(of.strips(S::LANES) * S::LANES);
            for (row, delta) in rows.zip(delta.chunks_exact(length)) {
                for (to, delta) in row.iter_mut().zip(&delta[begin..begin + channels]) {
                    *to += delta;
                }
            }
        }
    }
}
