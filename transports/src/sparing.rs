//! Messages about what others do to us, of which there may be any number: a few are said, the others
//! counted. Prints nothing itself.

use std::time::Duration;

use pstrain_core::time::Time;
use serde::{Deserialize, Serialize};

/// Lets so many messages through in a time, and counts those after them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sparing {
    most: u32,
    period: Duration,
    /// When the present ones began, and how many of them were said.
    since: Time,
    said: u32,
    unsaid: u64,
}

impl Sparing {
    /// `most` messages in a time of `period`, which begins with the first of them.
    #[must_use]
    pub const fn new(most: u32, period: Duration) -> Self {
        Self { most, period, since: Time::ZERO, said: 0, unsaid: 0 }
    }

    /// The same by a clock that begins anew.
    #[must_use]
    pub const fn anew(self) -> Self {
        Self { said: 0, ..self }
    }

    /// Whether a message is let through: if so, how many before it were not.
    pub fn lets(&mut self, now: Time) -> Option<u64> {
        if self.said == 0 || now - self.since >= self.period {
            (self.since, self.said) = (now, 0);
        }
        if self.said == self.most {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(self.unsaid())
    }

    /// What of a message is said, if it is: with the number of those before it that were not.
    pub fn say(&mut self, now: Time, what: &str) -> Option<String> {
        Some(match self.lets(now)? {
            0 => what.to_owned(),
            unsaid => format!("{what} (and {unsaid} others before)"),
        })
    }

    /// How many since the last one were not let through. They count as told from then on.
    pub const fn unsaid(&mut self) -> u64 {
        std::mem::replace(&mut self.unsaid, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_said_in_few_lines_and_counted() {
        let mut troubles = Sparing::new(20, Duration::from_secs(10));
        let mut say = |seconds| {
            let now = Time::ZERO + Duration::from_secs(seconds);
            troubles.say(now, "a connection was refused")
        };
        let said: Vec<String> = (0..1_000).filter_map(|_| say(3)).collect();
        assert_eq!(said, vec!["a connection was refused"; 20]);
        assert_eq!(say(12), None);
        assert_eq!(say(13).unwrap(), "a connection was refused (and 981 others before)");
        assert_eq!(say(14).unwrap(), "a connection was refused");
        assert_eq!(troubles.unsaid(), 0);
    }
}
