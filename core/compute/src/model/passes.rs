//! Forward and backward pass of a block of samples through a network.

use core::ops::Range;

use bytemuck::cast_slice;

use super::kernels::{self, Memory, Weights};
use super::loss;
use super::network::{Linear, Network};
use super::workspace::Workspace;
use crate::examples::Examples;
use crate::simd::{Simd, Work};

/// Samples per block: a weight matrix is read once for the whole block, and intermediate values
/// stay in the cache.
const BLOCK: usize = 64;

/// Adds the gradient of the mean loss over `rows` to `gradient`; the output is the sum of the
/// losses.
pub(super) struct Gradient<'a> {
    pub(super) network: &'a Network,
    pub(super) params: &'a [f32],
    pub(super) examples: &'a Examples,
    pub(super) rows: &'a [u32],
    pub(super) gradient: &'a mut [f32],
    pub(super) workspace: &'a mut Workspace,
}

impl Work for Gradient<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let Self { network, params, examples, rows, gradient, workspace } = self;
        let scale = 1.0 / rows.len() as f32;
        let mut loss = 0.0;
        for block in rows.chunks(BLOCK) {
            workspace.gather(examples, block.iter().map(|&row| row as usize));
            network.forward(simd, params, workspace);
            loss += network.backward(simd, params, scale, gradient, workspace);
        }
        loss
    }
}

/// Writes the log-probabilities of the classes for `rows` to `out`.
pub(super) struct Evaluate<'a> {
    pub(super) network: &'a Network,
    pub(super) params: &'a [f32],
    pub(super) examples: &'a Examples,
    pub(super) rows: Range<usize>,
    pub(super) out: &'a mut [f32],
    pub(super) workspace: &'a mut Workspace,
}

impl Work for Evaluate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { network, params, examples, rows, out, workspace } = self;
        let classes = network.shape.classes as usize;
        for (block, out) in out.chunks_mut(BLOCK * classes).enumerate() {
            let begin = rows.start + block * BLOCK;
            workspace.gather(examples, begin..begin + out.len() / classes);
            network.forward(simd, params, workspace);
            if let Some(logits) = workspace.outputs.get_mut(network.layers.len() - 1) {
                let strips = classes.div_ceil(S::LANES);
                let logits = logits.write(workspace.samples.len() * strips);
                loss::log_softmax(simd, (logits, strips), classes, out);
            }
        }
    }
}

impl Network {
    /// Runs the gathered block through all layers; the last output is the logits.
    #[inline(always)]
    fn forward<S: Simd>(&self, simd: S, params: &[f32], workspace: &mut Workspace) {
        let Workspace { samples: block, outputs, panel, .. } = workspace;
        let samples = block.len();
        outputs.resize_with(self.layers.len().max(outputs.len()), Memory::new);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, rest) = outputs.split_at_mut(index);
            let strips = layer.outputs.div_ceil(S::LANES);
            let out: &mut [S::V] = rest[0].write(samples * strips);
            let bias = &params[layer.bias.clone()];
            let values = &params[layer.weight.start..];
            let (input, stride, inputs, hot): (&[f32], _, _, _) = match before.last() {
                None => {
                    let dense = self.shape.dense as usize;
                    (block.values(), block.stride(), dense, Some(&*block))
                }
                Some(input) => {
                    let strips = layer.inputs.div_ceil(S::LANES);
                    let input = cast_slice(input.read::<S::V>(samples * strips));
                    (input, strips * S::LANES, layer.inputs, None)
                }
            };
            kernels::start(simd, out, strips, bias, values, hot);
            let weights = Weights { values, inputs, outputs: layer.outputs, transposed: false };
            kernels::multiply(simd, out, strips, (input, stride), weights, panel);
            if index + 1 < self.layers.len() {
                self.activation.forward(simd, out);
            }
        }
    }

    /// Adds the gradient of the block of the last [`forward`](Self::forward), times `scale`, and
    /// returns the sum of its losses.
    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        simd: S,
        params: &[f32],
        scale: f32,
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f64 {
        let Workspace { samples: block, outputs, deltas, panel, .. } = workspace;
        let samples = block.len();
        let classes = self.shape.classes as usize;
        let [current, next] = deltas;
        let mut total = 0.0;
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let (before, rest) = outputs.split_at_mut(index);
            let strips = layer.outputs.div_ceil(S::LANES);
            let delta: &[S::V] = if index + 1 == self.layers.len() {
                let logits = rest[0].write(samples * strips);
                total = loss::nll_backward(simd, (logits, strips), classes, block, scale);
                logits
            } else {
                current.read(samples * strips)
            };
            kernels::sum(simd, &mut gradient[layer.bias.clone()], delta, strips);
            // The first layer reads the examples: there is no earlier layer to propagate `delta`
            // to.
            let Some(output) = before.last() else {
                let weight = &mut gradient[layer.weight.clone()];
                let dense = self.shape.dense as usize;
                let (of_dense, outputs) = (&mut weight[..dense * layer.outputs], layer.outputs);
                let rows = (block.values(), block.stride());
                kernels::outer(simd, of_dense, outputs, rows, (delta, strips));
                if self.shape.hot > 0 {
                    kernels::scatter(simd, weight, outputs, block, (delta, strips));
                }
                break;
            };
            let before = layer.inputs.div_ceil(S::LANES);
            let output: &[S::V] = output.read(samples * before);
            let rows = (cast_slice(output), before * S::LANES);
            let weight = &mut gradient[layer.weight.clone()];
            kernels::outer(simd, weight, layer.outputs, rows, (delta, strips));
            let back: &mut [S::V] = next.write(samples * before);
            back.fill(simd.splat(0.0));
            let Linear { inputs, outputs, .. } = *layer;
            let values = &params[layer.weight.start..];
            let weights = Weights { values, inputs, outputs, transposed: true };
            let delta = (cast_slice(delta), strips * S::LANES);
            kernels::multiply(simd, back, before, delta, weights, panel);
            self.activation.backward(simd, back, output);
            core::mem::swap(current, next);
        }
        total
    }
}
