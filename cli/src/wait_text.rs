//! The wait of a server as text.

use pstrain_wire::{Wait, WaitReason};

use crate::figures::{elapsed, list};

/// Describes the wait: for which workers, why, since when and for how long at most.
pub(crate) fn waiting(wait: &Wait) -> String {
    let workers = list(wait.workers.iter().map(|worker| worker.number()));
    let noun = if wait.workers.len() == 1 { "worker" } else { "workers" };
    let whom = match wait.reason {
        // Any newcomer would do, so no worker is named.
        _ if workers.is_empty() => wait.reason.to_string(),
        WaitReason::Workers => format!("{noun} {workers} to come"),
        WaitReason::Unreached(_) => format!("{} from {noun} {workers}", wait.reason),
        reason => format!("{reason} of {noun} {workers}"),
    };
    let left =
        wait.left.map_or_else(String::new, |left| format!(", at most {} more", elapsed(left)));
    format!("for {whom}, since {} ago{left}", elapsed(wait.waited))
}
