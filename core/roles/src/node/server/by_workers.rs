//! Evaluations by workers, where the server's driver has no evaluator for the model.

use alloc::string::String;
use alloc::vec::Vec;

use super::Server;
use super::roster::Presence;
use crate::node::by_workers::{Answer, Candidate, Step};
use crate::node::{Effect, Evaluated, Event, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::model::ModelSpec;
use pstrain_compute::time::Time;
use pstrain_wire::evaluation::EvaluationAnswer;
use pstrain_wire::{Phase, Refusal};

impl Server {
    /// True if evaluations are left to workers.
    pub(super) fn evaluates_by_workers(&self) -> bool {
        self.evaluations.by_workers.driver_evaluates() == Some(false)
    }

    /// Handles the driver's refusal to evaluate a version.
    pub(super) fn on_unevaluated(
        &mut self,
        now: Time,
        version: Version,
        why: String,
        out: &mut Outbox,
    ) {
        if self.evaluations.refuse(version, why) {
            self.settle(now, out);
        }
    }

    /// Has workers make the evaluations that the driver has refused, as far as they can.
    pub(super) fn see_to_evaluations(&mut self, now: Time, out: &mut Outbox) {
        let patience = self.job.membership.evaluation_patience();
        let may_join = self.lifecycle.phase() != Phase::Ending && self.members.present() == 0;
        while !self.evaluations.by_workers.is_empty() {
            let candidates = self.candidates();
            match self.evaluations.by_workers.next(now, patience, &candidates, may_join) {
                Step::Nothing => break,
                Step::Ask(worker, version) => {
                    out.push(Effect::Report(Event::EvaluationRequested { worker, version }));
                    self.send_part(now, out);
                    break;
                }
                Step::LeaveOut(version, why) => {
                    let absent = self.evaluations.leave_out(version, why, out);
                    self.record(absent, out);
                }
            }
        }
    }

    /// True if a worker has to make an evaluation that is due.
    pub(super) fn needs_evaluator(&self) -> bool {
        // A driver that has not answered yet may have no evaluator if the model is not of this
        // program.
        let is_external = matches!(self.job.model, ModelSpec::External { .. });
        let driver_evaluates = self.evaluations.by_workers.driver_evaluates();
        !driver_evaluates.unwrap_or(!is_external) && self.evaluations_due() > 0
    }

    fn candidates(&self) -> Vec<Candidate> {
        let slots = self.members.roster.iter().filter(|(_, slot)| slot.presence.is_alive());
        let candidates = slots.map(|(worker, slot)| Candidate {
            worker,
            incarnation: slot.incarnation,
            peer: slot.peer,
            is_ready: slot.presence == Presence::Ready,
            is_busy: slot.pushes.under_way() > 0,
        });
        candidates.collect()
    }

    /// Sends the asked worker its next part.
    fn send_part(&mut self, now: Time, out: &mut Outbox) {
        let (worker, part) = self.evaluations.next_part(now, self.keys);
        self.members.roster[worker].pushes.idle.asked();
        out.push(part);
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
        if self.members.roster[worker].incarnation != incarnation {
            return;
        }
        let (from, keys) = ((worker, peer), self.keys);
        match self.evaluations.by_workers.answered(from, (version, answer), keys) {
            Answer::Late => {}
            Answer::PartDue => self.send_part(now, out),
            Answer::Unable => self.settle(now, out),
            Answer::Impossible(what) => {
                self.refuse(now, peer, Refusal::Unexpected { what }, out);
            }
            Answer::Evaluated(evaluation) => {
                let point = self.evaluations.refused(version).point;
                self.publish(now, Evaluated { point, evaluation }, out);
                self.settle(now, out);
            }
        }
    }

    /// Records and reports an evaluation, which may be the end of the run.
    pub(super) fn publish(&mut self, now: Time, evaluated: Evaluated, out: &mut Outbox) {
        let (evaluation, stopping) = (&evaluated.evaluation, &self.job.stopping);
        let end = self.evaluations.end_by(&evaluated, stopping);
        let unknown = self.evaluations.note_unknown(evaluation, stopping);
        out.extend(unknown.map(Effect::Report));
        self.record(evaluated, out);
        self.evaluations.remember(now, self.members.roster.loss());
        if let Some(reason) = end {
            self.end(now, reason, out);
        }
    }

    fn record(&mut self, evaluated: Evaluated, out: &mut Outbox) {
        self.evaluations.finish(&evaluated);
        out.push(Effect::Report(evaluated.into()));
    }

    /// When another worker is asked, or the evaluation in progress is left out.
    pub(super) fn evaluation_due(&self) -> Option<Time> {
        self.evaluations.by_workers.due(self.job.membership.evaluation_patience())
    }
}
