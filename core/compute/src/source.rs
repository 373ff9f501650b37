//! Gradients and evaluations of a worker's examples, regardless of what computes them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::time::Duration;

use crate::evaluation::{Evaluation, evaluate};
use crate::examples::Examples;
use crate::model::{LayerGradient, Margins, MiniBatch, Model, Team, Workspace};
use crate::rng::Stream;

/// A model together with examples, in parts.
///
/// [`Local`] is any [`Model`] on [`Examples`] in memory. An implementation of its own may have its
/// examples elsewhere. Gradients must be a function of rows, draws and parameters alone.
pub trait GradientSource: fmt::Debug + Send {
    /// The number of parameters, and of values of state after them.
    fn parameters(&self) -> usize;

    /// The number of keys that are parameters, the first ones; the others are state.
    fn trained(&self) -> usize {
        self.parameters()
    }

    /// The parameters to begin with, if the source has its own.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    fn initial(&mut self) -> Result<Option<Vec<f32>>, SourceError> {
        Ok(None)
    }

    /// The number of parts.
    fn parts(&self) -> usize;

    /// The number of examples of a part.
    ///
    /// # Panics
    /// If there is no such part.
    fn examples(&self, part: usize) -> usize;

    /// Overwrites `gradient` with the gradient of the mean loss over `rows` at `params`, and
    /// returns the mean loss.
    ///
    /// # Errors
    /// [`SourceError`] if the source is not in this program and does not answer as it should.
    ///
    /// # Panics
    /// If `params` or `gradient` has another length than [`Self::parameters`], or if a row is not
    /// there.
    fn gradient(
        &mut self,
        rows: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
    ) -> Result<f32, SourceError>;

    /// Computes [`Self::gradient`], and calls `finished` with the gradient of a layer as soon as it
    /// is final; the calls cover each key once. The default finishes all keys at the end.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    ///
    /// # Panics
    /// As [`Self::gradient`].
    fn gradient_by_layer(
        &mut self,
        rows: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
        finished: &mut dyn FnMut(LayerGradient<'_>),
    ) -> Result<f32, SourceError> {
        let loss = self.gradient(rows, params, gradient)?;
        finished(LayerGradient { first: 0, values: gradient, done: 1.0 });
        Ok(loss)
    }

    /// Computes with several threads from now on. A source in another program, or one whose
    /// arithmetic cannot be divided, does nothing.
    fn work_with(&mut self, team: Arc<dyn Team>) {
        let _unused = team;
    }

    /// Announces that the next call of [`Self::gradient`] has these arguments. A source in another
    /// program begins to compute, while the caller does something else; any other source does
    /// nothing. An evaluation may come in between: the gradient then begins again.
    ///
    /// # Panics
    /// As [`Self::gradient`].
    fn begin(&mut self, rows: Rows<'_>, params: &[f32]) {
        let _unused = (rows, params);
    }

    /// True if the gradient that was begun can be received after waiting for `within` at most. A
    /// source in this program does not wait.
    fn is_answered(&mut self, within: Duration) -> bool {
        let _unused = within;
        true
    }

    /// Evaluates `params` on all examples of a part.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    ///
    /// # Panics
    /// If `params` has another length than [`Self::parameters`], or if there is no such part.
    fn evaluate(&mut self, part: usize, params: &[f32]) -> Result<Evaluation, SourceError>;

    /// Evaluates `params` on the held-out examples of the job. A worker's source is asked if its
    /// server cannot evaluate.
    ///
    /// # Errors
    /// As [`Self::gradient`]; also if the source has no such examples.
    ///
    /// # Panics
    /// If `params` has another length than [`Self::parameters`].
    fn evaluate_held_out(&mut self, params: &[f32]) -> Result<Evaluation, SourceError> {
        let _unused = params;
        Err(SourceError("it has no examples to evaluate on".into()))
    }
}

/// Why a source has no gradient, no evaluation or no initial parameters, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// The examples of a gradient, and its keys.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// The part.
    pub part: usize,
    /// The examples, by number; each counts as often as it occurs.
    pub numbers: &'a [u32],
    /// The keys whose values are needed, if not all; the others are 0.
    pub keys: Option<Range<usize>>,
    /// The source of draws, such as those of dropout. A row draws the same in each mini-batch with
    /// this stream.
    pub draws: Stream,
}

impl<'a> Rows<'a> {
    /// Examples of a part, for a gradient of all keys; draws are the same in each mini-batch.
    #[must_use]
    pub const fn new(part: usize, numbers: &'a [u32]) -> Self {
        Self { part, numbers, keys: None, draws: Stream::new(0) }
    }
}

/// A model on examples in memory.
#[derive(Debug)]
pub struct Local {
    model: Model,
    parts: Vec<Part>,
    workspace: Workspace,
}

#[derive(Debug)]
struct Part {
    examples: Arc<Examples>,
    /// Cached losses and slopes, for gradients of successive blocks of keys over all examples.
    margins: Option<Box<Margins>>,
}

impl Local {
    /// A model on parts of examples of its shape.
    pub fn new<E: Into<Arc<Examples>>>(model: Model, parts: impl IntoIterator<Item = E>) -> Self {
        let part = |examples: E| Part { examples: examples.into(), margins: None };
        let parts = parts.into_iter().map(part).collect();
        Self { model, parts, workspace: Workspace::new() }
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }
}

impl GradientSource for Local {
    fn parameters(&self) -> usize {
        self.model.parameters()
    }

    fn trained(&self) -> usize {
        self.model.layout().trained()
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn examples(&self, part: usize) -> usize {
        self.parts[part].examples.len()
    }

    fn gradient(
        &mut self,
        rows: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
    ) -> Result<f32, SourceError> {
        let Self { model, parts, workspace } = self;
        let Rows { part, numbers, keys, draws } = rows;
        let Part { examples, margins } = &mut parts[part];
        Ok(match keys {
            Some(keys) if numbers.len() == examples.len() => {
                let margins = margins.get_or_insert_with(|| Box::new(Margins::new(examples)));
                model.gradient_by_margins(keys, params, (examples, margins), gradient)
            }
            keys => {
                let keys = keys.unwrap_or_else(|| 0..model.parameters());
                let batch = MiniBatch { examples, rows: numbers, draws };
                model.gradient_at(keys, params, batch, gradient, workspace)
            }
        })
    }

    fn gradient_by_layer(
        &mut self,
        rows: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
        finished: &mut dyn FnMut(LayerGradient<'_>),
    ) -> Result<f32, SourceError> {
        let Self { model, parts, workspace } = self;
        let Rows { part, numbers, draws, .. } = rows;
        let batch = MiniBatch { examples: &parts[part].examples, rows: numbers, draws };
        Ok(model.gradient_by_layer(params, batch, gradient, workspace, finished))
    }

    fn work_with(&mut self, team: Arc<dyn Team>) {
        self.workspace = Workspace::of(team);
    }

    fn evaluate(&mut self, part: usize, params: &[f32]) -> Result<Evaluation, SourceError> {
        let Self { model, parts, workspace } = self;
        Ok(evaluate(model, params, &parts[part].examples, workspace))
    }
}
