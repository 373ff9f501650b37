//! Forward and backward pass of a block of samples through a network.

use core::ops::Range;

use bytemuck::cast_slice;

use super::draws::Draws;
use super::kernels::Memory;
use super::layer::{Context, Input, Layer, Propagation, Total};
use super::loss;
use super::network::{Inputs, Network, Stage};
use super::team::Crew;
use super::workspace::Workspace;
use super::{LayerGradient, MiniBatch, Objective as _, softmax};
use crate::examples::Examples;
use crate::simd::{Simd, Work};

/// Most samples per block of an evaluation.
const EVALUATED: usize = 64;

/// The gradient of the mean loss over a mini-batch, which replaces the values of `gradient`.
pub(super) struct Gradient<'a> {
    pub(super) network: &'a Network,
    pub(super) params: &'a [f32],
    pub(super) batch: MiniBatch<'a>,
    pub(super) gradient: &'a mut [f32],
    pub(super) workspace: &'a mut Workspace,
}

/// Computes a gradient; the output is the sum of the losses. Calls `finished` with the keys and
/// values of each layer as soon as they are final: during the last block of rows, the last layer
/// first.
pub(super) struct ByLayer<'a> {
    pub(super) gradient: Gradient<'a>,
    // Not a type parameter: a second copy of all passes would add a tenth of a megabyte of code.
    pub(super) finished: &'a mut dyn FnMut(LayerGradient<'_>),
}

impl Work for ByLayer<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let Self { gradient, finished } = self;
        let Gradient { network, params, batch, gradient, workspace } = gradient;
        let MiniBatch { examples, rows, draws } = batch;
        let scale = 1.0 / rows.len() as f32;
        let mut loss = 0.0;
        let mut blocks = rows.chunks(network.block);
        let count = blocks.len();
        let mut is_first = true;
        while let Some(block) = blocks.next() {
            workspace.gather(examples, block.iter().map(|&row| row as usize));
            let draws = Draws { stream: draws, rows: block };
            if let Some(augmentation) = &network.augmentation {
                augmentation.apply(&mut workspace.samples, draws);
            }
            network.forward(simd, params, Some(draws), workspace);
            let is_last = blocks.len() == 0;
            let gradient = (&mut *gradient, is_first);
            let scaled = (scale, draws);
            loss += network.backward(simd, params, scaled, gradient, workspace, |layer| {
                if is_last {
                    // The last block counts like the others, even if it is smaller.
                    let done = (count as f64 - 1.0 + layer.done) / count as f64;
                    finished(LayerGradient { done, ..layer });
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
        let most = network.block.min(EVALUATED);
        for (block, out) in out.chunks_mut(most * predictions).enumerate() {
            let begin = rows.start + block * most;
            workspace.gather(examples, begin..begin + out.len() / predictions);
            network.forward(simd, params, None, workspace);
            let Some(last) = workspace.outputs.get_mut(network.stages.len() - 1) else { continue };
            let strips = outputs.div_ceil(S::LANES);
            let last = last.write(workspace.samples.len() * strips);
            if network.loss.smoothing().is_some() {
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
    /// Runs the gathered block through all layers, to compute a gradient or to evaluate examples.
    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        simd: S,
        params: &[f32],
        draws: Option<Draws<'_>>,
        workspace: &mut Workspace,
    ) {
        let Workspace { samples: block, outputs, kept, team, scratch, .. } = workspace;
        let mut crew = Crew::new(team.as_deref(), scratch);
        let samples = block.len();
        outputs.resize_with(self.stages.len().max(outputs.len()), Memory::new);
        kept.resize_with(self.stages.len().max(kept.len()), Memory::new);
        for (index, (stage, kept)) in self.stages.iter().zip(kept).enumerate() {
            let (before, rest) = outputs.split_at_mut(index);
            let read =
                |input: usize| before[input].read(self.stages[input].registers::<S>(samples));
            let input = match stage.inputs {
                Inputs::Examples => Input::Examples(&*block),
                Inputs::One(input) => Input::One(read(input)),
                Inputs::Two(inputs) => Input::Two(inputs.map(read)),
            };
            let output = rest[0].write(stage.registers::<S>(samples));
            let crew = crew.lend();
            let (state, params) = (&params[stage.state.clone()], &params[stage.keys.clone()]);
            let draws = draws.map(|draws| draws.of_layer(index));
            let context = Context { simd, params, state, samples, draws, kept, crew };
            stage.layer.forward(context, input, output);
            if let Some(activation) = stage.activation {
                activation.forward(simd, output);
            }
        }
    }

    /// Puts the gradient of the block of the last [`forward`](Self::forward), times `scale`, into
    /// `gradient`, whose values it replaces if it is the first, and returns the sum of its losses.
    /// Calls `added` with the gradient of each layer, and of the state.
    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        simd: S,
        params: &[f32],
        (scale, draws): (f32, Draws<'_>),
        (gradient, is_first): (&mut [f32], bool),
        workspace: &mut Workspace,
        mut added: impl FnMut(LayerGradient<'_>),
    ) -> f64 {
        let Workspace { samples: block, outputs, kept, deltas, team, scratch, .. } = workspace;
        let mut crew = Crew::new(team.as_deref(), scratch);
        let (values, state) = gradient.split_at_mut(self.layout().trained());
        let samples = block.len();
        let last = self.stages.len() - 1;
        let strips = self.outputs.div_ceil(S::LANES);
        let results = (outputs[last].write::<S::V>(samples * strips), strips);
        let loss = match self.loss.smoothing() {
            Some(share) => {
                softmax::nll_backward(simd, results, self.outputs, block, (scale, share))
            }
            None => loss::backward::<S>(self.loss, results, block, scale),
        };
        deltas.resize_with(self.deltas.max(deltas.len()), Memory::new);
        let mut products = 0;
        for (index, stage) in self.stages.iter().enumerate().rev() {
            let registers = stage.registers::<S>(samples);
            // Taken out, since the derivatives with respect to its inputs are written meanwhile.
            let mut own = match index == last {
                true => core::mem::take(&mut outputs[last]),
                false => core::mem::take(&mut deltas[stage.delta]),
            };
            if let Some(activation) = stage.activation {
                activation.backward(simd, own.write(registers), outputs[index].read(registers));
            }
            let mut before = [Memory::new(), Memory::new()];
            for (input, before) in stage.inputs.stages().zip(&mut before) {
                let buffer = &mut deltas[self.stages[input].delta];
                if stage.last_of.contains(&input) {
                    let registers = self.stages[input].registers::<S>(samples);
                    buffer.write::<S::V>(registers).fill(simd.splat(0.0));
                }
                *before = core::mem::take(buffer);
            }
            let mut previous = stage.inputs.stages().zip(&mut before).map(|(input, delta)| {
                let registers = self.stages[input].registers::<S>(samples);
                let (output, delta) = (outputs[input].read(registers), delta.write(registers));
                Propagation { output, delta }
            });
            let input = match (stage.inputs, previous.next(), previous.next()) {
                (Inputs::Examples, ..) => Input::Examples(&*block),
                (Inputs::One(_), Some(previous), _) => Input::One(previous),
                (Inputs::Two(_), Some(first), Some(second)) => Input::Two([first, second]),
                _ => unreachable!("a layer has as many inputs as it says"),
            };
            let (crew, kept) = (crew.lend(), &mut kept[index]);
            let of_state = stage.state.start - values.len()..stage.state.end - values.len();
            let gradient = Total {
                values: &mut values[stage.keys.clone()],
                state: &mut state[of_state],
                is_first,
            };
            let (state, params) = (&params[stage.state.clone()], &params[stage.keys.clone()]);
            let draws = Some(draws.of_layer(index));
            let context = Context { simd, params, state, samples, draws, kept, crew };
            stage.layer.backward(context, input, own.read(registers), gradient);
            products += stage.layer.products();
            if !stage.keys.is_empty() {
                let done = LayerGradient::done_after(products as f64 / self.products as f64);
                let (first, values) = (stage.keys.start, &values[stage.keys.clone()]);
                added(LayerGradient { first, values, done });
            }
            for (input, before) in stage.inputs.stages().zip(before) {
                deltas[self.stages[input].delta] = before;
            }
            match index == last {
                true => outputs[last] = own,
                false => deltas[stage.delta] = own,
            }
        }
        if !state.is_empty() {
            added(LayerGradient { first: values.len(), values: state, done: 1.0 });
        }
        loss
    }
}

impl Stage {
    /// The registers of the output of a block.
    #[inline(always)]
    fn registers<S: Simd>(&self, samples: usize) -> usize {
        samples * self.size.pixels() as usize * self.size.strips(S::LANES)
    }
}
