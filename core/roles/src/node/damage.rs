//! Attempts that end with bytes which are not those of a message, or not of the protocol.

use alloc::string::String;
use core::fmt;

use super::NodeError;
use pstrain_wire::FrameError;

/// Connections in a row that may end with a damaged message before a node gives up: a path that
/// damages every connection lets nothing through.
const MOST: u32 = 8;
/// Attempts in a row that may end with the same mismatch: damage differs from one to the next.
const MOST_MISMATCHES: u32 = 4;

/// Attempts since the last progress that ended in such a way. Not saved: a restarted process has
/// other connections.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Connections that a damaged message ended.
    times: u32,
    /// The last mismatch, and the number of attempts in a row that ended with it.
    mismatch: (String, u32),
}

impl Damage {
    /// Counts another connection that a damaged message ended; returns the reason in words. If the
    /// other end `may_be_foreign`, the bytes may also be those of another program or build.
    ///
    /// # Errors
    /// [`NodeError::Damaged`] if there were too many in a row; as [`Self::mismatched`].
    pub(super) fn again(&mut self, error: &str, may_be_foreign: bool) -> Result<String, NodeError> {
        self.times += 1;
        let why = if may_be_foreign { self.mismatched(error.into())? } else { in_words(error) };
        if self.times > MOST {
            return Err(NodeError::Damaged { times: self.times, why: error.into() });
        }
        Ok(why)
    }

    /// Counts another attempt that ended as one with a node of another key, protocol or program
    /// does, or with damage that looks alike; returns the reason.
    ///
    /// # Errors
    /// [`NodeError::Mismatch`] if too many in a row ended with this reason.
    pub(super) fn mismatched(&mut self, why: String) -> Result<String, NodeError> {
        let (last, times) = &mut self.mismatch;
        if *last != why {
            (*last, *times) = (why.clone(), 0);
        }
        *times += 1;
        if *times > MOST_MISMATCHES {
            return Err(NodeError::Mismatch { times: *times, why });
        }
        Ok(why)
    }

    /// The run has made progress over this connection: resets the counts.
    pub(super) fn progressed(&mut self) {
        self.times = 0;
        self.mismatch.1 = 0;
    }
}

/// The reason for closing a connection after a message with this error.
pub(super) fn in_words(error: impl fmt::Display) -> String {
    alloc::format!("a message was damaged on the way: {error}")
}

/// True if the bytes may come from another program, or from another build.
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
                assert!(damage.again("checksum", false).is_ok_and(|why| why.contains("checksum")));
            }
            damage.progressed();
        }
        for _ in 0..MOST {
            assert!(damage.again("checksum", false).is_ok());
        }
        let given_up = NodeError::Damaged { times: MOST + 1, why: "checksum".into() };
        assert_eq!(damage.again("checksum", false), Err(given_up));
    }

    #[test]
    fn the_same_mismatch_in_a_row_ends_a_node_and_damage_that_looks_like_others_does_not() {
        let mut damage = Damage::default();
        for attempt in 0..2 * MOST_MISMATCHES {
            let why = alloc::format!("it speaks protocol {}", attempt % 2);
            assert_eq!(damage.mismatched(why.clone()), Ok(why));
        }
        for _ in 0..MOST_MISMATCHES {
            assert_eq!(damage.again("HTTP", true), Ok("HTTP".into()));
        }
        let named = NodeError::Mismatch { times: MOST_MISMATCHES + 1, why: "HTTP".into() };
        assert_eq!(damage.again("HTTP", true), Err(named));
    }
}
