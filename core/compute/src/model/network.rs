//! A feed-forward network: a graph of layers.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::augmentation::Augmentation;
use super::layer::{AnyLayer, Layer};
use super::passes::{ByLayer, Evaluate, Gradient};
use super::{
    Activation, LayerGradient, LayerInfo, Loss, MOST_PARAMETERS, MiniBatch, ModelError, Objective,
    Workspace,
};
use crate::examples::{Examples, Picture, Target};
use crate::params::{Combine, Layout, Role};
use crate::rng::Stream;
use crate::simd::widest;

/// Layers, each after its inputs, most with an activation.
///
/// The parameters are ordered by layer, and the state follows them. Tensor names are those of
/// PyTorch's `nn.Sequential(Linear, ReLU, Linear, ..., LogSoftmax)`: `0.weight`, `0.bias`,
/// `2.weight`, ...
#[derive(Debug)]
pub(super) struct Network {
    /// Outputs of the last layer.
    pub(super) outputs: usize,
    pub(super) loss: Loss,
    pub(super) target: Target,
    pub(super) stages: Vec<Stage>,
    /// Buffers for derivatives.
    pub(super) deltas: usize,
    /// Samples that pass through the network together.
    pub(super) block: usize,
    /// Changes of the pictures in training.
    pub(super) augmentation: Option<Augmentation>,
    /// Products of the forward pass of a sample; at least 1.
    pub(super) products: u64,
    layout: Layout,
}

/// A layer in its place in a network.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) layer: AnyLayer,
    pub(super) inputs: Inputs,
    /// Applied to the layer's output in place, so that it needs no buffer.
    pub(super) activation: Option<Activation>,
    /// The size of the output.
    pub(super) size: Picture,
    /// The keys of the layer's parameters.
    pub(super) keys: Range<usize>,
    /// The keys of the layer's state.
    pub(super) state: Range<usize>,
    /// The buffer of the derivatives with respect to the output. It is the layer's own until its
    /// backward pass.
    pub(super) delta: usize,
    /// The inputs of which it is the last reader, which the backward pass finds first.
    pub(super) last_of: Vec<usize>,
    /// The number of the layer in names of tensors: an activation takes a number, too.
    number: usize,
}

/// The layers that a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inputs {
    /// None: it reads the examples.
    Examples,
    /// The output of one.
    One(usize),
    /// The outputs of two.
    Two([usize; 2]),
}

impl Inputs {
    pub(super) fn stages(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Self::Examples => (None, None),
            Self::One(stage) => (Some(stage), None),
            Self::Two([first, second]) => (Some(first), Some(second)),
        };
        first.into_iter().chain(second)
    }
}

/// Samples per block: a weight matrix is read once for the whole block, and intermediate values
/// stay in the cache.
const BLOCK: usize = 64;

/// A network whose layers are being appended.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) augmentation: Option<Augmentation>,
    stages: Vec<Stage>,
    parameters: u64,
    /// The number of the next layer.
    number: usize,
}

impl Builder {
    pub(super) const fn new() -> Self {
        Self { augmentation: None, stages: Vec::new(), parameters: 0, number: 0 }
    }

    /// The number of layers so far.
    pub(super) const fn len(&self) -> usize {
        self.stages.len()
    }

    /// The size of a layer's output.
    pub(super) fn size(&self, stage: usize) -> Picture {
        self.stages[stage].size
    }

    /// Appends a layer and returns its place.
    pub(super) fn push(
        &mut self,
        inputs: Inputs,
        layer: impl Into<AnyLayer>,
    ) -> Result<usize, ModelError> {
        if let Inputs::Two([first, second]) = inputs {
            assert_ne!(first, second, "each input has derivatives of its own");
        }
        let layer = layer.into();
        // Counted before they are placed: the product of the dimensions may exceed a `usize`.
        let values = |shape: &[usize]| {
            shape.iter().fold(1_u64, |values, &length| values.saturating_mul(length as u64))
        };
        let tensors = layer.tensors();
        let parameters = tensors.iter().map(|(_, shape)| values(shape));
        let state = layer.state();
        let all = parameters.chain(state.iter().map(|it| values(&it.shape)));
        self.parameters = all.fold(self.parameters, u64::saturating_add);
        if self.parameters > MOST_PARAMETERS {
            let layer = self.stages.len();
            return Err(ModelError::TooManyParameters { layer, parameters: self.parameters });
        }
        let (size, number) = (layer.output(), self.number);
        self.number += 1;
        let (activation, delta) = (None, 0);
        let (keys, state, last_of) = (0..0, 0..0, Vec::new());
        let stage = Stage { layer, inputs, activation, size, keys, state, delta, last_of, number };
        self.stages.push(stage);
        Ok(self.stages.len() - 1)
    }

    /// Applies an activation to the output of the last layer, which has none.
    pub(super) fn activate(&mut self, activation: Activation) {
        let last = self.stages.last_mut().filter(|last| last.activation.is_none());
        let Some(last) = last else { panic!("an activation follows a layer") };
        last.activation = Some(activation);
        self.number += 1;
    }

    /// The first layer but the last whose output no layer reads, with its number.
    pub(super) fn unread(&self) -> Option<usize> {
        let (_, before) = self.stages.split_last()?;
        let reads = |stage: usize| {
            self.stages.iter().any(|it| it.inputs.stages().any(|input| input == stage))
        };
        before.iter().enumerate().find(|(stage, _)| !reads(*stage)).map(|(_, it)| it.number)
    }

    /// True if the last layer has an activation.
    pub(super) fn is_activated(&self) -> bool {
        self.stages.last().is_some_and(|last| last.activation.is_some())
    }

    /// The network of the layers. The loss must fit the target, and the last layer the loss.
    pub(super) fn build(self, loss: Loss, target: Target) -> Network {
        let Self { mut stages, augmentation, .. } = self;
        let mut layout = Layout::new();
        for stage in &mut stages {
            let begin = layout.len();
            for (name, shape) in stage.layer.tensors() {
                layout.push(format!("{}.{name}", stage.number), shape);
            }
            stage.keys = begin..layout.len();
        }
        for stage in &mut stages {
            let begin = layout.len();
            for state in stage.layer.state() {
                let combine = if state.is_count { Combine::First } else { Combine::Mean };
                let role = Role::State { combine, whole: state.is_count };
                layout.push_as(role, format!("{}.{}", stage.number, state.name), state.shape);
            }
            stage.state = begin..layout.len();
        }
        let deltas = share_deltas(&mut stages);
        let has_state = layout.trained() < layout.len();
        let is_flat = stages.iter().all(|stage| stage.size.pixels() == 1);
        let block = match (has_state, is_flat) {
            // The statistics are of the whole mini-batch.
            (true, _) => usize::MAX,
            (false, true) => BLOCK,
            (false, false) => BLOCK / 4,
        };
        let outputs = loss.outputs(target);
        let products = stages.iter().map(|stage| stage.layer.products()).sum::<u64>().max(1);
        Network { outputs, loss, target, stages, deltas, block, augmentation, products, layout }
    }
}

/// Gives each layer a buffer for the derivatives with respect to its output, and returns the number
/// of buffers. The buffer is in use from the backward pass of the last layer that reads the output
/// to the one of the layer itself.
fn share_deltas(stages: &mut [Stage]) -> usize {
    let mut owners: Vec<Option<usize>> = Vec::new();
    for index in (0..stages.len()).rev() {
        for input in stages[index].inputs.stages() {
            if owners.contains(&Some(input)) {
                continue;
            }
            let free = owners.iter().position(Option::is_none).unwrap_or(owners.len());
            owners.resize(owners.len().max(free + 1), None);
            (owners[free], stages[input].delta) = (Some(input), free);
            stages[index].last_of.push(input);
        }
        owners.iter_mut().filter(|owner| **owner == Some(index)).for_each(|owner| *owner = None);
    }
    owners.len()
}

impl Objective for Network {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn layers(&self) -> Vec<LayerInfo> {
        let info = |stage: &Stage| {
            let mut kind = String::from(stage.layer.kind());
            if let Some(activation) = stage.activation {
                kind = format!("{kind}, {activation}");
            }
            let (number, output, parameters) = (stage.number, stage.size, stage.keys.len());
            LayerInfo { number, kind, output, parameters, products: stage.layer.products() }
        };
        self.stages.iter().map(info).collect()
    }

    fn initial(&self, stream: Stream) -> Vec<f32> {
        let mut rng = stream.rng();
        let mut params = vec![0.0; self.layout.len()];
        for stage in &self.stages {
            stage.layer.initial(&mut rng, &mut params[stage.keys.clone()]);
            stage.layer.initial_state(&mut params[stage.state.clone()]);
        }
        params
    }

    fn gradient(
        &self,
        _: Range<usize>,
        params: &[f32],
        batch: MiniBatch<'_>,
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f64 {
        self.gradient_by_layer(params, batch, gradient, workspace, &mut |_| ())
    }

    fn gradient_by_layer(
        &self,
        params: &[f32],
        batch: MiniBatch<'_>,
        gradient: &mut [f32],
        workspace: &mut Workspace,
        finished: &mut dyn FnMut(LayerGradient<'_>),
    ) -> f64 {
        let gradient = Gradient { network: self, params, batch, gradient, workspace };
        widest(ByLayer { gradient, finished })
    }

    fn predict(
        &self,
        params: &[f32],
        (examples, rows): (&Examples, Range<usize>),
        out: &mut [f32],
        workspace: &mut Workspace,
    ) {
        widest(Evaluate { network: self, params, examples, rows, out, workspace });
    }
}
