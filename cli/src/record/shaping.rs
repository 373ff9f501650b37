//! Accuracy of modelled links and computation times in a run in real time.

use std::time::Duration;

use pstrain_transports::{Lateness, Punctuality};
use serde::Serialize;

use crate::figures::count;

/// Part of a report. Workers in processes of their own report theirs themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Shaping {
    /// Messages that were delayed by their modelled link.
    pub(crate) messages: Punctual,
    /// Mini-batches that were delayed until they were due.
    pub(crate) batches: Punctual,
    /// Mini-batches whose computation took longer than modelled.
    pub(crate) overruns: u64,
    /// How often any of these was late by 5 ms ([`STALL`]) or more: the machine was busy otherwise,
    /// or has too few cores.
    pub(crate) stalls: u64,
    /// The sum of these delays.
    pub(crate) stalled_s: f64,
}

/// An otherwise idle machine is late by a fraction of this.
const STALL: Duration = Duration::from_millis(5);

/// The lateness of messages or mini-batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Punctual {
    /// How many.
    pub(crate) count: u64,
    /// Median of their lateness.
    pub(crate) late_median_ms: Option<f64>,
    /// 99th percentile of their lateness.
    pub(crate) late_p99_ms: Option<f64>,
}

impl Shaping {
    /// None if nothing was modelled.
    pub(crate) fn of(punctuality: &Punctuality) -> Option<Self> {
        let Punctuality { messages, batches, overruns } = punctuality;
        let stalls = [messages, batches, overruns].map(|lateness| lateness.beyond(STALL));
        (!punctuality.is_empty()).then(|| Self {
            messages: Punctual::of(messages),
            batches: Punctual::of(batches),
            overruns: overruns.count(),
            stalls: stalls.iter().map(|(count, _)| count).sum(),
            stalled_s: stalls.iter().map(|(_, sum)| sum.as_secs_f64()).sum(),
        })
    }

    /// Formats the report, such as `120 messages late by 0.061 ms (p99 0.140 ms)`.
    pub(crate) fn in_words(&self) -> String {
        let mut parts = Vec::new();
        for (what, punctual) in [("messages", self.messages), ("mini-batches", self.batches)] {
            if let (Some(median), Some(p99)) = (punctual.late_median_ms, punctual.late_p99_ms) {
                let count = count(punctual.count);
                parts.push(format!("{count} {what} late by {median:.3} ms (p99 {p99:.3})"));
            }
        }
        if self.overruns > 0 {
            let gradients = if self.overruns == 1 { "gradient" } else { "gradients" };
            parts.push(format!("{} {gradients} slower than modelled", count(self.overruns)));
        }
        match self.stalls {
            0 => {}
            1 => parts.push(format!("a stall of {:.3} s", self.stalled_s)),
            stalls => {
                parts.push(format!("{} stalls, {:.3} s together", count(stalls), self.stalled_s));
            }
        }
        parts.join(", ")
    }
}

impl Punctual {
    fn of(lateness: &Lateness) -> Self {
        let ms = |late: Duration| 1e3 * late.as_secs_f64();
        Self {
            count: lateness.count(),
            late_median_ms: lateness.quantile(0.5).map(ms),
            late_p99_ms: lateness.quantile(0.99).map(ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_modelled_is_not_reported() {
        let mut punctuality = Punctuality::default();
        assert_eq!(Shaping::of(&punctuality), None);
        for micros in [60, 70, 80] {
            punctuality.messages.note(Duration::from_micros(micros));
        }
        let shaping = Shaping::of(&punctuality).unwrap();
        assert_eq!(shaping.in_words(), "3 messages late by 0.070 ms (p99 0.080)");
        for millis in [1, 2] {
            punctuality.overruns.note(Duration::from_millis(millis));
        }
        let words = Shaping::of(&punctuality).unwrap().in_words();
        assert!(words.ends_with(", 2 gradients slower than modelled"), "{words}");
    }

    #[test]
    fn stalls_are_told_however_punctual_the_median_is() {
        let mut punctuality = Punctuality::default();
        for _ in 0..1_000 {
            punctuality.messages.note(Duration::from_micros(80));
        }
        punctuality.messages.note(Duration::from_millis(300));
        punctuality.batches.note(Duration::from_millis(150));
        punctuality.overruns.note(Duration::from_millis(50));
        let shaping = Shaping::of(&punctuality).unwrap();
        assert_eq!(shaping.messages.late_median_ms, Some(0.08));
        assert!(shaping.stalls == 3 && (shaping.stalled_s - 0.5).abs() < 1e-9, "{shaping:?}");
        let words = shaping.in_words();
        assert!(words.ends_with(", 3 stalls, 0.500 s together"), "{words}");
    }
}
