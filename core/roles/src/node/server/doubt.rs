//! Acts on gradients that are not finite.

use alloc::vec::Vec;

use super::Server;
use super::roster::{Presence, Slot};
use crate::node::doubt::{Verdict, Voter};
use crate::node::{Departure, Outbox};
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::worker::{EndReason, PushHeader};

impl Server {
    /// Notes that a push of `worker` is not finite at `key`.
    pub(super) fn note_not_finite(&mut self, worker: WorkerId, header: &PushHeader, key: u64) {
        let PushHeader { incarnation, sequence, base, .. } = *header;
        self.doubt.not_finite((worker, incarnation), base, (sequence, key));
    }

    /// Notes that a push of `worker` is finite.
    pub(super) fn note_finite(&mut self, worker: WorkerId, header: &PushHeader) {
        let pushes = &mut self.members.roster[worker].pushes;
        pushes.finite = pushes.finite.max(Some(header.base));
        self.doubt.finite(worker);
    }

    /// True if `worker` waits for the verdict on its gradients.
    pub(super) fn is_suspect(&self, worker: WorkerId) -> bool {
        self.doubt.is_suspect(worker, self.members.roster[worker].incarnation)
    }

    /// Acts on the answers about the version in doubt, if there is one.
    pub(super) fn settle_doubt(&mut self, now: Time, out: &mut Outbox) {
        while !self.doubt.is_empty()
            && self.lifecycle.end().is_none()
            && !self.is_going_back()
            && !self.is_measuring()
        {
            // Waiting workers will be given parameters later, and then answer.
            let may_answer = !self.may_give_out() || self.rounds.next_turn.is_some();
            let roster = &self.members.roster;
            let present = roster.iter().filter(|(_, slot)| slot.presence == Presence::Ready);
            let voter = |(worker, slot): (WorkerId, &Slot)| Voter {
                worker,
                incarnation: slot.incarnation,
                finite: slot.pushes.finite,
                computes: may_answer || slot.pushes.under_way() > 0,
            };
            let voters: Vec<Voter> = present.map(voter).collect();
            let is_refused =
                |worker: WorkerId| roster[worker].presence == Presence::Gone(Departure::Refused);
            self.doubt.keep_refused(is_refused);
            match self.doubt.verdict(&voters) {
                Verdict::Open => return,
                Verdict::Diverged(version) => {
                    self.diverge(now, version, out);
                    if self.lifecycle.end().is_none() {
                        self.settle(now, out); // if nothing is under way, the run goes back now
                    }
                    return;
                }
                verdict @ (Verdict::Theirs | Verdict::Unclear) => {
                    // A disconnected suspect is refused when it is back.
                    let suspect = self.doubt.suspects().find_map(|(worker, why)| {
                        Some((worker, self.members.roster[worker].peer?, why))
                    });
                    let Some((worker, peer, why)) = suspect else { return };
                    // Before `refuse`, which settles and comes back here.
                    self.doubt.refuse(worker, verdict);
                    self.refuse(now, peer, why, out);
                }
            }
        }
    }

    /// Acts on the verdict that `version` admits no finite gradient.
    pub(super) fn diverge(&mut self, now: Time, version: Version, out: &mut Outbox) {
        if !self.try_go_back(now, version, out) {
            self.end(now, EndReason::Diverged(version), out);
        }
    }
}
