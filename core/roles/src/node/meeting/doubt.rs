//! Acts on gradients that are not finite. A member drops such a gradient and makes its update
//! without it, so that it harms no other member. Its report says so.

use alloc::vec::Vec;

use super::Meeting;
use crate::node::Outbox;
use crate::node::doubt::{Verdict, Voter};
use pstrain_compute::time::Time;
use pstrain_wire::Phase;
use pstrain_wire::worker::EndReason;

impl Meeting {
    /// Acts on the answers about the version in doubt, if there is one.
    pub(super) fn settle_doubt(&mut self, now: Time, out: &mut Outbox) {
        if self.lifecycle.phase() != Phase::Training || self.doubt.is_empty() {
            return;
        }
        let voter = |worker| {
            let slot = &self.slots[worker];
            Voter { worker, incarnation: slot.incarnation, finite: slot.finite, computes: true }
        };
        let voters: Vec<Voter> = self.group.members().map(voter).collect();
        match self.doubt.verdict(&voters) {
            Verdict::Open | Verdict::Unclear => {}
            Verdict::Diverged(version) => self.end(now, EndReason::Diverged(version), out),
            verdict @ Verdict::Theirs => {
                for (worker, why) in self.doubt.suspects().collect::<Vec<_>>() {
                    // A suspect without a connection is refused when it is back.
                    if let Some(peer) = self.slots[worker].peer {
                        self.doubt.refuse(worker, verdict);
                        self.refuse(now, peer, why, out);
                    }
                }
            }
        }
    }
}
