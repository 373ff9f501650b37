//! Totals of a run, from its events.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_core::evaluation::Evaluation;
use pstrain_core::id::WorkerId;
use pstrain_core::node::{Event, Ledger, Point, Server};
use pstrain_core::protocol::message::EndReason;
use pstrain_core::time::Time;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::shaping::Shaping;
use crate::simulate::VirtualReport;

/// Running totals. Every event costs a few additions.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) workers: Vec<WorkerTotals>,
    pub(crate) point: Option<Point>,
    pub(crate) evaluated: Option<(Point, Evaluation)>,
    /// How many gradients were applied with each staleness.
    staleness: BTreeMap<u64, u64>,
    first_update: Option<Time>,
    reason: Option<EndReason>,
}

/// Totals of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerTotals {
    pub(crate) name: String,
    updates: u64,
    samples: u64,
    staleness: u64,
    compute: Duration,
    communicate: Duration,
    wait: Duration,
}

/// A run, as `--json` and summary.json have it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) job: String,
    /// The same for runs of the same job: every setting and the data.
    pub(crate) job_sha256: String,
    pub(crate) consistency: String,
    pub(crate) transport: String,
    pub(crate) ended: String,
    pub(crate) accuracy: Option<f64>,
    pub(crate) loss: Option<f64>,
    pub(crate) recall: BTreeMap<String, Option<f64>>,
    pub(crate) updates: u64,
    pub(crate) samples: u64,
    pub(crate) epochs: f64,
    /// Training time: first parameters given out to last update.
    pub(crate) time_s: f64,
    pub(crate) samples_per_s: f64,
    pub(crate) updates_per_s: f64,
    /// From the start of the command to the first update.
    pub(crate) first_update_s: Option<f64>,
    pub(crate) staleness: Staleness,
    pub(crate) batches: Ledger,
    pub(crate) params_sha256: String,
    pub(crate) peak_rss_mib: Option<f64>,
    pub(crate) workers: Vec<WorkerReport>,
    /// What only virtual time can say.
    #[serde(flatten)]
    pub(crate) virtual_time: Option<VirtualReport>,
    /// How well real time kept to what is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shaping: Option<Shaping>,
}

/// Version staleness of the applied gradients, in updates.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Staleness {
    pub(crate) mean: f64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

/// One worker of a [`Report`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkerReport {
    pub(crate) id: WorkerId,
    pub(crate) name: String,
    /// Updates that a gradient of this worker is part of.
    pub(crate) updates: u64,
    pub(crate) samples: u64,
    /// This worker's share of all gradients applied.
    pub(crate) share: f64,
    pub(crate) staleness_mean: f64,
    pub(crate) compute_s: f64,
    /// Parameters on their way down and gradients on their way up.
    pub(crate) communicate_s: f64,
    /// Time the server let it wait for parameters.
    pub(crate) wait_s: f64,
}

impl Summary {
    /// No totals yet, of a job with so many workers.
    pub(crate) fn new(workers: u32) -> Self {
        Self {
            workers: vec![WorkerTotals::default(); workers as usize],
            point: None,
            evaluated: None,
            staleness: BTreeMap::new(),
            first_update: None,
            reason: None,
        }
    }

    /// Counts an event of the server. `now` is the time since the command began, or the virtual
    /// time.
    pub(crate) fn note(&mut self, now: Time, event: &Event) {
        match event {
            Event::Joined { worker, name, .. } => {
                if let Some(totals) = self.workers.get_mut(worker.0 as usize) {
                    totals.name.clone_from(name);
                }
            }
            Event::Granted { worker, waited, .. } => {
                if let Some(totals) = self.workers.get_mut(worker.0 as usize) {
                    totals.wait += *waited;
                }
            }
            Event::Pushed { worker, turnaround, compute, .. } => {
                if let Some(totals) = self.workers.get_mut(worker.0 as usize) {
                    totals.compute += *compute;
                    totals.communicate += turnaround.saturating_sub(*compute);
                }
            }
            Event::Applied { worker, staleness, samples, .. } => {
                *self.staleness.entry(*staleness).or_default() += 1;
                if let Some(totals) = self.workers.get_mut(worker.0 as usize) {
                    totals.updates += 1;
                    totals.samples += u64::from(*samples);
                    totals.staleness += *staleness;
                }
            }
            Event::Updated { point } => {
                self.first_update.get_or_insert(now);
                self.point = Some(*point);
            }
            Event::Evaluated { point, evaluation } => {
                self.evaluated = Some((*point, evaluation.clone()));
            }
            Event::Ended { reason } => self.reason = Some(*reason),
            _ => {}
        }
    }

    /// The staleness of the gradients applied so far.
    pub(crate) fn staleness(&self) -> Staleness {
        let count: u64 = self.staleness.values().sum();
        let sum: u64 = self.staleness.iter().map(|(staleness, times)| staleness * times).sum();
        let mut below = 0;
        let p99 = self.staleness.iter().find(|(_, times)| {
            below += **times;
            below as f64 >= 0.99 * count as f64
        });
        Staleness {
            mean: ratio(sum as f64, count as f64),
            p99: p99.map_or(0, |(staleness, _)| *staleness),
            max: self.staleness.keys().next_back().copied().unwrap_or(0),
        }
    }

    /// How many gradients were applied with each staleness.
    pub(crate) const fn staleness_histogram(&self) -> &BTreeMap<u64, u64> {
        &self.staleness
    }

    /// The share of the workers' time that they waited for parameters.
    pub(crate) fn wait_share(&self) -> f64 {
        let sum = |part: fn(&WorkerTotals) -> Duration| -> f64 {
            self.workers.iter().map(|totals| part(totals).as_secs_f64()).sum()
        };
        let wait = sum(|totals| totals.wait);
        ratio(wait, wait + sum(|totals| totals.compute) + sum(|totals| totals.communicate))
    }

    /// The report of the whole run.
    pub(crate) fn report(&self, server: &Server, classes: &[&str], transport: &str) -> Report {
        let job = server.job();
        let evaluation = self.evaluated.as_ref().map(|(_, evaluation)| evaluation);
        let recall = evaluation.map(|evaluation| {
            classes.iter().map(|class| (*class).to_owned()).zip(evaluation.recall.clone()).collect()
        });
        let (updates, samples, epochs, time) = self.point.map_or((0, 0, 0.0, 0.0), |point| {
            (point.version.0, point.samples, point.epoch, point.time.as_secs_f64())
        });
        let all: u64 = self.workers.iter().map(|totals| totals.updates).sum();
        let workers = (0..).map(WorkerId).zip(&self.workers).map(|(id, totals)| WorkerReport {
            id,
            name: totals.name.clone(),
            updates: totals.updates,
            samples: totals.samples,
            share: ratio(totals.updates as f64, all as f64),
            staleness_mean: ratio(totals.staleness as f64, totals.updates as f64),
            compute_s: totals.compute.as_secs_f64(),
            communicate_s: totals.communicate.as_secs_f64(),
            wait_s: totals.wait.as_secs_f64(),
        });
        Report {
            job: job.name.clone(),
            job_sha256: hexadecimal(server.job_digest()),
            consistency: job.consistency.to_string(),
            transport: transport.to_owned(),
            ended: self.reason.map_or_else(String::new, |reason| reason.to_string()),
            accuracy: evaluation.map(Evaluation::accuracy).filter(|value| value.is_finite()),
            loss: evaluation.map(|evaluation| evaluation.loss).filter(|value| value.is_finite()),
            recall: recall.unwrap_or_default(),
            updates,
            samples,
            epochs,
            time_s: time,
            samples_per_s: ratio(samples as f64, time),
            updates_per_s: ratio(updates as f64, time),
            first_update_s: self.first_update.map(Time::as_secs_f64),
            staleness: self.staleness(),
            batches: server.ledger(),
            params_sha256: sha256(server.parameters()),
            peak_rss_mib: peak_rss_mib(),
            workers: workers.collect(),
            virtual_time: None,
            shaping: None,
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// SHA-256 of the values as little-endian `f32`, in hexadecimal.
pub(crate) fn sha256(values: &[f32]) -> String {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(value.to_le_bytes());
    }
    hexadecimal(&hash.finalize())
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The most memory this process has had so far, in MiB, where the system tells.
pub(crate) fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}
