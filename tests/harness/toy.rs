//! A small job with examples of its own: learnable, mixed dense and one-hot, uneven partitions.
//! Most tests start from it.

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::examples::{Examples, Shape, Target};
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{PartId, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Activation, Loss, Model, ModelSpec};
use pstrain_compute::optim::{OptimizerSpec, UpdateSpec};
use pstrain_compute::params::{KeyList, KeyRange};
use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{
    Budget, BudgetKind, DataFrom, Exchange, InitialFrom, Job, JobData, Membership, OnLoss,
    Redundancy, Stopping, WorkSpec,
};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Aggregation;
use pstrain_policy::trainer::working_set;
use pstrain_roles::node::Prepare;

/// A job and its training examples.
#[derive(Clone, Debug)]
pub struct Toy {
    /// The job.
    pub job: Job,
    /// The training split.
    pub train: Examples,
}

impl Toy {
    /// A job for `workers` workers over `rows` examples.
    #[must_use]
    pub fn new(workers: u32, rows: usize) -> Self {
        let shape =
            Shape { inputs: 12, dense: 4, hot: 2, target: Target::Classes(3), picture: None };
        let mut rng = Stream::new(99).fork("toy", 0).rng();
        let mut train = Examples::new(shape);
        for _ in 0..rows {
            let label = rng.below(3) as u16;
            let dense: Vec<f32> =
                (0..4).map(|_| rng.unit() as f32 - 0.5 + f32::from(label)).collect();
            let hot = [4 + (label + rng.below(2) as u16) % 4, 8 + rng.below(4) as u16];
            train.push(&dense, &hot, label).unwrap_or_default();
        }
        let job = Job {
            name: "toy".into(),
            seed: 5,
            model: ModelSpec::Mlp { hidden: vec![6], activation: Activation::Relu },
            loss: Loss::Nll,
            groups: Vec::new(),
            update: UpdateSpec {
                optimizer: OptimizerSpec::MOMENTUM,
                weight_decay: 1e-4,
                ..UpdateSpec::sgd(0.05)
            },
            aggregation: Aggregation::Mean,
            mode: Mode::of(ConsistencySpec::Bsp),
            switches: Vec::new(),
            exchange: Exchange::Combined,
            local_training: LocalTraining::None,
            batch_size: 8,
            redundancy: Redundancy::None,
            blocks: None,
            work: WorkSpec::Equal,
            budget: Budget { epochs: 3, kind: BudgetKind::Global },
            stopping: Stopping::default(),
            membership: Membership {
                workers,
                min_workers: None,
                on_loss: OnLoss::Continue,
                lease: Duration::from_secs(2),
                partial_after: None,
            },
            architecture: Architecture::Server,
            graph: Graph::Ring,
            edges: Vec::new(),
            servers: 1,
            data: JobData {
                shape,
                train: Fingerprint::of(&train),
                from: DataFrom::Worker,
                recipe: String::new(),
            },
            filters: Filters::default(),
            scenario: String::new(),
            initial: InitialFrom::Seed,
        };
        Self { job, train }
    }
}

impl Toy {
    /// A sparse job for `workers` workers over `rows` examples: each example touches some of the
    /// keys.
    #[must_use]
    pub fn sparse(workers: u32, rows: usize) -> Self {
        let Self { mut job, .. } = Self::new(workers, workers as usize);
        let train = sparse_rows(rows, 300);
        job.model = ModelSpec::Logistic;
        job.data.shape = train.shape();
        job.data.train = Fingerprint::of(&train);
        Self { job, train }
    }
}

/// Returns sparse rows over `columns` columns; most values are in a few of them.
#[must_use]
pub(crate) fn sparse_rows(rows: usize, columns: u32) -> Examples {
    let mut rng = Stream::new(7).fork("sparse", 0).rng();
    let mut train = Examples::new(Shape::sparse(columns, Target::Classes(2)));
    for _ in 0..rows {
        let mut entries: Vec<u32> = (0..1 + rng.below(6))
            .map(|_| (rng.below(columns.into()) * rng.below(columns.into())) as u32 / columns)
            .collect();
        entries.sort_unstable();
        entries.dedup();
        let values: Vec<f32> = entries.iter().map(|_| rng.unit() as f32 - 0.25).collect();
        let label = u16::from(values.iter().sum::<f32>() > 0.5);
        train.push_sparse(&entries, &values, label).unwrap_or_default();
    }
    train
}

/// The initial parameters that a worker or the server's driver has, if the job takes them from one.
/// They are not those of the job's seed.
#[must_use]
pub(crate) fn initial_of(job: &Job) -> Option<Arc<Vec<f32>>> {
    let model = job.build_model().ok()?;
    let stream = Stream::new(job.seed).fork("worker's", 0);
    let values = match job.model {
        // It has none of its own.
        ModelSpec::External { .. } => {
            let mut rng = stream.rng();
            (0..model.parameters()).map(|_| rng.below(17) as f32 - 8.0).collect()
        }
        _ => model.initial(stream),
    };
    (job.initial != InitialFrom::Seed).then(|| Arc::new(values))
}

/// Returns the working sets of the workers of `job`, or none if it is dense.
#[must_use]
pub(crate) fn working_sets(job: &Job, train: &Examples) -> Vec<KeyList> {
    let Some(model) = job.build_model().ok().filter(Model::is_sparse) else {
        return Vec::new();
    };
    let workers = (0..job.membership.workers).map(WorkerId);
    let keys = workers.map(|worker| {
        let parts = job.parts_of(worker).into_iter();
        let parts: Vec<_> = parts.map(|part| partition_of(train, job.parts(), part)).collect();
        working_set(job, &model, &parts)
    });
    keys.collect()
}

/// Returns the keys of all parameters of the model of `job`.
///
/// # Panics
/// If its model is invalid, or has no parameters.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test's own job is valid")]
pub fn all_keys(job: &Job) -> KeyRange {
    let model = job.build_model().unwrap();
    KeyRange::new(0, model.parameters() as u64).unwrap()
}

/// Returns the parts that `order` tells a worker to have, of data in `parts` parts.
#[must_use]
pub fn parts_of(train: &Examples, parts: u32, order: &Prepare) -> Vec<Examples> {
    order.parts().into_iter().map(|part| partition_of(train, parts, part)).collect()
}

/// Returns a partition: every `workers`-th example, so that sizes differ by at most one.
#[must_use]
pub fn partition_of(train: &Examples, workers: u32, part: impl Into<PartId>) -> Examples {
    let indices: Vec<u32> =
        (part.into().0..train.len() as u32).step_by(workers.max(1) as usize).collect();
    train.select(&indices)
}
