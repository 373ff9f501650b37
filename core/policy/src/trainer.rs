//! A worker's training: selects the examples of a mini-batch, and computes their gradient.
//!
//! A driver calls it to carry out a node's request for a gradient. The module knows the model, the
//! examples and the random streams; it knows neither nodes nor messages nor time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::job::Job;
use crate::rules::Aggregation;
use pstrain_compute::coding::Piece;
use pstrain_compute::examples::{Examples, Shape};
use pstrain_compute::id::{PartId, ServerId, WorkerId};
use pstrain_compute::model::{Margins, Model, Workspace};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::params::KeyList;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;

/// A model with one worker's examples.
///
/// The examples are those of one part of the data, or of several. The mini-batches of a part are
/// numbered. A number names the same examples at any time, any number of times, and on any worker.
/// A pass over the `n` examples of a part takes `ceil(n / batch size)` mini-batches, the last with
/// the remainder. Each pass goes through all examples once in its own random order, or in storage
/// order if one mini-batch is all of them. A mini-batch with a size of its own has the examples of
/// that order from its number on.
///
/// With a sparse model the trainer knows only the keys that its examples touch: parameters and
/// gradients have a value for each key of [`Trainer::keys`].
#[derive(Clone, Debug)]
pub struct Trainer {
    model: Model,
    keys: Option<KeyList>,
    parts: Vec<Part>,
    combination: Option<Combination>,
    /// The job and the number of parameters of its whole model, if gradients cover blocks of the
    /// keys.
    blocks: Option<(Box<Job>, u64)>,
    batch_size: usize,
    workspace: Workspace,
}

/// A part of the data.
#[derive(Clone, Debug)]
struct Part {
    id: PartId,
    examples: Examples,
    shuffle: Stream,
    /// The pass that `order` belongs to; `None` if `order` is the storage order.
    pass: Option<u64>,
    order: Vec<u32>,
    /// State shared by full-part gradients of successive blocks.
    margins: Option<Box<Margins>>,
}

/// Combination of the gradients of all parts under gradient coding.
#[derive(Clone, Debug)]
struct Combination {
    /// The coefficient of each part's gradient.
    coefficients: Vec<f64>,
    aggregation: Aggregation,
    /// Buffer for the gradient of one part.
    gradient: Vec<f32>,
}

/// Loss and number of examples of a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// Mean loss over the examples, in nats.
    pub loss: f32,
    /// Examples it was computed from.
    pub samples: u32,
}

/// Invalid input of a trainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainerError {
    /// The mini-batches would be empty.
    BatchSize,
    /// A part has no examples, or more than 2^32 - 1.
    Examples {
        /// The part.
        part: PartId,
        /// Number of its examples.
        examples: usize,
    },
    /// The number of parts differs from the worker's number in this job.
    Parts {
        /// Number of parts.
        given: usize,
        /// Required number.
        wanted: usize,
    },
    /// Model and examples have different shapes.
    Shape {
        /// Shape that the model reads.
        model: Shape,
        /// Shape of the examples.
        examples: Shape,
    },
}

impl fmt::Display for TrainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BatchSize => f.write_str("batch size 0: must be 1 or more"),
            Self::Examples { part, examples } => {
                write!(f, "partition {part} has {examples} examples: must be 1 to {}", u32::MAX)
            }
            Self::Parts { given, wanted } => {
                write!(f, "{given} partitions where the worker has {wanted} in this job")
            }
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
    /// Creates a trainer of `model` on `examples`, the partition of `worker`, in mini-batches of
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
        Self::of_parts(model, vec![(PartId::from(worker), examples)], seed, batch_size)
    }

    /// Creates the trainer of `worker` in `job`, whose model is `model`. `parts` are the examples
    /// of [`Job::parts_of`], in that order.
    ///
    /// # Errors
    /// [`TrainerError`] if a part has no examples or more than 2^32 - 1 or is not of the model's
    /// shape, or if there are more or fewer parts.
    pub fn of_job(
        job: &Job,
        model: Model,
        worker: WorkerId,
        parts: Vec<Examples>,
    ) -> Result<Self, TrainerError> {
        let ids = job.parts_of(worker);
        if ids.len() != parts.len() {
            return Err(TrainerError::Parts { given: parts.len(), wanted: ids.len() });
        }
        let blocks =
            job.blocks.is_some().then(|| (Box::new(job.clone()), model.parameters() as u64));
        let (keys, model, parts) = match model.is_sparse() {
            true => {
                let (keys, model, parts) = compact(job, &model, parts)?;
                (Some(keys), model, parts)
            }
            false => (None, model, parts),
        };
        let parts = ids.into_iter().zip(parts).collect();
        let mut trainer = Self::of_parts(model, parts, Stream::new(job.seed), job.batch_size)?;
        let coefficient = |piece: Piece| piece.coefficient;
        trainer.keys = keys;
        trainer.blocks = blocks;
        trainer.combination = job.pieces_of(worker).map(|pieces| Combination {
            coefficients: pieces.into_iter().map(coefficient).collect(),
            aggregation: job.aggregation,
            gradient: Vec::new(),
        });
        Ok(trainer)
    }

    fn of_parts(
        model: Model,
        parts: Vec<(PartId, Examples)>,
        seed: Stream,
        batch_size: u32,
    ) -> Result<Self, TrainerError> {
        if batch_size == 0 {
            return Err(TrainerError::BatchSize);
        }
        let part = |(id, examples): (PartId, Examples)| {
            if examples.is_empty() || u32::try_from(examples.len()).is_err() {
                return Err(TrainerError::Examples { part: id, examples: examples.len() });
            }
            if model.shape() != examples.shape() {
                let (model, examples) = (model.shape(), examples.shape());
                return Err(TrainerError::Shape { model, examples });
            }
            let shuffle = seed.fork("shuffle", id.0.into());
            Ok(Part { id, examples, shuffle, pass: None, order: Vec::new(), margins: None })
        };
        let parts = parts.into_iter().map(part).collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err(TrainerError::Parts { given: 0, wanted: 1 });
        }
        Ok(Self {
            keys: None,
            parts,
            combination: None,
            blocks: None,
            batch_size: batch_size as usize,
            workspace: Workspace::new(),
            model,
        })
    }

    /// The model that is trained.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// The keys that parameters and gradients have values for; `None` for all keys.
    #[must_use]
    pub const fn keys(&self) -> Option<&KeyList> {
        self.keys.as_ref()
    }

    /// The index range of a gradient of `task`, if it has values for one block of the keys only.
    #[must_use]
    pub fn block(&self, task: Task) -> Option<Range<usize>> {
        let (job, all) = self.blocks.as_ref()?;
        Some(self.keys.as_ref()?.places(job.block_of(task, *all)?))
    }

    /// Returns true if the worker has the part of `task`.
    #[must_use]
    pub fn has(&self, task: Task) -> bool {
        find(&self.parts, task.part).is_some()
    }

    /// Computes the gradient of `task` at `params` into `gradient`, which is resized to the number
    /// of parameters: the mean over the examples of the mini-batch. If gradients cover blocks, the
    /// values outside the block are 0.
    ///
    /// Under gradient coding it is the sum over this worker's parts of coefficient times gradient,
    /// where the gradient of a part is its share of the mean over all their examples, or, if
    /// gradients are summed, its own mean.
    ///
    /// # Panics
    /// If `params` does not have [`Model::parameters`] values, or if [`Self::has`] is false for
    /// `task`.
    pub fn compute(&mut self, task: Task, params: &[f32], gradient: &mut Vec<f32>) -> Computed {
        let block = self.block(task);
        let Self { model, parts, combination, batch_size, workspace, .. } = self;
        gradient.resize(model.parameters(), 0.0);
        let Some(combination) = combination else {
            #[expect(clippy::expect_used, reason = "documented, and checked by the worker node")]
            let part = find(parts, task.part).map(|place| &mut parts[place]).expect("a known part");
            let rows = part.prepare(task, *batch_size);
            let samples = rows.len() as u32;
            let loss = match block {
                Some(keys) if rows.len() == part.examples.len() => {
                    let Part { examples, margins, .. } = part;
                    let margins = margins.get_or_insert_with(|| Box::new(Margins::new(examples)));
                    model.gradient_by_margins(keys, params, (examples, margins), gradient)
                }
                block => {
                    let keys = block.unwrap_or_else(|| 0..model.parameters());
                    let rows = (&part.examples, &part.order[rows]);
                    model.gradient_at(keys, params, rows, gradient, workspace)
                }
            };
            return Computed { loss, samples };
        };
        let sizes = parts.iter().map(|part| part.range(task, *batch_size).1.len());
        let samples: usize = sizes.sum();
        combination.gradient.resize(model.parameters(), 0.0);
        let mut loss = 0.0;
        for (number, part) in parts.iter_mut().enumerate() {
            let rows = part.prepare(task, *batch_size);
            let share = rows.len() as f64 / samples as f64;
            let (rows, target) = (&part.order[rows], &mut combination.gradient);
            let mean = model.gradient(params, &part.examples, rows, target, workspace);
            loss += f64::from(mean) * share;
            let factor = match combination.aggregation {
                Aggregation::Sum => combination.coefficients[number],
                _ => combination.coefficients[number] * share,
            } as f32;
            for (sum, value) in gradient.iter_mut().zip(&combination.gradient) {
                let term = factor * value;
                *sum = if number == 0 { term } else { *sum + term };
            }
        }
        Computed { loss: loss as f32, samples: samples as u32 }
    }
}

/// The keys of `model` that `parts` touch, with at least one key of each server of `job`, and with
/// curvature bounds if `job` needs them.
#[must_use]
pub fn working_set(job: &Job, model: &Model, parts: &[Examples]) -> KeyList {
    let mut touched: Vec<u32> = parts.iter().flat_map(Examples::touched).collect();
    touched.sort_unstable();
    touched.dedup();
    let ranges: Vec<_> = (0..job.servers)
        .filter_map(|server| job.keys_of(ServerId(server), model.parameters()))
        .collect();
    let list = KeyList::covering(touched, &ranges);
    if job.update.optimizer != OptimizerSpec::Diagonal {
        return list;
    }
    let over = model.over(list.len()).ok();
    let parts: Vec<Examples> = parts.iter().map(|part| part.clone().over(list.keys())).collect();
    let bounds = over.and_then(|model| model.curvature(&parts));
    bounds.and_then(|bounds| list.clone().with_curvature(bounds)).unwrap_or(list)
}

/// Returns the working set of `parts`, and model and parts restricted to it.
fn compact(
    job: &Job,
    model: &Model,
    parts: Vec<Examples>,
) -> Result<(KeyList, Model, Vec<Examples>), TrainerError> {
    let shapes = |examples: &Examples| TrainerError::Shape {
        model: model.shape(),
        examples: examples.shape(),
    };
    if let Some(other) = parts.iter().find(|examples| examples.shape() != model.shape()) {
        return Err(shapes(other));
    }
    let keys = working_set(job, model, &parts);
    let over = model.over(keys.len());
    let model = over.map_err(|_| shapes(&parts.first().cloned().unwrap_or_default()))?;
    let parts = parts.into_iter().map(|part| part.over(keys.keys())).collect();
    Ok((keys, model, parts))
}

/// Returns the index of a part. A worker with all parts has each at its own index.
fn find(parts: &[Part], id: PartId) -> Option<usize> {
    let place = id.0 as usize;
    let is_there = parts.get(place).is_some_and(|part| part.id == id);
    if is_there { Some(place) } else { parts.iter().position(|part| part.id == id) }
}

impl Part {
    /// Sets `order` to the order of the mini-batch's pass, and returns the range of the mini-batch
    /// in it.
    fn prepare(&mut self, task: Task, batch_size: usize) -> Range<usize> {
        let (pass, rows) = self.range(task, batch_size);
        // A sum over all examples needs no random order, and is fastest in storage order.
        let pass = (rows.len() < self.examples.len()).then_some(pass);
        if self.pass != pass || self.order.is_empty() {
            self.order.clear();
            self.order.extend(0..self.examples.len() as u32);
            if let Some(pass) = pass {
                self.shuffle.fork("pass", pass).rng().shuffle(&mut self.order);
            }
            self.pass = pass;
        }
        rows
    }

    /// Returns the pass of a mini-batch, and its range in the order of that pass.
    const fn range(&self, task: Task, batch_size: usize) -> (u64, Range<usize>) {
        let (batch, count) = (task.batch.0, self.examples.len());
        let (pass, begin, size) = if task.examples > 0 {
            (batch / count as u64, (batch % count as u64) as usize, task.examples as usize)
        } else {
            let batches = self.batches_per_pass(batch_size);
            (batch / batches, (batch % batches) as usize * batch_size, batch_size)
        };
        (pass, begin..if size < count - begin { begin + size } else { count })
    }

    /// Number of mini-batches in a pass over the part.
    const fn batches_per_pass(&self, batch_size: usize) -> u64 {
        self.examples.len().div_ceil(batch_size) as u64
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use pstrain_compute::id::BatchId;
    use pstrain_compute::model::ModelSpec;

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

    fn rows(trainer: &mut Trainer, batch: u64) -> Vec<u32> {
        let part = &mut trainer.parts[0];
        let task = Task::own(WorkerId(0), BatchId(batch));
        let rows = part.prepare(task, trainer.batch_size);
        part.order[rows].to_vec()
    }

    fn batches_per_pass(trainer: &Trainer) -> u64 {
        trainer.parts[0].batches_per_pass(trainer.batch_size)
    }

    fn pass(trainer: &mut Trainer, pass: u64) -> Vec<u32> {
        let batches = batches_per_pass(trainer);
        let numbers = pass * batches..(pass + 1) * batches;
        numbers.flat_map(|batch| rows(trainer, batch)).collect()
    }

    #[test]
    fn every_example_comes_exactly_once_a_pass() {
        for (count, batch_size, batches) in [(37, 8, 5), (32, 8, 4), (7, 1, 7), (5, 99, 1)] {
            let mut trainer = trainer(count, 0, batch_size).unwrap();
            assert_eq!(batches_per_pass(&trainer), batches);
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
        let sizes: Vec<usize> = (0..6).map(|batch| rows(&mut trainer, batch).len()).collect();
        assert_eq!(sizes, [8, 8, 8, 8, 5, 8]);
    }

    #[test]
    fn batches_with_sizes_of_their_own_go_through_the_same_order() {
        let mut trainer = trainer(37, 0, 8).unwrap();
        let passes = [pass(&mut trainer, 0), pass(&mut trainer, 1)].concat();
        let mut found = Vec::new();
        for (batch, examples) in [(0, 8), (8, 20), (28, 100), (37, 5), (42, 32)] {
            let task = Task { part: PartId(0), batch: BatchId(batch), examples };
            let part = &mut trainer.parts[0];
            let rows = part.prepare(task, 8);
            found.extend_from_slice(&part.order[rows]);
        }
        assert_eq!(found, passes);
    }

    #[test]
    fn a_batch_does_not_depend_on_what_was_asked_before() {
        let mut forward = trainer(37, 3, 8).unwrap();
        let in_order: Vec<Vec<u32>> = (0..20).map(|batch| rows(&mut forward, batch)).collect();
        let mut backward = trainer(37, 3, 8).unwrap();
        for batch in (0..20).rev() {
            assert_eq!(rows(&mut backward, batch), in_order[batch as usize]);
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
        let task = Task::own(WorkerId(2), BatchId(4));
        let computed = trainer.compute(task, &params, &mut gradient);
        assert_eq!(computed.samples, 5);

        let rows = rows(&mut trainer, 4);
        let mut expected = vec![0.0; params.len()];
        let model = trainer.model();
        let loss =
            model.gradient(&params, &examples(37), &rows, &mut expected, &mut Workspace::new());
        assert_eq!((computed.loss, gradient), (loss, expected));
    }

    #[test]
    fn trainers_without_work_are_refused() {
        let error = trainer(0, 4, 8).unwrap_err();
        assert_eq!(error.to_string(), "partition 5 has 0 examples: must be 1 to 4294967295");
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
