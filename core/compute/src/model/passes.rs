//! Forward and backward pass of a block of samples through a network.

use core::ops::Range;

use bytemuck::cast_slice;

use super::kernels::Memory;
use super::layer::{Context, Input, Layer, Propagation, Total};
use super::loss::{self, Loss};
use super::network::{Network, Stage};
use super::softmax;
use super::workspace::Workspace;
use crate::examples::Examples;
use crate::simd::{Simd, Work};

/// Samples per block: a weight matrix is read once for the whole block, and intermediate values
/// stay in the cache.
const BLOCK: usize = 64;

/// The gradient of the mean loss over `rows`, which replaces the values of `gradient`.
pub(super) struct Gradient<'a> {
    pub(super) network: &'a Network,
    pub(super) params: &'a [f32],
    pub(super) examples: &'a Examples,
    pub(super) rows: &'a [u32],
    pub(super) gradient: &'a mut [f32],
    pub(super) workspace: &'a mut Workspace,
}

/// Computes a gradient; the output is the sum of the losses. Calls `finished` with the keys and
/// values of each layer as soon as they are final: during the last block of rows, the last layer
/// first.
pub(super) struct ByLayer<'a> {
    pub(super) gradient: Gradient<'a>,
    // Not a type parameter: a second copy of all passes would add a tenth of a megabyte of code.
    pub(super) finished: &'a mut dyn FnMut(Range<usize>, &[f32]),
}

impl Work for ByLayer<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let Self { gradient, finished } = self;
        let Gradient { network, params, examples, rows, gradient, workspace } = gradient;
        let scale = 1.0 / rows.len() as f32;
        let mut loss = 0.0;
        let mut blocks = rows.chunks(BLOCK);
        let mut is_first = true;
        while let Some(block) = blocks.next() {
            workspace.gather(examples, block.iter().map(|&row| row as usize));
            network.forward(simd, params, workspace);
            let is_last = blocks.len() == 0;
            let gradient = Total { values: &mut *gradient, is_first };
            loss += network.backward(simd, params, scale, gradient, workspace, |keys, gradient| {
                if is_last {
                    finished(keys, gradient);
                }
            });
            is_first = false;
        }
        loss
    }
}

/// Writes the predictions for `rows` to `out`: log-probabilities of the classes, or values.
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
        let (outputs, predictions) = (network.outputs, network.target.predictions() as usize);
        for (block, out) in out.chunks_mut(BLOCK * predictions).enumerate() {
            let begin = rows.start + block * BLOCK;
            workspace.gather(examples, begin..begin + out.len() / predictions);
            network.forward(simd, params, workspace);
            let Some(last) = workspace.outputs.get_mut(network.stages.len() - 1) else { continue };
            let strips = outputs.div_ceil(S::LANES);
            let last = last.write(workspace.samples.len() * strips);
            if network.loss == Loss::Nll {
                softmax::log_softmax(simd, (last, strips), outputs, out);
                continue;
            }
            let last = last.chunks_exact(strips).map(|row| cast_slice::<S::V, f32>(row)[0]);
            for (output, out) in last.zip(out.chunks_exact_mut(predictions)) {
                match out {
                    [value] => *value = output,
                    classes => {
                        classes.copy_from_slice(&loss::log_probabilities(output.into()));
                    }
                }
            }
        }
    }
}

impl Network {
    /// Runs the gathered block through all layers.
    #[inline(always)]
    fn forward<S: Simd>(&self, simd: S, params: &[f32], workspace: &mut Workspace) {
        let Workspace { samples: block, outputs, panel, .. } = workspace;
        let samples = block.len();
        outputs.resize_with(self.stages.len().max(outputs.len()), Memory::new);
        for (index, Stage { layer, activation, keys }) in self.stages.iter().enumerate() {
            let (before, rest) = outputs.split_at_mut(index);
            let input = match before.last() {
                None => Input::Examples(&*block),
                Some(previous) => {
                    let strips = layer.inputs().div_ceil(S::LANES);
                    Input::Previous(previous.read(samples * strips))
                }
            };
            let output = rest[0].write(samples * layer.outputs().div_ceil(S::LANES));
            let context = Context { simd, params: &params[keys.clone()], panel: &mut *panel };
            layer.forward(context, input, output);
            if let Some(activation) = activation {
                activation.forward(simd, output);
            }
        }
    }

    /// Puts the gradient of the block of the last [`forward`](Self::forward), times `scale`, into
    /// `gradient`, and returns the sum of its losses. Calls `added` with the keys and the gradient
    /// of each layer.
    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        simd: S,
        params: &[f32],
        scale: f32,
        gradient: Total<'_>,
        workspace: &mut Workspace,
        mut added: impl FnMut(Range<usize>, &[f32]),
    ) -> f64 {
        let Workspace { samples: block, outputs, deltas, panel, .. } = workspace;
        let Total { values, is_first } = gradient;
        let samples = block.len();
        let last = self.stages.len() - 1;
        let strips = self.outputs.div_ceil(S::LANES);
        let results = (outputs[last].write::<S::V>(samples * strips), strips);
        let loss = match self.loss {
            Loss::Nll => softmax::nll_backward(simd, results, self.outputs, block, scale),
            loss => loss::backward::<S>(loss, results, block, scale),
        };
        let [current, next] = deltas;
        for (index, Stage { layer, keys, .. }) in self.stages.iter().enumerate().rev() {
            let (before, rest) = outputs.split_at(index);
            let delta = if index == last { &rest[0] } else { &*current };
            let delta = delta.read(samples * layer.outputs().div_ceil(S::LANES));
            let registers = samples * layer.inputs().div_ceil(S::LANES);
            let input = match before.last() {
                None => Input::Examples(&*block),
                Some(output) => {
                    let (output, delta) = (output.read(registers), next.write(registers));
                    delta.fill(simd.splat(0.0));
                    Input::Previous(Propagation { output, delta })
                }
            };
            let context = Context { simd, params: &params[keys.clone()], panel: &mut *panel };
            let gradient = Total { values: &mut values[keys.clone()], is_first };
            layer.backward(context, input, delta, gradient);
            added(keys.clone(), &values[keys.clone()]);
            let Some((previous, output)) = self.stages[..index].last().zip(before.last()) else {
                break;
            };
            if let Some(activation) = previous.activation {
                activation.backward(simd, next.write(registers), output.read(registers));
            }
            core::mem::swap(current, next);
        }
        loss
    }
}
