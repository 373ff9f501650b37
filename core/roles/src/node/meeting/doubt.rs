//! Gradients that are not finite: decides whether a worker's data or the parameters are to blame.
//!
//! A member drops such a gradient and makes its update without it, so that it harms no other
//! member. Its report says so. The version from which it was computed is in doubt until the other
//! members have reported gradients from this version, or a later one.
//!
//! - If more than half of the members find no finite gradient, the version has diverged, and the
//!   run ends.
//! - If the other members find finite ones, the members without are refused.

use alloc::collections::{BTreeMap, BTreeSet};

use super::Meeting;
use crate::node::Outbox;
use pstrain_compute::id::{Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Phase, Refusal};

/// The version in doubt, if there is one.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    version: Version,
    /// Members whose gradient was not finite: the first such gradient of each, and a key.
    suspects: BTreeMap<WorkerId, (Sequence, u64)>,
    /// Members that have not reported since.
    awaited: BTreeSet<WorkerId>,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Open,
    Diverged,
    /// The suspects are at fault.
    Theirs,
}

impl Doubt {
    /// A member has reported a gradient from the version `base`, which is not finite at a key.
    pub(super) fn suspect(
        &mut self,
        (worker, base): (WorkerId, Version),
        (sequence, key): (Sequence, u64),
        members: impl Iterator<Item = WorkerId>,
    ) {
        if self.suspects.is_empty() {
            (self.version, self.awaited) = (base, members.collect());
        }
        self.suspects.entry(worker).or_insert((sequence, key));
        self.awaited.remove(&worker);
    }

    /// A member has reported a finite gradient from the version `base`.
    pub(super) fn trust(&mut self, worker: WorkerId, base: Version) {
        if base >= self.version {
            self.awaited.remove(&worker);
        }
    }

    /// The verdict, if the group has so many members.
    fn verdict(&self, members: usize) -> Verdict {
        match self.suspects.len() {
            0 => Verdict::Open,
            without if 2 * without > members => Verdict::Diverged,
            _ if self.awaited.is_empty() => Verdict::Theirs,
            _ => Verdict::Open,
        }
    }
}

impl Meeting {
    /// Acts on gradients that are not finite.
    pub(super) fn settle_doubt(&mut self, now: Time, out: &mut Outbox) {
        let group = &self.group;
        self.doubt.suspects.retain(|worker, _| group.has(*worker));
        self.doubt.awaited.retain(|worker| group.has(*worker));
        if self.lifecycle.phase() != Phase::Training {
            return;
        }
        match self.doubt.verdict(group.len()) {
            Verdict::Open => {}
            Verdict::Diverged => self.end(now, EndReason::Diverged(self.doubt.version), out),
            Verdict::Theirs => {
                for (worker, (sequence, key)) in self.doubt.suspects.clone() {
                    // A suspect without a connection is refused when it is back.
                    if let Some(peer) = self.slots[worker].peer {
                        self.refuse(now, peer, Refusal::NotFinite { sequence, key }, out);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(suspects: u32, awaited: u32) -> Doubt {
        let mut doubt = Doubt::default();
        let members = || (0..suspects + awaited).map(WorkerId);
        for worker in (0..suspects).map(WorkerId) {
            doubt.suspect((worker, Version(7)), (Sequence(8), 3), members());
        }
        doubt
    }

    #[test]
    fn more_than_half_without_a_finite_gradient_is_divergence() {
        assert_eq!(doubt(0, 0).verdict(1), Verdict::Open);
        assert_eq!(doubt(1, 0).verdict(1), Verdict::Diverged);
        assert_eq!(doubt(2, 1).verdict(3), Verdict::Diverged);
        assert_eq!(doubt(2, 2).verdict(4), Verdict::Open);
    }

    #[test]
    fn a_member_is_refused_once_all_others_have_a_finite_gradient_of_the_version_or_a_later_one() {
        let mut doubt = doubt(1, 2);
        doubt.trust(WorkerId(1), Version(9));
        doubt.trust(WorkerId(2), Version(6));
        assert_eq!(doubt.verdict(3), Verdict::Open, "the last report is of an earlier version");
        doubt.trust(WorkerId(2), Version(7));
        assert_eq!(doubt.verdict(3), Verdict::Theirs);
    }
}
