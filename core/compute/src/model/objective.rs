//! The seam for kinds of models.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use serde::{Serialize, Serializer};

use super::{ModelError, Workspace};
use crate::examples::{Examples, Picture, Row, Shape};
use crate::params::Layout;
use crate::rng::Stream;

/// A layer of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerInfo {
    /// The number of the layer in the names of its tensors.
    pub number: usize,
    /// The kind of the layer, and its activation.
    pub kind: String,
    /// The size of a sample's output.
    #[serde(serialize_with = "in_words")]
    pub output: Picture,
    /// Its parameters, without state.
    pub parameters: usize,
    /// Products of the forward pass of a sample.
    pub products: u64,
}

fn in_words<S: Serializer>(size: &Picture, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(size)
}

/// The gradient of a layer, which is final before the gradients of the layers before it.
#[derive(Clone, Copy, Debug)]
pub struct LayerGradient<'a> {
    /// The first key.
    pub first: usize,
    /// The values, one for each key from `first` on.
    pub values: &'a [f32],
    /// The share of the whole gradient's computing that is done, above 0 and at most 1.
    pub done: f64,
}

impl LayerGradient<'_> {
    /// The keys.
    #[must_use]
    pub const fn keys(&self) -> Range<usize> {
        self.first..self.first + self.values.len()
    }

    /// The share of a gradient's computing that is done when the backward pass has done `backward`
    /// of its own: the forward pass computes a third of the products of both.
    #[must_use]
    pub fn done_after(backward: f64) -> f64 {
        (1.0 + 2.0 * backward) / 3.0
    }
}

/// The examples of a gradient.
#[derive(Clone, Copy, Debug)]
pub struct MiniBatch<'a> {
    /// The examples from which it takes rows.
    pub examples: &'a Examples,
    /// Its rows, by number; each counts as often as it occurs.
    pub rows: &'a [u32],
    /// The source of its draws, such as those of dropout. A row draws the same in each mini-batch
    /// with this stream.
    pub draws: Stream,
}

impl<'a> MiniBatch<'a> {
    /// Rows of `examples`; draws are the same in each mini-batch.
    #[must_use]
    pub const fn new(examples: &'a Examples, rows: &'a [u32]) -> Self {
        Self { examples, rows, draws: Stream::new(0) }
    }
}

/// A differentiable loss of labelled examples under parameters.
///
/// Results must be a function of the arguments alone, bit for bit on every machine: replays,
/// standbys and several servers rely on it.
pub trait Objective: fmt::Debug + Send + Sync {
    /// The tensors of the parameters and their keys.
    fn layout(&self) -> &Layout;

    /// Returns initial parameters, drawn from `stream` in key order. The default is zeros.
    fn initial(&self, stream: Stream) -> Vec<f32> {
        let _undrawn = stream;
        vec![0.0; self.layout().len()]
    }

    /// Overwrites `gradient` with the gradient of the mean loss over the examples of `batch` at
    /// `params`, and returns the sum of their losses. Values outside `keys` may be 0. `batch` is
    /// not empty.
    fn gradient(
        &self,
        keys: Range<usize>,
        params: &[f32],
        batch: MiniBatch<'_>,
        gradient: &mut [f32],
        workspace: &mut Workspace,
    ) -> f64;

    /// Computes [`Self::gradient`] at all keys, and calls `finished` with the gradient of a layer
    /// as soon as it is final. The calls cover each key once. A network finishes its layers one by
    /// one, the last layer first; the default finishes all keys at the end.
    fn gradient_by_layer(
        &self,
        params: &[f32],
        batch: MiniBatch<'_>,
        gradient: &mut [f32],
        workspace: &mut Workspace,
        finished: &mut dyn FnMut(LayerGradient<'_>),
    ) -> f64 {
        let keys = 0..self.layout().len();
        let loss = self.gradient(keys, params, batch, gradient, workspace);
        finished(LayerGradient { first: 0, values: gradient, done: 1.0 });
        loss
    }

    /// Writes the predictions for each example of `rows` to `out`, example by example: the
    /// log-probabilities of the classes, or the value.
    fn predict(
        &self,
        params: &[f32],
        rows: (&Examples, Range<usize>),
        out: &mut [f32],
        workspace: &mut Workspace,
    );

    /// The layers, first to last; none if it has no such parts.
    fn layers(&self) -> Vec<LayerInfo> {
        Vec::new()
    }

    /// True if the objective has arithmetic, so that losses and evaluations are meaningful.
    fn computes(&self) -> bool {
        true
    }

    /// The objective as one whose parameters belong to columns of sparse rows, if they do.
    fn sparse(&self) -> Option<&dyn SparseObjective> {
        None
    }
}

/// An objective with one parameter for each column of sparse rows: its loss depends on a row's
/// product with the parameters.
pub trait SparseObjective {
    /// Returns the same objective for the columns of `shape`.
    ///
    /// # Errors
    /// [`ModelError`] if the objective does not fit examples of `shape`.
    fn over(&self, shape: Shape) -> Result<Arc<dyn Objective>, ModelError>;

    /// Returns the loss of a row, and its derivative with respect to the row's product with the
    /// parameters, times `scale`.
    fn loss(&self, params: &[f32], row: Row<'_>, scale: f64) -> (f64, f32);

    /// Returns for each parameter an upper bound of the second derivative of the mean loss over all
    /// examples of `parts`, valid at any parameters; `None` if it has no bound.
    fn curvature(&self, parts: &[Examples]) -> Option<Vec<f32>>;
}
