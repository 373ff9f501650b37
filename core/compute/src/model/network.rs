//! A feed-forward classifier with a softmax output and negative log-likelihood loss.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::passes::{Evaluate, Gradient};
use super::{Activation, MOST_PARAMETERS, ModelError, Objective, Workspace};
use crate::examples::{Examples, Shape};
use crate::params::Layout;
use crate::rng::Stream;
use crate::simd::widest;

/// Linear layers with an activation between every two.
///
/// The parameters are ordered by layer: first the weights (`[inputs, outputs]` row-major, so that
/// the weights of one input column are contiguous and a one-hot column reads one row), then the
/// bias. Tensor names are those of PyTorch's
/// `nn.Sequential(Linear, ReLU, Linear, ..., LogSoftmax)`: `0.weight`, `0.bias`, `2.weight`, ...
/// The loss is the negative log-likelihood of the label under the softmax of the outputs, in nats.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) shape: Shape,
    pub(super) activation: Activation,
    pub(super) layers: Vec<Linear>,
    layout: Layout,
}

/// A linear layer: the keys of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Keys of the weights, one row per input.
    pub(super) weight: Range<usize>,
    /// Keys of the bias.
    pub(super) bias: Range<usize>,
}

impl Network {
    /// A network with hidden layers of these widths; without any it is softmax regression.
    pub(super) fn new(
        shape: Shape,
        hidden: &[u32],
        activation: Activation,
    ) -> Result<Self, ModelError> {
        if shape.is_sparse() {
            return Err(ModelError::Sparse);
        }
        if let Some(layer) = hidden.iter().position(|&units| units == 0) {
            return Err(ModelError::NoUnits { layer });
        }
        let mut layers = Vec::new();
        let mut layout = Layout::new();
        let mut inputs = shape.inputs;
        let mut parameters = 0_u64;
        for (index, &outputs) in hidden.iter().chain([&shape.classes]).enumerate() {
            let more = (u64::from(inputs) + 1).saturating_mul(u64::from(outputs));
            parameters = parameters.saturating_add(more);
            if parameters > MOST_PARAMETERS {
                return Err(ModelError::TooManyParameters { layer: index, parameters });
            }
            let (rows, columns) = (inputs as usize, outputs as usize);
            // Activations take the odd numbers.
            let weight = layout.push(format!("{}.weight", 2 * index), vec![rows, columns]);
            let bias = layout.push(format!("{}.bias", 2 * index), vec![columns]);
            if let (Some(weight), Some(bias)) = (weight, bias) {
                let (weight, bias) = (weight.indices(), bias.indices());
                layers.push(Linear { inputs: rows, outputs: columns, weight, bias });
            }
            inputs = outputs;
        }
        Ok(Self { shape, activation, layers, layout })
    }
}

impl Objective for Network {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Weights and biases are uniform within 1 / sqrt(inputs of the layer) of zero, as in PyTorch's
    /// `Linear`.
    fn initial(&self, stream: Stream) -> Vec<f32> {
        let mut rng = stream.rng();
        let mut params = Vec::with_capacity(self.layout.len());
        for layer in &self.layers {
            let bound = 1.0 / libm::sqrt(layer.inputs as f64);
            for _ in 0..layer.weight.len() + layer.bias.len() {
                params.push(((2.0 * rng.unit() - 1.0) * bound) as f32);
            }
        }
        params
    }

    fn add_gradient(
        &self,
        _: Range<usize>,
        params: &[f32],
        (examples, rows): (&Examples, &[u32]),
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f64 {
        widest(Gradient { network: self, params, examples, rows, gradient, workspace })
    }

    fn log_probabilities(
        &self,
        params: &[f32],
        (examples, rows): (&Examples, Range<usize>),
        out: &mut [f32],
        workspace: &mut Workspace,
    ) {
        widest(Evaluate { network: self, params, examples, rows, out, workspace });
    }
}
