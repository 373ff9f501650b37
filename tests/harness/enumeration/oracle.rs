//! Expected results of the enumeration: the job, its gradients, and the parameters of each version,
//! computed in order.

use std::time::Duration;

use pstrain_compute::examples::{Examples, Shape, Target};
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{BatchId, ServerId, Version, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Loss, ModelSpec};
use pstrain_compute::optim::{UpdateSpec, Updater};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{
    Budget, BudgetKind, DataFrom, Exchange, InitialFrom, Job, JobData, Membership, OnLoss,
    Redundancy, Stopping, WorkSpec,
};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::{Compute, Effect, Event, Server};
use pstrain_wire::{Message, Refusal};

use super::Bounds;

/// The expected results.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) bounds: Bounds,
    pub(super) job: Job,
    /// The parameters of each version.
    versions: Vec<Vec<f32>>,
}

/// A job of two servers whose mini-batches are single examples, one per worker and round.
#[must_use]
pub fn small_job(bounds: Bounds) -> Job {
    let shape = Shape { inputs: 2, dense: 1, hot: 1, target: Target::Classes(2), picture: None };
    let mut train = Examples::new(shape);
    for row in 0..bounds.workers * bounds.rounds {
        train.push(&[row as f32], &[1], (row % 2) as u16).unwrap_or_default();
    }
    Job {
        name: "all".into(),
        seed: 1,
        model: ModelSpec::Softmax,
        loss: Loss::Nll,
        groups: Vec::new(),
        update: UpdateSpec::sgd(0.125),
        aggregation: Aggregation::Sum,
        mode: Mode::of(ConsistencySpec::Bsp),
        switches: Vec::new(),
        exchange: Exchange::Combined,
        local_training: LocalTraining::None,
        batch_size: 1,
        redundancy: Redundancy::None,
        blocks: None,
        work: WorkSpec::Equal,
        budget: Budget { epochs: 1, kind: BudgetKind::Global },
        stopping: Stopping::default(),
        membership: Membership {
            workers: bounds.workers,
            min_workers: None,
            on_loss: OnLoss::Wait,
            lease: Duration::from_secs(1),
            partial_after: None,
        },
        architecture: Architecture::Server,
        graph: Graph::Ring,
        edges: Vec::new(),
        servers: 2,
        data: JobData {
            shape,
            train: Fingerprint::of(&train),
            from: DataFrom::Worker,
            recipe: String::new(),
        },
        filters: Filters::default(),
        scenario: String::new(),
        initial: InitialFrom::Seed,
    }
}

/// Returns small integers that depend on each parameter, the part and the mini-batch.
pub(super) fn gradient(parameters: &[f32], task: Task) -> Vec<f32> {
    let value = |value: &f32| {
        let name = Stream::new(value.to_bits().into()).fork("gradient", task.part.0.into());
        name.fork("batch", task.batch.0).rng().below(17) as f32 - 8.0
    };
    parameters.iter().map(value).collect()
}

impl Oracle {
    pub(super) fn new(bounds: Bounds) -> Self {
        let job = small_job(bounds);
        let model = job.build_model().expect("a model");
        let mut parameters = job.initial(&model);
        let mut updater = Updater::new(&job.update, parameters.len()).expect("an optimiser");
        let mut versions = vec![parameters.clone()];
        for round in 0..u64::from(bounds.rounds) {
            let mut sum = vec![0.0; parameters.len()];
            for worker in (0..bounds.workers).map(WorkerId) {
                let gradient = gradient(&parameters, Task::own(worker, BatchId(round)));
                sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
            }
            updater.apply(&mut parameters, &sum, Version(round));
            versions.push(parameters.clone());
        }
        Self { bounds, job, versions }
    }

    /// The last version.
    pub(super) fn last(&self) -> Version {
        Version(self.bounds.rounds.into())
    }

    fn check_values(&self, version: Version, keys: KeyRange, values: &[f32]) {
        let all = self.versions.get(version.0 as usize).expect("no version beyond the budget");
        assert_eq!(all.get(keys.indices()), Some(values), "version {version}, keys {keys}");
    }

    /// Checks that a worker computes on the parameters of one version, whole.
    pub(super) fn check_compute(&self, order: &Compute) {
        let keys = KeyRange::new(0, order.parameters.len() as u64).expect("keys");
        self.check_values(order.ticket.base, keys, &order.parameters);
        // Under BSP the number of the mini-batch equals the version.
        assert_eq!(order.task.batch.0, order.ticket.base.0, "another round's mini-batch");
    }

    /// Checks that the parameters that a server sends are right, and that its refusals are
    /// harmless.
    pub(super) fn check_effect(&self, effect: &Effect) {
        match effect {
            Effect::Send(_, Message::Parameters(parameters)) => {
                let header = parameters.header;
                self.check_values(header.version, header.keys, &parameters.values);
            }
            Effect::Send(_, Message::Slice(slice)) => {
                self.check_values(slice.header.version, slice.header.keys, &slice.values);
            }
            Effect::Send(_, Message::Refused(why)) => {
                let harmless = matches!(
                    why,
                    Refusal::WorkerTaken { .. }
                        | Refusal::ServersMissing { .. }
                        | Refusal::Server { .. }
                        | Refusal::Over
                        | Refusal::Fenced { .. }
                );
                assert!(harmless, "somebody was refused: {why}");
            }
            _ => {}
        }
    }

    /// Checks that every update consists of one gradient of every worker, in order, and that the
    /// ledger balances.
    pub(super) fn check_coordinator(&self, server: &Server, effects: &[Effect]) {
        let ledger = server.ledger();
        let ends = ledger.applied + ledger.discarded + ledger.lost + ledger.outstanding;
        assert_eq!(ledger.assigned, ends, "{ledger:?}");
        let version = server.version();
        assert_eq!(ledger.applied, version.0 * u64::from(self.bounds.workers));
        let own = self.job.keys_of(ServerId::COORDINATOR, self.versions[0].len()).expect("keys");
        let keys = match server.parameters().len() {
            whole if whole == self.versions[0].len() => KeyRange::new(0, whole as u64),
            _ => Ok(own),
        };
        self.check_values(version, keys.expect("keys"), server.parameters());
        let applied = effects.iter().filter_map(|effect| match effect {
            Effect::Report(Event::Applied { worker, part, batch, base, .. }) => {
                Some((worker.0, part.0, batch.0, base.0))
            }
            _ => None,
        });
        let applied: Vec<_> = applied.collect();
        let round = version.0.wrapping_sub(1);
        let whole: Vec<_> = (0..self.bounds.workers).map(|it| (it, it, round, round)).collect();
        assert!(applied.is_empty() || applied == whole, "version {version} of {applied:?}");
    }
}
