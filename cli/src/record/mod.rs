//! What is kept of a run: totals for tables and JSON, and the results folder.

mod folder;
mod model_file;
mod shaping;
mod summary;

use std::sync::{Arc, Mutex, PoisonError};

use pstrain_core::node::Event;
use pstrain_core::time::Time;

pub(crate) use folder::Folder;
pub(crate) use model_file::{ModelFile, read_model, write_model};
pub(crate) use shaping::Shaping;
pub(crate) use summary::{Report, Summary, WorkerReport, hexadecimal, peak_rss_mib, sha256};

use crate::progress::Progress;

/// Reads the event stream of a server: totals, the results folder, the progress bar.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Mutex<Parts>>);

#[derive(Debug)]
struct Parts {
    summary: Summary,
    folder: Option<Folder>,
    progress: Progress,
}

impl Recorder {
    pub(crate) fn new(summary: Summary, folder: Option<Folder>, progress: Progress) -> Self {
        Self(Arc::new(Mutex::new(Parts { summary, folder, progress })))
    }

    /// Takes note of an event. Only the server's thread calls this, so the lock is always free.
    pub(crate) fn note(&self, now: Time, event: &Event) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Parts { summary, folder, progress } = &mut *parts;
        summary.note(now, event);
        if let Some(folder) = folder {
            folder.note(now, event);
        }
        progress.note(event, summary);
    }

    /// Ends the recording; gives the totals and the folder.
    pub(crate) fn finish(self) -> (Summary, Option<Folder>) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.progress.finish();
        (parts.summary.clone(), parts.folder.take())
    }
}
