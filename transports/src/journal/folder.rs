//! Folder of a run on disk: numbered checkpoints and logs.
//!
//! Log `n` holds the inputs since checkpoint `n`; checkpoint 0 is a server that has not started. A
//! log is created before its checkpoint is written, and no older file is removed before that
//! checkpoint is complete. So at any time the newest complete checkpoint and the logs from its
//! number on represent the run.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::id::CheckpointId;
use pstrain_wire::checkpoint::OnDisk;

use super::checkpoint_file::{Checkpoint, CheckpointError, Lineage};
use super::disk::{Disk, ordinary};
use super::log::{Log, LogError};

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct StateFolder {
    path: PathBuf,
    /// Number of the run.
    run: u64,
    /// Holds the lock while this file is open, here or in any clone.
    _lock: Option<Arc<File>>,
}

/// The files from which a run can continue.
#[derive(Debug)]
pub struct Found {
    /// The newest complete checkpoint; `None` if the run must start from its beginning.
    pub checkpoint: Option<Checkpoint>,
    /// Numbers of the logs since, in order.
    pub logs: Vec<u64>,
    /// The greatest number of any file.
    pub newest: u64,
    /// Newer checkpoints that cannot be used, with their errors.
    pub damaged: Vec<CheckpointError>,
}

/// Checkpoints that a server can restore if it takes them together with other servers.
#[derive(Debug, Default)]
pub struct GroupCheckpoints {
    /// The complete checkpoints.
    pub on_disk: OnDisk,
    /// Errors of the checkpoints that cannot be used.
    pub damaged: Vec<CheckpointError>,
}

impl Found {
    /// Returns the number of the checkpoint; 0 for the beginning.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.number)
    }
}

const LOG: (&str, &str) = ("inputs-", ".log");
const CHECKPOINT: (&str, &str) = ("checkpoint-", ".safetensors");
/// File that is locked while a server uses the folder. It remains, and is empty: the operating
/// system holds the lock, and releases it when the process ends.
const LOCK: &str = "lock";

impl StateFolder {
    /// Returns the folder at `path` without a lock.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), run: 0, _lock: None }
    }

    /// Returns the folder at `path`, locked against other processes until this value and all clones
    /// are dropped, or the process ends in any way. Two processes that write there would each lose
    /// inputs that the other has acknowledged.
    ///
    /// # Errors
    /// [`FolderError`] if another process has locked the folder, or it cannot be locked.
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

    /// Sets the number of the run, so that files of other runs are rejected.
    #[must_use]
    pub fn of_run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// Returns the mark of log and checkpoint `number` of this run.
    pub(super) const fn mark(&self, number: u64) -> u64 {
        self.run.wrapping_add(number)
    }

    /// Creates log `number`.
    ///
    /// # Errors
    /// [`LogError`] if the log exists, or cannot be written.
    pub fn begin_log(&self, disk: &dyn Disk, number: u64) -> Result<Log, LogError> {
        Log::create(disk, &self.log(number), self.mark(number))
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of log `number`.
    #[must_use]
    pub fn log(&self, number: u64) -> PathBuf {
        self.path.join(format!("{}{number}{}", LOG.0, LOG.1))
    }

    /// Returns the path of checkpoint `number`.
    #[must_use]
    pub fn checkpoint(&self, number: u64) -> PathBuf {
        self.path.join(format!("{}{number}{}", CHECKPOINT.0, CHECKPOINT.1))
    }

    /// Returns a log or a checkpoint in the folder, of any run.
    ///
    /// # Errors
    /// [`FolderError`] if the folder cannot be read.
    pub fn any(&self) -> Result<Option<PathBuf>, FolderError> {
        let (logs, checkpoints) = (self.numbers(LOG)?, self.numbers(CHECKPOINT)?);
        let log = logs.first().map(|&number| self.log(number));
        Ok(log.or_else(|| checkpoints.first().map(|&number| self.checkpoint(number))))
    }

    /// Finds the files from which a run can continue: checkpoint and logs if it `has_logs`, else a
    /// checkpoint alone.
    ///
    /// # Errors
    /// [`FolderError`] if the run cannot continue from any of them, or a log is missing.
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
        // The beginning of the run will do only if no later input is missing.
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

    /// Returns the checkpoints that a server took together with others and can restore.
    ///
    /// # Errors
    /// [`FolderError::Io`] if the folder cannot be read.
    pub fn shelf(&self) -> Result<GroupCheckpoints, FolderError> {
        let mut shelf = GroupCheckpoints::default();
        for number in self.numbers(CHECKPOINT)? {
            match Checkpoint::read(&self.checkpoint(number), self.mark(number)) {
                Ok(Checkpoint { lineage: Some(Lineage { run, origin }), .. }) => {
                    shelf.on_disk.origin = Some(origin);
                    shelf.on_disk.checkpoints.push(CheckpointId { run, number });
                }
                Ok(_) => {} // of a server that took it alone
                Err(error) => shelf.damaged.push(error),
            }
        }
        Ok(shelf)
    }

    /// Returns checkpoint `number`, to continue from.
    ///
    /// # Errors
    /// [`FolderError::Damaged`] if it cannot be used.
    pub fn find_checkpoint(&self, number: u64) -> Result<Found, FolderError> {
        let checkpoint = Checkpoint::read(&self.checkpoint(number), self.mark(number));
        let checkpoint = checkpoint.map_err(FolderError::Damaged)?;
        let newest = self.numbers(CHECKPOINT)?.last().copied().unwrap_or(0);
        let (logs, damaged) = (Vec::new(), Vec::new());
        Ok(Found { checkpoint: Some(checkpoint), logs, newest, damaged })
    }

    /// Returns all logs from `number` on; an error if one is missing.
    fn since(&self, number: u64, logs: &[u64]) -> Result<Vec<u64>, FolderError> {
        let since: Vec<u64> = logs.iter().copied().filter(|&log| log >= number).collect();
        let missing = (number..).zip(&since).find(|(wanted, log)| wanted != *log);
        match missing.map(|(wanted, _)| wanted).or_else(|| since.is_empty().then_some(number)) {
            Some(missing) => Err(FolderError::Missing(self.log(missing))),
            None => Ok(since),
        }
    }

    /// Removes files older than `number`. Files that cannot be removed stay until the next call.
    pub(super) fn clear(&self, disk: &dyn Disk, number: u64) {
        // Checkpoints first: a checkpoint without its log is useless.
        for kind in [CHECKPOINT, LOG] {
            let numbers = self.numbers(kind).unwrap_or_default();
            for old in numbers.into_iter().filter(|&old| old < number) {
                drop(disk.remove(&self.path.join(format!("{}{old}{}", kind.0, kind.1))));
            }
        }
    }

    /// Returns the size of checkpoint `number` in bytes; 0 if unknown.
    pub(super) fn bytes_of_checkpoint(&self, number: u64) -> u64 {
        fs::metadata(self.checkpoint(number)).map_or(0, |checkpoint| checkpoint.len())
    }

    /// Returns the size of all logs in bytes.
    pub(super) fn bytes_of_logs(&self) -> Result<u64, FolderError> {
        let bytes = |number: u64| fs::metadata(self.log(number)).map_or(0, |log| log.len());
        Ok(self.numbers(LOG)?.into_iter().map(bytes).sum())
    }

    /// Returns the numbers of the files of one kind, in order.
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

/// Errors of a folder from which no run can continue. The text contains the inner error, so
/// `source` returns none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Another process uses the folder.
    #[error(
        "{0} is in use by another pstrain process: stop that one first, or choose another folder"
    )]
    InUse(PathBuf),
    /// The folder cannot be locked.
    #[error(
        "{0} cannot be locked against a second server: {1}; choose a folder that this server may \
         write to, on a file system that has locks"
    )]
    Lock(PathBuf, io::Error),
    /// The folder cannot be read.
    #[error("{0} cannot be read: {1}")]
    Io(PathBuf, io::Error),
    /// This log is missing, though later files exist or it is required.
    #[error(
        "{0} is missing, without which the run cannot continue; restore it from a backup, or begin \
         anew in another folder"
    )]
    Missing(PathBuf),
    /// No checkpoint is usable; the error of the oldest.
    #[error(
        "{0}; there is no other to continue from: restore it from a backup, or begin anew in \
         another folder"
    )]
    Damaged(CheckpointError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_servers_until_all_that_is_left_of_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let first = StateFolder::lock(place.path()).unwrap();
        let in_use = || StateFolder::lock(place.path()).unwrap_err().to_string();
        assert!(in_use().contains("is in use by another pstrain process"), "{}", in_use());
        // A clone stands for a checkpoint that is still being written.
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
