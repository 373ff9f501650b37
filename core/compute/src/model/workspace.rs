//! Memory for the intermediate values of one block of samples.

use alloc::vec::Vec;

use super::kernels::Memory;
use crate::examples::{Examples, Records};

/// The memory a [`Model`](super::Model) computes in.
///
/// It grows to what the largest model and mini-batch seen need, and then allocates no more. What
/// it holds between calls means nothing, so one workspace serves any number of models.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// The samples of the block.
    pub(super) samples: Records,
    /// The output of each layer; of the last one first the logits, then their derivatives.
    pub(super) outputs: Vec<Memory>,
    /// The derivatives by the outputs of two neighbouring hidden layers.
    pub(super) deltas: [Memory; 2],
    /// A piece of the weights, as the products want it.
    pub(super) panel: Memory,
    /// Log-probabilities, sample by sample.
    pub(super) log_probabilities: Vec<f32>,
}

impl Workspace {
    /// A workspace that has grown to nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            samples: Records::new(0, 0),
            outputs: Vec::new(),
            deltas: [Memory::new(), Memory::new()],
            panel: Memory::new(),
            log_probabilities: Vec::new(),
        }
    }

    /// Takes the examples `rows` in as the next block.
    pub(super) fn gather(
        &mut self,
        examples: &Examples,
        rows: impl ExactSizeIterator<Item = usize>,
    ) {
        self.samples.gather(examples.records(), rows);
    }
}
