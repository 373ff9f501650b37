//! Checkpoints of a server that goes on meanwhile.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pstrain_compute::saved::Saved;
use pstrain_compute::time::Time;
use pstrain_roles::node::{self, Durable};

use super::checkpoint::{Checkpoint, Lineage};
use super::disk::{Disk, replace};
use super::folder::{Found, StateFolder};
use super::log::Log;
use super::room::{Room, Usage};

/// After a checkpoint that failed the next is tried this much later, if it is not due later still.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
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
    /// Its size in bytes, or the size of a larger one that could not be written; 0 if unknown.
    bytes: u64,
    due: Time,
    writing: Option<Writing>,
    /// When the last one failed, if it did.
    failed_at: Option<Time>,
    room: Room,
}

/// A state that is to be a checkpoint.
#[derive(Debug)]
pub struct Taken {
    checkpoint: Checkpoint,
    /// What must be on the disk before it is whole.
    files: Vec<File>,
    /// The oldest that may still be gone back to, where others decide about that.
    oldest: Option<u64>,
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Writing {
    taken: Arc<Taken>,
    /// Gives its bytes.
    thread: io::Result<JoinHandle<io::Result<u64>>>,
}

impl Taken {
    /// Writes it; gives its bytes.
    fn write(&self, disk: &impl Disk, folder: &StateFolder) -> io::Result<u64> {
        self.files.iter().try_for_each(File::sync_data)?;
        let bytes = self.checkpoint.to_bytes()?;
        replace(disk, &folder.checkpoint(self.checkpoint.number), &bytes)?;
        Ok(bytes.len() as u64)
    }
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
        let (due, bytes) = (now + every, folder.bytes_of_checkpoint(whole));
        Self {
            folder,
            disk,
            every,
            beside,
            warn,
            newest,
            whole,
            bytes,
            due,
            writing: None,
            failed_at: None,
            room: Room::default(),
        }
    }

    /// Whether [`Self::rest`] has anything to do.
    pub fn is_due(&self, now: Time, log: Option<&Log>) -> bool {
        if let Some(writing) = &self.writing {
            return writing.thread.as_ref().map_or(true, JoinHandle::is_finished);
        }
        let most = LEAST_LOG.max(self.bytes.saturating_mul(MOST_LOG));
        let is_long = log.is_some_and(|log| log.committed() > most || self.room.is_tight());
        now >= self.due || is_long && self.failed_at.is_none_or(|at| now >= at + PAUSE)
    }

    /// Sees how much room `log` leaves on the disk, if that is to be asked again, and waits for the
    /// checkpoint that is being written if it is too little to go on meanwhile.
    pub(super) fn look(&mut self, now: Time, log: &Log) {
        if !self.room.asks(log.committed()) {
            return;
        }
        self.measure(log);
        if self.writing.is_some() && self.room.waits() {
            self.settle(now);
        }
    }

    /// Asks the disk how much room `log` leaves on it.
    pub(super) fn measure(&mut self, log: &Log) {
        let free = self.disk.free(self.folder.path()).ok();
        let usage = free.zip(self.folder.bytes_of_logs().ok());
        let usage = usage.map(|(free, logs)| Usage { logs, state: self.bytes, free });
        self.room.note(log.committed(), usage);
    }

    /// Whether the log must wait, since a checkpoint has failed and the next may need all the room
    /// that is left.
    pub(super) const fn holds_log(&self) -> bool {
        self.failed_at.is_some() && self.writing.is_none() && self.room.waits()
    }

    /// Tries to write a checkpoint while the log waits: the state that was `taken` for the last
    /// try, if there was one, and a new one otherwise. Returns whether it is written.
    pub(super) fn retry(
        &mut self,
        now: Time,
        server: &mut impl Durable,
        log: &mut Log,
        taken: &mut Option<Arc<Taken>>,
    ) -> bool {
        if !self.room.fits() {
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
            None => false, // its log could not be begun
        }
    }

    /// The folder that they are in.
    pub(super) const fn folder(&self) -> &StateFolder {
        &self.folder
    }

    /// Whether one is being written.
    pub const fn is_writing(&self) -> bool {
        self.writing.is_some()
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

    /// The number of one that is to be taken now; the next is due later.
    pub(super) fn begin(&mut self, now: Time) -> u64 {
        self.due = now + self.every;
        self.newest + 1
    }

    /// What a node says is its state.
    pub(super) fn of_node(&mut self, now: Time, taken: node::Checkpoint) -> Taken {
        let node::Checkpoint { number, run, origin, oldest, saved } = taken;
        Taken { oldest, ..self.taken(number, now, saved, Some(Lineage { run, origin })) }
    }

    fn taken(&mut self, number: u64, now: Time, saved: Saved, lineage: Option<Lineage>) -> Taken {
        self.newest = self.newest.max(number);
        let Beside { bytes: beside, files } = (self.beside)();
        let mark = self.folder.mark(number);
        let checkpoint = Checkpoint { number, mark, now, saved, lineage, beside };
        Taken { checkpoint, files, oldest: None }
    }

    fn take(&mut self, now: Time, server: &mut impl Durable, log: Option<&mut Log>) {
        let number = self.begin(now);
        if let Some(log) = log {
            match self.folder.begin_log(&self.disk, number) {
                Ok(next) => {
                    *log = next;
                    self.room = Room::default();
                }
                Err(error) => return self.failed(now, &error.to_string()),
            }
        }
        let saved = server.save();
        let taken = self.taken(number, now, saved, None);
        self.write(Arc::new(taken));
    }

    /// Begins to write it.
    pub(super) fn write(&mut self, taken: Arc<Taken>) {
        self.bytes = self.bytes.max(taken.checkpoint.least_bytes());
        // With its lock, so that nobody else is there before this is written.
        let (disk, folder, state) = (self.disk.clone(), self.folder.clone(), Arc::clone(&taken));
        let write = move || state.write(&disk, &folder);
        let thread = thread::Builder::new().name("checkpoint".into()).spawn(write);
        self.writing = Some(Writing { taken, thread });
    }

    /// Waits until the checkpoint that is being written is, if one is, and removes what it makes
    /// useless: all before the one before it, or before the oldest that others may want. Gives its
    /// number, or what could not be written.
    pub fn settle(&mut self, now: Time) -> Option<Result<u64, Arc<Taken>>> {
        let Writing { taken, thread } = self.writing.take()?;
        let number = taken.checkpoint.number;
        let broke_off = |_panic| Err(io::Error::other("its thread broke off"));
        match thread.and_then(|thread| thread.join().unwrap_or_else(broke_off)) {
            Ok(bytes) => {
                self.folder.clear(&self.disk, taken.oldest.unwrap_or(self.whole));
                (self.whole, self.bytes) = (number, bytes);
                self.room = Room::default(); // there is more now
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
        self.room = Room::default(); // the disk is asked again
        if self.failed_at.replace(now).is_none() {
            (self.warn)(&format!(
                "no checkpoint: {why}; training goes on from what is kept, and it is tried again"
            ));
        }
    }
}
