//! Messages that were damaged on the way.

use alloc::string::String;
use core::fmt;

use super::WorkerError;
use pstrain_wire::FrameError;

/// So many connections in a row may end with a damaged message before a node gives up: a path that
/// damages each of them lets nothing through.
const MOST: u32 = 8;

/// Connections that ended with a damaged message since the last progress. It is not saved: a
/// process that begins again has other connections.
#[derive(Debug, Default)]
pub(super) struct Damage {
    times: u32,
}

impl Damage {
    /// Another connection has ended like that, because of `error`; gives why, in words.
    ///
    /// # Errors
    /// [`WorkerError::Damaged`] if it were one too many.
    pub(super) fn again(&mut self, error: &str) -> Result<String, WorkerError> {
        self.times += 1;
        if self.times > MOST {
            return Err(WorkerError::Damaged { times: self.times, why: error.into() });
        }
        Ok(in_words(error))
    }

    /// The run has gone on over this connection.
    pub(super) const fn progressed(&mut self) {
        self.times = 0;
    }
}

/// Why a connection is as good as lost after a message with this error.
pub(super) fn in_words(error: impl fmt::Display) -> String {
    alloc::format!("a message was damaged on the way: {error}")
}

/// Whether another program, or another release, may be behind these bytes.
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
        let given_up = WorkerError::Damaged { times: MOST + 1, why: "checksum".into() };
        assert_eq!(damage.again("checksum"), Err(given_up));
    }
}
