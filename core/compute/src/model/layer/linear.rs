//! A linear layer.

use alloc::vec;
use alloc::vec::Vec;

use bytemuck::cast_slice;

use super::rows::{Rows, Source};
use super::{Context, Input, Layer, Picture, Propagation, Total};
use crate::model::kernels::{self, Class, Weights};
use crate::rng::Random;
use crate::simd::Simd;

/// The product with a matrix of weights, plus a bias: PyTorch's `Linear`.
///
/// The weights are `[inputs, outputs]` row-major, so that the weights of one input column are
/// contiguous and a one-hot column reads one row. The bias follows them.
#[derive(Debug)]
pub(in crate::model) struct Linear {
    inputs: usize,
    outputs: usize,
    rows: [Class; 1],
}

/// Draws weights and biases of sums of this many inputs: uniform within 1 / sqrt(inputs) of zero.
pub(super) fn draw(inputs: u64, rng: &mut Random, params: &mut [f32]) {
    let bound = 1.0 / libm::sqrt(inputs as f64);
    params.fill_with(|| ((2.0 * rng.unit() - 1.0) * bound) as f32);
}

impl Linear {
    pub(in crate::model) fn new(inputs: u32, outputs: u32) -> Self {
        Self { inputs: inputs as usize, outputs: outputs as usize, rows: [Class::rows()] }
    }

    const fn weights<'a>(&self, values: &'a [f32], transposed: bool) -> Weights<'a> {
        Weights { values, inputs: self.inputs, outputs: self.outputs, transposed }
    }

    /// One row of values for each sample.
    const fn rows<'a>(&'a self, values: &'a [f32], each: usize, samples: usize) -> Rows<'a> {
        let source = Source { values, each, pixel: each };
        Rows { source, classes: &self.rows, samples, targets: 1 }
    }
}

impl Layer for Linear {
    #[inline(always)]
    fn output(&self) -> Picture {
        Picture::row(self.outputs as u32)
    }

    fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        vec![("weight", vec![self.inputs, self.outputs]), ("bias", vec![self.outputs])]
    }

    /// As in PyTorch.
    fn initial(&self, rng: &mut Random, params: &mut [f32]) {
        draw(self.inputs as u64, rng, params);
    }

    fn products(&self) -> u64 {
        self.inputs as u64 * self.outputs as u64
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let Context { simd, params, samples, crew, .. } = context;
        let strips = self.outputs.div_ceil(S::LANES);
        let (values, stride, columns, hot): (&[f32], _, _, _) = match input {
            Input::Examples(block) => {
                (block.values(), block.stride(), block.columns(), Some(block))
            }
            input => {
                let stride = self.inputs.div_ceil(S::LANES) * S::LANES;
                (cast_slice(input.one()), stride, self.inputs, None)
            }
        };
        let bias = &params[self.inputs * self.outputs..];
        kernels::start(simd, output, strips, bias, params, hot);
        let weights = Weights { inputs: columns, ..self.weights(params, false) };
        self.rows(values, stride, samples).multiply(simd, crew, weights, (output, strips));
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        gradient: Total<'_>,
    ) {
        let Context { simd, params, samples, mut crew, .. } = context;
        let Total { values, is_first, .. } = gradient;
        let (weight, bias) = values.split_at_mut(self.inputs * self.outputs);
        let strips = self.outputs.div_ceil(S::LANES);
        kernels::sum(simd, (bias, is_first), delta, strips);
        match input {
            Input::Examples(block) => {
                let columns = block.columns();
                let (of_dense, rest) = weight.split_at_mut(columns * self.outputs);
                let rows = self.rows(block.values(), block.stride(), samples);
                let sizes = (columns, self.outputs);
                rows.outer(simd, crew, (of_dense, is_first), sizes, (delta, strips));
                if is_first {
                    rest.fill(0.0);
                }
                if block.has_hot() {
                    kernels::scatter(simd, weight, self.outputs, block, (delta, strips));
                }
            }
            input => {
                let previous = input.one();
                let before = self.inputs.div_ceil(S::LANES);
                let sizes = (self.inputs, self.outputs);
                let rows = self.rows(cast_slice(previous.output), before * S::LANES, samples);
                rows.outer(simd, crew.lend(), (weight, is_first), sizes, (delta, strips));
                let rows = self.rows(cast_slice(delta), strips * S::LANES, samples);
                let (out, weights) = ((previous.delta, before), self.weights(params, true));
                rows.multiply(simd, crew, weights, out);
            }
        }
    }
}
