//! Definition of a job: all settings that decide what is trained and how.
//!
//! The server owns the job and sends it to the workers in the handshake.

mod aggregation;
mod architecture;
mod blocks;
mod division;
mod filters;
mod membership;
mod sparse;
mod stopping;
mod work;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub use division::{MOST_SHARDS, Redundancy, WorkSpec};
pub use membership::{
    LONGEST_LEASE, Membership, OnLoss, SHORTEST_LEASE, heartbeat, patience, start_patience,
};
pub use stopping::{Goal, Keep, Stopping};
pub use work::WorkError;

use crate::architecture::Architecture;
use crate::auto::Auto;
use crate::consistency::{ConsistencySpec, ImpossibleConsistency};
use crate::gossip::{EdgeError, Graph, WorkerEdge};
use crate::mode::{Mode, ModeError, Switch, SwitchError};
use crate::rules::{Aggregation, AggregationError, StalenessSpec};
use pstrain_compute::counted::counted;
use pstrain_compute::examples::Shape;
use pstrain_compute::filter::{FilterError, Filters};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{MAX_WORKERS, ServerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Loss, Model, ModelError, ModelSpec};
use pstrain_compute::named;
use pstrain_compute::named::Word;
use pstrain_compute::optim::{GroupSpec, OptimizerSpec, Schedule, UpdateSpec, check_groups};
use pstrain_compute::params::{Blocks, KeyRange};
use pstrain_compute::pass::Pass;
use pstrain_compute::rng::Stream;

/// A resolved job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// A human-readable name.
    pub name: String,
    /// The seed of every random stream of the run.
    pub seed: u64,
    /// The model.
    pub model: ModelSpec,
    /// The loss that it minimises.
    pub loss: Loss,
    /// Optimizer, learning rate, decay and clipping.
    pub update: UpdateSpec,
    /// Tensors with a learning rate or a weight decay of their own.
    pub groups: Vec<GroupSpec>,
    /// Rule that combines the gradients of one update.
    pub aggregation: Aggregation,
    /// The initial mode: when gradients are applied and workers continue, and the weights of
    /// gradients.
    pub mode: Mode,
    /// Scheduled changes of consistency, in order.
    pub switches: Vec<Switch>,
    /// Message pattern: push and pull in one message, or separately.
    pub exchange: Exchange,
    /// Which values of a gradient are sent, and how they are encoded.
    pub filters: Filters,
    /// The blocks of keys of which each update changes one; `None` if it changes all keys.
    pub blocks: Option<Blocks>,
    /// The steps that a worker takes before it sends anything.
    pub local_training: LocalTraining,
    /// The largest number of examples of one mini-batch of one worker, whose sizes are balanced
    /// ([`Pass`]); the mean over the workers if it differs.
    pub batch_size: u32,
    /// Which gradients are computed redundantly.
    pub redundancy: Redundancy,
    /// Division of the work among the workers.
    pub work: WorkSpec,
    /// When the run ends at the latest.
    pub budget: Budget,
    /// When it evaluates, and ends before.
    pub stopping: Stopping,
    /// Which workers take part, and what happens when a worker is lost.
    pub membership: Membership,
    /// Where the parameters are, and the way that gradients take.
    pub architecture: Architecture,
    /// The neighbors of each worker, if workers have models of their own.
    pub graph: Graph,
    /// The edges between workers of [`Graph::File`]; empty for any other graph.
    pub edges: Vec<WorkerEdge>,
    /// Number of servers, each with a share of the keys; at least 1.
    pub servers: u32,
    /// The data.
    pub data: JobData,
    /// Description of the modelled network and machines, at most [`MOST_SCENARIO_BYTES`]; empty
    /// without a model. Written and read by the transports; the nodes only carry it.
    pub scenario: String,
    /// Origin of the initial parameters.
    pub initial: InitialFrom,
}

/// Origin of the initial parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitialFrom {
    /// The model draws them from the job's seed.
    #[default]
    Seed,
    /// A worker has them: the server asks one for them before training begins.
    Worker,
    /// The server's driver has them.
    Server,
}

/// How a gradient travels to the servers, and parameters back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// One push-pull message and one answer.
    #[default]
    Combined,
    /// A push, its acknowledgement, then a pull and its answer.
    Separate,
    /// As [`Self::Combined`], but ranges of a gradient leave as soon as they are computed, the last
    /// layer first. They count only together.
    Layers,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Passes over the data; at least 1.
    pub epochs: u32,
    /// How passes are counted.
    pub kind: BudgetKind,
}

/// Definition of an epoch of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetKind {
    /// The workers together have processed the training examples `epochs` times, no matter which
    /// worker processed which example.
    #[default]
    Global,
    /// Each worker passes `epochs` times over its own partition, and then stops while the others
    /// finish.
    Partition,
}

/// The data of a job, to the extent that nodes need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobData {
    /// Shape of an example.
    pub shape: Shape,
    /// The whole training split; [`Fingerprint::unknown`] if each worker has rows of its own, whose
    /// number the server learns as it joins.
    pub train: Fingerprint,
    /// Source of the examples.
    pub from: DataFrom,
    /// How the data are read, split, encoded and partitioned. Written and read by the data crate;
    /// the nodes only carry it.
    pub recipe: String,
}

/// Source of a worker's examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataFrom {
    /// The worker reads or generates them itself.
    #[default]
    Worker,
    /// The server sends them.
    Server,
    /// The worker reads its own examples; the server keeps none.
    Own,
}

impl JobData {
    /// True if each worker has rows of its own, and no node has the whole training split.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.train.is_unknown()
    }
}

impl Job {
    /// Checks constraints that the types do not express: ranges of counts and times, and
    /// combinations of settings.
    ///
    /// Model and update settings are checked when they are built.
    ///
    /// # Errors
    /// [`JobError`] names the setting, its value and what is allowed.
    pub fn validate(&self) -> Result<(), JobError> {
        self.membership.check()?;
        let workers = self.membership.workers;
        if self.batch_size == 0 {
            return Err(JobError::BatchSize);
        }
        if self.budget.epochs == 0 {
            return Err(JobError::Epochs);
        }
        self.check_rows()?;
        self.filters.validate().map_err(JobError::Filters)?;
        self.filters.check(&self.update).map_err(JobError::Filters)?;
        if !self.filters.is_none() && matches!(self.model, ModelSpec::Timing { .. }) {
            return Err(JobError::Filters(FilterError::Timing));
        }
        Switch::check_all(&self.switches, workers).map_err(JobError::Switch)?;
        if self.scenario.len() > MOST_SCENARIO_BYTES {
            return Err(JobError::Scenario(self.scenario.len()));
        }
        // Workers without a server have windows of their own.
        let in_flight = self.mode.in_flight.filter(|_| self.architecture.has_server());
        Mode { in_flight, ..self.mode }.validate().map_err(JobError::Mode)?;
        for switch in &self.switches {
            let mode = self.mode.with(switch.to);
            self.check_aggregation(&mode).map_err(JobError::Aggregation)?;
        }
        if self.servers == 0 || self.servers > MAX_SERVERS {
            return Err(JobError::Servers(self.servers));
        }
        if matches!(self.update.optimizer, OptimizerSpec::Ftrl { .. })
            && self.groups.iter().any(|group| group.rate == 0.0)
        {
            return Err(JobError::FrozenFtrl);
        }
        if self.redundancy.is_coded() && self.model.has_state() {
            return Err(JobError::CodedState);
        }
        self.check_local_training().map_err(JobError::LocalTraining)?;
        self.check_layers().map_err(JobError::Layers)?;
        self.stopping.check().map_err(JobError::Stopping)?;
        self.check_architecture()?;
        self.check_mode(&self.mode)
    }
}

impl Job {
    /// Checks that a worker can send its gradients layer by layer, if it is to.
    fn check_layers(&self) -> Result<(), &'static str> {
        let needs = [
            (
                self.filters.is_none(),
                "no filters: they select values of a whole gradient, or encode it",
            ),
            (!self.is_sparse(), "another model: a sparse one has one layer"),
            (
                !matches!(self.model, ModelSpec::External { .. }),
                "a built-in model: a compute process answers with a whole gradient",
            ),
            (
                self.membership.partial_after.is_none(),
                "partial-after = none: late gradients are left out whole",
            ),
            (
                self.redundancy == Redundancy::None,
                "redundancy = none: copies and codes are of whole gradients",
            ),
            (
                self.local_training == LocalTraining::None,
                "no local training: a worker sends the sum of its steps, after the last",
            ),
        ];
        let broken = needs.into_iter().find(|(holds, _)| !holds);
        broken.filter(|_| self.exchange == Exchange::Layers).map_or(Ok(()), |(_, needs)| Err(needs))
    }

    /// Checks that the other settings work with `mode`.
    ///
    /// # Errors
    /// [`JobError`] names the settings that do not go together.
    pub fn check_mode(&self, mode: &Mode) -> Result<(), JobError> {
        mode.consistency.check(self.membership.workers).map_err(JobError::Consistency)?;
        self.check_aggregation(mode).map_err(JobError::Aggregation)?;
        self.check_sparse(mode)?;
        self.check_blocks(mode)?;
        self.check_work(mode).map_err(JobError::Work)?;
        let trains = self.local_training != LocalTraining::None
            || matches!(self.model, ModelSpec::External { .. });
        if mode.staleness.mixes() && !trains {
            return Err(JobError::NoModels(mode.staleness));
        }
        Ok(())
    }

    /// Checks that there are enough rows, or that no setting needs to know their number.
    fn check_rows(&self) -> Result<(), JobError> {
        let (rows, workers) = (self.data.train.rows, self.membership.workers);
        if self.update.schedule.is_open() {
            return Err(JobError::Schedule(self.update.schedule));
        }
        if self.data.is_local() {
            return self.check_local().map_err(JobError::Local);
        }
        if rows.checked_mul(u64::from(self.budget.epochs)).is_none() {
            return Err(JobError::Budget { rows, epochs: self.budget.epochs });
        }
        if rows < u64::from(workers) {
            return Err(JobError::FewRows { rows, workers });
        }
        Ok(())
    }

    /// Checks that the differences of local training can take the place of gradients; the error
    /// names the required setting.
    fn check_local_training(&self) -> Result<(), &'static str> {
        if self.local_training == LocalTraining::None {
            return Ok(());
        }
        named::check(self.local_training, |_, _| "numbers in their ranges")?;
        if matches!(self.model, ModelSpec::External { .. }) {
            return Err(
                "a model of pstrain: a compute process that takes steps of its own answers \
                        with differences",
            );
        }
        if self.redundancy.is_coded() {
            return Err("redundancy = none or partial: others send sums of gradients at the same \
                        parameters");
        }
        if self.blocks.is_some() {
            return Err("blocks = none: the steps change all keys");
        }
        if self.update.optimizer == OptimizerSpec::Diagonal {
            return Err("another optimizer than diagonal: its bounds are of gradients");
        }
        Ok(())
    }

    /// Checks that no worker needs rows of another; the error names the required setting.
    fn check_local(&self) -> Result<(), &'static str> {
        if self.data.from != DataFrom::Own {
            return Err("data-from = own: the server has no rows to send");
        }
        if matches!(self.work, WorkSpec::Shards { .. }) {
            return Err("work = equal or speed: shards are computed on by all workers");
        }
        if self.redundancy != Redundancy::None {
            return Err("redundancy = none: otherwise workers compute on each other's rows");
        }
        if self.membership.on_loss == OnLoss::Reassign {
            return Err("on-worker-loss = continue, wait or stop: no other worker has a lost \
                        worker's rows");
        }
        Ok(())
    }

    /// Returns `mode`, or the initial mode of the controller if `mode` is `auto`.
    #[must_use]
    pub fn at_start(&self, mode: Mode) -> Mode {
        // If all workers have all data, no worker's gradients count for more.
        let has_shares = matches!(self.work, WorkSpec::Equal | WorkSpec::Speed)
            && self.membership.on_loss != OnLoss::Reassign;
        if mode.consistency == ConsistencySpec::Auto { Auto::first(has_shares) } else { mode }
    }

    /// A worker's pass over `rows` examples.
    #[must_use]
    pub const fn pass(&self, rows: u64) -> Pass {
        Pass::new(rows, self.batch_size)
    }

    /// Number of examples of a whole mini-batch, where the workers have `rows` together. If a
    /// mini-batch is all examples of a worker, each worker's equal share.
    #[must_use]
    pub fn whole_batch(&self, rows: u64) -> u64 {
        match self.batch_size {
            ALL_EXAMPLES => rows.div_ceil(u64::from(self.membership.workers.max(1))).max(1),
            size => size.into(),
        }
    }

    /// The number of updates that the budget is expected to allow, if all workers have the same
    /// number of rows; 0 if that is not known.
    #[must_use]
    pub fn expected_updates(&self) -> u64 {
        let (rows, workers) = (self.data.train.rows, self.membership.workers.max(1));
        let rows = rows.div_ceil(workers.into());
        let of_worker = Pass::new(rows, self.batch_size.max(1)).batches();
        // A worker that makes updates alone counts its own.
        let together = match self.architecture.is_asynchronous() {
            true => workers,
            false => self.mode.consistency.gathered(workers),
        };
        let all = of_worker.saturating_mul(u64::from(workers) * u64::from(self.budget.epochs));
        all.div_ceil(together.into())
    }

    /// Builds the model.
    ///
    /// # Errors
    /// [`ModelError`] if model, loss and data do not fit together, or if a parameter group has no
    /// tensor.
    pub fn build_model(&self) -> Result<Model, ModelError> {
        let model = Model::with_loss(&self.model, self.loss, self.data.shape)?;
        check_groups(&self.groups, model.layout())?;
        Ok(model)
    }

    /// The initial parameters of all keys of `model`, until others replace them.
    #[must_use]
    pub fn initial(&self, model: &Model) -> Vec<f32> {
        model.initial(Stream::new(self.seed).fork("initial", 0))
    }

    /// The keys of `server` in a model of `parameters` parameters; `None` if there is no such
    /// server, or fewer parameters than servers.
    #[must_use]
    pub fn keys_of(&self, server: ServerId, parameters: usize) -> Option<KeyRange> {
        KeyRange::share(parameters as u64, self.servers, server.0)
    }
}

/// Largest scenario description in bytes: it travels in every welcome.
pub const MOST_SCENARIO_BYTES: usize = 1024 * 1024;
/// Batch size of mini-batches that consist of all examples of a worker.
pub const ALL_EXAMPLES: u32 = u32::MAX;
/// Largest number of servers of one job.
pub const MAX_SERVERS: u32 = 64;
/// A job with invalid or contradictory settings.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// No workers, or too many.
    #[error("workers = {0}: must be 1 to {MAX_WORKERS}")]
    Workers(u32),
    /// A minimum that is 0 or exceeds the number of workers.
    #[error(
        "min-workers = {min}: must be 1 to the {} of the job",
        counted(*workers, "worker")
    )]
    MinWorkers {
        /// The configured minimum.
        min: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// A lease out of range.
    #[error(
        "lease = {0:?}: must be {SHORTEST_LEASE:?} to {longest} h",
        longest = LONGEST_LEASE.as_secs() / 3600
    )]
    Lease(Duration),
    /// An empty mini-batch.
    #[error("batch-size = 0: must be 1 or more")]
    BatchSize,
    /// Evaluations, or ends by them, that cannot be.
    #[error("{0}")]
    Stopping(&'static str),
    /// No epochs.
    #[error("epochs = 0: must be 1 or more")]
    Epochs,
    /// A schedule over the run, where no node knows its updates.
    #[error(
        "schedule = {0}: the number of training rows is not known, nor that of updates: say it as \
         UPDATES, the last number of the schedule"
    )]
    Schedule(Schedule),
    /// The total number of examples overflows.
    #[error("epochs = {epochs} over {rows} training rows: choose fewer epochs")]
    Budget {
        /// Training examples.
        rows: u64,
        /// Passes over them.
        epochs: u32,
    },
    /// Gradients that leave layer by layer, together with a setting that needs them whole: the
    /// required value, and the reason.
    #[error("exchange = layers needs {0}")]
    Layers(&'static str),
    /// More workers than examples.
    #[error(
        "{} for {}: each needs at least one",
        counted(*rows, "training row"),
        counted(*workers, "worker")
    )]
    FewRows {
        /// Training examples.
        rows: u64,
        /// Workers of the job.
        workers: u32,
    },
    /// Rows that only their workers have, together with a setting that needs them elsewhere: the
    /// other setting, its required value, and the reason.
    #[error("partition = local needs {0}")]
    Local(&'static str),
    /// A consistency whose number does not fit the job.
    #[error(transparent)]
    Consistency(ImpossibleConsistency),
    /// A change of consistency that cannot be scheduled.
    #[error(transparent)]
    Switch(SwitchError),
    /// No servers, or too many.
    #[error("servers = {0}: must be 1 to {MAX_SERVERS}")]
    Servers(u32),
    /// A setting that needs a value for every key; gradients of a sparse model have values for
    /// some.
    #[error(
        "{0} needs a value for every key, but the gradients of a model of sparse rows have one for \
         each key of a worker's working set: leave it away"
    )]
    Sparse(&'static str),
    /// Blocks of keys together with an incompatible setting.
    #[error("blocks = {blocks} needs {needs}")]
    Blocks {
        /// The blocks.
        blocks: Blocks,
        /// The other setting, its required value, and the reason.
        needs: &'static str,
    },
    /// An architecture together with an incompatible setting.
    #[error("architecture = {architecture} needs {needs}")]
    Architecture {
        /// The architecture.
        architecture: Architecture,
        /// The other setting, its required value, and the reason.
        needs: &'static str,
    },
    /// A graph of an architecture without neighbors.
    #[error(
        "graph = {graph} needs an architecture whose workers have neighbors, as gossip:d-psgd; \
         architecture = {architecture} has none"
    )]
    Graph {
        /// The graph.
        graph: Graph,
        /// The architecture.
        architecture: Architecture,
    },
    /// Edges that are no graph of the workers.
    #[error("graph: {0}")]
    Edges(EdgeError),
    /// Curvature steps together with an incompatible setting: the other setting, its required
    /// value, and the reason.
    #[error("optimizer = diagonal needs {0}")]
    Diagonal(&'static str),
    /// A group without learning rate under FTRL, which divides by it.
    #[error("groups: optimizer = ftrl needs a rate above 0 for every group")]
    FrozenFtrl,
    /// State besides the parameters under gradient coding, which sends sums of gradients with
    /// coefficients.
    #[error(
        "redundancy = fractional or cyclic sends coded sums of gradients, in which the state of \
         the model is lost: use redundancy = none or partial, or a model without state"
    )]
    CodedState,
    /// Local training with a setting that needs gradients.
    #[error("local-training needs {0}")]
    LocalTraining(&'static str),
    /// A rule that mixes models, in a job whose workers send gradients.
    #[error(
        "staleness = {0} mixes the parameters with the models that workers train, but they send \
         gradients: add local-training = sgd:STEPS,RATE, or choose another rule"
    )]
    NoModels(StalenessSpec),
    /// A scenario description that is too long, in bytes.
    #[error(
        "link, compute and faults are {0} bytes, but {MOST_SCENARIO_BYTES} at most are carried: \
         say with `all` what is the same for many workers"
    )]
    Scenario(usize),
    /// An invalid mode.
    #[error(transparent)]
    Mode(ModeError),
    /// An aggregation that is incompatible with other settings.
    #[error(transparent)]
    Aggregation(AggregationError),
    /// A division of work that is incompatible with other settings.
    #[error(transparent)]
    Work(WorkError),
    /// Invalid filters.
    #[error(transparent)]
    Filters(FilterError),
}

named!(Exchange: "exchange", ',' {
    Combined = Word::new("combined", &[], "a push is answered with parameters"),
    Separate = Word::new("separate", &[], "push and pull are messages of their own"),
    Layers = Word::new("layers", &[], "layers of a gradient leave as soon as they are computed"),
});
named!(BudgetKind: "budget", ',' {
    Global = Word::new("global", &[], "the workers together"),
    Partition = Word::new("partition", &[], "each worker over its own part"),
});
named!(DataFrom: "origin of data", ',' {
    Worker = Word::new("worker", &[], "each worker has the data, or asks for them"),
    Server = Word::new("server", &[], "the server sends them"),
    Own = Word::new("own", &[], "each worker has the data, and the server keeps none"),
});
