//! Harness: a disk of 2 MiB, for tests of full disks; needs root.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cluster::path;
use crate::process::Process;

/// Allocation unit of a tmpfs.
const PAGE: usize = 4096;

/// A small file system that is visible only to processes started under [`Self::under`].
pub(crate) struct SmallDisk {
    folder: TempDir,
    /// Process that keeps the file system mounted.
    holder: Process,
    /// Flag of `nsenter` that targets the holder's namespace.
    target: String,
}

impl SmallDisk {
    pub(crate) fn mount() -> Self {
        let folder = TempDir::new().unwrap();
        let mount = "mount -t tmpfs -o size=2m none \"$1\" && echo mounted >&2 && exec sleep 10000";
        let command = ["unshare", "--mount", "sh", "-c", mount];
        let holder = Process::start_under(&command, &[path(folder.path())]);
        holder.wait_to_say("mounted");
        let target = format!("--target={}", holder.id());
        Self { folder, holder, target }
    }

    /// Returns the mount point.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the wrapper command that runs another command in the mount namespace.
    pub(crate) fn under(&self) -> [&str; 3] {
        ["nsenter", "--mount", &self.target]
    }

    /// Fills the disk except for one page.
    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.filler()).unwrap();
        let full = loop {
            if let Err(error) = filler.write_all(&[1; PAGE]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        let taken = filler.metadata().unwrap().len();
        filler.set_len(taken.saturating_sub(PAGE as u64)).unwrap();
    }

    /// Frees the space that [`Self::fill`] took.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.folder.path().strip_prefix("/").unwrap()).join("filler")
    }
}
