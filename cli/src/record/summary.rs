//! Totals of a run, from its events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::Version;
#[cfg(feature = "pictures")]
use pstrain_compute::id::WorkerId;
use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;
use pstrain_policy::job::{Job, Keep, Stopping};
use pstrain_roles::node::{Event, ExactPoint, Point};
use pstrain_wire::TimeSpent;
use pstrain_wire::group::Exchanged;
use pstrain_wire::worker::EndReason;
use serde::{Deserialize, Serialize};

use super::age::Age;
use super::departures::Departures;
use super::energy::WorkSoFar;
use super::gaps::Gaps;
use super::report::{Staleness, ratio};
use super::workers::{PushTimes, Seen, WorkerTimes};

/// Running totals. Every event costs a few additions.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(super) workers: Vec<WorkerTotals>,
    workers_side: Arc<WorkerTimes>,
    pub(super) point: Option<Point>,
    pub(crate) evaluated: Option<(Point, Evaluation)>,
    /// The best evaluation, if its parameters are the run's model.
    pub(super) best: Option<(Point, Evaluation)>,
    /// The target of the job, and which parameters are kept.
    pub(super) stopping: Stopping,
    /// A server gives mini-batches out.
    has_server: bool,
    /// Number of applied gradients by staleness.
    staleness: BTreeMap<u64, u64>,
    /// When training began.
    pub(super) started: Option<Time>,
    pub(super) first_update: Option<Time>,
    pub(super) reason: Option<EndReason>,
    /// The share of the time in which threads of this process waited for a processor.
    pub(super) processor_wait: Option<f64>,
    /// Workers that departed before the end.
    pub(super) departures: Departures,
    /// The first parameters whose evaluation reached the target.
    pub(super) reached: Option<Point>,
    /// The work of each worker until then.
    pub(super) until_reached: Option<Vec<WorkSoFar>>,
    /// Updates that the totals do not include.
    pub(super) missing: Gaps,
}

/// Running totals as a checkpoint stores them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptSummary {
    workers: Vec<WorkerTotals>,
    point: Option<ExactPoint>,
    evaluated: Option<(ExactPoint, Evaluation)>,
    best: Option<(ExactPoint, Evaluation)>,
    staleness: BTreeMap<u64, u64>,
    started: Option<Time>,
    first_update: Option<Time>,
    reason: Option<EndReason>,
    departures: Departures,
    reached: Option<ExactPoint>,
    until_reached: Option<Vec<WorkSoFar>>,
    missing: Gaps,
}

/// Totals of one worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct WorkerTotals {
    pub(super) name: String,
    /// Examples in its partition, once it has reported them.
    pub(super) rows: Option<u64>,
    pub(super) updates: u64,
    pub(super) samples: u64,
    pub(super) staleness: u64,
    pub(super) compute: Duration,
    /// Gradients that were called off while it computed them, and the part of `compute` for them.
    pub(super) called_off: (u64, Duration),
    /// Sum over mini-batches, as are `ways` and `wait`. The times of mini-batches that are under
    /// way at once overlap.
    pub(super) communicate: Duration,
    /// The two directions of `communicate`, if every push was observed on both sides.
    pub(super) ways: Ways,
    pub(super) wait: Duration,
    /// Elapsed time from its first parameters to its last gradient while the server ran, without
    /// its absences. Its parts do not overlap, however many mini-batches are under way at once.
    pub(super) spent: TimeSpent,
    pub(super) age: Age,
    /// Bytes that it exchanged with this server.
    pub(super) exchanged: Exchanged,
    /// Bytes of its values that went to other workers by way of the meeting point.
    pub(super) relayed: u64,
}

/// Time on the way from worker to server and back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ways {
    pub(super) up: Duration,
    pub(super) down: Duration,
    pub(super) seen: u64,
    pub(super) unseen: u64,
}

impl WorkerTotals {
    /// Counts an event of the worker.
    fn note(&mut self, now: Time, event: &Event, times: Option<PushTimes>) {
        match event {
            Event::Joined { name, .. } => self.name.clone_from(name),
            Event::Ready { rows, .. } => self.rows = Some(*rows),
            Event::Granted { waited, .. } => self.wait += *waited,
            Event::Keyed { bytes, .. } => self.exchanged.keyed += *bytes,
            Event::Given { bytes, .. } => self.exchanged.given += *bytes,
            Event::Relayed { bytes, .. } => self.relayed += *bytes,
            Event::Pushed { compute, bytes, unfiltered, spent, .. } => {
                self.exchanged.pushed += *bytes;
                self.exchanged.unfiltered += *unfiltered;
                self.spent += *spent;
                times.into_iter().for_each(|times| self.pushed(times, *compute));
            }
            Event::CalledOff { compute, spent, .. } => {
                self.spent += *spent;
                self.compute += *compute;
                self.called_off.0 += 1;
                self.called_off.1 += *compute;
            }
            Event::Applied { staleness, samples, age, .. } => {
                self.updates += 1;
                self.samples += u64::from(*samples);
                self.staleness += *staleness;
                self.age.applied(now, *age);
            }
            _ => {}
        }
    }

    /// Counts a push whose worker says how long it computed.
    fn pushed(&mut self, PushTimes { granted, came, seen }: PushTimes, measured: Duration) {
        let turnaround = came.since(granted);
        let Some(Seen { received, sent }) = seen else {
            self.compute += measured;
            self.communicate += turnaround.saturating_sub(measured);
            self.ways.unseen += 1;
            return;
        };
        let (compute, up) = (sent.since(received), came.since(sent));
        let communicate = turnaround.saturating_sub(compute);
        self.compute += compute;
        self.communicate += communicate;
        self.ways.up += up;
        self.ways.down += communicate.saturating_sub(up);
        self.ways.seen += 1;
    }
}

impl Summary {
    /// Creates empty totals.
    pub(crate) fn new(job: &Job) -> Self {
        let workers = job.membership.workers as usize;
        // A later mode may have a larger window, but the maximum of cells for each of many workers
        // would take much memory.
        let each = if job.mode.window() > 1 { MOST_IN_FLIGHT as usize } else { 1 };
        Self {
            workers: vec![WorkerTotals::default(); workers],
            workers_side: Arc::new(WorkerTimes::new(workers, each)),
            point: None,
            evaluated: None,
            best: None,
            stopping: job.stopping.clone(),
            has_server: job.architecture.has_server(),
            staleness: BTreeMap::new(),
            started: None,
            first_update: None,
            reason: None,
            processor_wait: None,
            departures: Departures::default(),
            reached: None,
            until_reached: None,
            missing: Gaps::default(),
        }
    }

    /// Returns the totals so far, for a checkpoint.
    pub(super) fn keep(&self) -> KeptSummary {
        KeptSummary {
            workers: self.workers.clone(),
            point: self.point.map(ExactPoint::from),
            evaluated: self.evaluated.clone().map(|(point, found)| (point.into(), found)),
            best: self.best.clone().map(|(point, found)| (point.into(), found)),
            staleness: self.staleness.clone(),
            started: self.started,
            first_update: self.first_update,
            reason: self.reason,
            departures: self.departures.clone(),
            reached: self.reached.map(ExactPoint::from),
            until_reached: self.until_reached.clone(),
            missing: self.missing.clone(),
        }
    }

    /// Restores totals of the same job from a checkpoint.
    pub(super) fn go_on(&mut self, kept: KeptSummary) {
        self.missing = kept.missing;
        self.workers = kept.workers;
        self.point = kept.point.map(Point::from);
        self.evaluated = kept.evaluated.map(|(point, evaluation)| (point.into(), evaluation));
        self.best = kept.best.map(|(point, evaluation)| (point.into(), evaluation));
        (self.staleness, self.reason) = (kept.staleness, kept.reason);
        self.departures = kept.departures;
        self.reached = kept.reached.map(Point::from);
        self.until_reached = kept.until_reached;
        (self.started, self.first_update) = (kept.started, kept.first_update);
    }

    /// Returns the observations of the workers, which their own threads write.
    pub(super) fn workers_side(&self) -> Arc<WorkerTimes> {
        Arc::clone(&self.workers_side)
    }

    #[cfg(feature = "pictures")]
    /// Records when a worker, whose clock is the server's, received or sent.
    pub(crate) fn note_worker(&self, now: Time, worker: WorkerId, event: &Event) {
        self.workers_side.note(now, worker, event);
    }

    /// Counts an event of the server; for a push, returns its times. `now` is the time since the
    /// command began, or the virtual time.
    pub(crate) fn note(&mut self, now: Time, event: &Event) -> Option<PushTimes> {
        let times = self.push_times(now, event);
        match event {
            Event::Following { version } => self.followed(*version),
            Event::Started { .. } => {
                self.started.get_or_insert(now);
                self.workers.iter_mut().for_each(|totals| totals.age.begun(now));
            }
            Event::Joined { worker, .. }
            | Event::Ready { worker, .. }
            | Event::Granted { worker, .. }
            | Event::Keyed { worker, .. }
            | Event::Given { worker, .. }
            | Event::Relayed { worker, .. }
            | Event::Pushed { worker, .. }
            | Event::CalledOff { worker, .. }
            | Event::Applied { worker, .. } => {
                if let Event::Applied { staleness, .. } = event {
                    *self.staleness.entry(*staleness).or_default() += 1;
                }
                if let Some(totals) = self.workers.get_mut(worker.0 as usize) {
                    totals.note(now, event, times);
                }
            }
            Event::Updated { point, .. } => {
                if self.missing.stretches().is_empty() {
                    self.first_update.get_or_insert(now);
                }
                self.has(*point);
            }
            Event::Restored { point, .. } => self.has(*point),
            Event::Evaluated { point, evaluation } => {
                if self.stopping.target.as_ref().is_some_and(|goal| goal.is_reached(evaluation))
                    && self.reached.is_none()
                {
                    self.reached = Some(*point);
                    self.until_reached = Some(self.workers.iter().map(WorkSoFar::from).collect());
                }
                self.evaluated = Some((*point, evaluation.clone()));
                // The parameters are the run's model until there are better ones.
                let best = self.best.as_ref().and_then(|(_, best)| self.stopping.watched(best));
                if self.stopping.keep == Keep::Best
                    && self.stopping.better(evaluation, best).is_some()
                {
                    self.best = Some((*point, evaluation.clone()));
                }
            }
            // At its end every worker leaves.
            Event::Departed { .. } if self.reason.is_none() => self.departures.note(now, event),
            Event::Ended { reason } => {
                self.reason = Some(*reason);
                for totals in &mut self.workers {
                    totals.age.ended(now);
                }
            }
            _ => {}
        }
        times
    }

    fn push_times(&self, now: Time, event: &Event) -> Option<PushTimes> {
        let Event::Pushed { worker, sequence, turnaround, ago, .. } = event else { return None };
        let came = Time::ZERO + now.since(Time::ZERO + *ago);
        let seen = self.workers_side.of(*worker, *sequence);
        let granted = match seen {
            // No parameters were on their way to the worker.
            Some(seen) if !self.has_server => seen.received,
            _ => Time::ZERO + came.since(Time::ZERO + *turnaround),
        };
        Some(PushTimes { granted, came, seen })
    }

    fn has(&mut self, point: Point) {
        self.point = Some(point);
        self.missing.has(point.version);
    }

    /// Notes that the server has just received the state of its primary and observes updates from
    /// that state on.
    fn followed(&mut self, version: Option<Version>) {
        self.workers.iter_mut().for_each(|totals| totals.age.forget());
        if version.is_some_and(|version| self.missing.goes_on_from(version)) {
            self.point = None;
        }
    }

    /// Returns the staleness of the gradients applied so far.
    pub(crate) fn staleness(&self) -> Staleness {
        let count: u64 = self.staleness.values().sum();
        let sum: u64 = self.staleness.iter().map(|(staleness, times)| staleness * times).sum();
        let quantile = |share: f64| {
            let mut below = 0;
            let reached = self.staleness.iter().find(|(_, times)| {
                below += **times;
                below as f64 >= share * count as f64
            });
            reached.map_or(0, |(staleness, _)| *staleness)
        };
        Staleness {
            mean: ratio(sum as f64, count as f64),
            median: quantile(0.5),
            p99: quantile(0.99),
            max: self.staleness.keys().next_back().copied().unwrap_or(0),
        }
    }

    #[cfg(feature = "pictures")]
    /// Returns the number of applied gradients by staleness.
    pub(crate) const fn staleness_histogram(&self) -> &BTreeMap<u64, u64> {
        &self.staleness
    }

    /// Returns the share of the workers' time spent waiting for the server to send parameters.
    pub(crate) fn wait_share(&self) -> f64 {
        let spent = self.workers.iter().fold(TimeSpent::default(), |sum, it| sum + it.spent);
        ratio(spent.barrier.as_secs_f64(), spent.total().as_secs_f64())
    }
}
