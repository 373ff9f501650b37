//! The layout of a model whose arithmetic is elsewhere, or does not matter.

use core::ops::Range;

use super::{LayerGradient, MiniBatch, Objective, Workspace};
use crate::examples::Examples;
use crate::params::Layout;

/// A layout of parameters. Gradients are zeros, and evaluations are empty.
#[derive(Debug)]
pub(super) struct WithoutArithmetic(pub(super) Layout);

impl Objective for WithoutArithmetic {
    fn layout(&self) -> &Layout {
        &self.0
    }

    fn gradient(
        &self,
        _: Range<usize>,
        _: &[f32],
        _: MiniBatch<'_>,
        gradient: &mut [f32],
        _: &mut Workspace,
    ) -> f64 {
        gradient.fill(0.0);
        0.0
    }

    /// Each layer takes the same time.
    fn gradient_by_layer(
        &self,
        _: &[f32],
        _: MiniBatch<'_>,
        gradient: &mut [f32],
        _: &mut Workspace,
        finished: &mut dyn FnMut(LayerGradient<'_>),
    ) -> f64 {
        gradient.fill(0.0);
        let layers = self.0.tensors();
        for (before, layer) in layers.iter().rev().enumerate() {
            let keys = layer.keys.indices();
            let (first, values) = (keys.start, gradient.get(keys).unwrap_or_default());
            let done = LayerGradient::done_after((before + 1) as f64 / layers.len() as f64);
            finished(LayerGradient { first, values, done });
        }
        0.0
    }

    fn predict(&self, _: &[f32], _: (&Examples, Range<usize>), _: &mut [f32], _: &mut Workspace) {}

    fn computes(&self) -> bool {
        false
    }
}
