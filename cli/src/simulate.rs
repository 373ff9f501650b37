//! A run in virtual time, from settings to outcome. Shared by commands and experiments.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use pstrain_compute::id::{BatchId, PartId, WorkerId};
use pstrain_compute::model::ModelSpec;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_data::{Dataset, Encoded, Prepared, Settings};
use pstrain_policy::job::{Exchange, InitialFrom, Job};
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Event, Meeting, Prepare, Server};
use pstrain_transports::WallClock;
use pstrain_transports::scenario::Scenario;
use pstrain_transports::simulation::{
    self, Failover, Failure, LinkUsage, Origin, Outcome, PeerSetup, Setup, SimulationError,
    SiteTraffic, TrainingHost,
};
use pstrain_wire::job_digest;
use serde::Serialize;

use crate::digest::hexadecimal;
use crate::job::{Layers, Resolved};
use crate::process::Arithmetic;

/// Encoded files and measured computing times, shared by the runs of one process.
#[derive(Debug, Default)]
pub(crate) struct DataCache {
    files: Mutex<BTreeMap<String, Arc<Encoded>>>,
    measured: Mutex<BTreeMap<String, Duration>>,
}

impl DataCache {
    /// Prepares data for the settings; reads the source on first use.
    pub(crate) fn prepare(
        &self,
        source: &dyn Dataset,
        settings: &Settings,
    ) -> Result<Prepared, pstrain_data::DataError> {
        let Settings { features, evaluation_data, .. } = settings;
        let key = format!("{source:?} {features:?} {evaluation_data:?}");
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

    /// Returns the computing time of a mini-batch of the job on this machine. The lock is held
    /// during the measurement, so that equal jobs of one process use the same number.
    fn measured(
        &self,
        job: &Job,
        data: &Prepared,
        arithmetic: &Arithmetic,
    ) -> anyhow::Result<Duration> {
        let Job { model, batch_size, .. } = job;
        let key = format!("{model:?} {:?} {batch_size} {arithmetic:?}", job.data.shape);
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(time) = measured.get(&key) {
            return Ok(*time);
        }
        let parts = data.partitions(&job.parts_of(WorkerId(0)));
        let time = measure(job, arithmetic.trainer(job, WorkerId(0), parts)?)?;
        measured.insert(key, time);
        Ok(time)
    }
}

/// A job that is ready to run in virtual time.
#[derive(Debug)]
pub(crate) struct Virtual {
    pub(crate) job: Job,
    pub(crate) data: Arc<Prepared>,
    pub(crate) arithmetic: Arithmetic,
    /// The initial parameters, if a file has them.
    initial: Option<Arc<Vec<f32>>>,
    scenario: Scenario,
    pub(crate) measured: Option<Duration>,
    weight: Option<u64>,
    job_sha256: String,
}

/// Results of a run that only virtual time has.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VirtualReport {
    /// Digest of the trace: equal for runs in which the same events happened at the same times.
    pub(crate) trace_sha256: String,
    /// From the server's start to its end.
    pub(crate) virtual_time_s: f64,
    /// Number of simulated events.
    pub(crate) events: u64,
    /// The link at the server that all workers share, if it has a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_link: Option<ServerLinkReport>,
    /// The links of sites, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) site_links: Vec<SiteLinkReport>,
    /// The measured computing time of a mini-batch, if the scenario needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_s: Option<f64>,
    /// Failures and takeovers, if there is a standby or a fault of a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failover: Option<FailoverReport>,
    /// True if no server was left to lead before the run ended.
    #[serde(skip)]
    pub(crate) is_leaderless: bool,
    /// Digest of the job as given, before [`fitted`] shrinks a timing model.
    #[serde(skip)]
    pub(crate) job_sha256: String,
}

/// Traffic on the link at the server that all workers share.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerLinkReport {
    /// From the workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) up: Option<WayReport>,
    /// To the workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) down: Option<WayReport>,
}

/// Traffic in one direction.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WayReport {
    /// Bytes that it carried.
    pub(crate) bytes: u64,
    /// The share of the time in which the link is busy.
    pub(crate) use_share: f64,
}

/// Traffic on the link between a site and the outside.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SiteLinkReport {
    /// The site.
    pub(crate) site: u32,
    /// Bytes from the site, with frames and headers.
    pub(crate) up_bytes: u64,
    /// Bytes to the site.
    pub(crate) down_bytes: u64,
}

impl SiteLinkReport {
    const fn of(traffic: &SiteTraffic) -> Self {
        let SiteTraffic { site, up_bytes, down_bytes } = *traffic;
        Self { site: site + 1, up_bytes, down_bytes }
    }
}

/// Failures of servers in a run, and their effects.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FailoverReport {
    /// How often a standby took over.
    takeovers: u64,
    /// How often a primary lost its standby and continued alone.
    alone: u64,
    /// The failures, in their order.
    failures: Vec<FailureReport>,
    /// Pushes whose acceptance a worker was notified of.
    acknowledged: u64,
    /// Acknowledged pushes that the final leader does not have; all, if no server leads.
    lost: u64,
    /// Updates that a worker has received and the final leader has not made.
    updates_lost: u64,
    /// Pushes that were applied more than once.
    repeated: u64,
    /// Bytes from the standby's machine to the primary's.
    pub(crate) up_bytes: u64,
    /// Bytes from the primary's machine to the standby's.
    pub(crate) down_bytes: u64,
}

/// A failure of a server that led or had a standby, or of a standby.
#[derive(Clone, Debug, Serialize)]
struct FailureReport {
    /// When it was, in virtual time.
    at_s: f64,
    /// The time from the failure to the first update of the next leader.
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
            site_links: outcome.sites.iter().map(SiteLinkReport::of).collect(),
            failover: outcome.failover.as_ref().map(FailoverReport::of),
            is_leaderless: outcome.reason.is_none(),
            measured_s: run.measured.map(|time| time.as_secs_f64()),
            job_sha256: run.job_sha256.clone(),
        }
    }
}

impl Virtual {
    /// Reads the data and measures computing times that the scenario leaves open.
    pub(crate) fn resolve(layers: &Layers, data: &DataCache) -> anyhow::Result<Self> {
        let scenario = layers.scenario()?;
        layers.check_virtual_energy()?;
        let cache = data;
        let Resolved { mut job, data, arithmetic } =
            layers.resolve_with(|source, settings| cache.prepare(source, settings))?;
        // Before `fitted`, which shrinks a timing model.
        let job_sha256 = hexadecimal(&job_digest(&job));
        let weight = fitted(&mut job, &scenario)?;
        let measured = (0..job.membership.workers)
            .filter_map(|worker| scenario.compute.of(WorkerId(worker)))
            .any(|spec| spec.needs_measurement())
            .then(|| cache.measured(&job, &data, &arithmetic))
            .transpose()?;
        let data = Arc::new(data);
        let initial = layers.initial(&job)?;
        Ok(Self { job, data, arithmetic, initial, scenario, measured, weight, job_sha256 })
    }

    /// Runs the job to its end or until `stop` is raised; `report` receives every event.
    pub(crate) fn run(
        &self,
        stop: &AtomicBool,
        mut report: impl FnMut(Time, Origin, Event),
    ) -> anyhow::Result<Outcome> {
        let data = &*self.data;
        let loader = |order: &Prepare| {
            let parts = data.partitions(&order.parts());
            self.arithmetic.load(order, (parts, data.fingerprint.clone()))
        };
        let partition = |part: PartId| data.partition(part);
        let evaluation = self.arithmetic.evaluation(&self.job, &data.evaluation)?;
        let report = |now, origin, event| report(now, origin, self.in_real_size(event));
        let mut host = TrainingHost::new(loader, evaluation, partition, report);
        let (job, run) = (self.job.clone(), self.job.seed);
        if !job.architecture.has_server() {
            let setup = PeerSetup {
                meeting: Meeting::new(job, run)?,
                scenario: &self.scenario,
                stream: Scenario::stream(self.job.seed),
                measured: self.measured,
                initial: self.initial.clone(),
                stop,
            };
            return Ok(simulation::simulate_peers(setup, &mut host)?);
        }
        let setup = Setup {
            server: Server::new(job, run)?,
            scenario: &self.scenario,
            stream: Scenario::stream(self.job.seed),
            measured: self.measured,
            weight: self.weight,
            initial: self.initial.clone(),
            stop,
        };
        Ok(simulation::simulate(setup, &mut host)?)
    }

    /// An event of a timing model with the bytes that its messages have.
    const fn in_real_size(&self, mut event: Event) -> Event {
        let Some(weight) = self.weight else { return event };
        match &mut event {
            Event::Pushed { bytes, unfiltered, .. } => (*bytes, *unfiltered) = (weight, weight),
            Event::Given { bytes, .. } if *bytes > 0 => *bytes = weight,
            _ => {}
        }
        event
    }
}

/// Checks that a job can run in virtual time. A timing model shrinks to one parameter; returns its
/// real size in bytes, a number that needs no memory.
pub(crate) fn fitted(job: &mut Job, scenario: &Scenario) -> anyhow::Result<Option<u64>> {
    SimulationError::check(scenario, &job.membership)?;
    scenario.check_servers(job.servers)?;
    job.build_model()?;
    if !job.architecture.has_server() {
        scenario
            .check_meeting()
            .map_err(|why| anyhow!("architecture = {}: {why}", job.architecture))?;
    }
    Ok(match &mut job.model {
        // Sums and ranges are of zeros: their messages have the real size.
        ModelSpec::Timing { .. }
            if !job.architecture.has_server() || job.exchange == Exchange::Layers =>
        {
            None
        }
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

/// Measures a mini-batch of the job on this machine: the median of many.
fn measure(job: &Job, mut trainer: Trainer) -> anyhow::Result<Duration> {
    const TIMES: u64 = 201;
    let model = job.build_model()?;
    let initial = match job.initial {
        InitialFrom::Seed | InitialFrom::Server => None,
        InitialFrom::Worker => trainer.initial()?,
    };
    let params = initial.unwrap_or_else(|| model.initial(Stream::new(job.seed)));
    let params = trainer.keys().map_or_else(|| params.clone(), |keys| keys.gather(&params));
    let worker = WorkerId(0);
    let clock = WallClock::start();
    let mut gradient = Vec::new();
    let mut times = (0..TIMES)
        .map(|batch| {
            let begin = clock.now();
            trainer.compute(Task::own(worker, BatchId(batch)), &params, &mut gradient)?;
            Ok(clock.now() - begin)
        })
        .collect::<anyhow::Result<Vec<Duration>>>()?;
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("nothing was measured")
}
