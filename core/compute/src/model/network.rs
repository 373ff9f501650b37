//! A feed-forward network of linear layers.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::layer::{AnyLayer, Layer, Linear};
use super::passes::{ByLayer, Evaluate, Gradient};
use super::{Activation, Loss, MOST_PARAMETERS, ModelError, Objective, Workspace};
use crate::examples::{Examples, Shape, Target};
use crate::params::Layout;
use crate::rng::Stream;
use crate::simd::widest;

/// A sequence of layers, most with an activation.
///
/// The parameters are ordered by layer. Tensor names are those of PyTorch's
/// `nn.Sequential(Linear, ReLU, Linear, ..., LogSoftmax)`: `0.weight`, `0.bias`, `2.weight`, ...
#[derive(Debug)]
pub(super) struct Network {
    /// Outputs of the last layer.
    pub(super) outputs: usize,
    pub(super) loss: Loss,
    pub(super) target: Target,
    pub(super) stages: Vec<Stage>,
    layout: Layout,
}

/// A layer in its place in a network.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) layer: AnyLayer,
    /// Applied to the layer's output in place, so that it needs no buffer.
    pub(super) activation: Option<Activation>,
    /// The keys of the layer's parameters.
    pub(super) keys: Range<usize>,
}

impl Network {
    /// A network with hidden linear layers of these widths; without any it is a linear model. The
    /// loss must fit the target.
    pub(super) fn new(
        (shape, loss): (Shape, Loss),
        hidden: &[u32],
        activation: Activation,
    ) -> Result<Self, ModelError> {
        if shape.is_sparse() {
            return Err(ModelError::Sparse);
        }
        if let Some(layer) = hidden.iter().position(|&units| units == 0) {
            return Err(ModelError::NoUnits { layer });
        }
        let target = shape.target;
        let outputs = loss.outputs(target);
        let mut network = Self { outputs, loss, target, stages: Vec::new(), layout: Layout::new() };
        let mut inputs = shape.inputs as usize;
        for &units in hidden {
            network.push(Linear::new(inputs, units as usize), Some(activation))?;
            inputs = units as usize;
        }
        network.push(Linear::new(inputs, outputs), None)?;
        Ok(network)
    }

    /// Appends a layer and, after it, an activation.
    fn push(
        &mut self,
        layer: impl Into<AnyLayer>,
        activation: Option<Activation>,
    ) -> Result<(), ModelError> {
        let layer = layer.into();
        let tensors = layer.tensors();
        // Counted before they are placed: the product of the dimensions may exceed a `usize`.
        let values = |shape: &[usize]| {
            shape.iter().fold(1_u64, |values, &length| values.saturating_mul(length as u64))
        };
        let parameters = tensors
            .iter()
            .fold(self.layout.len() as u64, |sum, (_, shape)| sum.saturating_add(values(shape)));
        if parameters > MOST_PARAMETERS {
            return Err(ModelError::TooManyParameters { layer: self.stages.len(), parameters });
        }
        // An activation takes a number, too.
        let numbers = |stage: &Stage| 1 + usize::from(stage.activation.is_some());
        let number: usize = self.stages.iter().map(numbers).sum();
        let begin = self.layout.len();
        for (name, shape) in tensors {
            self.layout.push(format!("{number}.{name}"), shape);
        }
        self.stages.push(Stage { layer, activation, keys: begin..self.layout.len() });
        Ok(())
    }
}

impl Objective for Network {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, stream: Stream) -> Vec<f32> {
        let mut rng = stream.rng();
        let mut params = vec![0.0; self.layout.len()];
        for stage in &self.stages {
            stage.layer.initial(&mut rng, &mut params[stage.keys.clone()]);
        }
        params
    }

    fn gradient(
        &self,
        _: Range<usize>,
        params: &[f32],
        rows: (&Examples, &[u32]),
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f64 {
        self.gradient_by_layer(params, rows, gradient, workspace, &mut |_, _| ())
    }

    fn gradient_by_layer(
        &self,
        params: &[f32],
        (examples, rows): (&Examples, &[u32]),
        gradient: &mut [f32],
        workspace: &mut Workspace,
        finished: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> f64 {
        let gradient = Gradient { network: self, params, examples, rows, gradient, workspace };
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
