//! Pull, compute, push.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Grant, Work, Worker, WorkerError};
use crate::job::Exchange;
use crate::node::{Compute, Computed, Effect, Event, Outbox};
use crate::protocol::Message;
use crate::protocol::message::{Decided, EndReason, Parameters, Pull, Push, PushHeader};
use crate::time::Time;

impl Worker {
    pub(super) fn pull(&mut self, now: Time, out: &mut Outbox) {
        self.work = Work::Pulling;
        if let Some(member) = &self.member {
            let pull = Pull { incarnation: member.incarnation, keys: member.keys };
            self.send(now, Message::Pull(pull), out);
        }
    }

    pub(super) fn on_parameters(&mut self, now: Time, parameters: Parameters, out: &mut Outbox) {
        let Some(member) = &self.member else { return };
        let header = parameters.header;
        if header.keys != member.keys || parameters.values.len() as u64 != member.keys.len() {
            let what = alloc::format!(
                "it sent {} values for keys {} of a model with keys {}",
                parameters.values.len(),
                header.keys,
                member.keys
            );
            return self.finish(Err(WorkerError::Protocol(what)), out);
        }
        let ticket = member.ticket(header.sequence);
        match core::mem::replace(&mut self.work, Work::Pulling) {
            Work::Computing(grant) => {
                self.work = Work::Computing(grant); // a second answer to a repeated question
                return;
            }
            // The server has the gradient or does not want it; either way its memory is free.
            Work::Pushing(push) => self.reuse(push.gradient),
            Work::Pulling => {}
        }
        if self.draining {
            return self.leave(now, EndReason::Stopped, out);
        }
        let grant =
            Grant { sequence: header.sequence, version: header.version, batch: header.batch };
        self.work = Work::Computing(grant);
        let (sequence, version) = (grant.sequence, grant.version);
        out.push(Effect::Report(Event::Received { sequence, version }));
        out.push(Effect::Compute(Compute {
            ticket,
            batch: grant.batch,
            parameters: parameters.values,
            scratch: core::mem::take(&mut self.scratch),
        }));
    }

    /// Keeps the memory of a gradient if nobody else holds it.
    pub(super) fn reuse(&mut self, gradient: Arc<Vec<f32>>) {
        if let Ok(gradient) = Arc::try_unwrap(gradient) {
            self.scratch = gradient;
        }
    }

    pub(super) fn on_computed(&mut self, now: Time, computed: Computed, out: &mut Outbox) {
        let (Work::Computing(grant), Some(member)) = (&self.work, &self.member) else { return };
        if computed.ticket != member.ticket(grant.sequence) {
            return; // for an incarnation that is no more
        }
        let header = PushHeader {
            incarnation: member.incarnation,
            sequence: grant.sequence,
            base: grant.version,
            batch: grant.batch,
            samples: computed.samples,
            loss: computed.loss,
            compute_ns: u64::try_from(computed.took.as_nanos()).unwrap_or(u64::MAX),
            keys: member.keys,
            pull: member.job.exchange == Exchange::Combined && !self.draining,
        };
        // Told before it is done, so that whoever hears of the push has heard of this.
        let PushHeader { sequence, base, samples, loss, .. } = header;
        out.push(Effect::Report(Event::Sent { sequence, base, samples, loss }));
        let push = Push { header, gradient: Arc::new(computed.gradient) };
        self.work = Work::Pushing(push.clone());
        if self.server().is_some() {
            self.send(now, Message::Push(push), out);
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, decided: Decided, out: &mut Outbox) {
        match core::mem::replace(&mut self.work, Work::Pulling) {
            Work::Pushing(push) if push.header.sequence == decided.sequence => {
                self.reuse(push.gradient);
                if self.draining {
                    self.leave(now, EndReason::Stopped, out);
                } else {
                    self.pull(now, out);
                }
            }
            other => self.work = other,
        }
    }
}
