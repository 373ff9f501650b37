//! The advice against a slow worker, by the architecture of the job.

use pstrain_policy::architecture::Architecture;
use pstrain_wire::Status;

/// The architecture of the job. The status of a job without a server names it in place of the
/// consistency.
fn of(status: &Status) -> Architecture {
    let word = status.consistency.split(", ").next().unwrap_or_default();
    word.parse().unwrap_or_default()
}

/// True if the workers could compute during the sum of their gradients, and do not.
pub(super) fn could_overlap(status: &Status) -> bool {
    let word = &status.consistency;
    of(status).is_replicated()
        && !word.ends_with(", 2 in flight")
        && !word.contains(", partial after ")
}

/// True if workers push gradients to a server.
pub(super) fn has_server(status: &Status) -> bool {
    of(status).has_server()
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
