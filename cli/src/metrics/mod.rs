//! Metrics of a run for Prometheus: counters fed by the server's events, served as text over HTTP.
//!
//! Only the server's thread writes the metrics. Scrapes are answered on a thread of their own and
//! do not delay training.

mod http;
mod journal;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::WorkerId;
use pstrain_roles::node::{Event, Point};
use pstrain_transports::Traffic;
use pstrain_wire::TimeSpent;

pub(crate) use journal::TimedJournal;

type Seconds = Counter<f64, AtomicU64>;
type Share = Gauge<f64, AtomicU64>;
type Staleness = Family<ByWorker, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWorker {
    /// Counted from 1, as in messages.
    worker: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    worker: u64,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByName {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPhase {
    phase: &'static str,
}

/// The phases that events announce.
const PHASES: [&str; 4] = ["gathering", "training", "short_of_workers", "ending"];

/// The metrics of a run.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Mutex<Registry>>,
    updates: Counter,
    samples: Counter,
    version: Gauge,
    loss: Share,
    evaluation_loss: Share,
    accuracy: Share,
    evaluation: Family<ByName, Share>,
    phase: Family<ByPhase, Gauge>,
    members: Gauge,
    present: Arc<Mutex<BTreeSet<WorkerId>>>,
    pushes: Family<ByWorker, Counter>,
    dropped: Family<ByReason, Counter>,
    stopped: Family<ByWorker, Counter>,
    staleness: Staleness,
    compute: Family<ByWorker, Seconds>,
    called_off: Family<ByWorker, Seconds>,
    network: Family<ByWorker, Seconds>,
    barrier: Family<ByWorker, Seconds>,
    commits: Histogram,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("updates", &self.updates).finish_non_exhaustive()
    }
}

fn staleness() -> Histogram {
    Histogram::new([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
}

impl Metrics {
    /// Creates the metrics of a run that has not begun. With `durable` the commit times of its log
    /// are included.
    pub(crate) fn new(durable: bool) -> Self {
        let metrics = Self {
            registry: Arc::default(),
            updates: Counter::default(),
            samples: Counter::default(),
            version: Gauge::default(),
            loss: Share::default(),
            evaluation_loss: Share::default(),
            accuracy: Share::default(),
            evaluation: Family::default(),
            phase: Family::default(),
            members: Gauge::default(),
            present: Arc::default(),
            pushes: Family::default(),
            dropped: Family::default(),
            stopped: Family::default(),
            staleness: Family::new_with_constructor(staleness),
            compute: Family::default(),
            called_off: Family::default(),
            network: Family::default(),
            barrier: Family::default(),
            // From 50 us to 1.6 s: the range of an fsync on usual disks.
            commits: Histogram::new(exponential_buckets(5e-5, 2.0, 16)),
        };
        metrics.register(durable);
        metrics.enter("gathering");
        metrics
    }

    fn register(&self, durable: bool) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let all = registry.sub_registry_with_prefix("pstrain");
        all.register("updates", "Updates applied", self.updates.clone());
        all.register("samples", "Examples applied", self.samples.clone());
        all.register("version", "Version of the parameters", self.version.clone());
        all.register("minibatch_loss", "Mean loss of the last mini-batch", self.loss.clone());
        let help = "Mean loss on the held-out data";
        all.register("evaluation_loss", help, self.evaluation_loss.clone());
        let help = "Share of the held-out data that is classified right";
        all.register("evaluation_accuracy_ratio", help, self.accuracy.clone());
        let help = "Metrics of the task on the held-out data";
        all.register("evaluation_metric", help, self.evaluation.clone());
        all.register("phase", "1 for the phase that the run is in", self.phase.clone());
        all.register("members", "Workers that have a place in the run", self.members.clone());
        all.register("worker_pushes", "Gradients that came", self.pushes.clone());
        all.register("worker_dropped", "Gradients that were thrown away", self.dropped.clone());
        let help = "Gradients that were called off while the worker computed them";
        all.register("worker_called_off", help, self.stopped.clone());
        let help = "Updates that an applied gradient had missed";
        all.register("worker_staleness_updates", help, self.staleness.clone());
        for (name, help, seconds) in [
            ("worker_compute", "Time that a worker computed", &self.compute),
            (
                "worker_compute_called_off",
                "The part of it for gradients that were called off",
                &self.called_off,
            ),
            ("worker_network", "Time that its messages were under way", &self.network),
            ("worker_barrier", "Time that it was given no parameters", &self.barrier),
        ] {
            all.register_with_unit(name, help, Unit::Seconds, seconds.clone());
        }
        if durable {
            let help = "Time until the inputs of the server were on the disk";
            all.register_with_unit("log_commit", help, Unit::Seconds, self.commits.clone());
        }
    }

    /// Adds the bytes of all connections.
    pub(crate) fn count(&self, traffic: Arc<Traffic>) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(Bytes(traffic)));
    }

    /// Starts to serve the metrics at `address`; returns the bound address.
    pub(crate) fn serve(&self, address: &str) -> anyhow::Result<SocketAddr> {
        let registry = Arc::clone(&self.registry);
        http::serve(address, move || {
            let mut text = String::new();
            let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
            // Writing to a string cannot fail.
            encode(&mut text, &registry).unwrap_or_default();
            text
        })
    }

    /// Returns the histogram of the log's commit times.
    pub(crate) fn commits(&self) -> Histogram {
        self.commits.clone()
    }

    fn enter(&self, phase: &str) {
        for name in PHASES {
            let is_so = i64::from(name == phase);
            self.phase.get_or_create(&ByPhase { phase: name }).set(is_so);
        }
    }

    fn advance(&self, point: &Point) {
        self.updates.inc();
        self.samples.inc_by(point.samples.saturating_sub(self.samples.get()));
        self.version.set(point.version.0 as i64);
    }

    fn attend(&self, worker: WorkerId, is_there: bool) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if is_there {
            present.insert(worker);
        } else {
            present.remove(&worker);
        }
        self.members.set(present.len() as i64);
    }

    fn spend(&self, worker: &ByWorker, spent: &TimeSpent) {
        for (family, part) in [
            (&self.compute, spent.compute),
            (&self.network, spent.network),
            (&self.barrier, spent.barrier),
        ] {
            family.get_or_create(worker).inc_by(part.as_secs_f64());
        }
    }

    /// Updates the metrics for an event.
    pub(crate) fn note(&self, event: &Event) {
        match event {
            Event::Joined { worker, .. } => self.attend(*worker, true),
            Event::Departed { worker, .. } => self.attend(*worker, false),
            Event::Started { .. } | Event::Unpaused => self.enter("training"),
            Event::Paused { .. } => self.enter("short_of_workers"),
            Event::Ended { .. } => self.enter("ending"),
            Event::Updated { point, .. } | Event::Restored { point, .. } => self.advance(point),
            Event::Evaluated { evaluation, .. } if evaluation.examples > 0 => {
                self.evaluation_loss.set(evaluation.loss);
                for (name, value) in evaluation.named() {
                    if name == "accuracy" {
                        self.accuracy.set(value);
                    }
                    self.evaluation.get_or_create(&ByName { name }).set(value);
                }
            }
            Event::Pushed { worker, loss, spent, .. } => {
                let worker = by(*worker);
                self.loss.set(f64::from(*loss));
                self.pushes.get_or_create(&worker).inc();
                self.spend(&worker, spent);
            }
            Event::CalledOff { worker, spent, .. } => {
                let worker = by(*worker);
                self.stopped.get_or_create(&worker).inc();
                self.called_off.get_or_create(&worker).inc_by(spent.called_off.as_secs_f64());
                self.spend(&worker, spent);
            }
            Event::Dropped { worker, reason, .. } => {
                let ByWorker { worker } = by(*worker);
                let reason = match reason {
                    DropReason::Stale => "stale",
                    DropReason::Redundant => "redundant",
                    DropReason::NotFinite => "not-finite",
                    DropReason::Over => "over",
                };
                self.dropped.get_or_create(&ByReason { worker, reason }).inc();
            }
            Event::Applied { worker, staleness, .. } => {
                self.staleness.get_or_create(&by(*worker)).observe(*staleness as f64);
            }
            _ => {}
        }
    }
}

/// Returns the label of a worker.
fn by(worker: WorkerId) -> ByWorker {
    ByWorker { worker: u64::from(worker.0) + 1 }
}

#[derive(Debug)]
struct Bytes(Arc<Traffic>);

impl Collector for Bytes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, bytes) in [
            ("pstrain_received", "Bytes that came from workers and clients.", self.0.received()),
            ("pstrain_sent", "Bytes that went to workers and clients.", self.0.sent()),
        ] {
            let counter = ConstCounter::new(bytes);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, Some(&Unit::Bytes), kind)?)?;
        }
        Ok(())
    }
}
