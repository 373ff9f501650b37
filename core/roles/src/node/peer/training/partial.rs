//! Updates without late gradients.
//!
//! Once a gradient of the update in progress has been there for a time, a member activates the
//! members whose values it awaits: a member without its own gradient contributes nothing, and
//! activates the members that it awaits itself. A late gradient becomes part of the update that is
//! in progress once it is there, so that each mini-batch counts once. The sum says whose gradients
//! it has. Partial collectives: Li et al., "Taming unbalanced training workloads in deep learning
//! with partial collective operations", PPoPP 2020.

use alloc::collections::BTreeSet;
use core::time::Duration;

use super::{Stage, Training};
use crate::node::Outbox;
use crate::node::peer::{Joined, Peer, joined};
use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::{Part, Participants, Scheme};
use pstrain_policy::lockstep::Done;
use pstrain_wire::MemberMessage;
use pstrain_wire::peers::Activate;

/// Late gradients of the update in progress.
#[derive(Debug, Default)]
pub(super) enum Activation {
    /// They are awaited.
    #[default]
    None,
    /// They are awaited until this time.
    At(Time),
    /// The update does without them. These members are activated, once there is a connection.
    Told(BTreeSet<Rank>),
    /// The next update, which this member has not begun, does without them. The one in progress has
    /// all its gradients: a member has made it.
    Next(Version),
}

impl Training {
    /// The mini-batches of all updates, if updates may be without late gradients.
    pub(super) fn done(&self) -> Option<Done> {
        let is_partial = matches!(self.scheme, Scheme::Reduce(_, _, Participants::InTime));
        is_partial.then(|| self.lockstep.done())
    }

    /// When late gradients are left out of the update in progress.
    pub(in crate::node::peer) const fn partial_at(&self) -> Option<Time> {
        match (&self.stage, &self.activation) {
            (Stage::Stepping(_), Activation::At(at)) => Some(*at),
            _ => None,
        }
    }

    /// The own gradient, which is of the current parameters, is part of the update in progress from
    /// now on. Nothing follows from a late one: the others' gradients are not due yet.
    pub(super) fn gave(&mut self, now: Time, base: Version, partial_after: Option<Duration>) {
        if let Some(after) = partial_after
            && base == self.version()
            && matches!(self.activation, Activation::None)
        {
            self.activation = Activation::At(now + after);
        }
    }
}

impl Peer {
    /// Leaves late gradients out of the update in progress, if it is time.
    pub(in crate::node::peer) fn see_to_partial(&mut self, now: Time, out: &mut Outbox) {
        let Some(training) = self.training() else { return };
        if training.partial_at().is_some_and(|at| at <= now) {
            let version = training.version();
            self.activate(now, version, out);
        }
    }

    /// A member does without late gradients.
    pub(in crate::node::peer) fn on_activate(
        &mut self,
        now: Time,
        from: Rank,
        Activate { version }: Activate,
        out: &mut Outbox,
    ) {
        let Joined { job, training, .. } = joined(&mut self.member);
        if job.membership.partial_after.is_none() {
            let why = "it does without late gradients, and the job waits for all";
            return self.give_up_on(now, from, why, out);
        }
        let current = training.version();
        match &training.stage {
            Stage::Stepping(_) if version == current => self.activate(now, version, out),
            // An update that this member has not begun.
            _ if version == current || version == current.next() => {
                training.activation = Activation::Next(version);
            }
            _ => {}
        }
    }

    /// Does without late gradients in an update, if it is still in progress.
    pub(super) fn activate(&mut self, now: Time, version: Version, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        let is_current = training.version() == version;
        let Stage::Stepping(step) = &mut training.stage else { return };
        if !is_current || matches!(training.activation, Activation::Told(_)) {
            return;
        }
        training.activation = Activation::Told(step.combining.late());
        match step.is_given {
            true => self.go_on(now, out),
            false => self.contribute(now, Part::None, out),
        }
    }

    /// Tells late members that the update does without their gradients.
    pub(super) fn tell_late(&mut self, now: Time, out: &mut Outbox) {
        let meeting = self.meeting();
        let Joined { training, .. } = joined(&mut self.member);
        let version = training.version();
        let Activation::Told(late) = &mut training.activation else { return };
        late.retain(|rank| {
            let Some(way) = self.links.sends(now, *rank, meeting) else { return true };
            out.push(way.send(MemberMessage::Activate(Activate { version })));
            false
        });
    }
}
