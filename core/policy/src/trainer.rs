//! A worker's training: the gradient of a task.
//!
//! A driver calls it to carry out a node's request for a gradient. The module knows which rows a
//! task has and under which job; a [`GradientSource`] computes. It knows neither nodes nor messages
//! nor time.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use crate::batches::Batches;
use crate::job::Job;
use crate::rules::Aggregation;
use pstrain_compute::coding::Piece;
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::{Examples, Shape};
use pstrain_compute::id::{PartId, ServerId, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{LayerGradient, Model, Team};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::params::{KeyList, KeyRange};
use pstrain_compute::rng::Stream;
use pstrain_compute::source::{GradientSource, Local, Rows, SourceError};
use pstrain_compute::task::Task;

/// One worker's source of gradients, and the mini-batches of its parts of the data.
///
/// With a sparse model and servers the trainer knows only the keys that its examples touch:
/// parameters and gradients have a value for each key of [`Trainer::keys`].
#[derive(Debug)]
pub struct Trainer {
    source: Box<dyn GradientSource>,
    batches: Batches,
    keys: Option<KeyList>,
    combination: Option<Combination>,
    /// The job and the number of parameters of its whole model, if gradients cover blocks of the
    /// keys.
    blocks: Option<(Box<Job>, u64)>,
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
    /// Mean loss over the examples.
    pub loss: f32,
    /// Examples it was computed from.
    pub samples: u32,
}

/// A range of a gradient that is final before the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRange {
    /// Its keys.
    pub keys: KeyRange,
    /// Its values, one for each key.
    pub values: Vec<f32>,
    /// Examples that the gradient is computed from.
    pub samples: u32,
    /// The share of the gradient's computing that is done, above 0 and below 1.
    pub done: f64,
}

/// The least values of a range: shorter layers wait for the layers before them, because each
/// message costs a header and a wake-up.
const MIN_RANGE: usize = 16 * 1024;
/// The most values of a range: longer layers are cut, because a server answers a range only once it
/// has arrived.
const MAX_RANGE: usize = 64 * 1024;

/// Invalid input of a trainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The mini-batches would be empty.
    #[error("batch size 0: must be 1 or more")]
    BatchSize,
    /// A part has no examples, or more than 2^32 - 1.
    #[error("partition {part} has {examples} examples: must be 1 to {}", u32::MAX)]
    Examples {
        /// The part.
        part: PartId,
        /// Number of its examples.
        examples: usize,
    },
    /// The number of parts differs from the worker's number in this job.
    #[error("{given} partitions where the worker has {wanted} in this job")]
    Parts {
        /// Number of parts.
        given: usize,
        /// Required number.
        wanted: usize,
    },
    /// Model and examples have different shapes.
    #[error(
        "examples have {} inputs ({} dense, {} one-hot groups) and {}, but the model reads {} ({}, \
         {}) and {}",
        .examples.inputs, .examples.dense, .examples.hot, .examples.target,
        .model.inputs, .model.dense, .model.hot, .model.target
    )]
    Shape {
        /// Shape that the model reads.
        model: Shape,
        /// Shape of the examples.
        examples: Shape,
    },
}

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
        let parts = vec![examples];
        check_shapes(&model, &parts)?;
        let source = Box::new(Local::new(model, parts));
        Self::of_source(source, &[PartId::from(worker)], seed, batch_size)
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
        let (given, wanted) = (parts.len(), job.parts_of(worker).len());
        if given != wanted {
            return Err(TrainerError::Parts { given, wanted });
        }
        let blocks =
            job.blocks.is_some().then(|| (Box::new(job.clone()), model.parameters() as u64));
        // Workers without a server reduce vectors of all keys.
        let has_keys = model.is_sparse() && job.architecture.has_server();
        let (keys, model, parts) = match has_keys {
            true => {
                let (keys, model, parts) = compact(job, &model, parts)?;
                (Some(keys), model, parts)
            }
            false => (None, model, parts),
        };
        check_shapes(&model, &parts)?;
        let source = Box::new(Local::new(model, parts));
        Ok(Self { keys, blocks, ..Self::of_job_source(job, source, worker)? })
    }

    /// Creates the trainer of `worker` in `job` whose gradients of all keys come from `source`. Its
    /// parts are those of [`Job::parts_of`], in that order.
    ///
    /// # Errors
    /// As [`Self::of_source`].
    pub fn of_job_source(
        job: &Job,
        source: Box<dyn GradientSource>,
        worker: WorkerId,
    ) -> Result<Self, TrainerError> {
        let (ids, seed) = (job.parts_of(worker), Stream::new(job.seed));
        let source = job.local_training.around(source);
        let mut trainer = Self::of_source(source, &ids, seed, job.batch_size)?;
        if job.local_training != LocalTraining::None {
            trainer.batches = trainer.batches.ordered();
        }
        let coefficient = |piece: Piece| piece.coefficient;
        trainer.combination = job.pieces_of(worker).map(|pieces| Combination {
            coefficients: pieces.into_iter().map(coefficient).collect(),
            aggregation: job.aggregation,
            gradient: Vec::new(),
        });
        Ok(trainer)
    }

    /// Creates a trainer whose gradients come from `source`, whose parts are `ids`, in mini-batches
    /// of `batch_size` examples, or all if there are fewer. `seed` is the root stream of the run.
    ///
    /// # Errors
    /// [`TrainerError`] if a part has no examples or more than 2^32 - 1, if `batch_size` is 0, or
    /// if the source has more or fewer parts.
    pub fn of_source(
        source: Box<dyn GradientSource>,
        ids: &[PartId],
        seed: Stream,
        batch_size: u32,
    ) -> Result<Self, TrainerError> {
        if batch_size == 0 {
            return Err(TrainerError::BatchSize);
        }
        if ids.is_empty() || ids.len() != source.parts() {
            let wanted = ids.len().max(1);
            return Err(TrainerError::Parts { given: source.parts(), wanted });
        }
        let part = |(index, id): (usize, &PartId)| {
            let examples = source.examples(index);
            if examples == 0 || u32::try_from(examples).is_err() {
                return Err(TrainerError::Examples { part: *id, examples });
            }
            Ok((*id, examples))
        };
        let parts = ids.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?;
        let batches = Batches::new(&parts, seed, batch_size);
        Ok(Self { source, batches, keys: None, combination: None, blocks: None })
    }

    /// The parameters to begin with, if the source of gradients has its own.
    ///
    /// # Errors
    /// The error of the source.
    pub fn initial(&mut self) -> Result<Option<Vec<f32>>, SourceError> {
        self.source.initial()
    }

    /// Evaluates parameters of all keys on the held-out examples of the job.
    ///
    /// # Errors
    /// The error of the source.
    ///
    /// # Panics
    /// If `params` does not have [`Model::parameters`] values.
    pub fn evaluate(&mut self, params: &[f32]) -> Result<Evaluation, SourceError> {
        self.source.evaluate_held_out(params)
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
        self.batches.find(task.part).is_some()
    }

    /// Computes with several threads from now on, if the source of gradients can.
    pub fn work_with(&mut self, team: Arc<dyn Team>) {
        self.source.work_with(team);
    }

    /// Announces the next call of [`Self::compute`], with the same arguments, so that a compute
    /// process works while the caller does something else. Under gradient coding it does nothing.
    ///
    /// # Panics
    /// As [`Self::compute`].
    pub fn begin(&mut self, task: Task, params: &[f32]) {
        let keys = self.block(task);
        let Self { source, batches, combination: None, .. } = self else { return };
        let Some(part) = batches.find(task.part) else { return };
        source.begin(Rows { keys, ..batches.rows(part, task) }, params);
    }

    /// True if the gradient that was begun can be received after waiting for `within` at most.
    pub fn is_answered(&mut self, within: Duration) -> bool {
        self.source.is_answered(within)
    }

    /// Computes the gradient of `task` at `params` into `gradient`, which is resized to the number
    /// of parameters: the mean over the examples of the mini-batch. If gradients cover blocks, the
    /// values outside the block are 0.
    ///
    /// Under gradient coding it is the sum over this worker's parts of coefficient times gradient,
    /// where the gradient of a part is its share of the mean over all their examples, or, if
    /// gradients are summed, its own mean.
    ///
    /// # Errors
    /// The error of the source of gradients.
    ///
    /// # Panics
    /// If `params` does not have [`Model::parameters`] values, or if [`Self::has`] is false for
    /// `task`.
    pub fn compute(
        &mut self,
        task: Task,
        params: &[f32],
        gradient: &mut Vec<f32>,
    ) -> Result<Computed, SourceError> {
        let keys = self.block(task);
        let Self { source, batches, combination, .. } = self;
        gradient.resize(source.parameters(), 0.0);
        if let Some(combination) = combination {
            return combination.compute(&mut **source, batches, task, (params, gradient));
        }
        let rows = Rows { keys, ..rows_of(batches, task) };
        let samples = rows.numbers.len() as u32;
        let loss = source.gradient(rows, params, gradient)?;
        Ok(Computed { loss, samples })
    }

    /// Computes the gradient of `task` as [`Self::compute`] does, and calls `finished` with ranges
    /// of it as soon as they are final, the last keys first. The ranges do not overlap. The rest of
    /// the gradient is final at the end.
    ///
    /// # Errors
    /// As [`Self::compute`].
    ///
    /// # Panics
    /// As [`Self::compute`], and under gradient coding.
    pub fn compute_by_range(
        &mut self,
        task: Task,
        params: &[f32],
        gradient: &mut Vec<f32>,
        finished: &mut dyn FnMut(FinishedRange),
    ) -> Result<Computed, SourceError> {
        let Self { source, batches, combination, .. } = self;
        assert!(combination.is_none(), "a job whose gradients leave by ranges has no coding");
        gradient.resize(source.parameters(), 0.0);
        let rows = rows_of(batches, task);
        let samples = rows.numbers.len() as u32;
        // The layers that wait for the ones before them.
        let (mut first, mut waiting) = (0, Vec::<f32>::new());
        let mut add = |layer: LayerGradient<'_>| {
            if layer.keys().end != first {
                waiting.clear(); // they are final only together with the whole gradient
            }
            waiting.splice(..0, layer.values.iter().copied());
            first = layer.first;
            if waiting.len() < MIN_RANGE || layer.done >= 1.0 {
                return;
            }
            let mut begin = first as u64;
            for values in waiting.chunks(waiting.len().div_ceil(waiting.len().div_ceil(MAX_RANGE)))
            {
                let end = begin + values.len() as u64;
                let Ok(keys) = KeyRange::new(begin, end) else { continue };
                finished(FinishedRange { keys, values: values.into(), samples, done: layer.done });
                begin = end;
            }
            waiting.clear();
        };
        let loss = source.gradient_by_layer(rows, params, gradient, &mut add)?;
        Ok(Computed { loss, samples })
    }
}

/// The rows of a task, whose part is known.
fn rows_of(batches: &mut Batches, task: Task) -> Rows<'_> {
    #[expect(clippy::expect_used, reason = "documented, and checked by the worker node")]
    let part = batches.find(task.part).expect("a known part");
    batches.rows(part, task)
}

impl Combination {
    /// Computes the gradients of all parts, and their combination.
    fn compute(
        &mut self,
        source: &mut dyn GradientSource,
        batches: &mut Batches,
        task: Task,
        (params, gradient): (&[f32], &mut [f32]),
    ) -> Result<Computed, SourceError> {
        let Self { coefficients, aggregation, gradient: own } = self;
        let samples: usize = (0..source.parts()).map(|part| batches.len(part, task)).sum();
        own.resize(gradient.len(), 0.0);
        let mut loss = 0.0;
        for (part, coefficient) in coefficients.iter().enumerate() {
            let rows = batches.rows(part, task);
            let share = rows.numbers.len() as f64 / samples as f64;
            let mean = source.gradient(rows, params, own)?;
            loss += f64::from(mean) * share;
            let factor = match aggregation {
                Aggregation::Sum => *coefficient,
                _ => coefficient * share,
            } as f32;
            for (sum, value) in gradient.iter_mut().zip(&*own) {
                let term = factor * value;
                *sum = if part == 0 { term } else { *sum + term };
            }
        }
        Ok(Computed { loss: loss as f32, samples: samples as u32 })
    }
}

/// Checks that all parts have the shape of the model.
fn check_shapes(model: &Model, parts: &[Examples]) -> Result<(), TrainerError> {
    match parts.iter().find(|part| part.shape() != model.shape()) {
        Some(other) => Err(TrainerError::Shape { model: model.shape(), examples: other.shape() }),
        None => Ok(()),
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
    check_shapes(model, &parts)?;
    let keys = working_set(job, model, &parts);
    let examples = parts.first().map_or_else(Shape::default, Examples::shape);
    let refused = |_| TrainerError::Shape { model: model.shape(), examples };
    let model = model.over(keys.len()).map_err(refused)?;
    let parts = parts.into_iter().map(|part| part.over(keys.keys())).collect();
    Ok((keys, model, parts))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use pstrain_compute::examples::Target;
    use pstrain_compute::id::BatchId;
    use pstrain_compute::model::{ModelSpec, Workspace};

    const SHAPE: Shape =
        Shape { inputs: 5, dense: 2, hot: 1, target: Target::Classes(2), picture: None };

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
        trainer.batches.rows(0, Task::own(WorkerId(0), BatchId(batch))).numbers.to_vec()
    }

    /// All rows of a pass of so many mini-batches.
    fn pass(trainer: &mut Trainer, pass: u64, batches: u64) -> Vec<u32> {
        let numbers = pass * batches..(pass + 1) * batches;
        numbers.flat_map(|batch| rows(trainer, batch)).collect()
    }

    #[test]
    fn every_example_comes_exactly_once_a_pass() {
        for (count, batch_size, batches) in [(37, 8, 5), (32, 8, 4), (7, 1, 7), (5, 99, 1)] {
            let mut trainer = trainer(count, 0, batch_size).unwrap();
            for number in 0..3 {
                let mut rows = pass(&mut trainer, number, batches);
                rows.sort_unstable();
                assert_eq!(rows, (0..u32::from(count)).collect::<Vec<u32>>());
            }
        }
    }

    #[test]
    fn the_mini_batches_of_a_pass_are_balanced() {
        let mut trainer = trainer(37, 0, 8).unwrap();
        let sizes: Vec<usize> = (0..6).map(|batch| rows(&mut trainer, batch).len()).collect();
        assert_eq!(sizes, [7, 7, 8, 7, 8, 7]);
    }

    #[test]
    fn batches_with_sizes_of_their_own_go_through_the_same_order() {
        let mut trainer = trainer(37, 0, 8).unwrap();
        let passes = [pass(&mut trainer, 0, 5), pass(&mut trainer, 1, 5)].concat();
        let mut found = Vec::new();
        for (batch, examples) in [(0, 8), (8, 20), (28, 100), (37, 5), (42, 32)] {
            let task = Task { part: PartId(0), batch: BatchId(batch), examples };
            found.extend_from_slice(trainer.batches.rows(0, task).numbers);
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
        assert_ne!(pass(&mut first, 0, 5), pass(&mut second, 0, 5));
        assert_ne!(pass(&mut first, 0, 5), pass(&mut first, 1, 5));
    }

    #[test]
    fn the_gradient_is_that_of_the_batch() {
        let mut trainer = trainer(37, 2, 8).unwrap();
        let model = Model::new(&ModelSpec::Softmax, SHAPE).unwrap();
        let params = model.initial(Stream::new(4));
        let mut gradient = vec![7.0; 3];
        let task = Task::own(WorkerId(2), BatchId(4));
        let computed = trainer.compute(task, &params, &mut gradient).unwrap();
        assert_eq!(computed.samples, 8);

        let rows = rows(&mut trainer, 4);
        let mut expected = vec![0.0; params.len()];
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
        let other =
            Model::new(&ModelSpec::Softmax, Shape { target: Target::Classes(3), ..SHAPE }).unwrap();
        let error = Trainer::new(other, examples(4), Stream::new(1), WorkerId(0), 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "examples have 5 inputs (2 dense, 1 one-hot groups) and 2 classes, \
             but the model reads 5 (2, 1) and 3 classes"
        );
    }
}
