//! The advice against a slow worker, by the architecture of the job.

use pstrain_policy::architecture::Architecture;
use pstrain_wire::Status;

/// The architecture of the job. The status of a job without a server names it in place of the
/// consistency.
fn of(status: &Status) -> Architecture {
    status.consistency.parse().unwrap_or_default()
}

/// True if workers push gradients to a server.
pub(super) fn has_server(status: &Status) -> bool {
    of(status) == Architecture::Server
}

/// The architectures in which fewer workers wait for a slow one, if the job has no server: workers
/// have no other consistency then, and an architecture is chosen before a run.
pub(super) fn for_next_run(status: &Status) -> Option<&'static str> {
    match of(status) {
        Architecture::Server => None,
        Architecture::AdPsgd => Some(
            "in the next run, architecture = server with consistency = asp or backup:1 lets no \
             other wait for it",
        ),
        _ => Some(
            "in the next run, architecture = server with consistency = asp or backup:1 lets no \
             other wait for it, and gossip:ad-psgd only its neighbors",
        ),
    }
}
