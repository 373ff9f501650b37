//! The training loop: pull, compute, push.

use alloc::string::String;
use core::time::Duration;

use super::work::Grant;
use super::{Member, NodeError, Worker, admitted};
use crate::node::{Compute, Computed, ComputedRange, Effect, Event, Outbox};
use pstrain_compute::decided::Decided;
use pstrain_compute::id::PeerId;
use pstrain_compute::params::Coverage;
use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;
use pstrain_policy::job::Exchange;
use pstrain_wire::Message;
use pstrain_wire::worker::{
    CalledOff, EndReason, Heartbeat, Parameters, ParametersHeader, Pull, Push, PushHeader,
};

impl Member {
    /// Checks that the worker has the data for all pushes that the parameters allow.
    fn check_tasks(&self, header: &ParametersHeader) -> Result<(), String> {
        if header.ahead >= MOST_IN_FLIGHT {
            return Err(alloc::format!("it allowed {} pushes more at once", header.ahead));
        }
        let mut task = header.task;
        for _ in 0..=header.ahead {
            if !self.parts.contains(&task.part) {
                return Err(alloc::format!("it wants partition {}, which is not here", task.part));
            }
            task = self.job.following(task);
        }
        Ok(())
    }
}

impl Worker {
    pub(super) fn pull(&mut self, now: Time, out: &mut Outbox) {
        if let Some(member) = &self.member {
            let pull = Pull {
                incarnation: member.incarnation,
                keys: member.keys,
                allowed: self.work.allowed(),
            };
            self.send(now, Message::Pull(pull), out);
        }
    }

    pub(super) fn on_parameters(
        &mut self,
        now: Time,
        from: PeerId,
        parameters: Parameters,
        out: &mut Outbox,
    ) {
        let Some(keys) = self.member.as_ref().map(|member| member.keys) else {
            return; // a server gives parameters to its members
        };
        let mut next = match self.assemble(from, parameters, keys, out) {
            Ok(next) => next,
            Err(what) => return self.finish(Err(NodeError::Protocol(what)), out),
        };
        while let Some(parameters) = next {
            self.take_parameters(now, parameters, out);
            next = self.next_assembled();
        }
    }

    /// Records parameters and begins what they allow.
    fn take_parameters(&mut self, now: Time, parameters: Parameters, out: &mut Outbox) {
        let member = admitted(&self.member);
        let header = parameters.header;
        if let Err(what) = member.check_tasks(&header) {
            return self.finish(Err(NodeError::Protocol(what)), out);
        }
        if let Some(decided) = header.decided {
            self.on_decided(now, decided);
        }
        if self.draining {
            if self.work.computing().is_none() {
                self.leave(now, Ok(EndReason::Stopped), out);
            }
            return;
        }
        let member = admitted(&self.member);
        let following = |task| member.job.following(task);
        if header.sequence > self.work.allowed() {
            self.damage.progressed();
        }
        self.work.permit(now, &header, parameters.values, following);
        self.begin(now, out);
        // The server sends no newer parameters before it knows that these have arrived.
        self.tell_called_off(now, out);
    }

    /// Tells the server of a gradient that was called off, if there is one.
    pub(super) fn tell_called_off(&mut self, now: Time, out: &mut Outbox) {
        let Some(member) = &self.member else { return };
        let Some((Grant { sequence, version, .. }, computed)) = self.work.take_called_off() else {
            return;
        };
        let compute_ns = u64::try_from(computed.as_nanos()).unwrap_or(u64::MAX);
        let called_off = Some(CalledOff { sequence, base: version, compute_ns });
        let heartbeat = Heartbeat { called_off, ..Heartbeat::of(Some(member.incarnation)) };
        self.send(now, Message::Heartbeat(heartbeat), out);
    }

    /// Begins the next gradient if one is allowed and none is in progress.
    fn begin(&mut self, now: Time, out: &mut Outbox) {
        let member = admitted(&self.member);
        let Some((grant, parameters)) = self.work.begin(now) else { return };
        let Grant { sequence, version, task } = grant;
        (self.base, self.sent_ranges) = (Some(parameters.clone()), Some(Coverage::default()));
        out.push(Effect::Report(Event::Received { sequence, version }));
        out.push(Effect::Compute(Compute {
            ticket: member.ticket(grant),
            task,
            amount: member.job.amount(task),
            parameters,
            scratch: self.work.scratch(),
            by_range: member.job.exchange == Exchange::Layers,
        }));
    }

    /// Sends a range of the gradient in progress, unless connections have changed since it was
    /// begun: the range then goes with the whole.
    pub(super) fn on_computed_range(&mut self, now: Time, range: ComputedRange, out: &mut Outbox) {
        let Some(grant) = self.work.computing() else {
            return; // called off
        };
        let ComputedRange { ticket, keys, values, samples } = range;
        if ticket != admitted(&self.member).ticket(grant) || !self.can_push() {
            return;
        }
        if self.sent_ranges.as_mut().is_some_and(|early| early.add(keys)) {
            let computed = (samples, 0.0, Duration::ZERO);
            let header = PushHeader { keys, ..self.push_header(grant, computed) };
            self.send_range(now, header, &values, out);
        }
    }

    /// True if all servers can take a push now.
    fn can_push(&self) -> bool {
        self.server().is_some() && self.unknown.is_empty()
    }

    fn push_header(&self, grant: Grant, computed: (u32, f32, Duration)) -> PushHeader {
        let member = admitted(&self.member);
        let (samples, loss, took) = computed;
        PushHeader {
            incarnation: member.incarnation,
            sequence: grant.sequence,
            base: grant.version,
            task: grant.task,
            samples,
            loss,
            compute_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            keys: member.keys,
            pull: member.job.exchange != Exchange::Separate && !self.draining,
            allowed: self.work.allowed(),
        }
    }

    pub(super) fn on_computed(&mut self, now: Time, computed: Computed, out: &mut Outbox) {
        let Some(grant) = self.work.computing() else {
            return; // called off
        };
        let member = admitted(&self.member);
        if computed.ticket != member.ticket(grant) {
            return; // of an earlier incarnation, or on superseded parameters
        }
        let Computed { gradient, loss, samples, took, .. } = computed;
        let header = self.push_header(grant, (samples, loss, took));
        // Reported before the push is sent, so that the push is never visible before its report.
        let (sequence, base) = (grant.sequence, grant.version);
        out.push(Effect::Report(Event::Sent { sequence, base, samples, loss }));
        let base = self.base.take().unwrap_or_default();
        let gradient = (gradient, self.block_of(grant.task));
        let push = Self::filtered(&mut self.filter_chain, grant, header, gradient, &base);
        out.extend(self.servers.recycle(base).map(Effect::Recycle));
        self.work.send(push.clone());
        if self.can_push() {
            match self.sent_ranges.take().filter(|early| !early.is_empty()) {
                None => self.send_push(now, push, out),
                Some(early) => self.send_rest(now, &push, &early, out),
            }
        }
        self.begin(now, out);
    }

    /// Sends the ranges of a push that were not sent `early`.
    fn send_rest(&mut self, now: Time, push: &Push, early: &Coverage, out: &mut Outbox) {
        for keys in early.gaps(push.header.keys) {
            let values = push.gradient.get(keys.indices()).unwrap_or_default();
            self.send_range(now, PushHeader { keys, ..push.header }, values, out);
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, decided: Decided, out: &mut Outbox) {
        if !self.on_decided(now, decided) {
            return; // known already
        }
        if !self.draining {
            self.pull(now, out);
        } else if self.work.computing().is_none() {
            self.leave(now, Ok(EndReason::Stopped), out);
        }
    }
}
