//! Settings of a world, all drawn from one seed: the job, the network, the machines, the faults.
//! Seeds differ in kind, not only in detail, so that each combination of settings comes up sooner
//! or later.

use std::time::Duration;

use pstrain_compute::examples::{Examples, Shape, Target};
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::Version;
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Answers, ExternalTensor, Loss, ModelSpec};
use pstrain_compute::optim::{GroupSpec, OptimizerSpec, Proximal, UpdateSpec};
use pstrain_compute::params::{BlockOrder, Blocks, Combine, Role};
use pstrain_compute::rng::{Random, Stream};
use pstrain_policy::architecture::Architecture;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{
    ALL_EXAMPLES, Budget, BudgetKind, DataFrom, Exchange, InitialFrom, Job, JobData, Membership,
    OnLoss, Redundancy, Stopping, WorkSpec,
};
use pstrain_policy::mode::{Mode, Switch, SwitchAt};
use pstrain_policy::rules::{Aggregation, ParticipationSpec};

use crate::policies::{draw_next, draw_policy, draw_rules, most_gradients};
use crate::toy::sparse_rows;

/// Everything that determines how a world goes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The job.
    pub job: Job,
    /// Its training split.
    pub train: Examples,
    /// The seed of delays, compute times and faults.
    pub network: u64,
    /// Every span is a multiple of this, so that events coincide now and then.
    pub grain: Duration,
    /// The longest ordinary delay of a message.
    pub delay: Duration,
    /// Messages per thousand that are much later than that, before the calm.
    pub spikes: u64,
    /// Longest delay of a wake-up.
    pub late: Duration,
    /// Mean time of one gradient, by process in turn.
    pub compute: Vec<Duration>,
    /// Longest time to prepare data.
    pub prepare: Duration,
    /// Workers start at a random time before this.
    pub starts: Duration,
    /// True if workers ask for a worker id of their own.
    pub wishes: bool,
    /// Updates over which the loss climbs before it is low again; `None` if it never climbs.
    pub climbs: Option<u64>,
    /// Inputs per thousand after which a server crashes and restarts, before the calm.
    pub crashes: u64,
    /// Inputs per thousand after which a server's state is saved. A restart begins from there, and
    /// the restored state replaces the server at once.
    pub saves: u64,
    /// True if a server that crashes has its checkpoints only, not the inputs since, and all
    /// servers go back to them.
    pub forgets: bool,
    /// The faults.
    pub faults: Faults,
    /// When the faults stop.
    pub calm_at: Duration,
}

/// Frequencies of the faults, until the calm.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Mean time between two faults; `None` for no faults.
    pub every: Option<Duration>,
    /// Relative frequency of each of [`Fault::ALL`].
    pub weights: [u64; 12],
    /// Most faults in a world.
    pub most: u64,
    /// Percentage of ends that ever learn that their connection broke.
    pub learn: u64,
    /// Percentage of dials that fail.
    pub dial_fails: u64,
    /// Percentage of workers that went and are started again.
    pub restarts: u64,
    /// Percentage of preparations that fail, or give other data than the job's.
    pub bad_data: u64,
    /// Percentage of gradients that are not finite.
    pub bad_gradients: u64,
}

/// A fault, or another event that the server must withstand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A connection breaks; what is under way on it is lost.
    Break,
    /// A worker process dies.
    Crash,
    /// A worker is told to finish in order.
    DrainWorker,
    /// One more worker process starts.
    Newcomer,
    /// The server is told to stop in order.
    DrainServer,
    /// A client connects to the server and sends nothing.
    Stranger,
    /// A client asks for the status, or for the parameters of a key range.
    Status,
    /// A node is woken without need.
    Wake,
    /// Invalid bytes reach the server.
    Garbage,
    /// A client orders another mode, or one that is invalid.
    Control,
    /// One more server starts and asks for keys.
    ServerJoins,
    /// A server other than the coordinator is told to leave.
    ServerLeaves,
}

impl Fault {
    /// All faults, in the order of [`Faults::weights`].
    pub const ALL: [Self; 12] = [
        Self::Break,
        Self::Crash,
        Self::DrainWorker,
        Self::Newcomer,
        Self::DrainServer,
        Self::Stranger,
        Self::Status,
        Self::Wake,
        Self::Garbage,
        Self::Control,
        Self::ServerJoins,
        Self::ServerLeaves,
    ];
}

impl Settings {
    /// Draws the settings of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Stream::new(seed).fork("settings", 0).rng();
        let (job, train) = draw_job(seed, &mut rng);
        let lease = job.membership.lease;
        let processes = job.membership.workers as usize + 3;
        let grain = lease / [20_000, 1000, 50][rng.below(3) as usize];
        let slowest = lease / [50, 10, 2][rng.below(3) as usize];
        let compute = (0..processes)
            .map(|_| slowest.mul_f64(rng.unit()) * if rng.below(8) == 0 { 8 } else { 1 })
            .collect();
        let faults = Faults {
            every: (rng.below(8) > 0).then(|| lease.mul_f64(0.05 + 2.0 * rng.unit() * rng.unit())),
            weights: draw_weights(&mut rng),
            most: u64::MAX,
            learn: [0, 50, 90, 100][rng.below(4) as usize],
            dial_fails: [0, 0, 20, 60][rng.below(4) as usize],
            restarts: [0, 70, 100][rng.below(3) as usize],
            bad_data: [0, 0, 0, 5][rng.below(4) as usize],
            bad_gradients: [0, 0, 0, 2][rng.below(4) as usize],
        };
        Self {
            network: seed,
            grain,
            delay: lease / [1000, 100, 20][rng.below(3) as usize],
            spikes: [0, 0, 10, 50][rng.below(4) as usize],
            late: lease / [100_000, 100, 5][rng.below(3) as usize],
            compute,
            prepare: lease.mul_f64([0.01, 0.3, 3.0][rng.below(3) as usize]),
            starts: lease.mul_f64([0.0, 0.5, 10.0][rng.below(3) as usize]),
            wishes: rng.below(2) == 0,
            climbs: None,
            crashes: 0,
            saves: 0,
            forgets: false,
            faults,
            calm_at: lease.mul_f64(25.0 * rng.unit()),
            job,
            train,
        }
    }

    /// Removes all faults: all workers start at once and stay.
    #[must_use]
    pub fn peaceful(mut self) -> Self {
        self.faults = Faults {
            every: None,
            weights: [0; 12],
            most: u64::MAX,
            learn: 100,
            dial_fails: 0,
            restarts: 0,
            bad_data: 0,
            bad_gradients: 0,
        };
        self.spikes = 0;
        self.starts = Duration::ZERO;
        self.job.membership.min_workers = None;
        self
    }

    /// Leaves one kind of fault: every so often a connection breaks, and both ends notice.
    #[must_use]
    pub fn flaky(mut self, every: Duration) -> Self {
        self = self.peaceful();
        self.faults.every = Some(every);
        self.faults.weights[Fault::Break as usize] = 1;
        self
    }

    /// Leaves one fault: a machine dies without notice to its peers.
    #[must_use]
    pub fn with_one_death(mut self) -> Self {
        self = self.peaceful();
        self.faults.every = Some(self.calm_at / 4);
        self.faults.weights[Fault::Crash as usize] = 1;
        self.faults.most = 1;
        self.faults.learn = 0;
        self
    }

    /// Uses so many servers if the job allows them, else one.
    #[must_use]
    pub fn with_servers(mut self, servers: u32) -> Self {
        self.job.servers = servers;
        if self.job.validate().is_err() {
            self.job.servers = 1;
        }
        self
    }

    /// Adds servers that join and leave.
    #[must_use]
    pub fn with_moves(mut self) -> Self {
        let mut rng = Stream::new(self.network).fork("moves", 0).rng();
        for fault in [Fault::ServerJoins, Fault::ServerLeaves] {
            self.faults.weights[fault as usize] = 1 + rng.below(10);
        }
        let often = self.job.membership.lease.mul_f64(0.01 + 0.5 * rng.unit());
        let every = self.faults.every.unwrap_or(often);
        self.faults.every = Some(if rng.below(2) == 0 { every } else { every.min(often) });
        self
    }

    /// Uses a sparse model, and replaces drawn settings that do not go with one.
    #[must_use]
    pub fn sparse(mut self) -> Self {
        let rows = self.job.data.train.rows as usize;
        let columns = [5, 40, 300][(self.network % 3) as usize];
        self.train = sparse_rows(rows, columns);
        self.job.model = ModelSpec::Logistic;
        self.job.groups.clear();
        self.job.data.shape = self.train.shape();
        self.job.data.train = Fingerprint::of(&self.train);
        if self.job.check_sparse(&self.job.mode).is_err() {
            self.job.mode = Mode::of(ConsistencySpec::Asp);
            self.job.filters = Filters::default();
        }
        let (job, mode) = (self.job.clone(), self.job.mode);
        self.job.switches.retain(|switch| job.check_sparse(&mode.with(switch.to)).is_ok());
        self
    }

    /// Number of columns of the data.
    pub(super) fn columns(&self) -> u64 {
        self.job.data.shape.inputs.into()
    }

    /// Sends ranges of gradients as soon as they are computed.
    #[must_use]
    pub fn by_layers(mut self) -> Self {
        (self.job.model, self.job.filters) = (ModelSpec::Softmax, Filters::default());
        self.job.exchange = Exchange::Layers;
        self
    }

    /// Uses a sparse model with block updates, under a consistency that has such updates.
    #[must_use]
    pub fn with_blocks(mut self) -> Self {
        self = self.sparse();
        let mut rng = Stream::new(self.network).fork("blocks", 0).rng();
        let count = 1 + rng.below(self.columns().min(9)) as u32;
        let order = [BlockOrder::Random, BlockOrder::Sequence][rng.below(2) as usize];
        self.job.blocks = Some(Blocks { count, order });
        let bound = [None, Some(rng.below(6))][usize::from(rng.below(4) > 0)];
        self.job.mode = Mode::of(
            [ConsistencySpec::Bsp, ConsistencySpec::Delay { bound }][usize::from(rng.below(3) > 0)],
        );
        let is_ordered = |switch: &Switch| {
            matches!(switch.to, ConsistencySpec::Bsp | ConsistencySpec::Delay { .. })
        };
        self.job.switches.retain(is_ordered);
        if rng.below(2) == 0 {
            self.job.update.optimizer = OptimizerSpec::Diagonal;
            self.job.update.proximal = Proximal::L1 { lambda: 0.5 };
        }
        if rng.below(3) == 0 {
            self.job.batch_size = ALL_EXAMPLES;
        }
        self
    }

    /// Adds changes of mode: some planned by the job, some ordered by clients.
    #[must_use]
    pub fn switching(mut self) -> Self {
        self = self.switching_as_foreseen();
        let mut rng = Stream::new(self.network).fork("controls", 0).rng();
        if rng.below(3) > 0 {
            self.faults.weights[Fault::Control as usize] = 1 + rng.below(20);
            let often = self.job.membership.lease.mul_f64(0.01 + 0.5 * rng.unit());
            let every = self.faults.every.unwrap_or(often);
            self.faults.every = Some(if rng.below(2) == 0 { every } else { every.min(often) });
        }
        self
    }

    /// Lets the server choose its mode (`auto`), with losses that give it cause to.
    #[must_use]
    pub fn choosing(mut self) -> Self {
        let mut rng = Stream::new(self.network).fork("choices", 0).rng();
        self.job.mode = Mode::of(ConsistencySpec::Auto);
        self.climbs = (rng.below(4) > 0).then(|| 4 + rng.below(60));
        self
    }

    /// Uses an optimiser of any kind.
    #[must_use]
    pub const fn with_any_optimizer(mut self) -> Self {
        self.job.update.optimizer = match self.network % 5 {
            0 => OptimizerSpec::Sgd,
            1 => OptimizerSpec::MOMENTUM,
            2 => OptimizerSpec::NESTEROV,
            3 => OptimizerSpec::ADAGRAD,
            _ => OptimizerSpec::ADAM,
        };
        self
    }

    /// Uses updates that depend on norms, or on distances where the mode has such rounds.
    #[must_use]
    pub fn measuring(mut self) -> Self {
        let mut rng = Stream::new(self.network).fork("measuring", 0).rng();
        let update = &mut self.job.update;
        let norms = [None, Some(0.01), Some(0.5), Some(1e6)];
        update.clip_norm = norms[rng.below(4) as usize];
        update.clip_contribution = norms[rng.below(4) as usize];
        let (before, chosen) = (self.job.aggregation, 1 + rng.below(3) as u32);
        if rng.below(2) == 0 {
            self.job.aggregation = Aggregation::Krum { faulty: rng.below(2) as u32, chosen };
        }
        if self.job.validate().is_err() {
            self.job.aggregation = before;
        }
        if self.job.validate().is_err() {
            self.job.update.clip_contribution = None;
        }
        self
    }

    /// Adds changes of mode that the job plans.
    #[must_use]
    pub fn switching_as_foreseen(mut self) -> Self {
        let mut rng = Stream::new(self.network).fork("switches", 0).rng();
        let workers = self.job.membership.workers;
        self.job.mode = draw_rules(&mut rng, self.job.mode);
        let (mut version, mut time) = (0, Duration::ZERO);
        for _ in 0..rng.below(4) {
            let to = draw_next(&mut rng, workers);
            let at = if rng.below(3) > 0 {
                version += 1 + rng.below(8);
                SwitchAt::Version(Version(version))
            } else {
                time += self.longest_compute() * rng.below(10) as u32 + self.grain;
                SwitchAt::Time(time)
            };
            self.job.switches.push(Switch { to, at });
        }
        self
    }

    /// Gives all data to every worker, cut into shards that a scheduler assigns. Uses another
    /// consistency if the drawn one does not go with that.
    #[must_use]
    pub fn with_shards(mut self) -> Self {
        let mut rng = Stream::new(self.network).fork("shards", 0).rng();
        let rows = self.job.data.train.rows;
        let most = [3, 12, 100][rng.below(3) as usize];
        let count = 1 + rng.below(rows.min(most)) as u32;
        self.job.work = WorkSpec::Shards { count };
        self.job.budget.kind = BudgetKind::Global;
        self.job.mode.participation = ParticipationSpec::Plain;
        if rng.below(3) == 0 {
            self.job.mode.max_staleness = Some(rng.below(4));
        }
        self.job.switches.retain(|switch| !weighs_workers(switch.to));
        if weighs_workers(self.job.mode.consistency) {
            self.job.mode = self.job.mode.with(ConsistencySpec::Asp);
        }
        self
    }

    /// Lets other workers do the share of lost ones. Uses another consistency if the drawn one does
    /// not go with that.
    #[must_use]
    pub fn with_reassignment(mut self) -> Self {
        self = self.with_shards();
        (self.job.work, self.job.membership.on_loss) = (WorkSpec::Equal, OnLoss::Reassign);
        self
    }

    /// Drops the examples, so that the settings can be printed.
    #[must_use]
    pub fn without_rows(mut self) -> Self {
        self.train = Examples::new(self.job.data.shape);
        self
    }

    /// True if invalid bytes may come.
    pub(super) const fn garbage(&self) -> bool {
        self.faults.weights[Fault::Garbage as usize] > 0
    }

    /// Most gradients that a single worker may have to give before there is an update.
    #[must_use]
    pub fn most_gradients(&self) -> u32 {
        let mode = &self.job.mode;
        match (mode.consistency, mode.in_flight) {
            // One that a worker had in flight before the last update may be discarded as too old.
            (ConsistencySpec::Ringmaster { .. }, Some(window)) => window,
            (consistency, _) => most_gradients(consistency),
        }
    }

    /// Longest time of one gradient.
    #[must_use]
    pub fn longest_compute(&self) -> Duration {
        self.compute.iter().max().copied().unwrap_or_default() * 3 / 2
    }
}

/// True if a consistency is about data that only one worker has.
const fn weighs_workers(consistency: ConsistencySpec) -> bool {
    matches!(consistency, ConsistencySpec::Malenia { .. } | ConsistencySpec::Ringleader)
}

fn draw_weights(rng: &mut Random) -> [u64; 12] {
    let mut weights = [0; 12];
    for (weight, most) in weights.iter_mut().zip([20, 8, 3, 3, 1, 2, 2, 6, 2]) {
        *weight = if rng.below(3) == 0 { 0 } else { rng.below(most + 1) };
    }
    weights[0] += 1; // so that there is always something to draw
    weights
}

/// Returns a model with state besides its parameters in one world of four, and else one without.
fn draw_model(seed: u64) -> ModelSpec {
    let tensor =
        |name: &str, size, role| ExternalTensor { name: name.into(), shape: vec![size], role };
    let state = |combine| Role::State { combine, whole: false };
    match seed % 4 {
        1 => ModelSpec::External {
            tensors: vec![
                tensor("weight", 5, Role::Parameter),
                tensor("bias", 1, Role::Parameter),
                tensor("mean", 2, state(Combine::Mean)),
                tensor("count", 1, state(Combine::First)),
            ],
            answers: Answers::Gradient,
        },
        _ => ModelSpec::Softmax,
    }
}

/// Returns parameter groups in one world of five.
fn draw_stopping(seed: u64) -> Stopping {
    let evaluate_every = [1.0, 1.0, 1.0, 0.25, 2.0][(seed % 5) as usize];
    Stopping { evaluate_every, ..Stopping::default() }
}

fn draw_groups(seed: u64) -> Vec<GroupSpec> {
    let group = GroupSpec { pattern: "*bias".into(), rate: 0.5, weight_decay: Some(0.125) };
    Vec::from_iter((seed % 5 == 2).then_some(group))
}

/// Draws filters for one world in three, from a stream of their own.
fn draw_filters(seed: u64) -> Filters {
    const CHAINS: [&str; 12] = [
        "zero-skip",
        "significant:0.5",
        "random-skip:0.5",
        "random-k:0.5",
        "top-k:0.2",
        "top-k:0.5,random-skip:0.5,int8",
        "fp16",
        "int8",
        "one-bit",
        "qsgd:1",
        "qsgd:4",
        "powersgd:1",
    ];
    let mut rng = Stream::new(seed).fork("filters", 0).rng();
    let chain = CHAINS.get(rng.below(3 * CHAINS.len() as u64) as usize).copied();
    let chain = Filters::read_chain(chain.unwrap_or("none")).unwrap_or_default();
    Filters { chain, ..Filters::default() }
}

fn draw_job(seed: u64, rng: &mut Random) -> (Job, Examples) {
    let shape = Shape { inputs: 2, dense: 1, hot: 1, target: Target::Classes(2), picture: None };
    let workers = 1 + rng.below(6) as u32;
    let batch_size = 1 + rng.below(6) as u32;
    let most = [25, 25, 25, 100][rng.below(4) as usize];
    let batches = 1 + rng.below(most);
    let rows = u64::from(workers) + batches * u64::from(batch_size);
    let mut train = Examples::new(shape);
    for row in 0..rows {
        train.push(&[row as f32], &[1], (row % 2) as u16).unwrap_or_default();
    }
    let consistency = draw_policy(rng, workers);
    let in_flight = (rng.below(2) == 0 && consistency.pipelines()).then(|| 1 + rng.below(4) as u32);
    let job = Job {
        name: "world".into(),
        seed,
        model: draw_model(seed),
        loss: Loss::Nll,
        groups: draw_groups(seed),
        update: UpdateSpec {
            optimizer: [OptimizerSpec::Sgd, OptimizerSpec::MOMENTUM][rng.below(2) as usize],
            ..UpdateSpec::sgd(0.125)
        },
        aggregation: [Aggregation::Mean, Aggregation::Sum][rng.below(2) as usize],
        mode: Mode { in_flight, ..Mode::of(consistency) },
        switches: Vec::new(),
        exchange: [Exchange::Combined, Exchange::Separate][rng.below(2) as usize],
        local_training: LocalTraining::None,
        batch_size,
        redundancy: Redundancy::None,
        blocks: None,
        work: WorkSpec::Equal,
        budget: Budget {
            epochs: 1 + rng.below(3) as u32,
            kind: [BudgetKind::Global, BudgetKind::Partition][rng.below(2) as usize],
        },
        stopping: draw_stopping(seed),
        membership: Membership {
            workers,
            min_workers: (rng.below(2) == 0).then(|| 1 + rng.below(workers.into()) as u32),
            on_loss: [OnLoss::Continue, OnLoss::Continue, OnLoss::Wait, OnLoss::Stop]
                [rng.below(4) as usize],
            lease: Duration::from_millis([100, 1000, 10_000][rng.below(3) as usize]),
            partial_after: None,
        },
        architecture: Architecture::Server,
        graph: Graph::Ring,
        edges: Vec::new(),
        servers: 1,
        data: JobData {
            shape,
            train: Fingerprint::of(&train),
            from: [DataFrom::Worker, DataFrom::Server][rng.below(2) as usize],
            recipe: String::new(),
        },
        filters: draw_filters(seed),
        scenario: String::new(),
        // Drawn from the seed alone: other draws keep their meaning for seeds that are fixed.
        initial: [InitialFrom::Worker, InitialFrom::Server, InitialFrom::Seed][seed as usize % 3],
    };
    (job, train)
}
