//! User-facing text on who waits for whom under each policy.

use super::ConsistencySpec;

impl ConsistencySpec {
    /// Returns who waits for whom: the reason why a worker is given no parameters.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Bsp | Self::Ssp { slack: 0 } | Self::Delay { bound: Some(0) } => {
                "nobody goes on before every worker's gradient of the round has come"
            }
            Self::Ssp { .. } | Self::Dssp { .. } => {
                "whoever is too many iterations ahead waits for the slowest"
            }
            Self::Asp | Self::KBatchSync { .. } | Self::Rennala { .. } | Self::Buffered { .. } => {
                "nobody waits for anybody"
            }
            Self::Ringmaster { .. } => "nobody waits for anybody; too stale gradients are dropped",
            Self::Delay { bound: Some(_) } => {
                "whoever is too many iterations ahead of the oldest that is no update waits for it"
            }
            Self::Delay { bound: None } => "whoever is a pass over its data ahead waits",
            Self::KSync { .. } | Self::KAsync { .. } | Self::Backup { .. } => {
                "whoever has contributed waits until enough others have"
            }
            Self::Malenia { .. } | Self::Ringleader => {
                "whoever has given a whole pass over its data waits for those who gave nothing"
            }
            Self::RoundRobin => "everybody waits for their turn",
            Self::Auto => "as the mode that was chosen says",
        }
    }
}
