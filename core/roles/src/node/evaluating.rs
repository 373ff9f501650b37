//! Evaluations by a worker, for a server or a meeting point that cannot evaluate. They do not
//! affect its gradients.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{EvaluateHere, EvaluationTicket};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, Version};
use pstrain_compute::params::KeyRange;
use pstrain_wire::evaluation::{EvaluationStep, check_evaluation};
use pstrain_wire::range::RangePart;
use pstrain_wire::reason::as_reason;

/// Parameters to evaluate, as far as they have arrived, and the evaluation in progress.
#[derive(Debug, Default)]
pub(super) struct Evaluating {
    /// The version that is arriving, with the values so far.
    arriving: Option<(Version, Vec<f32>)>,
    /// The evaluation that is in progress, or whose result was not sent yet.
    current: Option<Current>,
}

/// An evaluation that the driver was requested to make.
#[derive(Debug)]
struct Current {
    ticket: EvaluationTicket,
    /// The connection over which the parameters came last. After a reconnect they come again, and
    /// no result is expected before they have.
    asked_by: PeerId,
    result: Option<EvaluationStep>,
}

/// An action that is due after a part.
pub(super) enum Act {
    Answer(EvaluationStep),
    Evaluate(EvaluateHere),
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
            // It may begin again, or with another version.
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

    /// Receives a part of the parameters of `keys` over a connection; has them evaluated once all
    /// parts are here.
    ///
    /// # Errors
    /// In words, if the part cannot be one of the model.
    pub(super) fn receive(
        &mut self,
        from: PeerId,
        ticket: EvaluationTicket,
        part: &RangePart,
        keys: KeyRange,
    ) -> Result<Option<Act>, String> {
        Ok(match self.add(ticket.version, part, keys)? {
            Step::Ignored => None,
            Step::Due(key) => Some(Act::Answer(EvaluationStep::PartDue(key))),
            Step::Whole(values) => match &mut self.current {
                Some(current) if current.ticket == ticket => {
                    current.asked_by = from;
                    self.result_for(Some(from)).map(|(_, result)| Act::Answer(result))
                }
                current => {
                    *current = Some(Current { ticket, asked_by: from, result: None });
                    let parameters = Arc::new(values);
                    Some(Act::Evaluate(EvaluateHere { ticket, parameters }))
                }
            },
        })
    }

    /// Keeps the result of an evaluation of a model with so many parameters. A result of an earlier
    /// version or incarnation is dropped.
    pub(super) fn evaluated(
        &mut self,
        ticket: EvaluationTicket,
        result: Result<Evaluation, String>,
        parameters: u64,
    ) {
        let is_current = |current: &&mut Current| current.ticket == ticket;
        let Some(current) = self.current.as_mut().filter(is_current) else { return };
        // A worker whose evaluation is impossible would be refused.
        let checked = result.and_then(|evaluation| {
            let checked = check_evaluation(&evaluation, parameters);
            checked.map(|()| evaluation)
        });
        current.result = Some(match checked {
            Ok(evaluation) => EvaluationStep::Evaluated(evaluation),
            Err(why) => EvaluationStep::Unable(as_reason(&why)),
        });
    }

    /// The result that is awaited over this connection, if it is here, and its version.
    pub(super) fn result_for(
        &mut self,
        connection: Option<PeerId>,
    ) -> Option<(Version, EvaluationStep)> {
        let is_awaited = |it: &mut Current| it.result.is_some() && Some(it.asked_by) == connection;
        let Current { ticket, result, .. } = self.current.take_if(is_awaited)?;
        Some((ticket.version, result?))
    }
}
