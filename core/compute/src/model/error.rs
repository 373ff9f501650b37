//! Errors of building a model.

use alloc::string::{String, ToString as _};

use crate::examples::{Picture, Target};
use crate::named::Number;
use crate::optim::GroupsError;

/// A model that cannot be built for the given examples.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The examples have no input columns.
    #[error("examples have 0 input columns: a model needs 1 or more")]
    NoInputs,
    /// The examples have fewer than two classes.
    #[error("examples have {classes} classes: a classifier needs 2 or more")]
    TooFewClasses {
        /// Number of classes.
        classes: u32,
    },
    /// The examples have fewer inputs than dense columns and one-hot groups need.
    #[error("{dense} dense columns and {hot} one-hot groups do not fit into {inputs} inputs")]
    Columns {
        /// Total columns.
        inputs: u32,
        /// Dense columns.
        dense: u32,
        /// One-hot groups, of one column or more each.
        hot: u32,
    },
    /// The rows are no pictures of the size that the data name.
    #[error("a picture of {picture} has other values than a row, which has {inputs}")]
    Picture {
        /// The size.
        picture: Picture,
        /// Columns of a row.
        inputs: u32,
    },
    /// A hidden layer has no units.
    #[error("hidden layer {layer} has 0 units: it needs 1 or more")]
    NoUnits {
        /// The layer, counted from 0.
        layer: usize,
    },
    /// The model reads sparse rows of two classes, but the examples are dense or have another
    /// target.
    #[error(
        "model = {model} reads sparse rows of two classes, but the data have {}; use {other}",
        match target {
            Target::Classes(2) => "dense rows".into(),
            target => target.to_string(),
        }
    )]
    NotSparse {
        /// The model.
        model: &'static str,
        /// The target of the data.
        target: Target,
        /// Settings of a model that reads the data.
        other: &'static str,
    },
    /// The model predicts classes, but the label is a number.
    #[error(
        "model = {model} predicts classes, but the data have a number to predict: use model = \
         linear or mlp:WIDTH"
    )]
    Classifier {
        /// The model.
        model: String,
    },
    /// The loss is one of other labels.
    #[error("loss = {loss} does not fit data with {target}: {allowed}")]
    Loss {
        /// The loss.
        loss: String,
        /// The target of the data.
        target: Target,
        /// The cure.
        allowed: &'static str,
    },
    /// A number of the loss is out of its range.
    #[error("loss = {loss}: {}", number.must())]
    LossNumber {
        /// The loss.
        loss: String,
        /// The declaration of the number.
        number: Number,
    },
    /// The model computes its own loss, and another is asked for.
    #[error("model = {model} has a loss of its own: leave out loss = {loss}")]
    OwnLoss {
        /// The model.
        model: String,
        /// The loss.
        loss: String,
    },
    /// The model reads dense and one-hot columns, but the rows are sparse.
    #[error(
        "the data are sparse rows, which only model = linear and model = logistic read; choose one \
         of them, or other data, or say libsvm:PATH,rows=dense"
    )]
    Sparse,
    /// An external model without tensors.
    #[error(
        "model = external: its tensors are not known; give the compute process that has them with \
         --process"
    )]
    NoTensors,
    /// Parameter groups do not fit the model.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// A tensor of an external model is not valid.
    #[error("tensor {name:?}: {problem}")]
    Tensor {
        /// The name of the tensor.
        name: String,
        /// The reason.
        problem: String,
    },
    /// The model would have too many parameters.
    #[error(
        "layer {layer} brings the model to {parameters} parameters: at most {} are allowed",
        super::MOST_PARAMETERS
    )]
    TooManyParameters {
        /// The layer, counted from 0, that exceeds the limit.
        layer: usize,
        /// The number of parameters up to and including that layer.
        parameters: u64,
    },
    /// A network or a model that the program added cannot be built.
    #[error("model = {model}: {problem}")]
    Named {
        /// The model, as the user wrote it.
        model: String,
        /// The reason.
        problem: String,
    },
    /// A layer of a network cannot be built.
    #[error("layer {place} of the network, {item}: {problem}")]
    Layer {
        /// The place of the layer in the text, counted from 1.
        place: usize,
        /// The layer, as the user wrote it.
        item: String,
        /// The reason and the cure.
        problem: String,
    },
}
