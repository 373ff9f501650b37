//! The wait of a server as text.

use std::time::Duration;

use pstrain_wire::{Wait, WaitReason};

/// Describes the wait: for which workers, why, since when and for how long at most.
pub(crate) fn waiting(wait: &Wait) -> String {
    let workers: Vec<String> = wait.workers.iter().map(ToString::to_string).collect();
    let noun = if workers.len() == 1 { "worker" } else { "workers" };
    let whom = match wait.reason {
        // Any newcomer would do, so no worker is named.
        _ if workers.is_empty() => wait.reason.to_string(),
        WaitReason::Workers => format!("{noun} {} to come", workers.join(", ")),
        reason => format!("{reason} of {noun} {}", workers.join(", ")),
    };
    let left = wait.left.map_or_else(String::new, |left| format!(", at most {} more", short(left)));
    format!("for {whom}, since {} ago{left}", short(wait.waited))
}

/// Formats a duration, rounded down to milliseconds.
pub(crate) fn short(span: Duration) -> String {
    humantime::format_duration(Duration::from_millis(span.as_millis() as u64)).to_string()
}
