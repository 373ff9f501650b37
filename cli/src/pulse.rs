//! The line with the state of a run that a server logs periodically.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_wire::{MemberState, MemberStatus, Phase, Status};
use serde::Serialize;

use crate::figures::{count, counted, span};
use crate::metric_text;
use crate::table;
use crate::wait_text::waiting;
use crate::why::workers_in_words;

/// Width of the line on a usual terminal, after the name of the program.
const WIDTH: usize = 80 - "pstrain: ".len();

/// The fields of the line.
#[derive(Debug, Serialize)]
pub(crate) struct Pulse {
    phase: String,
    updates: u64,
    samples: u64,
    samples_wanted: u64,
    epoch: f64,
    /// Mean over the last mini-batches.
    loss: Option<f64>,
    /// The metrics on the held-out data, from the last evaluation.
    #[serde(flatten)]
    metrics: BTreeMap<String, f64>,
    /// Name and value of the main metric, in words.
    #[serde(skip)]
    main: Option<String>,
    there: Vec<WorkerId>,
    /// Workers that are not connected and have not finished.
    away: Vec<Away>,
    /// Workers that the run waits for.
    awaited: Vec<WorkerId>,
    waits: Option<String>,
    standby: Option<String>,
    stands_by: bool,
}

#[derive(Debug, Serialize)]
struct Away {
    worker: WorkerId,
    state: String,
    silent_s: Option<f64>,
}

const fn is_away(member: &MemberStatus) -> bool {
    use MemberState::{Awaited, CutOff, Left, Lost, Refused};
    matches!(member.state, Awaited | CutOff | Lost | Left | Refused)
}

impl Pulse {
    pub(crate) fn of(status: &Status) -> Self {
        let away = |member: &MemberStatus| Away {
            worker: member.worker,
            state: member.state.to_string(),
            silent_s: (member.state != MemberState::Awaited).then_some(member.silent.as_secs_f64()),
        };
        let members = || status.members.iter();
        Self {
            phase: status.phase.to_string(),
            updates: status.version.0,
            samples: status.samples,
            samples_wanted: status.samples_wanted,
            epoch: status.epoch,
            loss: status.loss,
            metrics: metric_text::all_of(status.evaluated.as_ref()),
            main: metric_text::main_of(status.evaluated.as_ref())
                .map(|(name, value)| metric_text::named(name, value)),
            there: members().filter(|it| !is_away(it)).map(|it| it.worker).collect(),
            away: members().filter(|it| is_away(it)).map(away).collect(),
            awaited: status.wait.iter().flat_map(|wait| wait.workers.iter().copied()).collect(),
            waits: status.wait.as_ref().map(waiting),
            standby: status.standby.clone(),
            stands_by: status.leader.is_some(),
        }
    }

    pub(crate) fn in_words(&self) -> String {
        let mut text = if self.stands_by { "stands by; ".to_owned() } else { String::new() };
        let there = match self.there.as_slice() {
            [] => "no worker is there".to_owned(),
            there if self.away.is_empty() => counted(there.len() as u64, "worker"),
            there => format!("there: {}", workers_in_words(there)),
        };
        let of = format!("{} of {} samples", count(self.samples), count(self.samples_wanted));
        // That it trains shows in the numbers.
        if self.phase != Phase::Training.to_string() {
            text += &format!("{}: ", self.phase);
        }
        let mut fields = vec![(0, format!("epoch {:.2}", self.epoch))];
        fields.extend(self.main.iter().map(|main| (0, main.clone())));
        fields.extend(self.loss.map(|loss| (0, format!("loss {loss:.4}"))));
        fields.extend([(1, format!("update {}", count(self.updates))), (3, of)]);
        // All workers there is the rule; any that is missing is named.
        let is_usual = self.away.is_empty() && !self.there.is_empty();
        fields.push((if is_usual { 2 } else { 0 }, there));
        text += &table::line(&fields, ", ", WIDTH);
        let away: Vec<String> = self.away.iter().map(Away::in_words).collect();
        if !away.is_empty() {
            text += &format!("; not there: {}", away.join(", "));
        }
        if let Some(waits) = &self.waits {
            text += &format!("; waits {waits}");
        }
        if let Some(standby) = &self.standby {
            text += &format!("; standby {standby}");
        }
        text
    }
}

impl Away {
    fn in_words(&self) -> String {
        let silent = self.silent_s.map_or_else(String::new, |seconds| {
            format!(", silent for {}", span(Duration::from_secs_f64(seconds)))
        });
        format!("worker {} ({}{silent})", self.worker, self.state)
    }
}

#[cfg(test)]
mod tests {
    use pstrain_compute::id::Version;
    use pstrain_wire::{LatestEvaluation, Wait, WaitReason};

    use super::*;
    use crate::why::tests::{large, member, status};

    #[test]
    fn the_line_of_a_large_run_fits_a_narrow_terminal() {
        let calm = Status { standby: None, wait: None, ..large(24) };
        let words = Pulse::of(&calm).in_words();
        assert_eq!(words, "epoch 1234.50, accuracy 91.20 %, loss 0.5000, update 10,000,000");
        let small = Status { epoch: 1.5, ..calm };
        let words = Pulse::of(&small).in_words();
        assert!(words.len() <= WIDTH, "{words}");
    }

    #[test]
    fn a_line_says_how_far_the_run_is_who_is_there_and_who_is_awaited() {
        let calm = status(vec![member(0, [10, 5, 85], None), member(1, [10, 5, 85], None)]);
        let words = "epoch 0.10, loss 0.5000, update 10, 640 of 64,000 samples, 2 workers";
        assert_eq!(Pulse::of(&calm).in_words(), words);
        let lost = MemberStatus {
            state: MemberState::Lost,
            silent: Duration::from_secs(12),
            ..member(1, [10, 5, 85], None)
        };
        let wait = Wait {
            reason: WaitReason::Gradients,
            workers: vec![WorkerId(1)],
            waited: Duration::from_secs(7),
            left: None,
        };
        let metrics = vec![(String::from("accuracy"), 0.912)];
        let evaluated = LatestEvaluation { version: Version(9), loss: 0.4, metrics };
        let troubled = Status {
            evaluated: Some(evaluated),
            wait: Some(wait),
            ..status(vec![member(0, [10, 5, 85], None), lost])
        };
        let pulse = Pulse::of(&troubled);
        let words = "accuracy 91.20 %, loss 0.5000, update 10, there: worker 1; not there: worker 2 (lost, \
                     silent for 12.0 s); waits for gradients of worker 2, since 7s ago";
        assert!(pulse.in_words().ends_with(words), "{}", pulse.in_words());
        let fields = serde_json::to_value(&pulse).unwrap();
        assert_eq!(fields["accuracy"], 0.912);
        assert_eq!(fields["there"], serde_json::json!([1]));
        assert_eq!(fields["awaited"], serde_json::json!([2]));
        assert_eq!(fields["away"][0]["silent_s"], 12.0);
    }
}
