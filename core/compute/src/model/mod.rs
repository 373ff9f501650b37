//! Models: the loss of examples under given parameters, and its gradient.
//!
//! A [`ModelSpec`] names the model and is part of the job; a [`Model`] is that model for examples
//! of one shape, validated, with the layout of its parameters. A model depends on parameters and
//! examples only, not on workers or servers. Each call receives the parameters, because the
//! servers own them.
//!
//! To add a kind of model, implement [`Objective`] in a file of this directory, and add a variant
//! to [`ModelSpec`] and its word to `words.rs`. A program that is built on this crate
//! [`register`]s models of its own.

mod activation;
mod augmentation;
mod by_row;
mod draws;
mod error;
mod external;
mod kernels;
mod layer;
mod loss;
mod margins;
mod net;
mod network;
mod objective;
mod passes;
mod presets;
mod registered;
mod softmax;
mod sparse;
mod team;
#[cfg(test)]
mod tests;
mod timing;
mod without_arithmetic;
mod words;
mod workspace;

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use nalgebra::DMatrixView;
use serde::{Deserialize, Serialize};

use self::sparse::Sparse;
use self::without_arithmetic::WithoutArithmetic;
use crate::examples::{Examples, Shape, Target};
use crate::params::{Layout, Role};
use crate::rng::Stream;

pub use self::activation::Activation;
pub use self::by_row::{ByRow, RowModel};
pub use self::error::ModelError;
pub use self::external::{Answers, ExternalTensor};
pub use self::loss::Loss;
pub use self::margins::Margins;
pub use self::objective::{LayerGradient, LayerInfo, MiniBatch, Objective, SparseObjective};
pub use self::registered::{Build, ModelKind, register, registered};
pub use self::team::Team;
pub use self::workspace::Workspace;

/// The largest number of parameters of a model: the wire format counts their bytes in 32 bits.
const MOST_PARAMETERS: u64 = (1 << 30) - 1;

/// The model of a job. The examples determine the number of inputs and outputs.
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
    /// A model that the program has added, as users write it.
    Registered(String),
    /// A model that a compute process computes.
    External {
        /// Its tensors, in key order.
        tensors: Vec<ExternalTensor>,
        /// The answer of its process to a mini-batch.
        #[serde(default)]
        answers: Answers,
    },
    /// One linear layer of dense and one-hot columns, or one weight per column of sparse rows.
    Linear,
    /// A network of layers, as users write it: `net:conv16x3,relu,...`, or the name of a known one.
    Network(String),
}

impl ModelSpec {
    /// True if it has state besides the parameters.
    #[must_use]
    pub fn has_state(&self) -> bool {
        match self {
            Self::External { tensors, .. } => {
                tensors.iter().any(|tensor| tensor.role != Role::Parameter)
            }
            // A network has state if a layer is batch normalisation.
            Self::Network(_) => words::layers_of(self)
                .is_ok_and(|layers| layers.split(',').any(|it| it.trim() == "bn")),
            _ => false,
        }
    }
}

/// A model for examples of one shape.
#[derive(Clone, Debug)]
pub struct Model {
    shape: Shape,
    loss: Loss,
    objective: Arc<dyn Objective>,
}

impl Model {
    /// Builds the model `spec` for examples of `shape`, with the default loss of their target.
    ///
    /// # Errors
    /// As [`Self::with_loss`].
    pub fn new(spec: &ModelSpec, shape: Shape) -> Result<Self, ModelError> {
        Self::with_loss(spec, Loss::of(shape.target), shape)
    }

    /// Builds the model `spec` for examples of `shape`.
    ///
    /// # Errors
    /// [`ModelError`] if the shape has no inputs, fewer than two classes or fewer inputs than its
    /// columns need, if the kind of model does not fit the kind of rows or their target, if the
    /// loss does not fit the target or the model, if a hidden layer has no units, if there would be
    /// 2^30 or more parameters, if a tensor is not valid, or if the program has no such model. An
    /// external model knows neither shape nor loss.
    pub fn with_loss(spec: &ModelSpec, loss: Loss, shape: Shape) -> Result<Self, ModelError> {
        if !matches!(spec, ModelSpec::External { .. }) {
            check_shape(shape)?;
            loss.check(shape.target)?;
        }
        let objective: Arc<dyn Objective> = match spec {
            ModelSpec::External { tensors, .. } => {
                Arc::new(WithoutArithmetic(external::layout(tensors)?))
            }
            ModelSpec::Softmax if shape.target == Target::Value => {
                return Err(ModelError::Classifier { model: "softmax".into() });
            }
            ModelSpec::Linear if shape.is_sparse() => Arc::new(Sparse::new("linear", loss, shape)?),
            ModelSpec::Softmax
            | ModelSpec::Linear
            | ModelSpec::Mlp { .. }
            | ModelSpec::Network(_) => {
                Arc::new(net::build(&words::layers_of(spec)?, (shape, loss))?)
            }
            ModelSpec::Timing { layers } => Arc::new(WithoutArithmetic(timing::layout(layers)?)),
            ModelSpec::Logistic => Arc::new(Sparse::logistic(loss, shape)?),
            ModelSpec::Registered(model) if loss != Loss::of(shape.target) => {
                let (model, loss) = (model.clone(), loss.to_string());
                return Err(ModelError::OwnLoss { model, loss });
            }
            ModelSpec::Registered(text) => registered::build(text, shape)?,
        };
        Ok(Self { loss, ..Self::of(objective, shape) })
    }

    /// A model with this objective, for examples of `shape`. Evaluations have the default loss.
    #[must_use]
    pub fn of(objective: Arc<dyn Objective>, shape: Shape) -> Self {
        Self { shape, loss: Loss::of(shape.target), objective }
    }

    /// Returns the same model restricted to `columns` columns, with one parameter per remaining
    /// column.
    ///
    /// # Errors
    /// [`ModelError::NotSparse`] if the model's parameters do not belong to columns.
    pub fn over(&self, columns: usize) -> Result<Self, ModelError> {
        let shape = Shape { inputs: columns as u32, ..self.shape };
        let objective = match self.objective.sparse() {
            Some(sparse) => sparse.over(shape)?,
            None => return Err(Sparse::refused("linear", shape.target)),
        };
        Ok(Self { shape, objective, ..*self })
    }

    /// The model as one whose parameters belong to columns of sparse rows, if they do. A worker
    /// whose rows touch only some columns then needs only their parameters.
    #[must_use]
    pub fn sparse(&self) -> Option<&dyn SparseObjective> {
        self.objective.sparse()
    }

    /// True if each parameter belongs to one column of sparse rows.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.sparse().is_some()
    }

    /// True if the model has arithmetic, so that losses and evaluations are meaningful.
    #[must_use]
    pub fn computes(&self) -> bool {
        self.objective.computes()
    }

    /// The tensors and their keys.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.objective.layout()
    }

    /// The layers of a network, first to last; none of a model without layers.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerInfo> {
        self.objective.layers()
    }

    /// The number of parameters, and of values of state after them.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.layout().len()
    }

    /// The shape of the model's examples.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns initial parameters, drawn from `stream` in key order.
    #[must_use]
    pub fn initial(&self, stream: Stream) -> Vec<f32> {
        self.objective.initial(stream)
    }

    /// Overwrites `gradient` with the gradient of the mean loss over the examples `rows` at
    /// `params`, and returns the mean loss. Duplicate rows count as often as they occur; an empty
    /// `rows` yields zeros, and so does a model without arithmetic. Draws, such as those of
    /// dropout, are the same in each call.
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
        let batch = MiniBatch::new(examples, rows);
        self.gradient_at(0..self.parameters(), params, batch, gradient, workspace)
    }

    /// Computes [`Self::gradient`] of a mini-batch at `keys` only; other values are 0. This saves
    /// work if the model [is sparse](Self::is_sparse); for other models all values are computed.
    ///
    /// # Panics
    /// As [`Self::gradient`] does.
    pub fn gradient_at(
        &self,
        keys: Range<usize>,
        params: &[f32],
        batch: MiniBatch<'_>,
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f32 {
        self.mean_loss(params, batch, gradient, |objective, gradient| {
            objective.gradient(keys, params, batch, gradient, workspace)
        })
    }

    /// Computes [`Self::gradient`] of a mini-batch, and calls `finished` with the gradient of each
    /// layer as [`Objective::gradient_by_layer`] does.
    ///
    /// # Panics
    /// As [`Self::gradient`] does.
    pub fn gradient_by_layer(
        &self,
        params: &[f32],
        batch: MiniBatch<'_>,
        gradient: &mut [f32],
        workspace: &mut Workspace,
        finished: &mut dyn FnMut(LayerGradient<'_>),
    ) -> f32 {
        self.mean_loss(params, batch, gradient, |objective, gradient| {
            objective.gradient_by_layer(params, batch, gradient, workspace, finished)
        })
    }

    /// The mean of the sum of losses that `compute` returns with a gradient.
    fn mean_loss(
        &self,
        params: &[f32],
        MiniBatch { examples, rows, .. }: MiniBatch<'_>,
        gradient: &mut [f32],
        compute: impl FnOnce(&dyn Objective, &mut [f32]) -> f64,
    ) -> f32 {
        self.check(params, examples);
        assert_eq!(gradient.len(), self.parameters(), "length of the gradient");
        if rows.is_empty() {
            gradient.fill(0.0);
            return 0.0;
        }
        (compute(&*self.objective, gradient) / rows.len() as f64) as f32
    }

    /// Computes [`Self::gradient_at`] for all rows of `examples`, in their order, from cached
    /// margins of these examples.
    ///
    /// # Panics
    /// As [`Self::gradient_at`] does, and if the model is not sparse or `margins` belong to other
    /// examples.
    pub fn gradient_by_margins(
        &self,
        keys: Range<usize>,
        params: &[f32],
        (examples, margins): (&Examples, &mut Margins),
        gradient: &mut [f32],
    ) -> f32 {
        self.check(params, examples);
        let Some(objective) = self.sparse() else { panic!("margins are of sparse models") };
        assert_eq!(gradient.len(), self.parameters(), "length of the gradient");
        gradient.fill(0.0);
        margins.gradient(objective, keys, params, examples, gradient)
    }

    /// Returns for each parameter an upper bound of the second derivative of the mean loss over all
    /// examples of `parts`, valid at any parameters; `None` if it has no bound, the model is not
    /// sparse or the examples have another shape.
    #[must_use]
    pub fn curvature(&self, parts: &[Examples]) -> Option<Vec<f32>> {
        let fits = parts.iter().all(|part| part.shape() == self.shape);
        self.sparse().filter(|_| fits)?.curvature(parts)
    }

    /// The loss of the model's examples.
    #[must_use]
    pub const fn loss(&self) -> Loss {
        self.loss
    }

    /// Computes the predictions for the examples `rows`, one column per example: the
    /// log-probabilities of the classes, or the value.
    ///
    /// # Panics
    /// If `params` does not have [`Self::parameters`] values, the examples have another shape, or
    /// `rows` exceeds the number of examples.
    pub fn predict<'a>(
        &self,
        params: &[f32],
        examples: &Examples,
        rows: Range<usize>,
        workspace: &'a mut Workspace,
    ) -> DMatrixView<'a, f32> {
        self.check(params, examples);
        let (each, count) = (self.shape.target.predictions() as usize, rows.len());
        let mut out = core::mem::take(&mut workspace.predictions);
        out.resize(count * each, 0.0);
        self.objective.predict(params, (examples, rows), &mut out, workspace);
        workspace.predictions = out;
        DMatrixView::from_slice(&workspace.predictions, each, count)
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
    if let Target::Classes(classes) = shape.target
        && classes < 2
    {
        return Err(ModelError::TooFewClasses { classes });
    }
    if let Some(picture) = shape.picture
        && (shape.hot > 0 || picture.values() != shape.inputs)
    {
        return Err(ModelError::Picture { picture, inputs: shape.inputs });
    }
    if u64::from(shape.dense) + u64::from(shape.hot) > u64::from(shape.inputs) {
        let Shape { inputs, dense, hot, .. } = shape;
        return Err(ModelError::Columns { inputs, dense, hot });
    }
    Ok(())
}
