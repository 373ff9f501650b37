//! The few things that are done with whole files, so that a test can let each of them go wrong.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All.
    pub total: u64,
    /// Free for this user.
    pub free: u64,
}

impl Space {
    /// The space of the file system that has `path`.
    ///
    /// # Errors
    /// The system's own.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

/// What is done with whole files. A file system may do it in any order until it is told otherwise.
pub trait Disk: Clone + Send + 'static {
    /// Makes a file of `bytes`, in place of one that may be there, and returns once it is on the
    /// disk; its name may not be.
    ///
    /// # Errors
    /// What the system says.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Gives a file another name, in place of one that may have it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns once the names in the folder of `path` are on the disk.
    ///
    /// # Errors
    /// What the system says.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The bytes that are free where `folder` is.
    ///
    /// # Errors
    /// The system's own.
    fn free(&self, folder: &Path) -> io::Result<u64> {
        Ok(Space::of(folder)?.free)
    }
}

/// The disk as it is.
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

/// Makes sure that a file which is there can be opened without waiting: a named pipe would wait for
/// a process at its other end.
///
/// # Errors
/// If it is not an ordinary file, or the system says nothing of it.
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

/// Makes a file of `bytes` that is there as a whole or not at all, whatever happens meanwhile.
///
/// # Errors
/// What the system says; the file that may have been there is there still.
pub fn replace(disk: &impl Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(HALF);
    let half = Path::new(&half);
    let written = disk.write(half, bytes).and_then(|()| disk.rename(half, path));
    if written.is_err() {
        drop(disk.remove(half)); // the room it took may be needed
    }
    written.and_then(|()| disk.sync_folder(path))
}

/// What the name of a file ends with until it is whole.
const HALF: &str = ".new";
