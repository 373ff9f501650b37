//! Evaluations for a server that cannot evaluate.

use alloc::string::String;

use super::{NodeError, Worker, admitted};
use crate::node::evaluating::Act;
use crate::node::{Effect, EvaluationTicket, Outbox};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, Version};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::evaluation::{EvaluationAnswer, EvaluationPart, EvaluationStep};

impl Worker {
    /// Receives a part of parameters to evaluate; has them evaluated once all parts are here.
    pub(super) fn on_evaluation_part(
        &mut self,
        now: Time,
        from: PeerId,
        EvaluationPart { version, part }: EvaluationPart,
        out: &mut Outbox,
    ) {
        let Some(member) = &self.member else {
            return; // a server evaluates by its members
        };
        let ticket = EvaluationTicket { run: member.run, incarnation: member.incarnation, version };
        match self.evaluating.receive(from, ticket, &part, member.model_keys) {
            Ok(None) => {}
            // The coordinator waits for a result also while the worker attaches to other servers
            // after keys have moved.
            Ok(Some(Act::Answer(answer))) => self.answer(now, version, answer, out),
            Ok(Some(Act::Evaluate(order))) => out.push(Effect::EvaluateHere(order)),
            Err(what) => self.finish(Err(NodeError::Protocol(what)), out),
        }
    }

    /// Keeps the result of an evaluation and sends it to the server, now or once the server has
    /// requested the evaluation again.
    pub(super) fn on_evaluated_here(
        &mut self,
        now: Time,
        ticket: EvaluationTicket,
        result: Result<Evaluation, String>,
        out: &mut Outbox,
    ) {
        let Some(member) = &self.member else { return };
        self.evaluating.evaluated(ticket, result, member.model_keys.len());
        if let Some((version, result)) = self.evaluating.result_for(self.dialler.peer()) {
            self.answer(now, version, result, out);
        }
    }

    fn answer(&mut self, now: Time, version: Version, answer: EvaluationStep, out: &mut Outbox) {
        let incarnation = admitted(&self.member).incarnation;
        let answer = EvaluationAnswer { incarnation, version, answer };
        self.send(now, Message::EvaluationAnswer(answer), out);
    }
}
