//! An access link, which all connections of a process share, and how much of it is in use.

use std::time::Duration;

use pstrain_compute::time::Time;

use crate::scenario::{Bottleneck, Rate};

/// Spans of use that are kept; later spans only add to the sums.
const SPANS: usize = 4096;

/// One direction of an access link.
#[derive(Debug)]
pub(super) struct AccessLink {
    bottleneck: Bottleneck,
    usage: LinkUsage,
    free: Time,
}

/// Use of one direction of an access link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkUsage {
    /// Bytes.
    pub bytes: u64,
    /// The time in which something went over it.
    pub busy: Duration,
    /// Begin and end of each span of use: the first 4,096.
    pub spans: Vec<(Time, Time)>,
}

impl AccessLink {
    pub(super) fn new(rate: Rate) -> Self {
        let (bottleneck, usage) = (Bottleneck::new(rate), LinkUsage::default());
        Self { bottleneck, usage, free: Time::ZERO }
    }

    /// When a message of `bytes` bytes that comes at `now` has passed.
    pub(super) fn pass(&mut self, now: Time, bytes: u64) -> Time {
        let end = self.bottleneck.pass(now, bytes);
        let begin = now.max(self.free);
        self.free = end.max(begin);
        self.usage.note(bytes, begin, self.free);
        end
    }

    pub(super) const fn usage(&self) -> &LinkUsage {
        &self.usage
    }
}

impl LinkUsage {
    fn note(&mut self, bytes: u64, begin: Time, end: Time) {
        self.bytes += bytes;
        self.busy += end.since(begin);
        let full = self.spans.len() >= SPANS;
        match self.spans.last_mut() {
            // Traffic without a pause belongs to the same span.
            Some((_, last)) if *last == begin => *last = end,
            _ if full => {}
            _ => self.spans.push((begin, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn what_follows_without_a_pause_is_one_span() {
        // 1,000 bytes take 1 ms.
        let mut link = AccessLink::new(Rate::new(8_000_000).unwrap());
        assert_eq!(link.pass(ms(5), 2_000), ms(7));
        assert_eq!(link.pass(ms(6), 1_000), ms(8));
        assert_eq!(link.pass(ms(10), 4_000), ms(14));
        let usage = link.usage();
        assert_eq!((usage.bytes, usage.busy), (7_000, Duration::from_millis(7)));
        assert_eq!(usage.spans, [(ms(5), ms(8)), (ms(10), ms(14))]);
    }

    #[test]
    fn of_many_spans_the_sum_is_kept() {
        let mut link = AccessLink::new(Rate::new(8_000_000).unwrap());
        for number in 0..2 * SPANS as u64 {
            link.pass(ms(2 * number), 1_000);
        }
        let usage = link.usage();
        assert_eq!((usage.spans.len(), usage.busy.as_millis()), (SPANS, 2 * SPANS as u128));
    }
}
