//! Evaluations by workers, where the meeting point's driver has no evaluator for the model.

use alloc::string::String;
use alloc::vec::Vec;

use super::Meeting;
use super::members::Presence;
use crate::node::by_workers::{Answer, Candidate, Step};
use crate::node::{Effect, Evaluated, Event, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::evaluation::EvaluationAnswer;
use pstrain_wire::{Phase, Refusal};

impl Meeting {
    /// The driver cannot evaluate a version.
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
        if self.evaluations.by_workers.is_empty() {
            return;
        }
        let patience = self.job.membership.evaluation_patience();
        let alive = self.slots.iter().filter(|(_, slot)| slot.presence.is_alive());
        let candidates = alive.map(|(worker, slot)| Candidate {
            worker,
            incarnation: slot.incarnation,
            peer: slot.peer,
            is_ready: slot.presence == Presence::Ready,
            is_busy: false,
        });
        let candidates: Vec<Candidate> = candidates.collect();
        let may_join = self.lifecycle.phase() != Phase::Ending && candidates.is_empty();
        match self.evaluations.by_workers.next(now, patience, &candidates, may_join) {
            Step::Nothing => {}
            Step::Ask(worker, version) => {
                out.push(Effect::Report(Event::EvaluationRequested { worker, version }));
                self.send_part(now, out);
            }
            Step::LeaveOut(version, why) => {
                let absent = self.evaluations.leave_out(version, why, out);
                self.on_evaluated(now, absent, out);
            }
        }
    }

    /// Sends the asked worker its next part.
    fn send_part(&mut self, now: Time, out: &mut Outbox) {
        let keys = self.keys();
        let (worker, part) = self.evaluations.next_part(now, keys);
        self.slots[worker].idle.asked();
        out.push(part);
    }

    /// Handles the answer of a worker that was asked to evaluate.
    pub(super) fn on_evaluation_answer(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        EvaluationAnswer { incarnation, version, answer }: EvaluationAnswer,
        out: &mut Outbox,
    ) {
        if self.slots[worker].incarnation != incarnation {
            return;
        }
        let (from, keys) = ((worker, peer), self.keys());
        match self.evaluations.by_workers.answered(from, (version, answer), keys) {
            Answer::Late | Answer::Unable => {} // another worker is asked
            Answer::PartDue => self.send_part(now, out),
            Answer::Impossible(what) => {
                self.refuse(now, peer, Refusal::Unexpected { what }, out);
            }
            Answer::Evaluated(evaluation) => {
                let point = self.evaluations.refused(version).point;
                self.on_evaluated(now, Evaluated { point, evaluation }, out);
            }
        }
    }

    /// When another worker is asked, or the evaluation in progress is left out.
    pub(super) fn evaluation_due(&self) -> Option<Time> {
        self.evaluations.by_workers.due(self.job.membership.evaluation_patience())
    }
}
