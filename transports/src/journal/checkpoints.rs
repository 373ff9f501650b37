//! Checkpoints of a server that goes on meanwhile.

use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pstrain_core::node::Durable;
use pstrain_core::time::Time;

use super::checkpoint::Checkpoint;
use super::disk::{Disk, replace};
use super::folder::{Found, StateFolder};
use super::log::Log;

/// After a checkpoint that failed the next is tried this much later, if it is not due later still.
const PAUSE: Duration = Duration::from_secs(5);
/// A log may grow to so many bytes, ...
const LEAST_LOG: u64 = 64 * 1024 * 1024;
/// ... or so many times the last checkpoint, before the next is taken whatever the time.
const MOST_LOG: u64 = 8;

/// What whoever looks on keeps of a run beside its server's state.
#[derive(Debug, Default)]
pub struct Beside {
    /// Part of the checkpoint.
    pub bytes: Vec<u8>,
    /// Files that must be on the disk, as far as they are written, before the checkpoint is whole.
    pub files: Vec<File>,
}

/// Takes checkpoints of a server now and then, and writes them while it goes on.
#[derive(Debug)]
pub struct Checkpoints<B, D> {
    folder: StateFolder,
    disk: D,
    every: Duration,
    beside: B,
    warn: fn(&str),
    /// The greatest number that a file has.
    newest: u64,
    /// The newest checkpoint that is whole; 0 for the beginning.
    whole: u64,
    /// Its bytes.
    bytes: u64,
    due: Time,
    writing: Option<Writing>,
    has_failed: bool,
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Writing {
    number: u64,
    /// Gives its bytes.
    thread: JoinHandle<io::Result<u64>>,
}

impl<B: FnMut() -> Beside, D: Disk> Checkpoints<B, D> {
    /// Takes one `every` so often, from `now` on, and goes on after what was `found` in the folder;
    /// `beside` says what belongs to the state that was just taken.
    pub fn new(
        folder: StateFolder,
        disk: D,
        (every, now): (Duration, Time),
        found: &Found,
        beside: B,
        warn: fn(&str),
    ) -> Self {
        let (newest, whole) = (found.newest, found.number());
        let due = now + every;
        let (bytes, writing, has_failed) = (0, None, false);
        Self { folder, disk, every, beside, warn, newest, whole, bytes, due, writing, has_failed }
    }

    /// Whether [`Self::rest`] has anything to do.
    pub fn is_due(&self, now: Time, log: Option<&Log>) -> bool {
        if let Some(writing) = &self.writing {
            return writing.thread.is_finished();
        }
        let most = LEAST_LOG.max(self.bytes.saturating_mul(MOST_LOG));
        let is_long = log.is_some_and(|log| log.committed() > most) && !self.has_failed;
        now >= self.due || is_long
    }

    /// Takes a checkpoint if one is due. Where inputs are kept, `log` has all of them, and is
    /// replaced by the one that begins with the checkpoint.
    pub fn rest(&mut self, now: Time, server: &mut impl Durable, log: Option<&mut Log>) {
        if self.writing.is_some() {
            self.settle(now);
        }
        if self.is_due(now, log.as_deref()) && server.can_save() {
            self.take(now, server, log);
        }
    }

    /// Takes a checkpoint and waits until it is written.
    pub fn take_now(&mut self, now: Time, server: &mut impl Durable) {
        self.settle(now);
        self.take(now, server, None);
        self.settle(now);
    }

    fn take(&mut self, now: Time, server: &mut impl Durable, log: Option<&mut Log>) {
        self.due = now + self.every;
        let number = self.newest + 1;
        if let Some(log) = log {
            match self.folder.begin_log(&self.disk, number) {
                Ok(next) => *log = next,
                Err(error) => return self.failed(now, &error.to_string()),
            }
        }
        self.newest = number;
        let Beside { bytes: beside, files } = (self.beside)();
        let (mark, saved) = (self.folder.mark(number), server.save());
        let checkpoint = Checkpoint { number, mark, now, saved, beside };
        // With its lock, so that nobody else is there before this is written.
        let (disk, folder) = (self.disk.clone(), self.folder.clone());
        let write = move || {
            files.iter().try_for_each(File::sync_data)?;
            let bytes = checkpoint.to_bytes()?;
            replace(&disk, &folder.checkpoint(number), &bytes)?;
            Ok(bytes.len() as u64)
        };
        match thread::Builder::new().name("checkpoint".into()).spawn(write) {
            Ok(thread) => self.writing = Some(Writing { number, thread }),
            Err(error) => self.failed(now, &format!("no thread to write it: {error}")),
        }
    }

    /// Waits until the checkpoint that is being written is, and removes what it makes useless: all
    /// before the one before it.
    pub fn settle(&mut self, now: Time) {
        let Some(Writing { number, thread }) = self.writing.take() else { return };
        match thread.join().unwrap_or_else(|_panic| Err(io::Error::other("its thread broke off"))) {
            Ok(bytes) => {
                self.folder.clear(&self.disk, self.whole);
                (self.whole, self.bytes) = (number, bytes);
                if std::mem::take(&mut self.has_failed) {
                    (self.warn)("checkpoints can be written again");
                }
            }
            Err(error) => {
                let path = self.folder.checkpoint(number);
                self.failed(now, &format!("{} cannot be written: {error}", path.display()));
            }
        }
    }

    fn failed(&mut self, now: Time, why: &str) {
        self.due = now + self.every.max(PAUSE);
        if !std::mem::replace(&mut self.has_failed, true) {
            (self.warn)(&format!(
                "no checkpoint: {why}; training goes on from what is kept, and it is tried again"
            ));
        }
    }
}
