//! Buffers for the intermediate values of one block of samples.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::kernels::Memory;
use super::team::{Scratch, Team};
use crate::examples::{Examples, Records, Target};

/// The buffers of a [`Model`](super::Model)'s computations.
///
/// A workspace grows to the needs of the largest model and mini-batch so far and then stops
/// allocating. It carries no state between calls, so that one workspace serves any number of
/// models.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// The samples of the block.
    pub(super) samples: Records,
    /// The output of each layer. The last layer's holds first the outputs, then their derivatives.
    pub(super) outputs: Vec<Memory>,
    /// Values that each layer keeps for the backward pass.
    pub(super) kept: Vec<Memory>,
    /// Derivatives with respect to the outputs of layers. Layers take turns in using them.
    pub(super) deltas: Vec<Memory>,
    /// The threads, if there are several.
    pub(super) team: Option<Arc<dyn Team>>,
    /// Buffers for each thread.
    pub(super) scratch: Vec<Scratch>,
    /// Predictions, sample by sample.
    pub(super) predictions: Vec<f32>,
}

impl Workspace {
    /// Creates an empty workspace.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            samples: Records::new(0, 0, Target::Classes(0)),
            outputs: Vec::new(),
            kept: Vec::new(),
            deltas: Vec::new(),
            team: None,
            scratch: Vec::new(),
            predictions: Vec::new(),
        }
    }

    /// An empty workspace of several threads.
    #[must_use]
    pub fn of(team: Arc<dyn Team>) -> Self {
        Self { team: Some(team), ..Self::new() }
    }

    /// Gathers the examples `rows` as the next block.
    // Within a pass, each copy of a row would make the compiler load the kernels' constants again.
    #[inline(never)]
    pub(super) fn gather(
        &mut self,
        examples: &Examples,
        rows: impl ExactSizeIterator<Item = usize>,
    ) {
        self.samples.gather(examples.records(), rows);
    }
}
