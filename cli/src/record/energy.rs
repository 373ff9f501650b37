//! The energy of a run, from its totals.

use std::time::Duration;

use pstrain_policy::job::Job;
use pstrain_transports::scenario::Scenario;
use serde::{Deserialize, Serialize};

use super::report::{Report, WorkerReport};
use super::summary::{Summary, WorkerTotals};
use crate::energy::{EnergyReport, EnergySpec, Measured, Usage, Work};

/// The work of a worker up to the target.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WorkSoFar {
    busy: Duration,
    bytes: u64,
}

impl From<&WorkerTotals> for WorkSoFar {
    fn from(totals: &WorkerTotals) -> Self {
        let exchanged = &totals.exchanged;
        let bytes = exchanged.pushed + exchanged.keyed + exchanged.given;
        Self { busy: totals.compute, bytes }
    }
}

impl From<&WorkSoFar> for Work {
    fn from(WorkSoFar { busy, bytes }: &WorkSoFar) -> Self {
        Self { busy_s: busy.as_secs_f64(), bytes: *bytes }
    }
}

impl From<&WorkerReport> for Work {
    fn from(worker: &WorkerReport) -> Self {
        let bytes = worker.pushed_bytes + worker.key_bytes + worker.pulled_bytes;
        Self { busy_s: worker.compute_s, bytes }
    }
}

impl Summary {
    /// The energy of the run of `job` with this `report`.
    pub(crate) fn energy(
        &self,
        spec: &EnergySpec,
        job: &Job,
        report: &Report,
        measured: Option<Measured>,
    ) -> Option<EnergyReport> {
        let scenario = Scenario::from_text(&job.scenario).unwrap_or_default();
        let failover = report.virtual_time.as_ref().and_then(|it| it.failover.as_ref());
        let standby = scenario.links.standby().is_some().then_some(failover);
        let standby = standby.flatten().map(|failover| failover.up_bytes + failover.down_bytes);
        // Without a server the meeting point passes no values on, unless it adds them up.
        let architecture = job.architecture;
        let serves = architecture.algorithm().is_none() && !architecture.is_gossip();
        let usage = |on_s, workers: Vec<Work>, standby| {
            let sum: u64 = workers.iter().map(|work| work.bytes).sum();
            let server_bytes = if serves { sum } else { 0 };
            Usage { on_s, workers, servers: job.servers, server_bytes, standby }
        };
        let all = usage(report.time_s, report.workers.iter().map(Work::from).collect(), standby);
        // The bytes of other servers and a standby are known at the end alone.
        let is_known =
            job.servers == 1 && standby.is_none() || !spec.counts_bytes(job.membership.workers);
        let until = self.reached.zip(self.until_reached.as_ref()).filter(|_| is_known);
        let until = until.map(|(point, workers)| {
            let workers = workers.iter().map(Work::from).collect();
            usage(point.time.as_secs_f64(), workers, standby.map(|_| 0))
        });
        spec.report(&all, until.as_ref(), report.samples, measured)
    }
}
