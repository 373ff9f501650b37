//! Takes checkpoints of a server and writes them while the server continues.

use std::fs::File;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use pstrain_compute::saved::Saved;
use pstrain_compute::time::Time;
use pstrain_roles::node::{self, Durable};

use super::checkpoint_file::{Checkpoint, Lineage};
use super::disk::{Disk, replace};
use super::disk_space::{DiskSpace, Usage};
use super::folder::{Found, StateFolder};
use super::log::Log;

/// Delay after a failed checkpoint before the next attempt, unless the next is due even later.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
/// The next checkpoint is taken early once the log exceeds this many bytes ...
const LEAST_LOG: u64 = 64 * 1024 * 1024;
/// ... and this many times the size of the last checkpoint.
const MOST_LOG: u64 = 8;

/// Data that the observer of a run keeps with the server's state.
#[derive(Debug, Default)]
pub struct Companion {
    /// Bytes to include in the checkpoint.
    pub bytes: Vec<u8>,
    /// Files whose content so far must be on disk before the checkpoint is complete.
    pub files: Vec<File>,
}

/// Returns the data that belongs to the state just taken.
pub type Companions = Box<dyn FnMut() -> Companion + Send>;

/// Takes checkpoints of a server periodically, and writes them while the server continues.
pub struct Checkpoints {
    folder: StateFolder,
    disk: Arc<dyn Disk>,
    every: Duration,
    beside: Companions,
    warn: fn(&str),
    /// The greatest number of any file.
    newest: u64,
    /// Number of the newest complete checkpoint; 0 for the beginning of the run.
    whole: u64,
    /// Its size in bytes, or the size of a larger one that could not be written; 0 if unknown.
    bytes: u64,
    due: Time,
    writing: Option<Writing>,
    /// When the last attempt failed; `None` if it succeeded.
    failed_at: Option<Time>,
    space: DiskSpace,
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Checkpoints");
        shown.field("folder", &self.folder).field("newest", &self.newest).finish_non_exhaustive()
    }
}

/// A state to be written as a checkpoint.
#[derive(Debug)]
pub struct Taken {
    checkpoint: Checkpoint,
    /// Files that must be on disk before the checkpoint is complete.
    files: Vec<File>,
    /// The oldest checkpoint that a restore may still use, if other servers decide about that.
    oldest: Option<u64>,
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Writing {
    taken: Arc<Taken>,
    /// Returns the size of the file in bytes.
    thread: io::Result<JoinHandle<io::Result<u64>>>,
}

impl Taken {
    /// Writes the checkpoint. Returns its size in bytes.
    fn write(&self, disk: &dyn Disk, folder: &StateFolder) -> io::Result<u64> {
        self.files.iter().try_for_each(File::sync_data)?;
        let bytes = self.checkpoint.to_bytes()?;
        replace(disk, &folder.checkpoint(self.checkpoint.number), &bytes)?;
        Ok(bytes.len() as u64)
    }
}

impl Checkpoints {
    /// Takes a checkpoint at each `every` from `now` on, continuing after what was `found` in the
    /// folder.
    pub fn new(
        folder: StateFolder,
        disk: impl Disk,
        (every, now): (Duration, Time),
        found: &Found,
        beside: Companions,
        warn: fn(&str),
    ) -> Self {
        let (newest, whole) = (found.newest, found.number());
        let (due, bytes) = (now + every, folder.bytes_of_checkpoint(whole));
        Self {
            folder,
            disk: Arc::new(disk),
            every,
            beside,
            warn,
            newest,
            whole,
            bytes,
            due,
            writing: None,
            failed_at: None,
            space: DiskSpace::default(),
        }
    }

    /// True if [`Self::rest`] has work to do.
    pub fn is_due(&self, now: Time, log: Option<&Log>) -> bool {
        if let Some(writing) = &self.writing {
            return writing.thread.as_ref().map_or(true, JoinHandle::is_finished);
        }
        let most = LEAST_LOG.max(self.bytes.saturating_mul(MOST_LOG));
        let is_long = log.is_some_and(|log| log.committed() > most || self.space.is_tight());
        now >= self.due || is_long && self.failed_at.is_none_or(|at| now >= at + PAUSE)
    }

    /// Measures the free space if that is due. If it is too short for the log to grow meanwhile,
    /// waits for the checkpoint that is being written.
    pub(super) fn look(&mut self, now: Time, log: &Log) {
        if !self.space.asks(log.committed()) {
            return;
        }
        self.measure(log);
        if self.writing.is_some() && self.space.waits() {
            self.settle(now);
        }
    }

    /// Measures the free space that `log` leaves.
    pub(super) fn measure(&mut self, log: &Log) {
        let free = self.disk.free(self.folder.path()).ok();
        let usage = free.zip(self.folder.bytes_of_logs().ok());
        let usage = usage.map(|(free, logs)| Usage { logs, state: self.bytes, free });
        self.space.note(log.committed(), usage);
    }

    /// True if the log must wait, since a checkpoint has failed and the next may need all the free
    /// space.
    pub(super) const fn holds_log(&self) -> bool {
        self.failed_at.is_some() && self.writing.is_none() && self.space.waits()
    }

    /// Tries to write a checkpoint while the log waits: the state `taken` by the previous attempt,
    /// else a new one. Returns true if it was written.
    pub(super) fn retry(
        &mut self,
        now: Time,
        server: &mut dyn Durable,
        log: &mut Log,
        taken: &mut Option<Arc<Taken>>,
    ) -> bool {
        if !self.space.fits() {
            return false;
        }
        match taken.take() {
            Some(taken) => self.write(taken),
            None => self.take(now, server, Some(log)),
        }
        match self.settle(now) {
            Some(Ok(_)) => true,
            Some(Err(failed)) => {
                *taken = Some(failed);
                false
            }
            None => false, // its log could not be created
        }
    }

    /// Returns the folder of the checkpoints.
    pub(super) const fn folder(&self) -> &StateFolder {
        &self.folder
    }

    /// Returns the folder and the period of the checkpoints.
    pub(super) fn into_folder(self) -> (StateFolder, Duration) {
        (self.folder, self.every)
    }

    /// True if a checkpoint is being written.
    pub const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Takes a checkpoint if one is due. If inputs are kept, `log` must contain all of them; it is
    /// replaced by the log that begins with the checkpoint.
    pub fn rest(&mut self, now: Time, server: &mut dyn Durable, log: Option<&mut Log>) {
        if self.writing.is_some() {
            self.settle(now);
        }
        if self.is_due(now, log.as_deref()) && server.can_save() {
            self.take(now, server, log);
        }
    }

    /// Takes a checkpoint and waits until it is written.
    pub fn take_now(&mut self, now: Time, server: &mut dyn Durable) {
        self.settle(now);
        self.take(now, server, None);
        self.settle(now);
    }

    /// Returns the number of a checkpoint that is taken now, and sets when the next is due.
    pub(super) fn begin(&mut self, now: Time) -> u64 {
        self.due = now + self.every;
        self.newest + 1
    }

    /// Wraps a state that the node has taken itself.
    pub(super) fn of_node(&mut self, now: Time, taken: node::Checkpoint) -> Taken {
        let node::Checkpoint { number, run, origin, oldest, saved } = taken;
        Taken { oldest, ..self.taken(number, now, saved, Some(Lineage { run, origin })) }
    }

    fn taken(&mut self, number: u64, now: Time, saved: Saved, lineage: Option<Lineage>) -> Taken {
        self.newest = self.newest.max(number);
        let Companion { bytes: beside, files } = (self.beside)();
        let mark = self.folder.mark(number);
        let checkpoint = Checkpoint { number, mark, now, saved, lineage, beside };
        Taken { checkpoint, files, oldest: None }
    }

    fn take(&mut self, now: Time, server: &mut dyn Durable, log: Option<&mut Log>) {
        let number = self.begin(now);
        if let Some(log) = log {
            // The log comes first: a checkpoint without its log is useless.
            match self.folder.begin_log(&*self.disk, number) {
                Ok(next) => {
                    *log = next;
                    self.space = DiskSpace::default();
                }
                Err(error) => return self.failed(now, &error.to_string()),
            }
        }
        let saved = server.save();
        let taken = self.taken(number, now, saved, None);
        self.write(Arc::new(taken));
    }

    /// Starts writing a checkpoint on a new thread.
    pub(super) fn write(&mut self, taken: Arc<Taken>) {
        self.bytes = self.bytes.max(taken.checkpoint.least_bytes());
        // The clone holds the folder's lock: no other process may use the folder during the write.
        let (disk, folder) = (Arc::clone(&self.disk), self.folder.clone());
        let state = Arc::clone(&taken);
        let write = move || state.write(&*disk, &folder);
        let thread = thread::Builder::new().name("checkpoint".into()).spawn(write);
        self.writing = Some(Writing { taken, thread });
    }

    /// Waits until the current write, if any, has ended. Then removes the files that it makes
    /// useless: all before the previous checkpoint, or before the oldest that other servers may
    /// need. Returns the number of the checkpoint, or the state that could not be written.
    pub fn settle(&mut self, now: Time) -> Option<Result<u64, Arc<Taken>>> {
        let Writing { taken, thread } = self.writing.take()?;
        let number = taken.checkpoint.number;
        let broke_off = |_panic| Err(io::Error::other("its thread broke off"));
        match thread.and_then(|thread| thread.join().unwrap_or_else(broke_off)) {
            Ok(bytes) => {
                // `whole` is still the previous checkpoint here.
                self.folder.clear(&*self.disk, taken.oldest.unwrap_or(self.whole));
                (self.whole, self.bytes) = (number, bytes);
                self.space = DiskSpace::default(); // old files were removed
                if self.failed_at.take().is_some() {
                    (self.warn)("checkpoints can be written again");
                }
                Some(Ok(number))
            }
            Err(error) => {
                let path = self.folder.checkpoint(number);
                self.failed(now, &format!("{} cannot be written: {error}", path.display()));
                Some(Err(taken))
            }
        }
    }

    fn failed(&mut self, now: Time, why: &str) {
        self.due = now + self.every.max(PAUSE);
        self.space = DiskSpace::default(); // measure again
        if self.failed_at.replace(now).is_none() {
            (self.warn)(&format!(
                "no checkpoint: {why}; training continues from what is kept, and it is tried again"
            ));
        }
    }
}
