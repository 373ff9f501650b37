//! The system's limit on open files, and thereby on connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit on open files to the hard limit, since each connection is one file
/// and the usual 1,024 are meant for interactive work. Returns the limit; `None` if there is none.
pub fn allow_more_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Ignore a failure: the system reports it when more files are needed.
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap_or_default();
    }
    allowed_files()
}

/// Returns how many files this process may open; `None` if there is no limit.
pub(super) fn allowed_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
