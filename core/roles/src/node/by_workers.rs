//! Evaluations by workers, where the driver of a server or of a meeting point has no evaluator for
//! the model.
//!
//! They are made one after another, as a driver would, off the training path: nothing but the end
//! of the run waits for them. A worker is sent the parameters part by part.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Effect, Evaluate};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Incarnation, PeerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::evaluation::{EvaluationPart, EvaluationStep, check_evaluation};
use pstrain_wire::range::{PartDue, RangePart};
use pstrain_wire::reason::as_reason;

/// The most evaluations by workers that are under way, with the one in progress: each is a copy of
/// the parameters.
pub(super) const MOST_BY_WORKERS: usize = 2;

/// Evaluations by workers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ByWorkers {
    /// True if the driver made the last evaluation that it was requested to make, false if it
    /// refused; none before its first answer.
    driver_evaluates: Option<bool>,
    /// Evaluations that the driver has refused.
    refused: BTreeSet<Version>,
    /// Why it has refused the last of them.
    refusal: String,
    /// The evaluation in progress, one of them.
    current: Option<Current>,
    /// Workers that were asked, the latest one last.
    turns: Vec<WorkerId>,
    /// Workers that could not evaluate when they were last asked.
    unable: BTreeSet<WorkerId>,
    /// The user knows why an evaluation is absent.
    is_told: bool,
}

/// An evaluation in progress.
#[derive(Debug, Serialize, Deserialize)]
struct Current {
    version: Version,
    /// When the first worker was sought.
    since: Time,
    asked: Option<Asked>,
    /// Workers that were asked before; the incarnation if it may be asked again, since only its
    /// connection was lost.
    tried: BTreeMap<WorkerId, Option<Incarnation>>,
    /// Why the last of them has not evaluated.
    why: Option<String>,
}

/// The worker that evaluates.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Asked {
    worker: WorkerId,
    peer: PeerId,
    /// When it was sent a part last.
    since: Time,
    /// The key after the last part that it was sent.
    sent: u64,
}

/// A worker that is present, as far as its evaluations matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
    pub(super) peer: Option<PeerId>,
    /// True if its data are loaded.
    pub(super) is_ready: bool,
    /// True if it has gradients to compute.
    pub(super) is_busy: bool,
}

/// The next step of the evaluations that the driver has refused.
#[derive(Debug)]
pub(super) enum Step {
    /// None is due.
    Nothing,
    /// This worker is to be sent the first part of a version.
    Ask(WorkerId, Version),
    /// No worker makes the evaluation of a version; why, in words.
    LeaveOut(Version, String),
}

/// The consequence of a worker's answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is of another worker, or about another version.
    Late,
    /// The next part is due.
    PartDue,
    /// The worker cannot evaluate.
    Unable,
    /// No worker sends such an answer; why, in words.
    Impossible(String),
    Evaluated(Evaluation),
}

/// The worker to ask next.
enum Next {
    Ask(Candidate, PeerId),
    /// A worker may come back, or join.
    Wait,
    /// There is none.
    None,
}

impl ByWorkers {
    /// Records an evaluation, by the driver or a worker.
    pub(super) fn finish(&mut self, version: Version) {
        self.refused.remove(&version);
        self.current.take_if(|current| current.version == version);
    }

    /// The driver has made an evaluation.
    pub(super) const fn driver_evaluated(&mut self) {
        self.driver_evaluates = Some(true);
    }

    /// True if no evaluation is left to workers.
    pub(super) fn is_empty(&self) -> bool {
        self.refused.is_empty()
    }

    /// True if the driver has refused the evaluation of `version`.
    pub(super) fn has(&self, version: Version) -> bool {
        self.refused.contains(&version)
    }

    /// The worker that evaluates, and since when the evaluation in progress is; as far as there
    /// are any.
    pub(super) fn evaluator(&self) -> (Option<WorkerId>, Option<Time>) {
        let current = self.current.as_ref();
        let asked = current.and_then(|current| current.asked);
        (asked.map(|asked| asked.worker), current.map(|current| current.since))
    }

    /// Forgets what is known of the holder of a worker slot, who has left.
    pub(super) fn left(&mut self, worker: WorkerId) {
        self.unable.remove(&worker);
    }

    /// Restarts the time limits: this server did not run to receive an answer.
    pub(super) fn renew(&mut self, now: Time) {
        if let Some(current) = &mut self.current {
            current.since = now;
            current.asked.iter_mut().for_each(|asked| asked.since = now);
        }
    }

    /// Records that the asked worker has not evaluated, and is not to be asked again.
    fn give_up_on(&mut self, worker: WorkerId, why: String) {
        if let Some(current) = &mut self.current {
            current.asked = None;
            current.tried.insert(worker, None);
            current.why = Some(why);
        }
        self.unable.insert(worker);
    }

    /// The driver has refused to evaluate a version; `why` in words.
    pub(super) fn refuse(&mut self, version: Version, why: String) {
        self.driver_evaluates = Some(false);
        self.refused.insert(version);
        self.refusal = why;
    }

    /// True if the driver has made the last evaluation, false if it has refused; none before its
    /// first answer.
    pub(super) const fn driver_evaluates(&self) -> Option<bool> {
        self.driver_evaluates
    }

    /// True if the user is not told yet why an evaluation is absent; from now on the user is.
    pub(super) const fn is_news(&mut self) -> bool {
        !core::mem::replace(&mut self.is_told, true)
    }

    /// The next step. `candidates` are the workers that are present; more `may_join`.
    pub(super) fn next(
        &mut self,
        now: Time,
        patience: Duration,
        candidates: &[Candidate],
        may_join: bool,
    ) -> Step {
        let Some(&version) = self.refused.first() else { return Step::Nothing };
        let tried = BTreeMap::new();
        let new = || Current { version, since: now, asked: None, tried, why: None };
        // The driver may have refused an earlier version since.
        let version = self.current.get_or_insert_with(new).version;
        self.watch(now, patience, candidates);
        if self.current.as_ref().is_some_and(|current| current.asked.is_some()) {
            return Step::Nothing;
        }
        match self.choose(now, patience, candidates, may_join) {
            Next::Ask(Candidate { worker, incarnation, .. }, peer) => {
                self.take_turn(worker);
                if let Some(current) = &mut self.current {
                    current.tried.insert(worker, Some(incarnation));
                    current.asked = Some(Asked { worker, peer, since: now, sent: 0 });
                }
                Step::Ask(worker, version)
            }
            Next::Wait => Step::Nothing,
            Next::None => {
                let why = self.current.as_mut().and_then(|current| current.why.take());
                let refusal = &self.refusal;
                let absent =
                    || alloc::format!("{refusal}, and no worker is there to do it instead");
                Step::LeaveOut(version, why.unwrap_or_else(absent))
            }
        }
    }

    /// Forgets the worker that evaluates if its connection is lost or its time is up.
    fn watch(&mut self, now: Time, patience: Duration, candidates: &[Candidate]) {
        let Some(current) = &mut self.current else { return };
        let Some(asked) = current.asked else { return };
        let is_there = |it: &Candidate| it.worker == asked.worker && it.peer == Some(asked.peer);
        if !candidates.iter().any(is_there) {
            current.asked = None; // it may be asked again as the same incarnation
        } else if now >= asked.since + patience || now >= current.since + 2 * patience {
            let why = alloc::format!("worker {} did not answer in time", asked.worker);
            self.give_up_on(asked.worker, why);
        }
    }

    /// Chooses the worker to ask next: one that is idle, if there is one, and was not asked for the
    /// longest time. A worker that could not evaluate before is asked only if there is no other.
    fn choose(
        &self,
        now: Time,
        patience: Duration,
        candidates: &[Candidate],
        may_join: bool,
    ) -> Next {
        let Self { current, turns, unable, .. } = self;
        let Some(current) = current.as_ref().filter(|it| now < it.since + 2 * patience) else {
            return Next::None;
        };
        let open = || {
            candidates.iter().filter(|it| current.admits(it)).filter(|it| {
                // If all are unable, one of them is sent the parameters for nothing, not each.
                current.tried.is_empty() || !unable.contains(&it.worker)
            })
        };
        let ready = open().filter(|it| it.is_ready).filter_map(|it| Some((it, it.peer?)));
        let best = ready.min_by_key(|(it, _)| {
            let turn = turns.iter().position(|worker| *worker == it.worker);
            (unable.contains(&it.worker), it.is_busy, turn)
        });
        match best {
            Some((it, peer)) => Next::Ask(*it, peer),
            None if may_join || open().next().is_some() => Next::Wait,
            None => Next::None,
        }
    }

    /// The next part for the worker that evaluates, of the refused evaluation of its version.
    ///
    /// # Panics
    /// If no part is due.
    pub(super) fn next_part(
        &mut self,
        now: Time,
        keys: KeyRange,
        requested: &[Evaluate],
    ) -> (WorkerId, Effect) {
        let Some(Current { version, asked: Some(asked), .. }) = &mut self.current else {
            unreachable!("a part is sent to the worker that evaluates")
        };
        let evaluate = requested.iter().find(|it| it.point.version == *version);
        let Some(evaluate) = evaluate else {
            unreachable!("the evaluation of version {version} is not requested")
        };
        let due = PartDue::at(keys, asked.sent.max(keys.begin())).map(|due| due.part);
        let Some((part, places)) = due.and_then(|part| Some((part, part.within(keys)?))) else {
            unreachable!("a part is sent while one is due")
        };
        let part = RangePart::new(part, &evaluate.parameters[places]);
        (asked.since, asked.sent) = (now, part.keys.end());
        let message = Message::EvaluationPart(EvaluationPart { version: *version, part });
        (asked.worker, Effect::Send(asked.peer, message))
    }

    /// Handles the answer of a worker about a version.
    pub(super) fn answered(
        &mut self,
        (worker, peer): (WorkerId, PeerId),
        (version, answer): (Version, EvaluationStep),
        keys: KeyRange,
    ) -> Answer {
        let current = self.current.as_ref().filter(|current| current.version == version);
        let asked = current.and_then(|current| current.asked).filter(|asked| asked.peer == peer);
        let Some(asked) = asked else { return Answer::Late };
        match answer {
            EvaluationStep::PartDue(key) if key == asked.sent && key < keys.end() => {
                Answer::PartDue
            }
            EvaluationStep::PartDue(_) => Answer::Late,
            EvaluationStep::Unable(why) => {
                let why = alloc::format!("worker {worker}: {}", as_reason(&why));
                self.give_up_on(worker, why);
                Answer::Unable
            }
            EvaluationStep::Evaluated(_) if asked.sent < keys.end() => {
                let what = "an evaluation of parameters that were not sent";
                Answer::Impossible(what.to_string())
            }
            EvaluationStep::Evaluated(evaluation) => {
                if let Err(why) = check_evaluation(&evaluation, keys.len()) {
                    return Answer::Impossible(alloc::format!(
                        "its evaluation is impossible: {why}"
                    ));
                }
                self.unable.remove(&worker);
                Answer::Evaluated(evaluation)
            }
        }
    }

    /// When another worker is asked, or the evaluation in progress is left out.
    pub(super) fn due(&self, patience: Duration) -> Option<Time> {
        let current = self.current.as_ref()?;
        let asked = current.asked.map(|asked| asked.since + patience);
        asked.into_iter().chain([current.since + 2 * patience]).min()
    }

    /// Puts a worker at the end of the turns.
    fn take_turn(&mut self, worker: WorkerId) {
        self.turns.retain(|it| *it != worker);
        self.turns.push(worker);
    }
}

impl Current {
    /// True if this holder of a worker slot may be asked.
    fn admits(&self, it: &Candidate) -> bool {
        let tried = self.tried.get(&it.worker);
        tried.is_none_or(|incarnation| *incarnation == Some(it.incarnation))
    }
}
