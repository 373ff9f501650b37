//! Draws of a network while it is trained.

use crate::rng::{Random, Stream};

/// The draws of a block of samples. They follow from the row and the stream, not from the place in
/// a mini-batch, so that another worker that computes the row again draws the same.
#[derive(Clone, Copy)]
pub(super) struct Draws<'a> {
    pub(super) stream: Stream,
    /// The rows of the samples, by number.
    pub(super) rows: &'a [u32],
}

impl Draws<'_> {
    /// The draws of one layer.
    pub(super) fn of_layer(self, layer: usize) -> Self {
        Self { stream: self.stream.fork("layer", layer as u64), ..self }
    }

    /// The generator of a sample of the block.
    pub(super) fn of(&self, sample: usize) -> Random {
        self.stream.fork("row", self.rows[sample].into()).rng()
    }
}
