//! The report of a run: the contents of `--json`, summary.json and the tables.

use std::fmt;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_data::Outline;
use pstrain_policy::job::Job;
use pstrain_roles::node::{Ledger, Point, Trained};
use pstrain_wire::group::Exchanged;
use pstrain_wire::job_digest;
use pstrain_wire::worker::EndReason;
use serde::{Serialize, Serializer};

use super::age::AgeOfInformation;
use super::departures::Departed;
use super::gaps::VersionRange;
use super::quality::Quality;
use super::shaping::Shaping;
use super::summary::{Summary, WorkerTotals};
use super::usage::{ProcessUsage, peak_rss_mib};
use crate::digest::{hexadecimal, sha256};
use crate::energy::EnergyReport;
use crate::simulate::VirtualReport;

/// Version and commit of the program, as results show it.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PSTRAIN_BUILD"), ")");

/// The report of a run, as in `--json` and summary.json.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Name of the job.
    pub(crate) job: String,
    /// Version and commit of the program that made it.
    pub(crate) pstrain: &'static str,
    /// Equal for runs of the same job: covers every setting, other than those of energy, and the
    /// data.
    pub(crate) job_sha256: String,
    /// The consistency that the job begins with.
    pub(crate) consistency: String,
    /// What messages travel over: `memory`, `unix`, `tcp` or `virtual`.
    pub(crate) transport: String,
    /// Why the run ended.
    pub(crate) ended: Ended,
    /// When the target of the job was reached, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<TargetReport>,
    /// The quality of the final parameters.
    #[serde(flatten)]
    pub(crate) quality: Quality,
    /// The loss with the penalty of `proximal = l1`; the loss if there is no proximal step.
    pub(crate) objective: Option<f64>,
    /// Parameters that are not 0.
    pub(crate) non_zeros: Option<u64>,
    /// Updates made.
    pub(crate) updates: u64,
    /// Examples of the applied gradients.
    pub(crate) samples: u64,
    /// The same in passes over the training rows.
    pub(crate) epochs: f64,
    /// Training time: from the first parameters sent, at `started_s`, to the last update.
    pub(crate) time_s: f64,
    /// `samples / time_s`.
    pub(crate) samples_per_s: f64,
    /// `updates / time_s`.
    pub(crate) updates_per_s: f64,
    /// From the start of the command to the first parameters sent.
    pub(crate) started_s: Option<f64>,
    /// From the start of the command to the first update.
    pub(crate) first_update_s: Option<f64>,
    /// Staleness of the applied gradients, in updates.
    pub(crate) staleness: Staleness,
    /// Age of information: the mean over all workers; for peaks, over the workers with a peak.
    pub(crate) age_of_information: AgeOfInformation,
    /// Jain's fairness index of the workers' shares: 1 if all are equal, 1/N if one worker has all.
    pub(crate) jain: Option<f64>,
    /// Bytes of all gradients on the wire, divided by their size without filters.
    pub(crate) bytes_ratio: Option<f64>,
    /// Where every mini-batch went: assigned = applied + discarded + lost + outstanding.
    pub(crate) batches: Ledger,
    /// The update that made the final parameters, if the run made later ones: the best were kept,
    /// or without a server later ones are lost with the workers, or were made after the evaluation
    /// that ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model_update: Option<u64>,
    /// SHA-256 of the final parameters. None if part of the parameters is lost; there is no
    /// evaluation then, either.
    pub(crate) params_sha256: Option<String>,
    /// Updates missing from the records and from all totals of workers: they were made before this
    /// server was a standby, or while it could not follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing_updates: Vec<VersionRange>,
    /// Files of the results folder that end before the run does: they reached their size limit, or
    /// little space on the disk was free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) full_files: Vec<&'static str>,
    /// Workers that departed before the run had ended, in order: the latest 1000.
    pub(crate) departures: Vec<Departed>,
    /// The share of the time, from 0 to 1, in which threads of this process had work to do and
    /// waited for a processor, if the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processor_wait: Option<f64>,
    /// Peak resident memory of this process in MiB.
    pub(crate) peak_rss_mib: Option<f64>,
    /// What this process took of its machine, if the system tells: of a run in one process, all
    /// workers and servers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<ProcessUsage>,
    /// The workers, by id.
    pub(crate) workers: Vec<WorkerReport>,
    /// Results that only virtual time has.
    #[serde(flatten)]
    pub(crate) virtual_time: Option<VirtualReport>,
    /// Accuracy of the modelled links and times in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shaping: Option<Shaping>,
    /// Energy, if the job has a power model or this machine measures energy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) energy: Option<EnergyReport>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its server ended it.
    For(EndReason),
    /// The process of the whole cluster stopped it because this worker failed.
    Without(WorkerId),
    /// Its servers were all gone before its end.
    Leaderless,
    /// The records have no end.
    Unknown,
}

impl Ended {
    /// Returns it in few words, without its cure.
    pub(crate) fn in_short(self) -> String {
        match self {
            Self::For(reason) => reason.in_short(),
            Self::Without(worker) => format!("worker {worker} failed"),
            Self::Leaderless | Self::Unknown => self.to_string(),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(reason) => reason.fmt(f),
            Self::Without(worker) => {
                write!(f, "worker {worker} failed, and the run could not go on without it")
            }
            Self::Leaderless => f.write_str("its server was gone, and no standby took over"),
            Self::Unknown => Ok(()),
        }
    }
}

impl Serialize for Ended {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The target of a job.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TargetReport {
    /// The metric and its value, such as `accuracy>=0.95`.
    pub(crate) goal: String,
    /// The first update whose evaluation reached it; none if no evaluation did.
    pub(crate) update: Option<u64>,
    /// Training time of that update.
    pub(crate) time_s: Option<f64>,
    /// Passes over the training rows until then.
    pub(crate) epochs: Option<f64>,
}

/// Version staleness of the applied gradients, in updates.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Staleness {
    /// The mean.
    pub(crate) mean: f64,
    /// The median.
    pub(crate) median: u64,
    /// The 99th percentile.
    pub(crate) p99: u64,
    /// The maximum.
    pub(crate) max: u64,
}

/// One worker of a [`Report`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkerReport {
    /// Its number, counted from 1.
    pub(crate) id: WorkerId,
    /// Its name.
    pub(crate) name: String,
    /// Updates that include a gradient of this worker.
    pub(crate) updates: u64,
    /// Examples of its applied gradients.
    pub(crate) samples: u64,
    /// This worker's share of all applied gradients.
    pub(crate) share: f64,
    /// Examples in its partition, if its `Ready` was recorded.
    pub(crate) rows: Option<u64>,
    /// This worker's share of all workers' examples, if all are known.
    pub(crate) data_share: Option<f64>,
    /// Mean staleness of its applied gradients, in updates.
    pub(crate) staleness_mean: f64,
    /// Elapsed time from its first parameters to its last gradient, or to the last call that
    /// stopped one, without its absences and
    /// without the time from the end of a server to its `--resume`:
    /// `compute_s + network_s + barrier_s`. Without a server it does not have the work of a worker
    /// between an update and its next gradient, which takes time outside virtual time alone.
    pub(crate) elapsed_s: f64,
    /// Time in which it computed gradients.
    pub(crate) compute_s: f64,
    /// Gradients that were called off while it computed them.
    pub(crate) called_off: u64,
    /// The part of `compute_s` for them.
    pub(crate) called_off_s: f64,
    /// Time without computation in which parameters or gradients were under way or queued.
    pub(crate) network_s: f64,
    /// Time without work because the server sent it no parameters.
    pub(crate) barrier_s: f64,
    /// The share of its time without computation: `1 - compute_s / elapsed_s`.
    pub(crate) idleness: Option<f64>,
    /// Time of parameters on their way down and gradients on their way up, summed over
    /// mini-batches: the times of those under way at once overlap.
    pub(crate) communicate_s: f64,
    /// Time of gradients on their way up, if it can be told from the way down.
    pub(crate) send_s: Option<f64>,
    /// Time of parameters on their way down.
    pub(crate) receive_s: Option<f64>,
    /// From its requests for parameters to their being sent, summed likewise.
    pub(crate) wait_s: f64,
    /// Bytes of its gradients on the wire to all servers, without frames and headers; without a
    /// server, of all values that it sent to other workers, or to the meeting point.
    pub(crate) pushed_bytes: u64,
    /// The same without filters: four bytes for each parameter of the model.
    pub(crate) unfiltered_bytes: u64,
    /// Bytes of the keys of its working set, each time they were sent to a server.
    pub(crate) key_bytes: u64,
    /// Bytes of the parameters that all servers sent it, without frames and headers; without a
    /// server, of all values that came from other workers, or from the meeting point.
    pub(crate) pulled_bytes: u64,
    /// Bytes of its values that went to other workers by way of the meeting point, because neither
    /// reaches the other. They are part of `pushed_bytes`, but for the state of training that
    /// another worker is sent.
    pub(crate) relayed_bytes: u64,
    /// Age of information of this worker.
    pub(crate) age_of_information: AgeOfInformation,
}

/// Totals over all workers.
#[derive(Clone, Copy, Debug)]
struct All {
    updates: u64,
    /// None if it is unknown for any worker.
    rows: Option<u64>,
}

impl WorkerReport {
    /// The report of a worker with these `totals` of the server of the records, which has exchanged
    /// `elsewhere` with the other servers.
    fn of(id: WorkerId, totals: &WorkerTotals, elsewhere: Exchanged, all: All) -> Self {
        let elapsed = totals.spent.total();
        let (elapsed_s, compute_s) = (elapsed.as_secs_f64(), totals.compute.as_secs_f64());
        let barrier_s = totals.spent.barrier.as_secs_f64();
        let idleness = Some(1.0 - compute_s / elapsed_s).filter(|share| share.is_finite());
        let mut exchanged = totals.exchanged;
        exchanged += elsewhere;
        let ways = Some(totals.ways).filter(|ways| ways.seen > 0 && ways.unseen == 0);
        Self {
            id,
            name: totals.name.clone(),
            updates: totals.updates,
            samples: totals.samples,
            share: ratio(totals.updates as f64, all.updates as f64),
            rows: totals.rows,
            data_share: totals.rows.zip(all.rows).map(|(rows, all)| ratio(rows as f64, all as f64)),
            staleness_mean: ratio(totals.staleness as f64, totals.updates as f64),
            elapsed_s,
            compute_s,
            called_off: totals.called_off.0,
            called_off_s: totals.called_off.1.as_secs_f64(),
            network_s: (elapsed_s - compute_s - barrier_s).max(0.0),
            barrier_s,
            // Worker and server measure by different clocks, so the difference may be slightly
            // negative.
            idleness: idleness.map(|share| share.max(0.0)),
            communicate_s: totals.communicate.as_secs_f64(),
            send_s: ways.map(|ways| ways.up.as_secs_f64()),
            receive_s: ways.map(|ways| ways.down.as_secs_f64()),
            wait_s: totals.wait.as_secs_f64(),
            pushed_bytes: exchanged.pushed,
            unfiltered_bytes: exchanged.unfiltered,
            key_bytes: exchanged.keyed,
            pulled_bytes: exchanged.given,
            relayed_bytes: totals.relayed,
            age_of_information: totals.age.summary(),
        }
    }
}

impl Report {
    /// Adds the results that only virtual time has.
    pub(crate) fn was_virtual(&mut self, virtual_time: VirtualReport) {
        self.job_sha256.clone_from(&virtual_time.job_sha256);
        if virtual_time.is_leaderless {
            self.ended = Ended::Leaderless;
        }
        self.virtual_time = Some(virtual_time);
    }
}

impl Summary {
    /// Returns the report of the whole run of `job`.
    pub(crate) fn report(
        &self,
        job: &Job,
        trained: &Trained,
        data: &Outline,
        transport: &str,
    ) -> Report {
        let parameters = trained.parameters.as_deref();
        // Ignore an evaluation of other parameters: one made before part of the parameters was lost
        // or before the last updates.
        let is_of_these =
            |point: &Point| parameters.is_some() && point.version == trained.point.version;
        let mut evaluations = self.evaluated.iter().chain(&self.best);
        let evaluation = evaluations.find(|(point, _)| is_of_these(point));
        let evaluation = evaluation.map(|(_, evaluation)| evaluation);
        let missing_updates = self.missing.stretches().to_vec();
        let point = self.point.or_else(|| (!missing_updates.is_empty()).then_some(trained.point));
        let objective = evaluation.map(|it| it.objective(job.update.l1()));
        let (updates, samples, epochs, time) = point.map_or((0, 0, 0.0, 0.0), |point| {
            (point.version.0, point.samples, point.epoch, point.time.as_secs_f64())
        });
        let all = All {
            updates: self.workers.iter().map(|totals| totals.updates).sum(),
            rows: self.workers.iter().map(|totals| totals.rows).sum(),
        };
        let workers = (0..).map(WorkerId).zip(&self.workers).zip(&trained.elsewhere);
        let workers: Vec<_> = workers
            .map(|((id, totals), elsewhere)| WorkerReport::of(id, totals, *elsewhere, all))
            .collect();
        let pushed: u64 = workers.iter().map(|worker| worker.pushed_bytes).sum();
        let unfiltered: u64 = workers.iter().map(|worker| worker.unfiltered_bytes).sum();
        let shares: Vec<f64> = workers.iter().map(|worker| worker.share).collect();
        let ages: Vec<_> = workers.iter().map(|worker| worker.age_of_information).collect();
        Report {
            job: job.name.clone(),
            pstrain: BUILD,
            job_sha256: hexadecimal(&job_digest(job)),
            consistency: job.mode.consistency.to_string(),
            transport: transport.to_owned(),
            ended: self.reason.map_or(Ended::Unknown, Ended::For),
            target: self.stopping.target.as_ref().map(|goal| TargetReport {
                goal: goal.to_string(),
                update: self.reached.map(|point| point.version.0),
                time_s: self.reached.map(|point| point.time.as_secs_f64()),
                epochs: self.reached.map(|point| point.epoch),
            }),
            quality: Quality::new(evaluation, &data.spec.schema, data.evaluation_rows.clone()),
            objective: objective.filter(|value| value.is_finite()),
            non_zeros: evaluation.map(|evaluation| evaluation.non_zeros),
            updates,
            samples,
            epochs,
            time_s: time,
            samples_per_s: ratio(samples as f64, time),
            updates_per_s: ratio(updates as f64, time),
            started_s: self.started.map(Time::as_secs_f64),
            first_update_s: self.first_update.map(Time::as_secs_f64),
            staleness: self.staleness(),
            age_of_information: AgeOfInformation::mean(&ages),
            jain: jain(&shares),
            bytes_ratio: (unfiltered > 0).then(|| pushed as f64 / unfiltered as f64),
            batches: trained.ledger,
            model_update: Some(trained.point.version.0).filter(|version| *version < updates),
            params_sha256: parameters.map(|parameters| sha256(parameters)),
            missing_updates,
            full_files: Vec::new(),
            departures: self.departures.all(),
            processor_wait: self.processor_wait,
            peak_rss_mib: peak_rss_mib(),
            usage: ProcessUsage::so_far(),
            workers,
            virtual_time: None,
            shaping: None,
            energy: None,
        }
    }
}

pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Returns Jain's fairness index: `(sum x)^2 / (N sum x^2)` (Jain, Chiu and Hawe 1984); None if all
/// shares are 0.
pub(crate) fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    Some(sum * sum / (shares.len() as f64 * squares)).filter(|index| index.is_finite())
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn fairness_goes_from_one_nth_to_one() {
        assert_eq!(jain(&[0.25; 4]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0; 3]), None);
    }
}
