//! How many connections the system lets a process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many open files as it may take without being asked twice: each
/// connection is one, and the usual 1,024 are for interactive work. How many that is; none if there
/// is no limit.
pub fn allow_more_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Where it may not be raised, whoever needs more hears of it from the system.
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap_or_default();
    }
    allowed_files()
}

/// The files that this process may open; none if there is no limit.
pub(super) fn allowed_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
