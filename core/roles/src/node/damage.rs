//! Messages that were damaged in transit.

use alloc::string::String;
use core::fmt;

use super::NodeError;
use pstrain_wire::FrameError;

/// Connections in a row that may end with a damaged message before a node gives up: a path that
/// damages every connection lets nothing through.
const MOST: u32 = 8;

/// Connections that ended with a damaged message since the last progress. Not saved: a restarted
/// process has other connections.
#[derive(Debug, Default)]
pub(super) struct Damage {
    times: u32,
}

impl Damage {
    /// Counts another connection that a damaged message ended; returns the reason in words.
    ///
    /// # Errors
    /// [`NodeError::Damaged`] if there were too many in a row.
    pub(super) fn again(&mut self, error: &str) -> Result<String, NodeError> {
        self.times += 1;
        if self.times > MOST {
            return Err(NodeError::Damaged { times: self.times, why: error.into() });
        }
        Ok(in_words(error))
    }

    /// The run has made progress over this connection: resets the count.
    pub(super) const fn progressed(&mut self) {
        self.times = 0;
    }
}

/// The reason for closing a connection after a message with this error.
pub(super) fn in_words(error: impl fmt::Display) -> String {
    alloc::format!("a message was damaged on the way: {error}")
}

/// True if the bytes may come from another program, or from another release.
pub(super) const fn is_foreign(error: FrameError) -> bool {
    matches!(error, FrameError::Magic(_) | FrameError::Version(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_damages_each_connection_is_given_up_and_one_that_lets_some_through_is_not() {
        let mut damage = Damage::default();
        for _ in 0..10 {
            for _ in 0..MOST {
                assert!(damage.again("checksum").is_ok_and(|why| why.contains("checksum")));
            }
            damage.progressed();
        }
        for _ in 0..MOST {
            assert!(damage.again("checksum").is_ok());
        }
        let given_up = NodeError::Damaged { times: MOST + 1, why: "checksum".into() };
        assert_eq!(damage.again("checksum"), Err(given_up));
    }
}
