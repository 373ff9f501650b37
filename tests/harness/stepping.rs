//! A worker's steps without a transport: mini-batch, gradient, frame. Benchmarks and memory tests
//! use it to measure the cost of a step.

use std::sync::Arc;

use pstrain_compute::id::{BatchId, Incarnation, PartId, Sequence, Version, WorkerId};
use pstrain_compute::model::{Model, ModelSpec};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_data::Prepared;
use pstrain_policy::trainer::Trainer;
use pstrain_wire::worker::{Push, PushHeader};
use pstrain_wire::{Message, encode};

/// A worker that makes step after step on the same parameters.
#[derive(Debug)]
pub struct Stepping {
    trainer: Trainer,
    params: Vec<f32>,
    push: Push,
    frame: Vec<u8>,
    steps: u64,
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl Stepping {
    /// A worker with the first part of `data`.
    ///
    /// # Panics
    /// If the model does not fit the data, or there are no data.
    #[must_use]
    pub fn new(data: &Prepared, spec: &ModelSpec, batch: u32) -> Self {
        let model = Model::new(spec, data.spec.shape()).unwrap();
        let params = model.initial(Stream::new(1));
        let header = PushHeader {
            incarnation: Incarnation(1),
            sequence: Sequence(0),
            base: Version(0),
            task: Task::own(WorkerId(0), BatchId(0)),
            samples: 0,
            loss: 0.0,
            compute_ns: 1,
            keys: KeyRange::new(0, params.len() as u64).unwrap(),
            pull: true,
            allowed: Sequence(0),
        };
        let partition = data.partition(PartId(0));
        let trainer = Trainer::new(model, partition, Stream::new(1), WorkerId(0), batch).unwrap();
        let push = Push::new(header, Arc::default());
        Self { trainer, params, push, frame: Vec::new(), steps: 0 }
    }

    /// Performs one step of a worker: computes the gradient of a mini-batch and encodes its frame.
    /// The gradient reuses the memory of the previous push.
    ///
    /// # Panics
    /// If the frame does not hold the gradient.
    pub fn step(&mut self) {
        let Self { trainer, params, push, frame, steps } = self;
        let task = Task::own(WorkerId(0), BatchId(*steps));
        let gradient = Arc::get_mut(&mut push.gradient).unwrap();
        let computed = trainer.compute(task, params, gradient).unwrap();
        push.header.task = task;
        push.header.sequence = Sequence(*steps);
        push.header.samples = computed.samples;
        push.header.loss = computed.loss;
        frame.clear();
        let message = Message::Push(push.clone());
        assert_eq!(encode(&message, frame).payload.len(), 4 * params.len());
        *steps += 1;
    }
}
