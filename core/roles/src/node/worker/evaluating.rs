//! Evaluations by a worker, for a server that cannot evaluate. They do not affect its gradients.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{NodeError, Worker, admitted};
use crate::node::{Effect, EvaluateHere, EvaluationTicket, Outbox};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, Version};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::evaluation::{
    EvaluationAnswer, EvaluationPart, EvaluationStep, check_evaluation,
};
use pstrain_wire::range::RangePart;
use pstrain_wire::reason::as_reason;

/// Parameters to evaluate, as far as they have arrived, and the evaluation in progress.
#[derive(Debug, Default)]
pub(super) struct Evaluating {
    /// The version that is arriving, with the values so far.
    arriving: Option<(Version, Vec<f32>)>,
    /// The evaluation that is in progress, or whose result the server has not been sent yet.
    current: Option<Current>,
}

/// An evaluation that the driver was requested to make.
#[derive(Debug)]
struct Current {
    ticket: EvaluationTicket,
    /// The connection over which the server sent the parameters last. After a reconnect the server
    /// sends them again, and expects no result before it has.
    asked_by: PeerId,
    result: Option<EvaluationStep>,
}

/// The consequence of a part.
enum Step {
    /// The part before this key is due next.
    Due(u64),
    /// All values are here.
    Whole(Vec<f32>),
    /// The part is of parameters that were given up.
    Ignored,
}

impl Evaluating {
    /// Adds a part of the parameters of `keys`.
    ///
    /// # Errors
    /// In words, if the part cannot be one of the model.
    fn add(&mut self, version: Version, part: &RangePart, keys: KeyRange) -> Result<Step, String> {
        let values = part.values().filter(|_| keys.contains(part.keys));
        let Some(values) = values else {
            return Err(alloc::format!("it sent keys {} to evaluate, of {keys}", part.keys));
        };
        if part.keys.begin() == keys.begin() {
            // The server may begin again, or with another version.
            let mut memory = self.arriving.take().map_or_else(Vec::new, |(_, values)| values);
            memory.clear();
            memory.reserve_exact(keys.len() as usize);
            self.arriving = Some((version, memory));
        }
        let place = part.keys.begin() - keys.begin();
        let arriving =
            self.arriving.take_if(|(its, values)| *its == version && values.len() as u64 == place);
        let Some((_, mut whole)) = arriving else { return Ok(Step::Ignored) };
        whole.extend(values);
        if part.keys.end() == keys.end() {
            return Ok(Step::Whole(whole));
        }
        self.arriving = Some((version, whole));
        Ok(Step::Due(part.keys.end()))
    }
}

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
        let incarnation = member.incarnation;
        let ticket = EvaluationTicket { run: member.run, incarnation, version };
        match self.evaluating.add(version, &part, member.model_keys) {
            Ok(Step::Ignored) => {}
            Ok(Step::Due(key)) => self.answer(now, version, EvaluationStep::PartDue(key), out),
            Ok(Step::Whole(values)) => match &mut self.evaluating.current {
                Some(current) if current.ticket == ticket => {
                    current.asked_by = from;
                    self.answer_evaluation(now, out);
                }
                current => {
                    *current = Some(Current { ticket, asked_by: from, result: None });
                    let parameters = Arc::new(values);
                    out.push(Effect::EvaluateHere(EvaluateHere { ticket, parameters }));
                }
            },
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
        let is_current = |current: &&mut Current| current.ticket == ticket;
        let Some(current) = self.evaluating.current.as_mut().filter(is_current) else {
            return; // of an earlier version or incarnation
        };
        let parameters = admitted(&self.member).model_keys.len();
        // The server would refuse a worker whose evaluation is impossible.
        let checked = result.and_then(|evaluation| {
            let checked = check_evaluation(&evaluation, parameters);
            checked.map(|()| evaluation)
        });
        current.result = Some(match checked {
            Ok(evaluation) => EvaluationStep::Evaluated(evaluation),
            Err(why) => EvaluationStep::Unable(as_reason(&why)),
        });
        self.answer_evaluation(now, out);
    }

    /// Sends a result to the server that waits for it. The coordinator waits for it also while the
    /// worker attaches to other servers after keys have moved.
    fn answer_evaluation(&mut self, now: Time, out: &mut Outbox) {
        let server = self.dialler.peer();
        let is_awaited = |it: &mut Current| it.result.is_some() && Some(it.asked_by) == server;
        let Some(Current { ticket, result: Some(result), .. }) =
            self.evaluating.current.take_if(is_awaited)
        else {
            return;
        };
        self.answer(now, ticket.version, result, out);
    }

    fn answer(&mut self, now: Time, version: Version, answer: EvaluationStep, out: &mut Outbox) {
        let incarnation = admitted(&self.member).incarnation;
        let answer = EvaluationAnswer { incarnation, version, answer };
        self.send(now, Message::EvaluationAnswer(answer), out);
    }
}
