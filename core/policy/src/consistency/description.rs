//! User-facing text on who waits for whom under each policy.

use super::ConsistencySpec;

impl ConsistencySpec {
    /// Returns who waits for whom: the reason why a worker is given no parameters.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Bsp | Self::Ssp { slack: 0 } | Self::Delay { bound: Some(0) } => {
                "a round closes once every worker's gradient has come"
            }
            Self::Ssp { .. } | Self::Dssp { .. } => {
                "a worker too many iterations ahead waits for the slowest"
            }
            Self::Asp | Self::KBatchSync { .. } | Self::Rennala { .. } | Self::Buffered { .. } => {
                "no worker waits for another"
            }
            Self::Ringmaster { .. } => {
                "no worker waits for another; too stale gradients are dropped"
            }
            Self::Delay { bound: Some(_) } => {
                "a worker too many iterations ahead of the oldest open one waits for it"
            }
            Self::Delay { bound: None } => "a worker a whole pass over its data ahead waits",
            Self::KSync { .. } | Self::KAsync { .. } | Self::Backup { .. } => {
                "a worker that has contributed waits until enough others have"
            }
            Self::Malenia { .. } | Self::Ringleader => {
                "a worker that gave a whole pass over its data waits for workers that gave nothing"
            }
            Self::RoundRobin => "each worker waits for its turn",
            Self::Auto => "as the mode that was chosen says",
        }
    }
}
