//! The job: everything that decides what is trained and how. The server owns it and hands it to
//! the workers in the handshake.

mod aggregation;
mod blocks;
mod division;
mod filters;
mod sparse;
mod work;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub use division::{MOST_SHARDS, Redundancy, UnknownWork, WorkSpec};
pub use work::WorkError;

use crate::auto::Auto;
use crate::consistency::{ConsistencySpec, ImpossibleConsistency};
use crate::mode::{Mode, ModeError, Switch, SwitchError};
use crate::rules::{Aggregation, AggregationError};
use pstrain_compute::examples::Shape;
use pstrain_compute::filter::{FilterError, Filters};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{MAX_WORKERS, ServerId};
use pstrain_compute::model::{Model, ModelSpec};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::params::{Blocks, KeyRange};
use pstrain_compute::rng::Stream;
use pstrain_compute::words;

/// A resolved job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// A name for people.
    pub name: String,
    /// The seed of every random stream of the run.
    pub seed: u64,
    /// The model.
    pub model: ModelSpec,
    /// Optimiser, learning rate, decay and clipping.
    pub update: UpdateSpec,
    /// How the gradients of one update are combined.
    pub aggregation: Aggregation,
    /// When gradients are applied and workers go on, and what gradients count for, to begin with.
    pub mode: Mode,
    /// Changes of consistency, in their order.
    pub switches: Vec<Switch>,
    /// Whether push and pull travel as one message.
    pub exchange: Exchange,
    /// What of a gradient travels, and how.
    pub filters: Filters,
    /// The blocks of keys of which each update changes one; none if it changes all keys.
    pub blocks: Option<Blocks>,
    /// Examples of one mini-batch of one worker; of all workers on average where the sizes differ.
    pub batch_size: u32,
    /// What is computed more than once.
    pub redundancy: Redundancy,
    /// How the work is divided among the workers.
    pub work: WorkSpec,
    /// When the run is over.
    pub budget: Budget,
    /// Who takes part, and what happens when someone is lost.
    pub membership: Membership,
    /// Servers, each with a share of the keys; at least 1.
    pub servers: u32,
    /// The data.
    pub data: JobData,
    /// What of network and machines is modelled, at most [`MOST_SCENARIO_BYTES`]; empty if nothing
    /// is. Written and read by the transports; the nodes only carry it.
    pub scenario: String,
}

/// Whether a worker's push also asks for new parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// One push-pull message, one answer.
    #[default]
    Combined,
    /// A push, its acknowledgement, then a pull and its answer.
    Separate,
}

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Passes over the data; at least 1.
    pub epochs: u32,
    /// Whose passes are counted.
    pub kind: BudgetKind,
}

/// What an epoch of the budget is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetKind {
    /// The workers together have processed `epochs` times the training examples, whoever did it.
    #[default]
    Global,
    /// Each worker passes `epochs` times over its own partition, then leaves the others to it.
    Partition,
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Worker ids of the job, which is also the number of partitions; at least 1.
    pub workers: u32,
    /// The run starts with this many workers and pauses below it. If not given, it starts with
    /// all and pauses only when none is left.
    pub min_workers: Option<u32>,
    /// What happens when a worker is lost.
    pub on_loss: OnLoss,
    /// How long a silent worker counts as alive. Every other time limit derives from it.
    pub lease: Duration,
}

/// What the server does when a worker is lost: its lease ran out, it was turned away, or it left
/// before its share was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// Goes on with the others; the lost one may come back.
    #[default]
    Continue,
    /// Keeps its place until it comes back, or the patience of [`Membership`] is over.
    Wait,
    /// Ends the run.
    Stop,
    /// Goes on with the others, which do the lost one's share of each epoch until it comes back.
    /// For that every worker has all data.
    Reassign,
}

/// The data of a job, as far as the nodes need to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobData {
    /// Shape of an example.
    pub shape: Shape,
    /// The whole training split.
    pub train: Fingerprint,
    /// Who has the examples.
    pub from: DataFrom,
    /// How the data are read, split, encoded and partitioned. Written and read by the data
    /// crate; the nodes only carry it.
    pub recipe: String,
}

/// Where a worker's examples come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataFrom {
    /// The worker reads or generates them itself.
    #[default]
    Worker,
    /// The server sends them.
    Server,
    /// The worker, and nobody else: the server keeps none.
    Own,
}

/// Time between two heartbeats of a worker with this lease.
#[must_use]
pub fn heartbeat(lease: Duration) -> Duration {
    lease / 5
}

/// How long a worker that was cut off under this lease tries to come back.
#[must_use]
pub const fn patience(lease: Duration) -> Duration {
    lease.saturating_mul(12)
}

impl Membership {
    /// Workers that must be ready before the first update.
    #[must_use]
    pub fn needed_to_start(&self) -> u32 {
        self.min_workers.unwrap_or(self.workers)
    }

    /// Workers below which the run pauses.
    #[must_use]
    pub fn needed_to_run(&self) -> u32 {
        self.min_workers.unwrap_or(1)
    }

    /// Time between two heartbeats of a worker.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        heartbeat(self.lease)
    }

    /// How long a worker that was cut off tries to come back, and how long a run that waits for a
    /// lost worker, or has fewer than it needs, waits before it ends.
    #[must_use]
    pub fn patience(&self) -> Duration {
        patience(self.lease)
    }

    /// How long the server waits for the workers it needs to start.
    #[must_use]
    pub fn start_patience(&self) -> Duration {
        self.lease * 120
    }
}

impl Job {
    /// Checks what the types cannot: counts and times that make no sense.
    ///
    /// Model and update settings are checked when they are built.
    ///
    /// # Errors
    /// [`JobError`] names the setting, its value and what is allowed.
    pub fn validate(&self) -> Result<(), JobError> {
        let Membership { workers, min_workers, lease, .. } = self.membership;
        if workers == 0 || workers > MAX_WORKERS {
            return Err(JobError::Workers(workers));
        }
        if let Some(min) = min_workers
            && (min == 0 || min > workers)
        {
            return Err(JobError::MinWorkers { min, workers });
        }
        if lease < SHORTEST_LEASE || lease > LONGEST_LEASE {
            return Err(JobError::Lease(lease));
        }
        if self.batch_size == 0 {
            return Err(JobError::BatchSize);
        }
        if self.budget.epochs == 0 {
            return Err(JobError::Epochs);
        }
        if self.data.train.rows.checked_mul(u64::from(self.budget.epochs)).is_none() {
            return Err(JobError::Budget {
                rows: self.data.train.rows,
                epochs: self.budget.epochs,
            });
        }
        if self.data.train.rows < u64::from(workers) {
            return Err(JobError::FewRows { rows: self.data.train.rows, workers });
        }
        self.filters.validate().map_err(JobError::Filters)?;
        self.filters.check(&self.update).map_err(JobError::Filters)?;
        if !self.filters.is_none() && matches!(self.model, ModelSpec::Timing { .. }) {
            return Err(JobError::Filters(FilterError::Timing));
        }
        self.mode.consistency.check(workers).map_err(JobError::Consistency)?;
        Switch::check_all(&self.switches, workers).map_err(JobError::Switch)?;
        if self.scenario.len() > MOST_SCENARIO_BYTES {
            return Err(JobError::Scenario(self.scenario.len()));
        }
        self.mode.validate().map_err(JobError::Mode)?;
        self.check_aggregation(&self.mode).map_err(JobError::Aggregation)?;
        for switch in &self.switches {
            let mode = self.mode.with(switch.to);
            self.check_aggregation(&mode).map_err(JobError::Aggregation)?;
        }
        if self.servers == 0 || self.servers > MAX_SERVERS {
            return Err(JobError::Servers(self.servers));
        }
        self.check_sparse(&self.mode)?;
        self.check_blocks(&self.mode)?;
        self.check_work(&self.mode).map_err(JobError::Work)
    }
}

impl Job {
    /// The mode that begins where `mode` is wanted: that mode, or the one that `auto` begins with.
    #[must_use]
    pub fn at_start(&self, mode: Mode) -> Mode {
        // Where all workers have all data, no worker's gradients count for more.
        let has_shares = matches!(self.work, WorkSpec::Equal | WorkSpec::Speed)
            && self.membership.on_loss != OnLoss::Reassign;
        if mode.consistency == ConsistencySpec::Auto { Auto::first(has_shares) } else { mode }
    }

    /// Examples of a whole mini-batch: if it has all that a worker has, as many as there are for
    /// each.
    #[must_use]
    pub fn whole_batch(&self) -> u64 {
        match self.batch_size {
            ALL_EXAMPLES => {
                self.data.train.rows.div_ceil(u64::from(self.membership.workers.max(1)))
            }
            size => size.into(),
        }
    }

    /// The parameters that training begins with, all keys of `model`.
    #[must_use]
    pub fn initial(&self, model: &Model) -> Vec<f32> {
        model.initial(Stream::new(self.seed).fork("initial", 0))
    }

    /// The keys of `server`, where the model has so many parameters; none if there is no such
    /// server, or not a parameter for each.
    #[must_use]
    pub fn keys_of(&self, server: ServerId, parameters: usize) -> Option<KeyRange> {
        KeyRange::share(parameters as u64, self.servers, server.0)
    }
}

/// The longest description of what is modelled: it travels in every welcome.
pub const MOST_SCENARIO_BYTES: usize = 1024 * 1024;
/// The batch size of mini-batches that have all that a worker has.
pub const ALL_EXAMPLES: u32 = u32::MAX;
/// The most servers of one job.
pub const MAX_SERVERS: u32 = 64;
/// The shortest lease: below it, an ordinary scheduling delay looks like a death.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// The longest lease.
pub const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

/// A job that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum JobError {
    /// No workers, or too many.
    Workers(u32),
    /// A minimum that cannot be met.
    MinWorkers {
        /// The minimum asked for.
        min: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// A lease out of range.
    Lease(Duration),
    /// An empty mini-batch.
    BatchSize,
    /// Nothing to do.
    Epochs,
    /// More examples in all than can be counted.
    Budget {
        /// Training examples.
        rows: u64,
        /// Passes over them.
        epochs: u32,
    },
    /// More workers than examples.
    FewRows {
        /// Training examples.
        rows: u64,
        /// Workers of the job.
        workers: u32,
    },
    /// A consistency whose number does not fit the job.
    Consistency(ImpossibleConsistency),
    /// A change of consistency that cannot be foreseen.
    Switch(SwitchError),
    /// No servers, or too many.
    Servers(u32),
    /// A setting that needs a value for every key, where gradients of a sparse model have some.
    Sparse(&'static str),
    /// Blocks of keys with something that they do not go with.
    Blocks {
        /// The blocks.
        blocks: Blocks,
        /// The other setting, what it must be, and why.
        needs: &'static str,
    },
    /// Steps by curvature with something that they do not go with: the other setting, what it must
    /// be, and why.
    Diagonal(&'static str),
    /// A scenario of too many bytes.
    Scenario(usize),
    /// A mode that makes no sense.
    Mode(ModeError),
    /// An aggregation that does not go together with the rest.
    Aggregation(AggregationError),
    /// Work that makes no sense.
    Work(WorkError),
    /// Filters that make no sense.
    Filters(FilterError),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers(workers) => {
                write!(f, "workers = {workers}: must be 1 to {MAX_WORKERS}")
            }
            Self::MinWorkers { min, workers } => {
                write!(f, "min-workers = {min}: must be 1 to the {workers} workers of the job")
            }
            Self::Lease(lease) => write!(
                f,
                "lease = {lease:?}: must be {SHORTEST_LEASE:?} to {} h",
                LONGEST_LEASE.as_secs() / 3600
            ),
            Self::BatchSize => write!(f, "batch-size = 0: must be 1 or more"),
            Self::Epochs => write!(f, "epochs = 0: must be 1 or more"),
            Self::Budget { rows, epochs } => {
                write!(f, "epochs = {epochs} over {rows} training rows: choose fewer epochs")
            }
            Self::FewRows { rows, workers } => {
                write!(f, "{rows} training rows for {workers} workers: each needs at least one")
            }
            Self::Consistency(error) => error.fmt(f),
            Self::Switch(error) => error.fmt(f),
            Self::Servers(servers) => {
                write!(f, "servers = {servers}: must be 1 to {MAX_SERVERS}")
            }
            Self::Sparse(setting) => write!(
                f,
                "{setting} needs a value for every key, but the gradients of model = logistic have \
                 one for each key of a worker's working set: leave it away"
            ),
            Self::Blocks { blocks, needs } => write!(f, "blocks = {blocks} needs {needs}"),
            Self::Diagonal(needs) => write!(f, "optimizer = diagonal needs {needs}"),
            Self::Scenario(bytes) => write!(
                f,
                "link, compute and faults are {bytes} bytes, but {MOST_SCENARIO_BYTES} at most \
                 are carried: say with `all` what is the same for many workers"
            ),
            Self::Mode(error) => error.fmt(f),
            Self::Aggregation(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
            Self::Filters(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for JobError {}

words!(Exchange { Combined = "combined", Separate = "separate" });
words!(BudgetKind { Global = "global", Partition = "partition" });
words!(OnLoss { Continue = "continue", Wait = "wait", Stop = "stop", Reassign = "reassign" });
words!(DataFrom { Worker = "worker", Server = "server", Own = "own" });
