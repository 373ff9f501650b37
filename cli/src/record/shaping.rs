//! How well a run in real time kept to the links and computation times that are modelled.

use std::time::Duration;

use pstrain_transports::{Lateness, Punctuality};
use serde::Serialize;

/// Part of a report. Workers that are processes of their own say theirs themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Shaping {
    /// Messages that were held for as long as their link takes.
    pub(crate) messages: Punctual,
    /// Mini-batches that were held until they were due.
    pub(crate) batches: Punctual,
    /// Mini-batches that took longer to compute than they should have.
    pub(crate) overruns: u64,
}

/// How late things were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Punctual {
    pub(crate) count: u64,
    pub(crate) late_median_ms: Option<f64>,
    pub(crate) late_p99_ms: Option<f64>,
}

impl Shaping {
    /// None if nothing was modelled.
    pub(crate) fn of(punctuality: &Punctuality) -> Option<Self> {
        (!punctuality.is_empty()).then(|| Self {
            messages: Punctual::of(&punctuality.messages),
            batches: Punctual::of(&punctuality.batches),
            overruns: punctuality.overruns,
        })
    }

    /// In words, such as `120 messages late by 0.061 ms (p99 0.140 ms)`.
    pub(crate) fn in_words(&self) -> String {
        let mut parts = Vec::new();
        for (what, punctual) in [("messages", self.messages), ("mini-batches", self.batches)] {
            if let (Some(median), Some(p99)) = (punctual.late_median_ms, punctual.late_p99_ms) {
                let count = punctual.count;
                parts.push(format!("{count} {what} late by {median:.3} ms (p99 {p99:.3} ms)"));
            }
        }
        if self.overruns > 0 {
            parts.push(format!("{} gradients took longer than modelled", self.overruns));
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
        assert_eq!(shaping.in_words(), "3 messages late by 0.070 ms (p99 0.080 ms)");
        punctuality.overruns = 2;
        let words = Shaping::of(&punctuality).unwrap().in_words();
        assert!(words.ends_with(", 2 gradients took longer than modelled"), "{words}");
    }
}
