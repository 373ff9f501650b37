//! A run in virtual time, from its settings to its end. Commands and experiments use the same.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::examples::Examples;
use pstrain_compute::id::{BatchId, PartId, WorkerId};
use pstrain_compute::model::{Model, ModelSpec};
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_data::{Encoded, Prepared, Settings, Source};
use pstrain_policy::job::Job;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Event, Prepare, Server};
use pstrain_transports::WallClock;
use pstrain_transports::scenario::Scenario;
use pstrain_transports::simulation::{
    self, Failover, Failure, Laboratory, LinkUsage, Origin, Outcome, Setup, SimulationError,
};
use pstrain_wire::job_digest;
use serde::Serialize;

use crate::digest::hexadecimal;
use crate::job::{Layers, Resolved};

/// Files that were read and computing times that were measured, for the runs that follow.
#[derive(Debug, Default)]
pub(crate) struct DataCache {
    files: Mutex<BTreeMap<String, Arc<Encoded>>>,
    measured: Mutex<BTreeMap<String, Duration>>,
}

impl DataCache {
    /// Prepares data as settings say; reads their source if nobody has yet.
    pub(crate) fn prepare(
        &self,
        source: &Source,
        settings: &Settings,
    ) -> Result<Prepared, pstrain_data::DataError> {
        let Settings { recipe, hashing, evaluation_data, .. } = settings;
        let key = format!("{source:?} {recipe:?} {hashing} {evaluation_data:?}");
        let mut read = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let encoded = match read.get(&key) {
            Some(encoded) => Arc::clone(encoded),
            None => {
                let encoded = Arc::new(Encoded::read(source, settings)?);
                read.insert(key, Arc::clone(&encoded));
                encoded
            }
        };
        drop(read);
        Prepared::of(&encoded, settings)
    }

    /// How long a mini-batch of the job takes on this machine. Whoever else asks waits meanwhile:
    /// the same jobs of one process stand on the same number.
    fn measured(&self, job: &Job, examples: Examples) -> anyhow::Result<Duration> {
        let key = format!("{:?} {:?} {}", job.model, job.data.shape, job.batch_size);
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(time) = measured.get(&key) {
            return Ok(*time);
        }
        let time = measure(job, examples)?;
        measured.insert(key, time);
        Ok(time)
    }
}

/// A job that is ready to be run in virtual time.
#[derive(Debug)]
pub(crate) struct Virtual {
    pub(crate) job: Job,
    pub(crate) data: Arc<Prepared>,
    scenario: Scenario,
    pub(crate) measured: Option<Duration>,
    weight: Option<u64>,
    job_sha256: String,
}

/// What only virtual time can say of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VirtualReport {
    /// The same for runs in which the same things happened at the same times.
    pub(crate) trace_sha256: String,
    /// From the server's start to its end.
    pub(crate) virtual_time_s: f64,
    /// Things that happened.
    pub(crate) events: u64,
    /// The link that all share at the server, where it has a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_link: Option<ServerLinkReport>,
    /// The computing time of a mini-batch that was measured, where the job asks for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_s: Option<f64>,
    /// How the run came through what befell its servers, where there is a standby or such a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failover: Option<FailoverReport>,
    /// Whether nobody was left to lead before the run was over.
    #[serde(skip)]
    pub(crate) is_leaderless: bool,
    /// The digest of the job as it was given, before what has only a size became a number.
    #[serde(skip)]
    pub(crate) job_sha256: String,
}

/// What went over the link that all share at the server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerLinkReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) up: Option<WayReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) down: Option<WayReport>,
}

/// One way of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WayReport {
    pub(crate) bytes: u64,
    /// The share of the time in which something goes over it.
    pub(crate) use_share: f64,
}

/// How a run came through what befell its servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FailoverReport {
    takeovers: u64,
    /// How often a server went on without its standby.
    alone: u64,
    failures: Vec<FailureReport>,
    /// Pushes that a worker was told are accepted.
    acknowledged: u64,
    /// Of these, such as whoever leads at the end has never heard of; all, if nobody does.
    lost: u64,
    /// Updates that a worker has seen and whoever leads at the end has not made.
    updates_lost: u64,
    /// Pushes that became part of an update more than once.
    repeated: u64,
    /// To the machine of the server from that of its standby.
    up_bytes: u64,
    down_bytes: u64,
}

/// Something that befell a server that led or had a standby, or the standby of one.
#[derive(Clone, Debug, Serialize)]
struct FailureReport {
    at_s: f64,
    /// The time from then to the first update by whoever led after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed_s: Option<f64>,
}

impl FailoverReport {
    fn of(failover: &Failover) -> Self {
        let failure = |failure: &Failure| FailureReport {
            at_s: failure.at.as_secs_f64(),
            resumed_s: failure.resumed.map(|span| span.as_secs_f64()),
        };
        Self {
            takeovers: failover.takeovers,
            alone: failover.alone,
            failures: failover.failures.iter().map(failure).collect(),
            acknowledged: failover.acknowledged,
            lost: failover.lost,
            updates_lost: failover.updates_lost,
            repeated: failover.repeated,
            up_bytes: failover.up_bytes,
            down_bytes: failover.down_bytes,
        }
    }
}

impl ServerLinkReport {
    fn of(outcome: &Outcome) -> Option<Self> {
        let way = |usage: &Option<LinkUsage>| {
            let usage = usage.as_ref()?;
            let share = usage.busy.as_secs_f64() / outcome.ended.as_secs_f64();
            Some(WayReport { bytes: usage.bytes, use_share: share })
        };
        let report = Self { up: way(&outcome.shared_up), down: way(&outcome.shared_down) };
        (report.up.is_some() || report.down.is_some()).then_some(report)
    }
}

impl VirtualReport {
    pub(crate) fn of(outcome: &Outcome, run: &Virtual) -> Self {
        Self {
            trace_sha256: hexadecimal(&outcome.trace),
            virtual_time_s: outcome.ended.as_secs_f64(),
            events: outcome.events,
            server_link: ServerLinkReport::of(outcome),
            failover: outcome.failover.as_ref().map(FailoverReport::of),
            is_leaderless: outcome.reason.is_none(),
            measured_s: run.measured.map(|time| time.as_secs_f64()),
            job_sha256: run.job_sha256.clone(),
        }
    }
}

impl Virtual {
    /// Reads the data, measures what is to be measured.
    pub(crate) fn resolve(layers: &Layers, data: &DataCache) -> anyhow::Result<Self> {
        let scenario = layers.scenario()?;
        let cache = data;
        let Resolved { mut job, data } =
            layers.resolve_with(|source, settings| cache.prepare(source, settings))?;
        let job_sha256 = hexadecimal(&job_digest(&job));
        let weight = fitted(&mut job, &scenario)?;
        let measured = (0..job.membership.workers)
            .filter_map(|worker| scenario.compute.of(WorkerId(worker)))
            .any(|spec| spec.needs_measurement())
            .then(|| cache.measured(&job, data.partition(WorkerId(0))))
            .transpose()?;
        Ok(Self { job, data: Arc::new(data), scenario, measured, weight, job_sha256 })
    }

    /// A server for the job.
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        Ok(Server::new(self.job.clone(), self.job.seed)?)
    }

    /// Runs the job, or as far as it comes until `stop` is raised; `report` hears everything.
    pub(crate) fn run(
        &self,
        server: Server,
        stop: &AtomicBool,
        report: impl FnMut(Time, Origin, Event),
    ) -> anyhow::Result<Outcome> {
        let data = &*self.data;
        let loader = |order: &Prepare| {
            let parts = data.partitions(&order.parts());
            Ok((parts, data.fingerprint.clone()))
        };
        let model = Model::new(&self.job.model, self.job.data.shape)?;
        let partition = |part: PartId| data.partition(part);
        let mut host = Laboratory::new(loader, model, &data.evaluation, partition, report);
        let setup = Setup {
            server,
            scenario: &self.scenario,
            stream: Scenario::stream(self.job.seed),
            measured: self.measured,
            weight: self.weight,
            stop,
        };
        Ok(simulation::simulate(setup, &mut host)?)
    }
}

/// Checks that a job can run in virtual time. A model of times alone becomes a small one; its real
/// size, which is returned, is a number and no memory.
pub(crate) fn fitted(job: &mut Job, scenario: &Scenario) -> anyhow::Result<Option<u64>> {
    SimulationError::check(scenario, job.membership.workers)?;
    scenario.check_servers(job.servers)?;
    Model::new(&job.model, job.data.shape)?;
    Ok(match &mut job.model {
        ModelSpec::Timing { .. } if job.servers > 1 => bail!(
            "servers = {}: a model of times alone has no parameters to share out; use another \
             model, or one server",
            job.servers
        ),
        ModelSpec::Timing { .. } if scenario.links.standby().is_some() => bail!(
            "link = standby.*: a model of times alone has nothing that a standby could keep; use \
             another model, or no standby"
        ),
        ModelSpec::Timing { layers } => {
            let parameters: u64 = layers.iter().map(|&layer| u64::from(layer)).sum();
            *layers = vec![1];
            Some(parameters * size_of::<f32>() as u64)
        }
        _ => None,
    })
}

/// How long a mini-batch of the job takes on this machine: the median of many.
fn measure(job: &Job, examples: Examples) -> anyhow::Result<Duration> {
    const TIMES: u64 = 201;
    let model = Model::new(&job.model, job.data.shape)?;
    let params = model.initial(Stream::new(job.seed));
    let worker = WorkerId(0);
    let mut trainer = Trainer::new(model, examples, Stream::new(job.seed), worker, job.batch_size)?;
    let clock = WallClock::start();
    let mut gradient = Vec::new();
    let mut times: Vec<Duration> = (0..TIMES)
        .map(|batch| {
            let begin = clock.now();
            trainer.compute(Task::own(worker, BatchId(batch)), &params, &mut gradient);
            clock.now() - begin
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("nothing was measured")
}
