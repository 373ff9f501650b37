//! The training job: a small network on examples that are drawn from a seed.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use pstrain_compute::examples::{Examples, Shape, ShapeError, Target};
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Activation, Loss, ModelSpec};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::gossip::Graph;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{
    Budget, BudgetKind, DataFrom, Exchange, InitialFrom, Job, JobData, Membership, OnLoss, Stopping,
    Redundancy, WorkSpec,
};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Aggregation;

pub(crate) const WORKERS: u32 = 2;
const SEED: u64 = 1;
const ROWS: usize = 240;
const SHAPE: Shape =
    Shape { inputs: 12, dense: 4, hot: 2, target: Target::Classes(3), picture: None };

/// Examples of three classes: the class shifts the dense columns, and the first one-hot group
/// mostly shows it.
pub(crate) fn examples() -> Result<Examples, ShapeError> {
    let mut rng = Stream::new(SEED).fork("examples", 0).rng();
    let mut examples = Examples::new(SHAPE);
    for _ in 0..ROWS {
        let label = rng.below(SHAPE.target.predictions().into()) as u16;
        let dense: Vec<f32> =
            (0..SHAPE.dense).map(|_| 3.0 * rng.unit() as f32 + f32::from(label)).collect();
        let hot = [4 + (label + rng.below(2) as u16) % 4, 8 + rng.below(4) as u16];
        examples.push(&dense, &hot, label)?;
    }
    Ok(examples)
}

/// The job: bulk-synchronous, ten epochs.
pub(crate) fn job(train: &Examples) -> Job {
    Job {
        name: String::from("bare metal"),
        seed: SEED,
        model: ModelSpec::Mlp { hidden: vec![6], activation: Activation::Relu },
        loss: Loss::Nll,
        groups: Vec::new(),
        update: UpdateSpec::sgd(0.2),
        aggregation: Aggregation::Mean,
        mode: Mode::of(ConsistencySpec::Bsp),
        switches: Vec::new(),
        exchange: Exchange::Combined,
        local_training: LocalTraining::None,
        batch_size: 8,
        redundancy: Redundancy::None,
        blocks: None,
        work: WorkSpec::Equal,
        budget: Budget { epochs: 10, kind: BudgetKind::Global },
        stopping: Stopping::default(),
        membership: Membership {
            workers: WORKERS,
            min_workers: None,
            on_loss: OnLoss::Stop,
            lease: Duration::from_secs(2),
            partial_after: None,
        },
        architecture: Architecture::Server,
        graph: Graph::Ring,
        edges: Vec::new(),
        servers: 1,
        data: JobData {
            shape: train.shape(),
            train: Fingerprint::of(train),
            from: DataFrom::Worker,
            recipe: String::new(),
        },
        filters: Filters::default(),
        scenario: String::new(),
        initial: InitialFrom::Seed,
    }
}

/// A partition: every `WORKERS`-th example.
pub(crate) fn partition(train: &Examples, part: u32) -> Examples {
    let rows: Vec<u32> = (part..train.len() as u32).step_by(WORKERS as usize).collect();
    train.select(&rows)
}
