//! Memory for the intermediate values of one block of samples.

use alloc::vec::Vec;

use super::kernels::{LANES, Strip, strips};
use crate::examples::Examples;

/// The memory a [`Model`](super::Model) computes in.
///
/// It grows to what the largest model and mini-batch seen need, and then allocates no more. What
/// it holds between calls means nothing, so one workspace serves any number of models.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    pub(super) samples: usize,
    /// The dense columns of the block.
    pub(super) input: Vec<Strip>,
    /// The one-hot indices of the block, sample by sample.
    pub(super) hot: Vec<u16>,
    pub(super) labels: Vec<u16>,
    /// The output of each layer; of the last one first the logits, then their derivatives.
    pub(super) outputs: Vec<Vec<Strip>>,
    /// The derivatives by the outputs of two neighbouring hidden layers.
    pub(super) deltas: [Vec<Strip>; 2],
    /// A piece of the weights, as the products want it.
    pub(super) panel: Vec<Strip>,
    /// Log-probabilities, sample by sample.
    pub(super) log_probabilities: Vec<f32>,
}

impl Workspace {
    /// A workspace that has grown to nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            samples: 0,
            input: Vec::new(),
            hot: Vec::new(),
            labels: Vec::new(),
            outputs: Vec::new(),
            deltas: [Vec::new(), Vec::new()],
            panel: Vec::new(),
            log_probabilities: Vec::new(),
        }
    }

    /// Takes the examples `rows` in as the next block.
    pub(super) fn gather(
        &mut self,
        examples: &Examples,
        rows: impl ExactSizeIterator<Item = usize>,
    ) {
        let samples = rows.len();
        let columns = examples.shape().dense as usize;
        self.samples = samples;
        self.hot.clear();
        self.labels.clear();
        self.input.resize(strips(columns) * samples, [0.0; LANES]);
        for (sample, row) in rows.enumerate() {
            let row = examples.row(row);
            let (whole, rest) = row.dense.as_chunks::<LANES>();
            let mut place = sample;
            for values in whole {
                self.input[place] = *values;
                place += samples;
            }
            if let Some(strip) = self.input.get_mut(place).filter(|_| !rest.is_empty()) {
                for (lane, value) in strip.iter_mut().zip(rest) {
                    *lane = *value;
                }
            }
            self.hot.extend_from_slice(row.hot);
            self.labels.push(row.label);
        }
    }
}
