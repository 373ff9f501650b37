//! Workers that departed before the run had ended.

use std::collections::VecDeque;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Departure, Event};
use serde::{Deserialize, Serialize};

/// The most departures that are kept: a worker may leave and come back any number of times.
const MOST: usize = 1000;

/// The latest departures of a run, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Departures(VecDeque<Departed>);

/// A worker that departed before the run had ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Departed {
    /// The worker, counted from 1.
    pub(crate) worker: WorkerId,
    /// When, from the start of the command.
    pub(crate) at_s: f64,
    /// How: `left`, `lost` (its lease expired), `refused` or `replaced` (by another process).
    pub(crate) how: Departure,
    /// Why, in words: those of the worker, if it left because of an error.
    pub(crate) why: String,
}

impl Departures {
    /// Notes an event of a run that has not ended.
    pub(super) fn note(&mut self, now: Time, event: &Event) {
        let Event::Departed { worker, how, why, .. } = event else { return };
        let why = why.clone().unwrap_or_else(|| {
            String::from(match how {
                Departure::Left => "it was told to stop",
                Departure::Lost => "no sign of life for a whole lease",
                Departure::Refused => "the server refused it",
                Departure::Replaced => "another process has its id",
            })
        });
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Departed { worker: *worker, at_s: now.as_secs_f64(), how: *how, why });
    }

    pub(super) fn all(&self) -> Vec<Departed> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_latest_departures_are_kept_with_their_reasons() {
        let mut departures = Departures::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let departed = |how, why: Option<&str>| Event::Departed {
            worker: WorkerId(1),
            how,
            lost: 0,
            why: why.map(str::to_owned),
        };
        departures.note(at(1), &Event::Unpaused);
        departures.note(at(2), &departed(Departure::Lost, None));
        for second in 0..MOST as u64 {
            departures.note(at(3 + second), &departed(Departure::Left, Some("no rows")));
        }
        let all = departures.all();
        assert_eq!((all.len(), all[0].at_s), (MOST, 3.0));
        let text = serde_json::to_string(&all[0]).unwrap();
        assert_eq!(text, r#"{"worker":2,"at_s":3.0,"how":"left","why":"no rows"}"#);
    }
}
