//! Models: what turns parameters and examples into a loss and its gradient.
//!
//! A [`ModelSpec`] says which network is wanted and travels in the job; a [`Model`] is that
//! network for examples of one shape, checked, with its parameters laid out. Models know
//! parameters and examples, nothing of who trains them or where. The parameters are passed in at
//! each call, for they belong to the server.

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

/// The most parameters a model may have: their bytes are counted in 32 bits on the wire.
const MOST_PARAMETERS: u64 = (1 << 30) - 1;

/// Which network is trained. The examples add the number of inputs and classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelSpec {
    /// Softmax (multinomial logistic) regression: one linear layer.
    Softmax,
    /// A multi-layer perceptron: linear layers with an activation between every two.
    Mlp {
        /// The width of each hidden layer, first to last; none gives softmax regression.
        hidden: Vec<u32>,
        /// What follows each hidden layer.
        activation: Activation,
    },
    /// Logistic regression of two classes on sparse rows: a weight for each column, no bias.
    Logistic,
    /// No arithmetic at all: messages of the size that a network with these layers would have,
    /// for studies of time. Gradients are zeros, and there is nothing to evaluate.
    Timing {
        /// The number of parameters of each layer, first to last.
        layers: Vec<u32>,
    },
}

/// The function between two linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// `max(0, x)`.
    Relu,
    /// The hyperbolic tangent.
    Tanh,
}

/// A linear layer: where its parameters lie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// The keys of the weights, a row for each input.
    weight: Range<usize>,
    /// The keys of the bias.
    bias: Range<usize>,
}

/// A feed-forward classifier with a softmax output and negative log-likelihood loss.
///
/// Its parameters are, layer by layer, the weights (`[inputs, outputs]` row-major, so the weights
/// of one input column are neighbours and a one-hot column costs one row) and the bias. The
/// tensors are named as PyTorch's `nn.Sequential(Linear, ReLU, Linear, ..., LogSoftmax)` would
/// name them: `0.weight`, `0.bias`, `2.weight`, ...
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    shape: Shape,
    activation: Activation,
    /// None if it is no network.
    layers: Vec<Layer>,
    is_logistic: bool,
    layout: Layout,
}

impl Model {
    /// The network `spec` for examples of `shape`.
    ///
    /// # Errors
    /// [`ModelError`] if the shape has no inputs, fewer than two classes or fewer inputs than its
    /// columns need, if a hidden layer has no units, or if there would be more than 2^31
    /// parameters.
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
            // The activations have a number of their own.
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

    /// Logistic regression. Its one tensor is that of a PyTorch `Linear` without bias.
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

    /// The same model over `columns` of its columns alone, whose parameters are those of these
    /// columns.
    ///
    /// # Errors
    /// [`ModelError::NotSparse`] if columns are not what its parameters belong to.
    pub fn over(&self, columns: usize) -> Result<Self, ModelError> {
        let shape = Shape { inputs: columns as u32, ..self.shape };
        Self::logistic(shape)
    }

    /// Whether each parameter belongs to a column of sparse rows, so that whoever has some columns
    /// only needs those parameters alone.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.is_logistic
    }

    /// A model of tensors with so many values, without arithmetic.
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

    /// Whether there is arithmetic to do, so that losses and evaluations mean something.
    #[must_use]
    pub const fn computes(&self) -> bool {
        self.is_logistic || !self.layers.is_empty()
    }

    /// Which keys hold which tensor.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The number of parameters.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        self.layout.len()
    }

    /// The shape of the examples the model reads.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Parameters to begin with: weights and biases uniform within 1 / sqrt(inputs of the layer)
    /// of zero, as PyTorch's `Linear` has them, drawn from `stream` in the order of the keys; zeros
    /// for logistic regression.
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

    /// Overwrites `gradient` with the mean over the examples `rows` of the loss's gradient at
    /// `params`, and returns the mean loss in nats. A row given twice counts twice; no rows at all
    /// give zeros.
    ///
    /// The loss is the negative log-likelihood of the label under the softmax of the outputs. A
    /// model without arithmetic gives zeros.
    ///
    /// # Panics
    /// If `params` or `gradient` are not [`Self::parameters`] values, the examples are of another
    /// shape, or a row is not below the number of examples.
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

    /// As [`Self::gradient`], but only its values at `keys`; the others are 0. This saves work
    /// where the model [is sparse](Self::is_sparse); of other models all values are there.
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

    /// A bound, for each parameter, of the second derivative of the mean loss over all examples of
    /// `parts` at any parameters; none if the model is no logistic regression.
    #[must_use]
    pub fn curvature(&self, parts: &[Examples]) -> Option<Vec<f32>> {
        let fits = self.is_logistic && parts.iter().all(|part| part.shape() == self.shape);
        fits.then(|| logistic::curvature(parts, self.parameters()))
    }

    /// The logarithms of the class probabilities of the examples `rows`: a column for each
    /// example, a row for each class.
    ///
    /// # Panics
    /// If `params` are not [`Self::parameters`] values, the examples are of another shape, or
    /// `rows` reaches past the last example.
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
