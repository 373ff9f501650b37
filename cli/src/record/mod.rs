//! The records of a run: totals for tables and JSON, and the results folder.

mod age;
mod curve;
mod departures;
mod energy;
mod filtering;
mod folder;
mod gaps;
mod histograms;
mod initial;
mod lines;
mod model_file;
mod order;
mod order_reader;
mod quality;
mod replay;
mod report;
mod shaping;
mod summary;
#[cfg(all(test, feature = "pictures"))]
mod tests;
mod timeline;
mod usage;
mod workers;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pstrain_compute::id::WorkerId;
use pstrain_compute::saved;
use pstrain_compute::time::Time;
use pstrain_roles::node::Event;
use pstrain_transports::journal::Companion;
use pstrain_transports::processors;
use pstrain_wire::Status;
use serde::{Deserialize, Serialize};

#[cfg(feature = "pictures")]
pub(crate) use curve::{POINT, metric_values};
pub(crate) use departures::Departed;
pub(crate) use folder::{Folder, JOB, MODEL, ORDER, SUMMARY, file_of};
pub(crate) use gaps::VersionRange;
pub(crate) use model_file::{ModelFile, check_finite, read_model, write_model};
pub(crate) use order::Header;
pub(crate) use order_reader::{Contribution, OrderReader, Step};
pub(crate) use quality::{ClassRecall, Quality};
pub(crate) use replay::{Replay, Uses};
#[cfg(feature = "pictures")]
pub(crate) use report::BUILD;
pub(crate) use report::{Ended, Report, TargetReport, WorkerReport, jain};
pub(crate) use shaping::Shaping;
pub(crate) use summary::Summary;
pub(crate) use usage::{ProcessUsage, peak_rss_mib};
#[cfg(test)]
pub(crate) use {age::AgeOfInformation, quality::ClassQuality, report::Staleness};

use crate::energy::Meter;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::progress::{Progress, Standing};
use folder::KeptFolder;
use summary::KeptSummary;
use workers::WorkerTimes;

/// Receives the event stream of a server and feeds totals, results folder, progress bar and
/// metrics.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    server: Arc<Mutex<Parts>>,
    workers: Arc<WorkerTimes>,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
}

#[derive(Debug)]
struct Parts {
    summary: Summary,
    /// Measures the energy of this machine, if it can.
    meter: Option<Meter>,
    folder: Option<Folder>,
    progress: Progress,
}

/// The part of a server's checkpoint that belongs to its records.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    summary: KeptSummary,
    /// None if there is no results folder, or its record broke off.
    folder: Option<KeptFolder>,
}

impl Kept {
    /// Decodes the bytes of [`Recorder::keep`].
    pub(crate) fn of_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        Ok(saved::from_bytes(bytes)?)
    }

    /// True if there was a results folder.
    pub(crate) const fn has_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// Restores the totals into `summary`, and reopens the results folder at `out`.
    pub(crate) fn go_on(
        self,
        summary: &mut Summary,
        out: Option<&Path>,
        most: Option<u64>,
    ) -> anyhow::Result<Option<Folder>> {
        summary.go_on(self.summary);
        out.zip(self.folder).map(|(out, folder)| Folder::go_on(out, folder, most)).transpose()
    }
}

impl Recorder {
    /// Returns the records' part of a checkpoint. The caller must have noted all events of the
    /// checkpointed server state.
    pub(crate) fn keep(&self) -> Companion {
        let mut parts = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let (folder, files) = parts.folder.as_mut().and_then(Folder::keep).unzip();
        let kept = Kept { summary: parts.summary.keep(), folder };
        Companion { bytes: saved::to_bytes(&kept), files: files.unwrap_or_default() }
    }

    pub(crate) fn new(summary: Summary, folder: Option<Folder>, progress: Progress) -> Self {
        let workers = summary.workers_side();
        Self {
            server: Arc::new(Mutex::new(Parts { summary, meter: None, folder, progress })),
            workers,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// The run makes `epochs` passes over the data.
    pub(crate) fn lengthen(&self, epochs: u32) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).progress.lengthen(epochs);
    }

    /// Measures the energy of this machine with `meter` from the start of training to its end.
    pub(crate) fn measure(&self, meter: Option<Meter>) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).meter = meter;
    }

    /// Sends all later events to `metrics`, too.
    #[cfg(feature = "metrics")]
    pub(crate) fn set_metrics(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    /// Returns the metrics, if any.
    #[cfg(feature = "metrics")]
    pub(crate) const fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// Records an event, and prints it if it matters to a person. Only the server's thread calls
    /// this, so the lock is uncontended.
    pub(crate) fn note(&self, now: Time, event: &Event) {
        let mut parts = self.record(now, event);
        let Parts { summary, progress, .. } = &mut *parts;
        progress.note(event, || Standing {
            evaluation: summary.evaluated.as_ref().map(|(_, evaluation)| evaluation),
            wait_share: summary.wait_share(),
            mean_staleness: summary.staleness().mean,
        });
    }

    /// Records an event that an earlier process has printed already.
    pub(crate) fn replay_event(&self, now: Time, event: &Event) {
        drop(self.record(now, event));
    }

    fn record(&self, now: Time, event: &Event) -> MutexGuard<'_, Parts> {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &self.metrics {
            metrics.note(event);
        }
        let mut parts = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Parts { summary, meter, folder, .. } = &mut *parts;
        let times = summary.note(now, event);
        if let Event::Ended { .. } = event {
            // The threads of workers, if they are here, live still.
            summary.processor_wait = processors::waiting_share();
        }
        match (meter, event) {
            (Some(meter), Event::Started { .. }) => meter.begin(),
            (Some(meter), Event::Evaluated { .. }) if summary.reached.is_some() => meter.reach(),
            (Some(meter), Event::Ended { .. }) => meter.end(),
            _ => {}
        }
        if let Some(folder) = folder {
            folder.note(now, event, times);
        }
        parts
    }

    /// Records when a worker, whose clock is the server's, received or sent. The caller must do so
    /// before the message can reach the server. Each worker may have a thread of its own.
    pub(crate) fn note_worker(&self, now: Time, worker: WorkerId, event: &Event) {
        self.workers.note(now, worker, event);
    }

    /// Prints a summary of the run's state, if it is known.
    pub(crate) fn say(&self, status: Option<&Status>) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).progress.say(status);
    }

    /// True if there is a results folder.
    pub(crate) fn is_recording(&self) -> bool {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).folder.is_some()
    }

    /// Ends the recording; returns the totals and the folder.
    pub(crate) fn finish(self) -> (Summary, Option<Folder>) {
        let mut parts = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        parts.progress.finish();
        (parts.summary.clone(), parts.folder.take())
    }
}
