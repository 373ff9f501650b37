//! The folder of a run that is kept: numbered checkpoints and logs.
//!
//! Log `n` holds the inputs since checkpoint `n`, and checkpoint 0 is a server that has not begun.
//! A log is begun before its checkpoint is written, and no earlier file is removed before that is
//! whole. So at any time the newest whole checkpoint and the logs from its number on are the run.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::id::CheckpointId;
use pstrain_wire::checkpoint::OnDisk;

use super::checkpoint::{Checkpoint, CheckpointError, Lineage};
use super::disk::{Disk, ordinary};
use super::log::{Log, LogError};

/// The folder of a run that is kept.
#[derive(Clone, Debug)]
pub struct StateFolder {
    path: PathBuf,
    /// The number of the run.
    run: u64,
    /// Nobody else may lock it while this file is open: here, and in all clones.
    _lock: Option<Arc<File>>,
}

/// What was found of a run.
#[derive(Debug)]
pub struct Found {
    /// The newest checkpoint that is whole; none if the run must begin from its beginning.
    pub checkpoint: Option<Checkpoint>,
    /// The numbers of the logs since, in order.
    pub logs: Vec<u64>,
    /// The greatest number of all files.
    pub newest: u64,
    /// Newer checkpoints that are of no use, with what is wrong.
    pub damaged: Vec<CheckpointError>,
}

/// What a server that takes its checkpoints with others can go back to.
#[derive(Debug, Default)]
pub struct Shelf {
    /// Which checkpoints are whole.
    pub on_disk: OnDisk,
    /// Those that are of no use, with what is wrong.
    pub damaged: Vec<CheckpointError>,
}

impl Found {
    /// The number of the checkpoint; 0 for the beginning.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.number)
    }
}

const LOG: (&str, &str) = ("inputs-", ".log");
const CHECKPOINT: (&str, &str) = ("checkpoint-", ".safetensors");
/// The file that is locked while a server uses the folder. It stays, and has nothing in it: the
/// lock is the system's, and goes with the process.
const LOCK: &str = "lock";

impl StateFolder {
    /// The folder at `path`, whoever uses it.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), run: 0, _lock: None }
    }

    /// The folder at `path`, which no other process locks until this and all clones are gone, or
    /// the process is, however it ends. Two that wrote there would each lose what the other has
    /// acknowledged.
    ///
    /// # Errors
    /// [`FolderError`] if another process has locked it, or it cannot be locked.
    pub fn lock(path: &Path) -> Result<Self, FolderError> {
        let failed = |why| FolderError::Lock(path.to_owned(), why);
        let place = path.join(LOCK);
        if place.exists() {
            ordinary(&place).map_err(failed)?;
        }
        let open = File::options().create(true).truncate(false).write(true).open(place);
        let file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), run: 0, _lock: Some(Arc::new(file)) }),
            Err(TryLockError::WouldBlock) => Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(why)) => Err(failed(why)),
        }
    }

    /// The same, of the run with this number: files of others are not taken for its own.
    #[must_use]
    pub fn of_run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// What log and checkpoint `number` of the run have, and no other.
    pub(super) const fn mark(&self, number: u64) -> u64 {
        self.run.wrapping_add(number)
    }

    /// Begins log `number`.
    ///
    /// # Errors
    /// [`LogError`] if there is one already, or it cannot be written.
    pub fn begin_log(&self, disk: &impl Disk, number: u64) -> Result<Log, LogError> {
        Log::create(disk, &self.log(number), self.mark(number))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where log `number` is.
    #[must_use]
    pub fn log(&self, number: u64) -> PathBuf {
        self.path.join(format!("{}{number}{}", LOG.0, LOG.1))
    }

    /// Where checkpoint `number` is.
    #[must_use]
    pub fn checkpoint(&self, number: u64) -> PathBuf {
        self.path.join(format!("{}{number}{}", CHECKPOINT.0, CHECKPOINT.1))
    }

    /// A log or a checkpoint that is there, of whatever run.
    ///
    /// # Errors
    /// [`FolderError`] if the folder cannot be read.
    pub fn any(&self) -> Result<Option<PathBuf>, FolderError> {
        let (logs, checkpoints) = (self.numbers(LOG)?, self.numbers(CHECKPOINT)?);
        let log = logs.first().map(|&number| self.log(number));
        Ok(log.or_else(|| checkpoints.first().map(|&number| self.checkpoint(number))))
    }

    /// Finds what a run can go on from: with logs, or where there are none with checkpoints alone.
    ///
    /// # Errors
    /// [`FolderError`] if there is nothing to go on from, or a log is missing.
    pub fn find(&self, has_logs: bool) -> Result<Found, FolderError> {
        let logs = self.numbers(LOG)?;
        let checkpoints = self.numbers(CHECKPOINT)?;
        let newest = logs.last().max(checkpoints.last()).copied().unwrap_or(0);
        let mut damaged = Vec::new();
        for &number in checkpoints.iter().rev() {
            let path = self.checkpoint(number);
            match Checkpoint::read(&path, self.mark(number)) {
                Ok(checkpoint) => {
                    let logs = if has_logs { self.since(number, &logs)? } else { Vec::new() };
                    return Ok(Found { checkpoint: Some(checkpoint), logs, newest, damaged });
                }
                Err(error) => damaged.push(error),
            }
        }
        // The beginning will do only if nothing after it is missing.
        match damaged.pop() {
            Some(damaged) if !has_logs || logs.first() != Some(&0) => {
                Err(FolderError::Damaged(damaged))
            }
            last => {
                damaged.extend(last);
                let logs = if has_logs { self.since(0, &logs)? } else { Vec::new() };
                Ok(Found { checkpoint: None, logs, newest, damaged })
            }
        }
    }

    /// What a server that takes its checkpoints with others can go back to.
    ///
    /// # Errors
    /// [`FolderError::Io`] if the folder cannot be read.
    pub fn shelf(&self) -> Result<Shelf, FolderError> {
        let mut shelf = Shelf::default();
        for number in self.numbers(CHECKPOINT)? {
            match Checkpoint::read(&self.checkpoint(number), self.mark(number)) {
                Ok(Checkpoint { lineage: Some(Lineage { run, origin }), .. }) => {
                    shelf.on_disk.origin = Some(origin);
                    shelf.on_disk.checkpoints.push(CheckpointId { run, number });
                }
                Ok(_) => {} // of a server that was alone
                Err(error) => shelf.damaged.push(error),
            }
        }
        Ok(shelf)
    }

    /// Checkpoint `number`, to go on from.
    ///
    /// # Errors
    /// [`FolderError::Damaged`] if it is not whole.
    pub fn find_checkpoint(&self, number: u64) -> Result<Found, FolderError> {
        let checkpoint = Checkpoint::read(&self.checkpoint(number), self.mark(number));
        let checkpoint = checkpoint.map_err(FolderError::Damaged)?;
        let newest = self.numbers(CHECKPOINT)?.last().copied().unwrap_or(0);
        let (logs, damaged) = (Vec::new(), Vec::new());
        Ok(Found { checkpoint: Some(checkpoint), logs, newest, damaged })
    }

    /// All logs from `number` on, none of which may be missing.
    fn since(&self, number: u64, logs: &[u64]) -> Result<Vec<u64>, FolderError> {
        let since: Vec<u64> = logs.iter().copied().filter(|&log| log >= number).collect();
        let missing = (number..).zip(&since).find(|(wanted, log)| wanted != *log);
        match missing.map(|(wanted, _)| wanted).or_else(|| since.is_empty().then_some(number)) {
            Some(missing) => Err(FolderError::Missing(self.log(missing))),
            None => Ok(since),
        }
    }

    /// Removes what is older than `number`. What cannot be removed is left for the next time.
    pub(super) fn clear(&self, disk: &impl Disk, number: u64) {
        // The checkpoints first: one without its log is of no use.
        for kind in [CHECKPOINT, LOG] {
            let numbers = self.numbers(kind).unwrap_or_default();
            for old in numbers.into_iter().filter(|&old| old < number) {
                drop(disk.remove(&self.path.join(format!("{}{old}{}", kind.0, kind.1))));
            }
        }
    }

    /// The bytes of checkpoint `number`; 0 if that is not known.
    pub(super) fn bytes_of_checkpoint(&self, number: u64) -> u64 {
        fs::metadata(self.checkpoint(number)).map_or(0, |checkpoint| checkpoint.len())
    }

    /// The bytes of all logs.
    pub(super) fn bytes_of_logs(&self) -> Result<u64, FolderError> {
        let bytes = |number: u64| fs::metadata(self.log(number)).map_or(0, |log| log.len());
        Ok(self.numbers(LOG)?.into_iter().map(bytes).sum())
    }

    /// The numbers of the files of one kind, in order.
    fn numbers(&self, (begin, end): (&str, &str)) -> Result<Vec<u64>, FolderError> {
        let failed = |why| FolderError::Io(self.path.clone(), why);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let digits = name
                .to_str()
                .and_then(|name| name.strip_prefix(begin))
                .and_then(|rest| rest.strip_suffix(end));
            numbers.extend(digits.and_then(|digits| digits.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// A folder that no run can go on from.
#[derive(Debug)]
#[non_exhaustive]
pub enum FolderError {
    /// Another process uses it.
    InUse(PathBuf),
    /// It cannot be locked.
    Lock(PathBuf, io::Error),
    /// It cannot be read.
    Io(PathBuf, io::Error),
    /// This log is not there, though what follows it is, or must be.
    Missing(PathBuf),
    /// No checkpoint is whole; what is wrong with the oldest.
    Damaged(CheckpointError),
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => write!(
                f,
                "{} is in use by another pstrain server: stop that one first, or choose another \
                 folder",
                path.display()
            ),
            Self::Lock(path, why) => write!(
                f,
                "{} cannot be locked against a second server: {why}; choose a folder that this \
                 server may write to, on a file system that has locks",
                path.display()
            ),
            Self::Io(path, why) => write!(f, "{} cannot be read: {why}", path.display()),
            Self::Missing(path) => write!(
                f,
                "{} is missing, without which the run cannot go on; restore it from a backup, or \
                 begin anew in another folder",
                path.display()
            ),
            Self::Damaged(error) => write!(
                f,
                "{error}; there is no other to go on from: restore it from a backup, or begin anew \
                 in another folder"
            ),
        }
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None // the text has it already
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_servers_until_all_that_is_left_of_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let first = StateFolder::lock(place.path()).unwrap();
        let in_use = || StateFolder::lock(place.path()).unwrap_err().to_string();
        assert!(in_use().contains("is in use by another pstrain server"), "{}", in_use());
        // A checkpoint may still be written.
        let clone = first.clone();
        drop(first);
        assert!(in_use().contains("is in use"), "{}", in_use());
        drop(clone);
        let again = StateFolder::lock(place.path()).unwrap();
        assert_eq!(again.find(false).unwrap().number(), 0);
        drop(again);
        let missing = StateFolder::lock(&place.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("cannot be locked"), "{missing}");
    }
}
