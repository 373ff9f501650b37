//! Operations on whole files, as a trait, so that a test can make each of them fail.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Size and free space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total.
    pub total: u64,
    /// Free for this user.
    pub free: u64,
}

impl Space {
    /// Returns the space of the file system that contains `path`.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

/// Operations on whole files. A file system may reorder them unless it is told to sync.
pub trait Disk: Send + Sync + 'static {
    /// Writes a file of `bytes`, replacing an existing one, and returns once the bytes are on disk;
    /// its directory entry may not be.
    ///
    /// # Errors
    /// The system's error.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Renames a file, replacing an existing one.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns once the directory entries of the folder of `path` are on disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns the free bytes of the file system that contains `folder`.
    ///
    /// # Errors
    /// The system's error.
    fn free(&self, folder: &Path) -> io::Result<u64> {
        Ok(Space::of(folder)?.free)
    }
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Disk for Files {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Checks that opening an existing file does not block: opening a named pipe would wait for a
/// process at its other end.
///
/// # Errors
/// If the path is not an ordinary file, or its metadata cannot be read.
pub fn ordinary(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() => Ok(()),
        Ok(_) => {
            let what = format!("{} is not an ordinary file", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
        Err(error) => Err(error),
    }
}

/// Writes a file of `bytes` atomically: after a crash the path holds the old file or the new one.
///
/// # Errors
/// The system's error. An existing file is still there unless the new one has replaced it.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(HALF);
    let half = Path::new(&half);
    let written = disk.write(half, bytes).and_then(|()| disk.rename(half, path));
    if written.is_err() {
        drop(disk.remove(half)); // free its space, which may be needed
    }
    // The new name is durable only after this.
    written.and_then(|()| disk.sync_folder(path))
}

/// Suffix of a file's name until the file is complete.
const HALF: &str = ".new";
