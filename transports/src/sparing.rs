//! Messages about what others do to us, of which there may be any number: a few are said, the
//! others counted. Prints nothing itself.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::time::Time;
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
        if self.is_over(now) {
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

    /// Whether the present ones are long ago.
    fn is_over(&self, now: Time) -> bool {
        self.said == 0 || now - self.since >= self.period
    }

    /// Whether another message would not be let through.
    fn is_used_up(&self, now: Time) -> bool {
        !self.is_over(now) && self.said == self.most
    }

    /// How many since the last one were not let through. They count as told from then on.
    pub const fn unsaid(&mut self) -> u64 {
        std::mem::replace(&mut self.unsaid, 0)
    }
}

/// The same for each of many sources, and for all together: a flood from one hides no other.
#[derive(Clone, Debug)]
pub struct SparingBy<K> {
    each: Sparing,
    all: Sparing,
    by_source: BTreeMap<K, Sparing>,
    unsaid: u64,
}

impl<K: Ord> SparingBy<K> {
    /// `each` is for one source, `all` for all of them together; that bounds the memory, too.
    #[must_use]
    pub const fn new(each: Sparing, all: Sparing) -> Self {
        Self { each, all, by_source: BTreeMap::new(), unsaid: 0 }
    }

    /// The same by a clock that starts again.
    #[must_use]
    pub fn restarted(self) -> Self {
        Self { all: self.all.anew(), by_source: BTreeMap::new(), ..self }
    }

    /// The text of a message about `source` if it is let through, with the number of messages
    /// before it, about any source, that were not.
    pub fn say(&mut self, now: Time, source: K, what: &str) -> Option<String> {
        let own = self.by_source.get(&source).unwrap_or(&self.each);
        if own.is_used_up(now) || self.all.lets(now).is_none() {
            self.unsaid += 1;
            return None;
        }
        self.by_source.retain(|_, sparing| !sparing.is_over(now));
        self.by_source.entry(source).or_insert(self.each).lets(now);
        Some(match self.unsaid() {
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

    #[test]
    fn a_flood_from_one_source_hides_no_message_about_another() {
        let period = Duration::from_secs(10);
        let mut refusals = SparingBy::new(Sparing::new(2, period), Sparing::new(5, period));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let flood = (0..1_000).filter_map(|_| refusals.say(at(1), "flood", "noise"));
        assert_eq!(flood.count(), 2);
        let said = refusals.say(at(1), "edge-1", "edge-1 was refused");
        assert_eq!(said.unwrap(), "edge-1 was refused (and 998 others before)");
        // Many sources are a flood, too.
        let said = (0..1_000).filter_map(|number| {
            refusals.say(at(2), if number % 2 == 0 { "one" } else { "two" }, "noise")
        });
        assert_eq!(said.count(), 2);
        assert_eq!(refusals.say(at(10), "edge-2", "edge-2 was refused"), None);
        assert!(refusals.say(at(11), "edge-2", "edge-2 was refused").is_some());
        assert_eq!(refusals.by_source.len(), 3, "sources of long ago are forgotten");
    }
}
