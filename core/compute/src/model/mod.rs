//! Models: the loss of examples under given parameters, and its gradient.
//!
//! A [`ModelSpec`] names the network and is part of the job; a [`Model`] is that network for
//! examples of one shape, validated, with the layout of its parameters. A model depends on
//! parameters and examples only, not on workers or servers. Each call receives the parameters,
//! because the servers own them.

mod error;
mod kernels;
mod logistic;
mod loss;
mod margins;
mod passes;
#[cfg(test)]
mod tests;
mod workspace;

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use nalgebra::DMatrixView;
use serde::{Deserialize, Serialize};

use self::passes::{Evaluate, Gradient};
use crate::examples::{Examples, Shape};
use crate::params::Layout;
use crate::rng::Stream;
use crate::simd::widest;

pub use self::error::ModelError;
pub use self::margins::Margins;
pub use self::workspace::Workspace;

/// The largest number of parameters of a model: the wire format counts their bytes in 32 bits.
const MOST_PARAMETERS: u64 = (1 << 30) - 1;

/// The network of a job. The examples determine the number of inputs and classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelSpec {
    /// Softmax (multinomial logistic) regression: one linear layer.
    Softmax,
    /// A multi-layer perceptron: linear layers with an activation between every two.
    Mlp {
        /// The width of each hidden layer, first to last; an empty list is softmax regression.
        hidden: Vec<u32>,
        /// The activation after each hidden layer.
        activation: Activation,
    },
    /// Logistic regression for two classes on sparse rows: one weight per column, no bias.
    Logistic,
    /// No arithmetic: messages have the size of a network with these layers, for studies of time.
    /// Gradients are zeros, and evaluations are empty.
    Timing {
        /// The number of parameters of each layer, first to last.
        layers: Vec<u32>,
    },
}

/// The activation function between two linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// `max(0, x)`.
    Relu,
    /// The hyperbolic tangent.
    Tanh,
}

/// A linear layer: the keys of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// Keys of the weights, one row per input.
    weight: Range<usize>,
    /// Keys of the bias.
    bias: Range<usize>,
}

/// A feed-forward classifier with a softmax output and negative log-likelihood loss.
///
/// The parameters are ordered by layer: first the weights (`[inputs, outputs]` row-major, so that
/// the weights of one input column are contiguous and a one-hot column reads one row), then the
/// bias. Tensor names are those of PyTorch's
/// `nn.Sequential(Linear, ReLU, Linear, ..., LogSoftmax)`: `0.weight`, `0.bias`, `2.weight`, ...
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    shape: Shape,
    activation: Activation,
    /// Empty unless the model is a network.
    layers: Vec<Layer>,
    is_logistic: bool,
    layout: Layout,
}

impl Model {
    /// Builds the model `spec` for examples of `shape`.
    ///
    /// # Errors
    /// [`ModelError`] if the shape has no inputs, fewer than two classes or fewer inputs than its
    /// columns need, if the kind of model does not fit the kind of rows, if a hidden layer has no
    /// units, or if there would be 2^30 or more parameters.
    pub fn new(spec: &ModelSpec, shape: Shape) -> Result<Self, ModelError> {
        check_shape(shape)?;
        let (hidden, activation) = match spec {
            ModelSpec::Softmax => (&[][..], Activation::Relu),
            ModelSpec::Mlp { hidden, activation } => (&hidden[..], *activation),
            ModelSpec::Timing { layers } => return Self::of_sizes(shape, layers),
            ModelSpec::Logistic => return Self::logistic(shape),
        };
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
                layers.push(Layer { inputs: rows, outputs: columns, weight, bias });
            }
            inputs = outputs;
        }
        Ok(Self { shape, activation, layers, is_logistic: false, layout })
    }

    /// Builds logistic regression. Its only tensor is the weight of a PyTorch `Linear` without
    /// bias.
    fn logistic(shape: Shape) -> Result<Self, ModelError> {
        if !shape.is_sparse() || shape.classes != 2 {
            return Err(ModelError::NotSparse { classes: shape.classes });
        }
        let parameters = u64::from(shape.inputs);
        if parameters > MOST_PARAMETERS {
            return Err(ModelError::TooManyParameters { layer: 0, parameters });
        }
        let mut layout = Layout::new();
        layout.push("0.weight".into(), vec![shape.inputs as usize, 1]);
        let activation = Activation::Relu;
        Ok(Self { shape, activation, layers: Vec::new(), is_logistic: true, layout })
    }

    /// Returns the same model restricted to `columns` columns, with one parameter per remaining
    /// column.
    ///
    /// # Errors
    /// [`ModelError::NotSparse`] if the model's parameters do not belong to columns.
    pub fn over(&self, columns: usize) -> Result<Self, ModelError> {
        let shape = Shape { inputs: columns as u32, ..self.shape };
        Self::logistic(shape)
    }

    /// True if each parameter belongs to one column of sparse rows. A worker whose rows touch only
    /// some columns then needs only their parameters.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.is_logistic
    }

    /// Builds a model without arithmetic from tensors of these sizes.
    fn of_sizes(shape: Shape, sizes: &[u32]) -> Result<Self, ModelError> {
        let mut layout = Layout::new();
        let mut parameters = 0;
        for (layer, &size) in sizes.iter().enumerate() {
            parameters += u64::from(size);
            if parameters > MOST_PARAMETERS {
                return Err(ModelError::TooManyParameters { layer, parameters });
            }
            if layout.push(format!("{layer}"), vec![size as usize]).is_none() {
                return Err(ModelError::NoUnits { layer });
            }
        }
        if layout.is_empty() {
            return Err(ModelError::NoUnits { layer: 0 });
        }
        let activation = Activation::Relu;
        Ok(Self { shape, activation, layers: Vec::new(), is_logistic: false, layout })
    }

    /// True if the model has arithmetic, so that losses and evaluations are meaningful.
    #[must_use]
    pub const fn computes(&self) -> bool {
        self.is_logistic || !self.layers.is_empty()
    }

    /// The tensors and their keys.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The number of parameters.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        self.layout.len()
    }

    /// The shape of the model's examples.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns initial parameters: weights and biases uniform within 1 / sqrt(inputs of the layer)
    /// of zero, as in PyTorch's `Linear`, drawn from `stream` in key order; zeros for logistic
    /// regression.
    #[must_use]
    pub fn initial(&self, stream: Stream) -> Vec<f32> {
        let mut rng = stream.rng();
        let mut params = Vec::with_capacity(self.parameters());
        if self.layers.is_empty() {
            params.resize(self.parameters(), 0.0);
        }
        for layer in &self.layers {
            let bound = 1.0 / libm::sqrt(layer.inputs as f64);
            for _ in 0..layer.weight.len() + layer.bias.len() {
                params.push(((2.0 * rng.unit() - 1.0) * bound) as f32);
            }
        }
        params
    }

    /// Overwrites `gradient` with the gradient of the mean loss over the examples `rows` at
    /// `params`, and returns the mean loss in nats. Duplicate rows count as often as they occur; an
    /// empty `rows` yields zeros.
    ///
    /// The loss is the negative log-likelihood of the label under the softmax of the outputs. A
    /// model without arithmetic yields zeros.
    ///
    /// # Panics
    /// If `params` or `gradient` does not have [`Self::parameters`] values, the examples have
    /// another shape, or a row is not below the number of examples.
    pub fn gradient(
        &self,
        params: &[f32],
        examples: &Examples,
        rows: &[u32],
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f32 {
        self.gradient_at(0..self.parameters(), params, (examples, rows), gradient, workspace)
    }

    /// Computes [`Self::gradient`] at `keys` only; other values are 0. This saves work if the model
    /// [is sparse](Self::is_sparse); for other models all values are computed.
    ///
    /// # Panics
    /// As [`Self::gradient`] does.
    pub fn gradient_at(
        &self,
        keys: Range<usize>,
        params: &[f32],
        (examples, rows): (&Examples, &[u32]),
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f32 {
        self.check(params, examples);
        assert_eq!(gradient.len(), self.parameters(), "length of the gradient");
        gradient.fill(0.0);
        if rows.is_empty() || !self.computes() {
            return 0.0;
        }
        if self.is_logistic {
            let loss = logistic::gradient(params, examples, rows, &keys, gradient);
            return (loss / rows.len() as f64) as f32;
        }
        let loss = widest(Gradient { model: self, params, examples, rows, gradient, workspace });
        (loss / rows.len() as f64) as f32
    }

    /// Returns for each parameter an upper bound of the second derivative of the mean loss over all
    /// examples of `parts`, valid at any parameters; `None` unless the model is a logistic
    /// regression.
    #[must_use]
    pub fn curvature(&self, parts: &[Examples]) -> Option<Vec<f32>> {
        let fits = self.is_logistic && parts.iter().all(|part| part.shape() == self.shape);
        fits.then(|| logistic::curvature(parts, self.parameters()))
    }

    /// Computes the log-probabilities of the classes for the examples `rows`: one column per
    /// example, one row per class.
    ///
    /// # Panics
    /// If `params` does not have [`Self::parameters`] values, the examples have another shape, or
    /// `rows` exceeds the number of examples.
    pub fn log_probabilities<'a>(
        &self,
        params: &[f32],
        examples: &Examples,
        rows: Range<usize>,
        workspace: &'a mut Workspace,
    ) -> DMatrixView<'a, f32> {
        self.check(params, examples);
        let classes = self.shape.classes as usize;
        let count = rows.len();
        let mut out = core::mem::take(&mut workspace.log_probabilities);
        out.resize(count * classes, 0.0);
        if self.is_logistic {
            logistic::log_probabilities(params, examples, rows, &mut out);
            workspace.log_probabilities = out;
            return DMatrixView::from_slice(&workspace.log_probabilities, classes, count);
        }
        let out_of = &mut out;
        widest(Evaluate { model: self, params, examples, rows, out: out_of, workspace });
        workspace.log_probabilities = out;
        DMatrixView::from_slice(&workspace.log_probabilities, classes, count)
    }

    fn check(&self, params: &[f32], examples: &Examples) {
        assert_eq!(params.len(), self.parameters(), "length of the parameters");
        assert_eq!(examples.shape(), self.shape, "shape of the examples");
    }
}

fn check_shape(shape: Shape) -> Result<(), ModelError> {
    if shape.inputs == 0 {
        return Err(ModelError::NoInputs);
    }
    if shape.classes < 2 {
        return Err(ModelError::TooFewClasses { classes: shape.classes });
    }
    if u64::from(shape.dense) + u64::from(shape.hot) > u64::from(shape.inputs) {
        let Shape { inputs, dense, hot, .. } = shape;
        return Err(ModelError::Columns { inputs, dense, hot });
    }
    Ok(())
}
