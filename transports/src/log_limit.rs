//! Rate limiter for log messages about events that peers cause, which may be any number.
//!
//! Lets a few messages through and counts the others. Prints nothing itself.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::time::Time;
use serde::{Deserialize, Serialize};

/// Lets a number of messages through in each period, and counts the messages after them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LogLimit {
    most: u32,
    period: Duration,
    /// When the current period began, and how many messages it has let through.
    since: Time,
    said: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Returns a limiter of `most` messages per `period`, which begins with its first message.
    #[must_use]
    pub const fn new(most: u32, period: Duration) -> Self {
        Self { most, period, since: Time::ZERO, said: 0, suppressed: 0 }
    }

    /// Returns the limiter for a clock that starts again: a new period begins, the count stays.
    #[must_use]
    pub const fn anew(self) -> Self {
        Self { said: 0, ..self }
    }

    /// Lets a message through or counts it. If let through, returns how many before it were not.
    pub fn admit(&mut self, now: Time) -> Option<u64> {
        if self.is_over(now) {
            (self.since, self.said) = (now, 0);
        }
        if self.said == self.most {
            self.suppressed += 1;
            return None;
        }
        self.said += 1;
        Some(self.suppressed())
    }

    /// Returns the text of a message if it is let through, with the number of suppressed ones
    /// before.
    pub fn say(&mut self, now: Time, what: &str) -> Option<String> {
        Some(match self.admit(now)? {
            0 => what.to_owned(),
            suppressed => format!("{what} (and {suppressed} others before)"),
        })
    }

    /// True if the current period has ended, or has let nothing through.
    fn is_over(&self, now: Time) -> bool {
        self.said == 0 || now - self.since >= self.period
    }

    /// True if another message would be suppressed.
    fn is_used_up(&self, now: Time) -> bool {
        !self.is_over(now) && self.said == self.most
    }

    /// Returns the number of messages suppressed since the last one let through, and resets it.
    pub const fn suppressed(&mut self) -> u64 {
        std::mem::replace(&mut self.suppressed, 0)
    }
}

/// Rate limiter per source and for all sources together: a flood from one hides no other.
#[derive(Clone, Debug)]
pub struct LogLimitBySource<K> {
    each: LogLimit,
    all: LogLimit,
    by_source: BTreeMap<K, LogLimit>,
    suppressed: u64,
}

impl<K: Ord> LogLimitBySource<K> {
    /// `each` limits one source, `all` limits their total, which also bounds the memory.
    #[must_use]
    pub const fn new(each: LogLimit, all: LogLimit) -> Self {
        Self { each, all, by_source: BTreeMap::new(), suppressed: 0 }
    }

    /// Returns the limiter for a clock that starts again.
    #[must_use]
    pub fn restarted(self) -> Self {
        Self { all: self.all.anew(), by_source: BTreeMap::new(), ..self }
    }

    /// Returns the text of a message about `source` if it is let through, with the number of
    /// messages of any source that were suppressed before it.
    pub fn say(&mut self, now: Time, source: K, what: &str) -> Option<String> {
        let own = self.by_source.get(&source).unwrap_or(&self.each);
        if own.is_used_up(now) || self.all.admit(now).is_none() {
            self.suppressed += 1;
            return None;
        }
        self.by_source.retain(|_, sparing| !sparing.is_over(now));
        self.by_source.entry(source).or_insert(self.each).admit(now);
        Some(match self.suppressed() {
            0 => what.to_owned(),
            suppressed => format!("{what} (and {suppressed} others before)"),
        })
    }

    /// Returns the number of messages suppressed since the last one let through, and resets it.
    pub const fn suppressed(&mut self) -> u64 {
        std::mem::replace(&mut self.suppressed, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_said_in_few_lines_and_counted() {
        let mut troubles = LogLimit::new(20, Duration::from_secs(10));
        let mut say = |seconds| {
            let now = Time::ZERO + Duration::from_secs(seconds);
            troubles.say(now, "a connection was refused")
        };
        let said: Vec<String> = (0..1_000).filter_map(|_| say(3)).collect();
        assert_eq!(said, vec!["a connection was refused"; 20]);
        assert_eq!(say(12), None);
        assert_eq!(say(13).unwrap(), "a connection was refused (and 981 others before)");
        assert_eq!(say(14).unwrap(), "a connection was refused");
        assert_eq!(troubles.suppressed(), 0);
    }

    #[test]
    fn a_flood_from_one_source_hides_no_message_about_another() {
        let period = Duration::from_secs(10);
        let mut refusals =
            LogLimitBySource::new(LogLimit::new(2, period), LogLimit::new(5, period));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let flood = (0..1_000).filter_map(|_| refusals.say(at(1), "flood", "noise"));
        assert_eq!(flood.count(), 2);
        let said = refusals.say(at(1), "edge-1", "edge-1 was refused");
        assert_eq!(said.unwrap(), "edge-1 was refused (and 998 others before)");
        // Many sources together are a flood, too.
        let said = (0..1_000).filter_map(|number| {
            refusals.say(at(2), if number % 2 == 0 { "one" } else { "two" }, "noise")
        });
        assert_eq!(said.count(), 2);
        assert_eq!(refusals.say(at(10), "edge-2", "edge-2 was refused"), None);
        assert!(refusals.say(at(11), "edge-2", "edge-2 was refused").is_some());
        assert_eq!(refusals.by_source.len(), 3, "sources of long ago are forgotten");
    }
}
