//! A worker's part of the training: which examples make up a mini-batch, and their gradient.
//!
//! This is what a driver calls to obey a node's wish for a gradient. It knows the model, the
//! examples and the random streams; nodes, messages and time it does not.

use alloc::vec::Vec;
use core::fmt;

use crate::examples::{Examples, Shape};
use crate::id::{BatchId, WorkerId};
use crate::model::{Model, Workspace};
use crate::rng::Stream;

/// A model with one worker's examples.
///
/// Mini-batches have numbers, and a number names the same examples whenever and however often it
/// is asked for. A pass over the `n` examples takes `ceil(n / batch size)` of them, the last with
/// what is left; each pass goes through all examples once in a random order of its own.
#[derive(Clone, Debug)]
pub struct Trainer {
    model: Model,
    examples: Examples,
    shuffle: Stream,
    batch_size: usize,
    /// The pass that `order` belongs to.
    pass: Option<u64>,
    order: Vec<u32>,
    workspace: Workspace,
}

/// What came with a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// Mean loss over the mini-batch, in nats.
    pub loss: f32,
    /// Examples in the mini-batch.
    pub samples: u32,
}

/// A trainer that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainerError {
    /// The mini-batches would be empty.
    BatchSize,
    /// The worker has no examples, or more than 2^32 - 1.
    Examples {
        /// The worker.
        worker: WorkerId,
        /// How many examples it has.
        examples: usize,
    },
    /// Model and examples are of different shapes.
    Shape {
        /// What the model reads.
        model: Shape,
        /// What the examples are.
        examples: Shape,
    },
}

impl fmt::Display for TrainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BatchSize => f.write_str("batch size 0: must be 1 or more"),
            Self::Examples { worker, examples } => write!(
                f,
                "partition of worker {worker} has {examples} examples: must be 1 to {}",
                u32::MAX
            ),
            Self::Shape { model, examples } => write!(
                f,
                "examples have {} inputs ({} dense, {} one-hot groups) and {} classes, \
                 but the model reads {} ({}, {}) and {}",
                examples.inputs,
                examples.dense,
                examples.hot,
                examples.classes,
                model.inputs,
                model.dense,
                model.hot,
                model.classes
            ),
        }
    }
}

impl core::error::Error for TrainerError {}

impl Trainer {
    /// A trainer of `model` on `examples`, the partition of `worker`, in mini-batches of
    /// `batch_size` examples, or all if there are fewer. `seed` is the root stream of the run.
    ///
    /// # Errors
    /// [`TrainerError`] if there are no examples or more than 2^32 - 1, if `batch_size` is 0, or
    /// if the examples are not of the model's shape.
    pub fn new(
        model: Model,
        examples: Examples,
        seed: Stream,
        worker: WorkerId,
        batch_size: u32,
    ) -> Result<Self, TrainerError> {
        if batch_size == 0 {
            return Err(TrainerError::BatchSize);
        }
        if examples.is_empty() || u32::try_from(examples.len()).is_err() {
            return Err(TrainerError::Examples { worker, examples: examples.len() });
        }
        if model.shape() != examples.shape() {
            let (model, examples) = (model.shape(), examples.shape());
            return Err(TrainerError::Shape { model, examples });
        }
        Ok(Self {
            model,
            examples,
            shuffle: seed.fork("shuffle", worker.0.into()),
            batch_size: batch_size as usize,
            pass: None,
            order: Vec::new(),
            workspace: Workspace::new(),
        })
    }

    /// The model that is trained.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// Mini-batches in a pass over the worker's examples.
    #[must_use]
    pub const fn batches_per_pass(&self) -> u64 {
        self.examples.len().div_ceil(self.batch_size) as u64
    }

    /// The numbers of the examples in mini-batch `batch`.
    pub fn rows(&mut self, batch: BatchId) -> &[u32] {
        let range = self.prepare(batch);
        &self.order[range]
    }

    /// Computes the gradient of mini-batch `batch` at `params` into `gradient`, which takes on the
    /// length of the parameters: the mean over the examples.
    ///
    /// # Panics
    /// If `params` are not [`Model::parameters`] values.
    pub fn compute(&mut self, batch: BatchId, params: &[f32], gradient: &mut Vec<f32>) -> Computed {
        let range = self.prepare(batch);
        let rows = &self.order[range];
        gradient.resize(self.model.parameters(), 0.0);
        let loss = self.model.gradient(params, &self.examples, rows, gradient, &mut self.workspace);
        Computed { loss, samples: rows.len() as u32 }
    }

    /// Puts the order of the pass that `batch` belongs to in place, and returns the mini-batch's
    /// part of it.
    fn prepare(&mut self, batch: BatchId) -> core::ops::Range<usize> {
        let pass = batch.0 / self.batches_per_pass();
        if self.pass != Some(pass) {
            self.order.clear();
            self.order.extend(0..self.examples.len() as u32);
            self.shuffle.fork("pass", pass).rng().shuffle(&mut self.order);
            self.pass = Some(pass);
        }
        let begin = (batch.0 % self.batches_per_pass()) as usize * self.batch_size;
        begin..self.order.len().min(begin + self.batch_size)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::model::ModelSpec;

    const SHAPE: Shape = Shape { inputs: 5, dense: 2, hot: 1, classes: 2 };

    fn examples(count: u16) -> Examples {
        let mut examples = Examples::new(SHAPE);
        for i in 0..count {
            let dense = [f32::from(i) / 8.0, 1.0 - f32::from(i % 7)];
            examples.push(&dense, &[2 + i % 3], i % 2).unwrap();
        }
        examples
    }

    fn trainer(count: u16, worker: u32, batch_size: u32) -> Result<Trainer, TrainerError> {
        let model = Model::new(&ModelSpec::Softmax, SHAPE).unwrap();
        Trainer::new(model, examples(count), Stream::new(1), WorkerId(worker), batch_size)
    }

    fn pass(trainer: &mut Trainer, pass: u64) -> Vec<u32> {
        let batches = trainer.batches_per_pass();
        let numbers = pass * batches..(pass + 1) * batches;
        numbers.flat_map(|batch| trainer.rows(BatchId(batch)).to_vec()).collect()
    }

    #[test]
    fn every_example_comes_exactly_once_a_pass() {
        for (count, batch_size, batches) in [(37, 8, 5), (32, 8, 4), (7, 1, 7), (5, 99, 1)] {
            let mut trainer = trainer(count, 0, batch_size).unwrap();
            assert_eq!(trainer.batches_per_pass(), batches);
            for number in 0..3 {
                let mut rows = pass(&mut trainer, number);
                rows.sort_unstable();
                assert_eq!(rows, (0..u32::from(count)).collect::<Vec<u32>>());
            }
        }
    }

    #[test]
    fn the_last_batch_of_a_pass_keeps_its_true_size() {
        let mut trainer = trainer(37, 0, 8).unwrap();
        let sizes: Vec<usize> = (0..6).map(|batch| trainer.rows(BatchId(batch)).len()).collect();
        assert_eq!(sizes, [8, 8, 8, 8, 5, 8]);
    }

    #[test]
    fn a_batch_does_not_depend_on_what_was_asked_before() {
        let mut forward = trainer(37, 3, 8).unwrap();
        let in_order: Vec<Vec<u32>> =
            (0..20).map(|batch| forward.rows(BatchId(batch)).to_vec()).collect();
        let mut backward = trainer(37, 3, 8).unwrap();
        for batch in (0..20).rev() {
            assert_eq!(backward.rows(BatchId(batch)), in_order[batch as usize]);
        }
    }

    #[test]
    fn workers_and_passes_have_orders_of_their_own() {
        let mut first = trainer(37, 0, 8).unwrap();
        let mut second = trainer(37, 1, 8).unwrap();
        assert_ne!(pass(&mut first, 0), pass(&mut second, 0));
        assert_ne!(pass(&mut first, 0), pass(&mut first, 1));
    }

    #[test]
    fn the_gradient_is_that_of_the_batch() {
        let mut trainer = trainer(37, 2, 8).unwrap();
        let params = trainer.model().initial(Stream::new(4));
        let mut gradient = vec![7.0; 3];
        let computed = trainer.compute(BatchId(4), &params, &mut gradient);
        assert_eq!(computed.samples, 5);

        let rows = trainer.rows(BatchId(4)).to_vec();
        let mut expected = vec![0.0; params.len()];
        let model = trainer.model();
        let loss =
            model.gradient(&params, &examples(37), &rows, &mut expected, &mut Workspace::new());
        assert_eq!((computed.loss, gradient), (loss, expected));
    }

    #[test]
    fn trainers_without_work_are_refused() {
        let error = trainer(0, 4, 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "partition of worker 5 has 0 examples: must be 1 to 4294967295"
        );
        let error = trainer(4, 0, 0).unwrap_err();
        assert_eq!(error.to_string(), "batch size 0: must be 1 or more");
        let other = Model::new(&ModelSpec::Softmax, Shape { classes: 3, ..SHAPE }).unwrap();
        let error = Trainer::new(other, examples(4), Stream::new(1), WorkerId(0), 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "examples have 5 inputs (2 dense, 1 one-hot groups) and 2 classes, \
             but the model reads 5 (2, 1) and 3"
        );
    }
}
