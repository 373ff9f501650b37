//! Outages: spans in which a link carries nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::time::Time;

use super::quantity::{Span, span};

/// A span in which a link carries nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start of the outage.
    pub begin: Time,
    /// Length of the outage.
    pub length: Duration,
}

impl FromStr for Outage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (begin, length) = window(text)?;
        Ok(Self { begin, length })
    }
}

/// Parses `START+LENGTH`.
pub(super) fn window(text: &str) -> Result<(Time, Duration), String> {
    let Some((begin, length)) = text.split_once('+') else {
        return Err(format!("{text:?} is no span of time; write START+LENGTH, such as 10s+2s"));
    };
    let length = span(length)?;
    if length.is_zero() {
        return Err("its length must be above 0".into());
    }
    Ok((Time::ZERO + span(begin)?, length))
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", Span(self.begin.since(Time::ZERO)), Span(self.length))
    }
}

/// Time of a link, which stands still during outages: messages in transit continue afterwards.
#[derive(Clone, Debug)]
pub(super) struct OpenTime {
    /// Start and end of the outages, sorted and disjoint, each with the total length of the outages
    /// before it. In nanoseconds.
    closed: Vec<(u64, u64, u64)>,
}

impl OpenTime {
    pub(super) fn new(outages: &[Outage]) -> Self {
        let mut spans: Vec<(u64, u64)> = outages
            .iter()
            .map(|outage| (outage.begin.as_nanos(), (outage.begin + outage.length).as_nanos()))
            .collect();
        spans.sort_unstable();
        let mut closed: Vec<(u64, u64, u64)> = Vec::new();
        for (begin, end) in spans {
            match closed.last_mut() {
                Some((_, last_end, _)) if begin <= *last_end => *last_end = end.max(*last_end),
                last => {
                    let before = last.map_or(0, |&mut (b, e, before)| before + (e - b));
                    closed.push((begin, end, before));
                }
            }
        }
        Self { closed }
    }

    /// Returns the link time at the clock time `now`.
    pub(super) fn by(&self, now: Time) -> Time {
        let now = now.as_nanos();
        let begun = self.closed.partition_point(|&(begin, ..)| begin <= now);
        match begun.checked_sub(1).map(|last| self.closed[last]) {
            None => Time::from_nanos(now),
            Some((begin, end, before)) => Time::from_nanos(now - before - (now.min(end) - begin)),
        }
    }

    /// Returns the clock time at link time `open`. If an outage starts then, returns its end.
    pub(super) fn clock(&self, open: Time) -> Time {
        let open = open.as_nanos();
        let begun = self.closed.partition_point(|&(begin, _, before)| begin - before <= open);
        match begun.checked_sub(1).map(|last| self.closed[last]) {
            None => Time::from_nanos(open),
            Some((begin, end, before)) => {
                Time::from_nanos(open.saturating_add(before + (end - begin)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn outages_that_touch_are_one() {
        let outages = ["10s+2s", "4s+1s", "11s+3s"].map(|text| text.parse::<Outage>().unwrap());
        let open = OpenTime::new(&outages);
        let s = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for (clock, had) in [(3, 3), (4, 4), (5, 4), (9, 8), (10, 9), (13, 9), (14, 9), (15, 10)] {
            assert_eq!(open.by(s(clock)), s(had), "{clock}");
        }
        for (had, clock) in [(3, 3), (4, 5), (8, 9), (9, 14), (10, 15)] {
            assert_eq!(open.clock(s(had)), s(clock), "{had}");
        }
        assert!("10s".parse::<Outage>().is_err());
        assert!("10s+0s".parse::<Outage>().is_err());
    }

    proptest! {
        #[test]
        fn outside_outages_the_two_times_agree(
            spans in prop::collection::vec((0..1_000_u64, 1..100_u64), 0..6),
            now in 0..2_000_u64,
        ) {
            let outages: Vec<Outage> = spans
                .iter()
                .map(|&(begin, length)| Outage {
                    begin: Time::from_nanos(begin),
                    length: Duration::from_nanos(length),
                })
                .collect();
            let open = OpenTime::new(&outages);
            let inside = spans.iter().any(|&(begin, length)| (begin..begin + length).contains(&now));
            let there_and_back = open.clock(open.by(Time::from_nanos(now)));
            if inside {
                prop_assert!(there_and_back > Time::from_nanos(now));
            } else {
                prop_assert_eq!(there_and_back, Time::from_nanos(now));
            }
        }
    }
}
