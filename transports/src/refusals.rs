//! Recently refused workers and servers, for the status of a run.
//!
//! The node knows which peer was refused and why; the transport knows where it came from.

use std::collections::VecDeque;

use pstrain_compute::time::Time;
use pstrain_wire::RefusedStatus;

/// Maximum number of entries.
const MOST: usize = 8;
/// Maximum number of characters kept of a reason.
const MOST_CHARS: usize = 300;

/// The last refusals, latest first: one entry for each peer, origin and reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    last: VecDeque<Refused>,
}

#[derive(Debug)]
struct Refused {
    who: String,
    from: Option<String>,
    why: String,
    times: u64,
    at: Time,
}

impl Refusals {
    /// Records that `who` from host `from` was refused.
    pub(crate) fn note(&mut self, at: Time, who: String, from: Option<String>, why: &str) {
        let why: String = why.chars().take(MOST_CHARS).collect();
        let is_same = |it: &Refused| it.who == who && it.from == from && it.why == why;
        let before = self.last.iter().position(is_same).and_then(|place| self.last.remove(place));
        let times = before.map_or(0, |before| before.times) + 1;
        self.last.push_front(Refused { who, from, why, times, at });
        self.last.truncate(MOST);
    }

    pub(crate) fn status(&self, now: Time) -> Vec<RefusedStatus> {
        let status = |refused: &Refused| RefusedStatus {
            who: refused.who.clone(),
            from: refused.from.clone(),
            why: refused.why.clone(),
            times: refused.times,
            ago: now.since(refused.at),
        };
        self.last.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_worker_that_tries_again_and_again_is_one_entry_and_none_drives_out_another_so() {
        let mut refusals = Refusals::default();
        let host = || Some("10.0.0.3".to_owned());
        refusals.note(at(1), "edge-1".into(), host(), "the run is over");
        for second in 2..100 {
            refusals.note(at(second), "edge-2".into(), host(), "another release");
        }
        let status = refusals.status(at(100));
        let told: Vec<_> = status.iter().map(|it| (it.who.as_str(), it.times)).collect();
        assert_eq!(told, [("edge-2", 98), ("edge-1", 1)]);
        assert_eq!(status[0].ago, Duration::from_secs(1));
        assert_eq!(status[1].from.as_deref(), Some("10.0.0.3"));
    }

    #[test]
    fn the_memory_for_them_is_bounded() {
        let mut refusals = Refusals::default();
        for number in 0..100 {
            refusals.note(at(number), format!("edge-{number}"), None, &"why ".repeat(1000));
        }
        let status = refusals.status(at(100));
        assert_eq!(status.len(), MOST);
        assert!(status.iter().all(|it| it.why.len() == MOST_CHARS));
        assert_eq!(status[0].who, "edge-99");
    }
}
