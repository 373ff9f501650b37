//! Evaluations for a meeting point that cannot evaluate.

use alloc::string::String;

use super::{Member, Peer};
use crate::node::evaluating::Act;
use crate::node::{Effect, EvaluationTicket, NodeError, Outbox};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::evaluation::{EvaluationAnswer, EvaluationPart, EvaluationStep};

impl Peer {
    /// Receives a part of parameters to evaluate; has them evaluated once all parts are here.
    pub(super) fn on_evaluation_part(
        &mut self,
        now: Time,
        EvaluationPart { version, part }: EvaluationPart,
        out: &mut Outbox,
    ) {
        let (Some(meeting), Some(member)) = (self.meeting(), &self.member) else {
            return; // a meeting point evaluates by its members
        };
        let Member { run, incarnation, parameters, .. } = *member;
        let Ok(keys) = KeyRange::new(0, parameters as u64) else { return };
        let ticket = EvaluationTicket { run, incarnation, version };
        match self.evaluating.receive(meeting, ticket, &part, keys) {
            Ok(None) => {}
            Ok(Some(Act::Answer(answer))) => self.answer(now, version, answer, out),
            Ok(Some(Act::Evaluate(order))) => out.push(Effect::EvaluateHere(order)),
            Err(what) => self.finish(Err(NodeError::Protocol(what)), out),
        }
    }

    /// Keeps the result of an evaluation and sends it to the meeting point, now or once it has
    /// requested the evaluation again.
    pub(super) fn on_evaluated_here(
        &mut self,
        now: Time,
        ticket: EvaluationTicket,
        result: Result<Evaluation, String>,
        out: &mut Outbox,
    ) {
        let (meeting, Some(member)) = (self.meeting(), &self.member) else { return };
        self.evaluating.evaluated(ticket, result, member.parameters as u64);
        if let Some((version, result)) = self.evaluating.result_for(meeting) {
            self.answer(now, version, result, out);
        }
    }

    fn answer(&mut self, now: Time, version: Version, answer: EvaluationStep, out: &mut Outbox) {
        let Some(Member { incarnation, .. }) = self.member else { return };
        let answer = EvaluationAnswer { incarnation, version, answer };
        self.tell(now, Message::EvaluationAnswer(answer), out);
    }
}
