//! Measures how closely real time follows the modelled time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Histogram of lateness, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Number of events by lateness in microseconds.
    micros: BTreeMap<u64, u64>,
    count: u64,
}

impl Lateness {
    /// Counts an event that was late by `by`.
    pub fn note(&mut self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        *self.micros.entry(micros).or_default() += 1;
        self.count += 1;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (micros, times) in &other.micros {
            *self.micros.entry(*micros).or_default() += times;
        }
        self.count += other.count;
    }

    /// Returns the number of events.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns how many events were late by `limit` or more, and the sum of their lateness.
    #[must_use]
    pub fn beyond(&self, limit: Duration) -> (u64, Duration) {
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.micros.range(limit..).fold((0, Duration::ZERO), |(count, sum), (micros, times)| {
            let times32 = u32::try_from(*times).unwrap_or(u32::MAX);
            (
                count + times,
                sum.saturating_add(Duration::from_micros(*micros).saturating_mul(times32)),
            )
        })
    }

    /// Returns the lateness that a `share` of all events did not exceed; `None` without events.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let mut seen = 0;
        let (micros, _) = self.micros.iter().find(|(_, times)| {
            seen += **times;
            seen as f64 >= share * self.count as f64
        })?;
        Some(Duration::from_micros(*micros))
    }
}

/// How closely a node kept to the modelled link and computation times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Punctuality {
    /// Messages: hand-over time minus due time.
    pub messages: Lateness,
    /// Gradients that were computed in time, or whose modelled duration was measured.
    pub batches: Lateness,
    /// Gradients whose computation took longer than the model says, with the excess.
    pub overruns: Lateness,
}

impl Punctuality {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.messages.merge(&other.messages);
        self.batches.merge(&other.batches);
        self.overruns.merge(&other.overruns);
    }

    /// True if nothing was modelled.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.count() == 0 && self.batches.count() == 0 && self.overruns.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_that_was_counted() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.5), None);
        for micros in 1..=50 {
            lateness.note(Duration::from_micros(micros));
        }
        let mut other = Lateness::default();
        for micros in 51..=100 {
            other.note(Duration::from_micros(micros));
        }
        lateness.merge(&other);
        assert_eq!(lateness.count(), 100);
        assert_eq!(lateness.quantile(0.5), Some(Duration::from_micros(50)));
        assert_eq!(lateness.quantile(0.99), Some(Duration::from_micros(99)));
        assert_eq!(lateness.quantile(1.0), Some(Duration::from_micros(100)));
        let (count, sum) = lateness.beyond(Duration::from_micros(99));
        assert_eq!((count, sum), (2, Duration::from_micros(199)));
        assert_eq!(lateness.beyond(Duration::from_micros(101)), (0, Duration::ZERO));
    }
}
