//! Models that are written row by row: slower than a [`Network`](super::ModelSpec::Mlp), and short.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::softmax::log_softmax_of;
use super::{MiniBatch, Objective, Workspace};
use crate::examples::{Examples, Row, Shape};
use crate::params::Layout;
use crate::rng::Stream;

/// A classifier, given by the loss and the scores of one row.
///
/// The gradient must be a function of the arguments alone, bit for bit on every machine.
pub trait RowModel: fmt::Debug + Send + Sync + 'static {
    /// The tensors of the parameters for rows of this shape.
    fn layout(&self, shape: Shape) -> Layout;

    /// Returns initial parameters, drawn from `stream`. The default is zeros.
    fn initial(&self, layout: &Layout, stream: Stream) -> Vec<f32> {
        let _undrawn = stream;
        vec![0.0; layout.len()]
    }

    /// Returns the loss of a row at `params`, and adds its gradient times `scale` to `gradient`.
    fn loss(&self, params: &[f32], row: Row<'_>, scale: f32, gradient: &mut [f32]) -> f64;

    /// Writes a score for each class to `scores`: the logarithm of its probability, up to a
    /// constant.
    fn scores(&self, params: &[f32], row: Row<'_>, scores: &mut [f32]);
}

/// The objective of a model that is written row by row.
#[derive(Debug)]
pub struct ByRow<M> {
    model: M,
    layout: Layout,
}

impl<M: RowModel> ByRow<M> {
    /// The model for rows of `shape`.
    ///
    /// # Errors
    /// The data have a number to predict instead of classes.
    pub fn objective(model: M, shape: Shape) -> Result<Arc<dyn Objective>, String> {
        if shape.target.classes().is_none() {
            return Err("it predicts classes, but the data have a number to predict".into());
        }
        let layout = model.layout(shape);
        Ok(Arc::new(Self { model, layout }))
    }
}

impl<M: RowModel> Objective for ByRow<M> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, stream: Stream) -> Vec<f32> {
        self.model.initial(&self.layout, stream)
    }

    fn gradient(
        &self,
        _: Range<usize>,
        params: &[f32],
        MiniBatch { examples, rows, .. }: MiniBatch<'_>,
        gradient: &mut [f32],
        _: &mut Workspace,
    ) -> f64 {
        gradient.fill(0.0);
        let scale = 1.0 / rows.len() as f32;
        let rows = rows.iter().map(|&row| examples.row(row as usize));
        rows.map(|row| self.model.loss(params, row, scale, gradient)).sum()
    }

    fn predict(
        &self,
        params: &[f32],
        (examples, rows): (&Examples, Range<usize>),
        out: &mut [f32],
        _: &mut Workspace,
    ) {
        let classes = examples.shape().target.predictions() as usize;
        for (row, out) in rows.zip(out.chunks_exact_mut(classes)) {
            self.model.scores(params, examples.row(row), out);
            log_softmax_of(out);
        }
    }
}
