//! What is kept of a run: totals for tables and JSON, and the results folder.

mod age;
mod filtering;
mod folder;
mod histograms;
mod lines;
mod missing;
mod model_file;
mod order;
mod pushed;
mod quality;
mod replay;
mod report;
mod shaping;
mod summary;
mod timeline;
mod workers;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pstrain_compute::id::WorkerId;
use pstrain_compute::saved;
use pstrain_compute::time::Time;
use pstrain_roles::node::Event;
use pstrain_transports::journal::Beside;
use pstrain_wire::Status;
use serde::{Deserialize, Serialize};

pub(crate) use folder::{Folder, JOB, MODEL, ORDER, SUMMARY, file_of};
pub(crate) use missing::Stretch;
pub(crate) use model_file::{ModelFile, check_finite, read_model, write_model};
pub(crate) use order::{Contribution, Header, OrderReader, Step};
pub(crate) use quality::{ClassRecall, Quality};
pub(crate) use replay::{Replay, Uses};
#[cfg(feature = "pictures")]
pub(crate) use report::BUILD;
pub(crate) use report::{LEADERLESS, Report, WorkerReport, jain, peak_rss_mib};
pub(crate) use shaping::Shaping;
pub(crate) use summary::Summary;

#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::progress::{Progress, Standing};
use folder::KeptFolder;
use summary::KeptSummary;
use workers::WorkersSide;

/// Reads the event stream of a server: totals, the results folder, the progress bar.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    server: Arc<Mutex<Parts>>,
    workers: Arc<WorkersSide>,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
}

#[derive(Debug)]
struct Parts {
    summary: Summary,
    folder: Option<Folder>,
    progress: Progress,
}

/// What is kept of the records beside the state of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    summary: KeptSummary,
    /// None if there is no results folder, or its record has broken off.
    folder: Option<KeptFolder>,
}

impl Kept {
    /// What [`Recorder::keep`] made these bytes of.
    pub(crate) fn of_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        Ok(saved::from_bytes(bytes)?)
    }

    /// Whether there was a results folder.
    pub(crate) const fn has_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// Puts the totals in `summary`, and goes on with the results folder at `out`.
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
    /// What is to be kept beside the state of the server, all events of which have been noted.
    pub(crate) fn keep(&self) -> Beside {
        let mut parts = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let (folder, files) = parts.folder.as_mut().and_then(Folder::keep).unzip();
        let kept = Kept { summary: parts.summary.keep(), folder };
        Beside { bytes: saved::to_bytes(&kept), files: files.unwrap_or_default() }
    }

    pub(crate) fn new(summary: Summary, folder: Option<Folder>, progress: Progress) -> Self {
        let workers = summary.workers_side();
        Self {
            server: Arc::new(Mutex::new(Parts { summary, folder, progress })),
            workers,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// Shows what is noted from now on to `metrics`, too.
    #[cfg(feature = "metrics")]
    pub(crate) fn show_to(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    /// To whom it is shown.
    #[cfg(feature = "metrics")]
    pub(crate) const fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// Takes note of an event, and says it if a person should know. Only the server's thread calls
    /// this, so the lock is always free.
    pub(crate) fn note(&self, now: Time, event: &Event) {
        let mut parts = self.record(now, event);
        let Parts { summary, progress, .. } = &mut *parts;
        progress.note(event, || Standing {
            evaluation: summary.evaluated.as_ref().map(|(_, evaluation)| evaluation),
            wait_share: summary.wait_share(),
            mean_staleness: summary.staleness().mean,
        });
    }

    /// Takes note of an event that an earlier process has said.
    pub(crate) fn note_again(&self, now: Time, event: &Event) {
        drop(self.record(now, event));
    }

    fn record(&self, now: Time, event: &Event) -> MutexGuard<'_, Parts> {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &self.metrics {
            metrics.note(event);
        }
        let mut parts = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Parts { summary, folder, .. } = &mut *parts;
        let seen = summary.note(now, event);
        if let Some(folder) = folder {
            folder.note(now, event, seen);
        }
        parts
    }

    /// Takes note of an event of a worker whose clock is the server's: when it received and sent.
    /// To be called before the server can hear of it. Each worker may have a thread of its own.
    pub(crate) fn note_worker(&self, now: Time, worker: WorkerId, event: &Event) {
        self.workers.note(now, worker, event);
    }

    /// Says how the run is doing, if that is known.
    pub(crate) fn say(&self, status: Option<&Status>) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).progress.say(status);
    }

    /// Whether there is a results folder.
    pub(crate) fn is_recording(&self) -> bool {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).folder.is_some()
    }

    /// Ends the recording; gives the totals and the folder.
    pub(crate) fn finish(self) -> (Summary, Option<Folder>) {
        let mut parts = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        parts.progress.finish();
        (parts.summary.clone(), parts.folder.take())
    }
}
