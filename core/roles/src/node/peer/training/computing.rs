//! The gradients of a worker without a server: ordered, and received range by range or whole.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Own, Stage, Training};
use crate::node::peer::Peer;
use crate::node::{Compute, Computed, ComputedRange, Effect, Event, Outbox, Ticket};
use pstrain_compute::id::{Incarnation, Sequence, Version};
use pstrain_compute::params::first_not_finite;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;

/// A gradient that is being computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Computing {
    /// The number of the gradient.
    sequence: Sequence,
    /// The version of its parameters.
    base: Version,
    task: Task,
}

impl Training {
    /// The number of the gradient of the next update.
    pub(super) const fn sequence(&self) -> Sequence {
        Sequence(self.version().0 + 1)
    }

    /// True if the gradient of a mini-batch is being computed.
    pub(super) fn is_computing(&self, task: Task) -> bool {
        self.computing.is_some_and(|computing| computing.task == task)
    }

    /// Orders a gradient from the current parameters, unless it is being computed already.
    pub(in crate::node::peer) fn compute(
        &mut self,
        (sequence, task): (Sequence, Task),
        (run, incarnation): (u64, Incarnation),
        job: &Job,
        out: &mut Outbox,
    ) {
        let base = self.version();
        let computing = Computing { sequence, base, task };
        if self.computing.replace(computing) == Some(computing) {
            return;
        }
        let ticket = Ticket { run, incarnation, sequence, base };
        out.push(Effect::Report(Event::Received { sequence, version: base }));
        out.push(Effect::Compute(Compute {
            ticket,
            task,
            amount: job.amount(task),
            parameters: Arc::clone(&self.parameters),
            scratch: core::mem::take(&mut self.spare),
            by_range: self.by_layers,
        }));
    }
}

impl Peer {
    /// Gives a range of the gradient in progress to the update in progress, if it is the update's.
    pub(in crate::node::peer) fn on_computed_range(
        &mut self,
        now: Time,
        range: ComputedRange,
        out: &mut Outbox,
    ) {
        let Some(member) = &mut self.member else { return };
        let of_member = (member.run, member.incarnation);
        let Some(training) = member.training() else { return };
        let ComputedRange { ticket, keys, values, .. } = range;
        let is_its = (ticket.run, ticket.incarnation) == of_member;
        let (share, parameters) =
            (training.lockstep.share(training.worker), training.parameters.len());
        let (Some(computing), Some(share)) = (training.computing.filter(|_| is_its), share) else {
            return; // called off, or the worker has no mini-batch left
        };
        let is_ordered = (computing.sequence, computing.base) == (ticket.sequence, ticket.base);
        let Stage::Stepping(step) = &mut training.stage else { return };
        let is_due = is_ordered && computing.task == share.task && !step.is_given;
        if !is_due || first_not_finite(keys, &values).is_some() {
            return; // it goes with the whole
        }
        let (factor, mut outgoing) = (share.factor, Vec::new());
        step.combining.give_range(keys, &values, (factor, parameters), &mut outgoing);
        step.unsent.extend(outgoing);
        self.go_on(now, out);
    }

    pub(in crate::node::peer) fn on_computed(
        &mut self,
        now: Time,
        computed: Computed,
        out: &mut Outbox,
    ) {
        // The worker may have lost its membership since it ordered the gradient.
        let Some(member) = &mut self.member else { return };
        let (run, incarnation) = (member.run, member.incarnation);
        let Some(training) = member.training() else { return };
        let Computed { ticket, gradient, loss, samples, took } = computed;
        let is_its = ticket.run == run && ticket.incarnation == incarnation;
        let (sequence, base) = (ticket.sequence, ticket.base);
        let is_ordered = |it: &mut Computing| (it.sequence, it.base) == (sequence, base);
        let Some(Computing { task, .. }) =
            training.computing.take_if(|computing| is_its && is_ordered(computing))
        else {
            return;
        };
        let not_finite = training.first_not_finite(&gradient);
        let own = Own { base, loss, took, since: now, not_finite };
        if training.pairs.is_some() {
            return self.computed_alone(now, (ticket, gradient), (samples, own), out);
        }
        // The group may have halted since, and another update may have begun.
        let Stage::Stepping(step) = &training.stage else { return };
        let is_due = training.lockstep.share(training.worker).is_some_and(|it| it.task == task);
        let is_next = sequence.0 == training.sequence().0 + 1;
        if !is_due && !is_next {
            return;
        }
        out.push(Effect::Report(Event::Sent { sequence, base, samples, loss }));
        if is_next || step.is_given {
            training.next = Some((gradient, own)); // it is early, or late for this update
            return;
        }
        self.computed(now, (gradient, own), out);
    }
}
