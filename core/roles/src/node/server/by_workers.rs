//! Evaluations by workers, where the server's driver has no evaluator for the model.
//!
//! They are made one after another, as a driver would, off the training path: nothing but the end
//! of the run waits for them. A worker is sent the parameters part by part.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use super::roster::{Presence, Slot};
use crate::node::{Effect, Evaluate, Evaluated, Event, Outbox};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Incarnation, PeerId, Version, WorkerId};
use pstrain_compute::model::ModelSpec;
use pstrain_compute::time::Time;
use pstrain_wire::evaluation::{
    EvaluationAnswer, EvaluationPart, EvaluationStep, check_evaluation,
};
use pstrain_wire::range::{PartDue, RangePart};
use pstrain_wire::reason::as_reason;
use pstrain_wire::{Message, Phase, Refusal};

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
    /// The workers are not told of the end of the run before the last evaluation.
    holds_end: bool,
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

/// The worker to ask next.
enum Next {
    Ask(WorkerId, PeerId),
    /// A worker may come back, or join.
    Wait,
    Nobody,
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

    /// True if the driver has refused the evaluation of `version`.
    pub(super) fn has(&self, version: Version) -> bool {
        self.refused.contains(&version)
    }

    /// True if the workers may not be told of the end of the run yet.
    pub(super) const fn holds_end(&self) -> bool {
        self.holds_end
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

    /// Puts a worker at the end of the turns.
    fn take_turn(&mut self, worker: WorkerId) {
        self.turns.retain(|it| *it != worker);
        self.turns.push(worker);
    }
}

impl Current {
    /// True if this holder of a worker slot may be asked.
    fn admits(&self, worker: WorkerId, slot: &Slot) -> bool {
        self.tried.get(&worker).is_none_or(|incarnation| *incarnation == Some(slot.incarnation))
    }
}

impl Server {
    /// True if evaluations are left to workers.
    pub(super) fn evaluates_by_workers(&self) -> bool {
        self.evaluations.by_workers.driver_evaluates == Some(false)
    }

    /// Handles the driver's refusal to evaluate a version.
    pub(super) fn on_unevaluated(
        &mut self,
        now: Time,
        version: Version,
        why: String,
        out: &mut Outbox,
    ) {
        let is_requested = self.evaluation_of(version).is_some();
        let by_workers = &mut self.evaluations.by_workers;
        if !is_requested || by_workers.has(version) {
            return; // a driver that is asked again after a restart refuses again
        }
        by_workers.driver_evaluates = Some(false);
        by_workers.refused.insert(version);
        by_workers.refusal = why;
        self.settle(now, out);
    }

    /// The requested evaluation of a version.
    fn evaluation_of(&self, version: Version) -> Option<&Evaluate> {
        self.evaluations.requested.iter().find(|it| it.point.version == version)
    }

    /// The requested evaluation of a version that the driver has refused: it stays requested until
    /// it is finished.
    fn refused(&self, version: Version) -> &Evaluate {
        let Some(evaluate) = self.evaluation_of(version) else {
            unreachable!("the evaluation of version {version} is not requested")
        };
        evaluate
    }

    /// Has workers make the evaluations that the driver has refused, as far as they can, and tells
    /// of the end of the run once the last one is made.
    pub(super) fn see_to_evaluations(&mut self, now: Time, out: &mut Outbox) {
        while let Some(&version) = self.evaluations.by_workers.refused.first() {
            let current = self.evaluations.by_workers.current.get_or_insert_with(|| Current {
                version,
                since: now,
                asked: None,
                tried: BTreeMap::new(),
                why: None,
            });
            // The driver may have refused an earlier version since.
            let version = current.version;
            self.watch_evaluation(now);
            if self.has_evaluator() {
                break;
            }
            match self.next_evaluator(now) {
                Next::Ask(worker, peer) => {
                    self.ask_to_evaluate(now, worker, peer, version, out);
                    break;
                }
                Next::Wait => break,
                Next::Nobody => {
                    let current = &mut self.evaluations.by_workers.current;
                    let why = current.as_mut().and_then(|current| current.why.take());
                    let refusal = &self.evaluations.by_workers.refusal;
                    let nobody =
                        || alloc::format!("{refusal}, and no worker is there to do it instead");
                    let why = why.unwrap_or_else(nobody);
                    self.leave_out(version, why, out);
                }
            }
        }
        if self.evaluations.by_workers.holds_end && self.evaluations_due() == 0 {
            self.evaluations.by_workers.holds_end = false;
            // The time for goodbyes begins now.
            self.lifecycle.since = now;
            if self.tells_end() {
                self.tell_end(out);
            }
        }
    }

    /// True if a worker is evaluating.
    fn has_evaluator(&self) -> bool {
        self.evaluations.by_workers.current.as_ref().is_some_and(|current| current.asked.is_some())
    }

    /// Forgets the worker that evaluates if its connection is lost or its time is up.
    fn watch_evaluation(&mut self, now: Time) {
        let patience = self.job.membership.evaluation_patience();
        let by_workers = &mut self.evaluations.by_workers;
        let Some(current) = &mut by_workers.current else { return };
        let Some(asked) = current.asked else { return };
        if self.members.roster.worker_of(asked.peer) != Some(asked.worker) {
            current.asked = None; // it may be asked again as the same incarnation
        } else if now >= asked.since + patience || now >= current.since + 2 * patience {
            let why = alloc::format!("worker {} did not answer in time", asked.worker);
            by_workers.give_up_on(asked.worker, why);
        }
    }

    /// Chooses the worker to ask next: one that is idle, if there is one, and was not asked for the
    /// longest time. A worker that could not evaluate before is asked only if there is no other.
    fn next_evaluator(&self, now: Time) -> Next {
        let ByWorkers { current, turns, unable, .. } = &self.evaluations.by_workers;
        let patience = self.job.membership.evaluation_patience();
        let Some(current) = current.as_ref().filter(|it| now < it.since + 2 * patience) else {
            return Next::Nobody;
        };
        let open = || {
            let slots = self.members.roster.iter().filter(|(_, slot)| slot.presence.is_alive());
            slots.filter(|(worker, slot)| current.admits(*worker, slot)).filter(|(worker, _)| {
                // If all are unable, one of them is sent the parameters for nothing, not each.
                current.tried.is_empty() || !unable.contains(worker)
            })
        };
        let ready = open().filter(|(_, slot)| slot.presence == Presence::Ready);
        let best = ready.filter_map(|(worker, slot)| Some((worker, slot, slot.peer?))).min_by_key(
            |(worker, slot, _)| {
                let turn = turns.iter().position(|it| it == worker);
                (unable.contains(worker), slot.pushes.under_way() > 0, turn)
            },
        );
        let may_join = self.lifecycle.phase() != Phase::Ending && self.members.present() == 0;
        match best {
            Some((worker, _, peer)) => Next::Ask(worker, peer),
            None if may_join || open().next().is_some() => Next::Wait,
            None => Next::Nobody,
        }
    }

    /// Sends a worker the first part of the parameters to evaluate.
    fn ask_to_evaluate(
        &mut self,
        now: Time,
        worker: WorkerId,
        peer: PeerId,
        version: Version,
        out: &mut Outbox,
    ) {
        let incarnation = Some(self.members.roster[worker].incarnation);
        let by_workers = &mut self.evaluations.by_workers;
        by_workers.take_turn(worker);
        if let Some(current) = &mut by_workers.current {
            current.tried.insert(worker, incarnation);
            current.asked = Some(Asked { worker, peer, since: now, sent: self.keys.begin() });
        }
        out.push(Effect::Report(Event::EvaluationRequested { worker, version }));
        self.send_part(now, out);
    }

    /// Sends the asked worker its next part.
    fn send_part(&mut self, now: Time, out: &mut Outbox) {
        let current = &self.evaluations.by_workers.current;
        let Some(&Current { version, asked: Some(mut asked), .. }) = current.as_ref() else {
            unreachable!("a part is sent to the worker that evaluates")
        };
        let due = PartDue::at(self.keys, asked.sent).map(|due| due.part);
        let Some((part, places)) = due.and_then(|part| Some((part, part.within(self.keys)?)))
        else {
            unreachable!("a part is sent while one is due")
        };
        let part = RangePart::new(part, &self.refused(version).parameters[places]);
        (asked.since, asked.sent) = (now, part.keys.end());
        self.members.roster[asked.worker].pushes.idle.asked();
        if let Some(current) = &mut self.evaluations.by_workers.current {
            current.asked = Some(asked);
        }
        let message = Message::EvaluationPart(EvaluationPart { version, part });
        out.push(Effect::Send(asked.peer, message));
    }

    /// Handles the answer of a worker that was asked to evaluate. An answer of another worker, or
    /// about another version, comes too late and is ignored.
    pub(super) fn on_evaluation_answer(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        EvaluationAnswer { incarnation, version, answer }: EvaluationAnswer,
        out: &mut Outbox,
    ) {
        let current = self.evaluations.by_workers.current.as_ref();
        let asked = current.filter(|current| current.version == version);
        let asked = asked.and_then(|current| current.asked).filter(|asked| asked.peer == peer);
        let is_its = self.members.roster[worker].incarnation == incarnation;
        let Some(asked) = asked.filter(|_| is_its) else { return };
        match answer {
            EvaluationStep::PartDue(key) if key == asked.sent && key < self.keys.end() => {
                self.send_part(now, out);
            }
            EvaluationStep::PartDue(_) => {}
            EvaluationStep::Unable(why) => {
                let why = alloc::format!("worker {worker}: {}", as_reason(&why));
                self.evaluations.by_workers.give_up_on(worker, why);
                self.settle(now, out);
            }
            EvaluationStep::Evaluated(_) if asked.sent < self.keys.end() => {
                let what = "an evaluation of parameters that were not sent".to_string();
                self.refuse(now, peer, Refusal::Unexpected { what }, out);
            }
            EvaluationStep::Evaluated(evaluation) => {
                if let Err(why) = check_evaluation(&evaluation, self.keys.len()) {
                    let what = alloc::format!("its evaluation is impossible: {why}");
                    return self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
                self.evaluations.by_workers.unable.remove(&worker);
                let point = self.refused(version).point;
                self.publish(now, Evaluated { point, evaluation }, out);
                self.settle(now, out);
            }
        }
    }

    /// Records and reports an evaluation, which may be the end of the run.
    pub(super) fn publish(&mut self, now: Time, evaluated: Evaluated, out: &mut Outbox) {
        let (evaluation, stopping) = (&evaluated.evaluation, &self.job.stopping);
        let end = self.evaluations.end_by(evaluation, stopping);
        let unknown = self.evaluations.note_unknown(evaluation, stopping);
        out.extend(unknown.map(Effect::Report));
        self.record(evaluated, out);
        if let Some(reason) = end {
            self.end(now, reason, out);
        }
    }

    fn record(&mut self, evaluated: Evaluated, out: &mut Outbox) {
        self.evaluations.finish(&evaluated);
        out.push(Effect::Report(evaluated.into()));
    }

    /// Goes without an evaluation. The user is told why once.
    fn leave_out(&mut self, version: Version, why: String, out: &mut Outbox) {
        if !core::mem::replace(&mut self.evaluations.by_workers.is_told, true) {
            out.push(Effect::Report(Event::Unevaluated { version, why }));
        }
        let Evaluate { point, parameters } = self.refused(version).clone();
        let evaluation = Evaluation::absent(&parameters);
        self.record(Evaluated { point, evaluation }, out);
    }

    /// Keeps the workers until the last evaluation is made, if one of them has to make it. Called
    /// once the run has ended.
    pub(super) fn hold_end(&mut self) {
        // A driver that has not answered yet may have no evaluator if the model is not of this
        // program.
        let is_external = matches!(self.job.model, ModelSpec::External { .. });
        let driver_evaluates = self.evaluations.by_workers.driver_evaluates.unwrap_or(!is_external);
        let holds = !driver_evaluates && self.evaluations_due() > 0;
        self.evaluations.by_workers.holds_end = holds;
    }

    /// When another worker is asked, or the evaluation in progress is left out.
    pub(super) fn evaluation_due(&self) -> Option<Time> {
        let current = self.evaluations.by_workers.current.as_ref()?;
        let patience = self.job.membership.evaluation_patience();
        let asked = current.asked.map(|asked| asked.since + patience);
        asked.into_iter().chain([current.since + 2 * patience]).min()
    }
}
