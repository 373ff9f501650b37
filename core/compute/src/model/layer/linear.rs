//! A linear layer.

use alloc::vec;
use alloc::vec::Vec;

use bytemuck::cast_slice;

use super::{Context, Input, Layer, Propagation, Total};
use crate::model::kernels::{self, Weights};
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
}

impl Linear {
    pub(in crate::model) const fn new(inputs: usize, outputs: usize) -> Self {
        Self { inputs, outputs }
    }

    const fn weights<'a>(&self, values: &'a [f32], transposed: bool) -> Weights<'a> {
        Weights { values, inputs: self.inputs, outputs: self.outputs, transposed }
    }
}

impl Layer for Linear {
    #[inline(always)]
    fn inputs(&self) -> usize {
        self.inputs
    }

    #[inline(always)]
    fn outputs(&self) -> usize {
        self.outputs
    }

    fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        vec![("weight", vec![self.inputs, self.outputs]), ("bias", vec![self.outputs])]
    }

    /// Weights and biases are uniform within 1 / sqrt(inputs) of zero, as in PyTorch.
    fn initial(&self, rng: &mut Random, params: &mut [f32]) {
        let bound = 1.0 / libm::sqrt(self.inputs as f64);
        params.fill_with(|| ((2.0 * rng.unit() - 1.0) * bound) as f32);
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let Context { simd, params, panel } = context;
        let strips = self.outputs.div_ceil(S::LANES);
        let (rows, stride, columns, hot): (&[f32], _, _, _) = match input {
            Input::Examples(block) => {
                (block.values(), block.stride(), block.columns(), Some(block))
            }
            Input::Previous(values) => {
                let stride = self.inputs.div_ceil(S::LANES) * S::LANES;
                (cast_slice(values), stride, self.inputs, None)
            }
        };
        let bias = &params[self.inputs * self.outputs..];
        kernels::start(simd, output, strips, bias, params, hot);
        let weights = Weights { inputs: columns, ..self.weights(params, false) };
        kernels::multiply(simd, output, strips, (rows, stride), weights, panel);
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        gradient: Total<'_>,
    ) {
        let Context { simd, params, panel } = context;
        let Total { values, is_first } = gradient;
        let (weight, bias) = values.split_at_mut(self.inputs * self.outputs);
        let strips = self.outputs.div_ceil(S::LANES);
        kernels::sum(simd, (bias, is_first), delta, strips);
        match input {
            Input::Examples(block) => {
                let (of_dense, rest) = weight.split_at_mut(block.columns() * self.outputs);
                let (rows, of_dense) = ((block.values(), block.stride()), (of_dense, is_first));
                kernels::outer(simd, of_dense, self.outputs, rows, (delta, strips), panel);
                if is_first {
                    rest.fill(0.0);
                }
                if block.has_hot() {
                    kernels::scatter(simd, weight, self.outputs, block, (delta, strips));
                }
            }
            Input::Previous(previous) => {
                let before = self.inputs.div_ceil(S::LANES);
                let rows = (cast_slice(previous.output), before * S::LANES);
                let weight = (weight, is_first);
                kernels::outer(simd, weight, self.outputs, rows, (delta, strips), panel);
                let delta = (cast_slice(delta), strips * S::LANES);
                let weights = self.weights(params, true);
                kernels::multiply(simd, previous.delta, before, delta, weights, panel);
            }
        }
    }
}
