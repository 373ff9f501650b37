//! A worker's step asks for no memory once it has warmed up: mini-batch, gradient, frame.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::alloc::System;
use std::sync::Arc;

use pstrain_core::id::{BatchId, Incarnation, PartId, Sequence, Version, WorkerId};
use pstrain_core::model::{Activation, Model, ModelSpec};
use pstrain_core::params::KeyRange;
use pstrain_core::protocol::message::{Push, PushHeader};
use pstrain_core::protocol::{Message, encode};
use pstrain_core::rng::Stream;
use pstrain_core::trainer::Trainer;
use pstrain_core::work::Task;
use pstrain_data::{Prepared, Settings, Source};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts for the whole process, so this is its one test.
#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One step as a worker makes it: the gradient of a mini-batch, and the frame it travels in. The
/// gradient's memory comes back from the push before.
fn step(trainer: &mut Trainer, number: u64, params: &[f32], push: &mut Push, frame: &mut Vec<u8>) {
    let task = Task::own(WorkerId(0), BatchId(number));
    let gradient = Arc::get_mut(&mut push.gradient).unwrap();
    let computed = trainer.compute(task, params, gradient);
    push.header.task = task;
    push.header.sequence = Sequence(number);
    push.header.samples = computed.samples;
    push.header.loss = computed.loss;
    frame.clear();
    let message = Message::Push(push.clone());
    assert_eq!(encode(&message, frame).payload.len(), 4 * params.len());
}

#[test]
fn a_step_asks_for_no_memory_once_it_has_warmed_up() {
    let source = Source::Synthetic { rows: 2_000, seed: 1 };
    let data = Prepared::load(&source, &Settings::default()).unwrap();
    let mlp = ModelSpec::Mlp { hidden: vec![21], activation: Activation::Relu };
    for spec in [mlp, ModelSpec::Softmax] {
        let model = Model::new(&spec, data.spec.shape()).unwrap();
        let params = model.initial(Stream::new(1));
        let keys = KeyRange::new(0, params.len() as u64).unwrap();
        let header = PushHeader {
            incarnation: Incarnation(1),
            sequence: Sequence(0),
            base: Version(0),
            task: Task::own(WorkerId(0), BatchId(0)),
            samples: 0,
            loss: 0.0,
            compute_ns: 1,
            keys,
            pull: true,
            allowed: Sequence(0),
        };
        let mut push = Push::new(header, Arc::default());
        let partition = data.partition(PartId(0));
        // With a short mini-batch at the end of each pass.
        let batches = partition.len().div_ceil(32) as u64;
        assert_ne!(partition.len() % 32, 0);
        let mut trainer = Trainer::new(model, partition, Stream::new(1), WorkerId(0), 32).unwrap();
        let mut frame = Vec::new();
        (0..batches).for_each(|number| step(&mut trainer, number, &params, &mut push, &mut frame));
        let counted = Region::new(MEMORY);
        let more = batches..10 * batches;
        more.for_each(|number| step(&mut trainer, number, &params, &mut push, &mut frame));
        let asked = counted.change();
        assert_eq!((asked.allocations, asked.reallocations), (0, 0), "9 passes of {spec:?}");
    }
}
