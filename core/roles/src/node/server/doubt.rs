//! Gradients that are not finite: decides whether one worker's data or the parameters are to blame.
//!
//! One finite gradient of any size can leave finite parameters that admit no finite gradient. So
//! the first worker that sends a non-finite gradient is not refused at once. Its push is dropped,
//! as are its later pushes on the way, it is given no parameters, and the other workers answer
//! first. The version in doubt is the oldest on which a gradient was not finite. Under asynchronous
//! policies nearly every worker holds another version, but later versions derive from the one in
//! doubt. So an answer on any later version counts, too, and an answer on an earlier version does
//! not.
//!
//! - If more than half of the workers find no finite gradient there, the version has diverged. The
//!   run ends, unless `auto` goes back to earlier parameters.
//! - If at least half of them find one, or no more answers can come, the suspects are refused. In
//!   the second case the version stays in doubt, and a refused worker keeps its vote.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Server;
use super::roster::{Presence, Roster};
use crate::node::{Departure, Outbox};
use pstrain_compute::id::{Incarnation, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::Refusal;
use pstrain_wire::worker::{EndReason, PushHeader};

/// A version that may admit no finite gradient.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Doubt {
    version: Version,
    /// Workers that sent a gradient that is not finite, until the verdict.
    suspects: BTreeMap<WorkerId, Suspect>,
    /// Suspects that were refused because no more answers could come.
    refused: BTreeSet<WorkerId>,
    /// A refusal is in progress, and settles everything else.
    refuses: bool,
}

/// The first push of an incarnation that is not finite.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Suspect {
    incarnation: Incarnation,
    sequence: Sequence,
    key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The version is at fault.
    Diverged,
    /// The suspects are at fault.
    Theirs,
    /// No more answers can come: the suspects are presumed at fault.
    Unclear,
    Open,
}

/// The answers on a version in doubt.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// Workers whose answers count.
    voters: usize,
    /// Voters that found no finite gradient.
    without: usize,
    /// Voters that found a finite gradient.
    with: usize,
    /// True if a voter that has not answered is computing.
    is_open: bool,
}

impl Answers {
    const fn verdict(&self) -> Verdict {
        if 2 * self.without > self.voters {
            Verdict::Diverged
        } else if 2 * self.with >= self.voters {
            Verdict::Theirs
        } else if self.is_open {
            Verdict::Open
        } else {
            Verdict::Unclear
        }
    }
}

impl Doubt {
    const fn of(version: Version) -> Self {
        Self { version, suspects: BTreeMap::new(), refused: BTreeSet::new(), refuses: false }
    }

    /// Drops workers that have departed; a new incarnation in the slot of a suspect is not a
    /// suspect.
    fn keep_present(&mut self, roster: &Roster) {
        self.suspects.retain(|worker, suspect| {
            let slot = &roster[*worker];
            slot.presence == Presence::Ready && slot.incarnation == suspect.incarnation
        });
        let is_refused =
            |worker: &WorkerId| roster[*worker].presence == Presence::Gone(Departure::Refused);
        self.refused.retain(is_refused);
    }

    fn answers(&self, roster: &Roster) -> Answers {
        let mut answers = Answers::default();
        for (worker, slot) in roster.iter() {
            let is_refused = self.refused.contains(&worker);
            if slot.presence != Presence::Ready && !is_refused {
                continue;
            }
            answers.voters += 1;
            if is_refused || self.suspects.contains_key(&worker) {
                answers.without += 1;
            } else if slot.pushes.finite >= Some(self.version) {
                answers.with += 1;
            } else {
                answers.is_open |= slot.pushes.under_way() > 0;
            }
        }
        answers
    }

    /// Returns the first suspect with a connection, over which it can be refused.
    fn first_to_refuse(&self, roster: &Roster) -> Option<(WorkerId, PeerId, Suspect)> {
        self.suspects
            .iter()
            .find_map(|(&worker, &suspect)| Some((worker, roster[worker].peer?, suspect)))
    }
}

impl Server {
    /// Notes that a push of `worker` is not finite at `key`.
    pub(super) fn suspect(&mut self, worker: WorkerId, header: &PushHeader, key: u64) {
        let PushHeader { incarnation, sequence, base, .. } = *header;
        let doubt = self.doubt.get_or_insert_with(|| Doubt::of(base));
        doubt.version = doubt.version.min(base);
        let suspect = Suspect { incarnation, sequence, key };
        let first = doubt.suspects.entry(worker).or_insert(suspect);
        if first.incarnation != incarnation {
            *first = suspect; // the one before it has departed
        }
    }

    /// True if `worker` waits for the verdict on a gradient that is not finite.
    pub(super) fn is_suspect(&self, worker: WorkerId) -> bool {
        let suspect = self.doubt.as_ref().and_then(|doubt| doubt.suspects.get(&worker));
        // Another worker may have its id by now.
        suspect.is_some_and(|it| it.incarnation == self.members.roster[worker].incarnation)
    }

    /// Acts on the answers about the version in doubt, if there is one.
    pub(super) fn settle_doubt(&mut self, now: Time, out: &mut Outbox) {
        while self.lifecycle.end().is_none() && !self.is_going_back() && !self.is_measuring() {
            let may_give_out = self.may_give_out() && self.rounds.next_turn.is_none();
            let Some(doubt) = self.doubt.as_mut().filter(|doubt| !doubt.refuses) else { return };
            doubt.keep_present(&self.members.roster);
            let mut answers = doubt.answers(&self.members.roster);
            // Waiting workers will be given parameters later, and then answer.
            answers.is_open |= !may_give_out;
            let verdict = answers.verdict();
            if doubt.suspects.is_empty() {
                if verdict == Verdict::Theirs || doubt.refused.is_empty() {
                    self.doubt = None;
                }
                return;
            }
            match verdict {
                Verdict::Open => return,
                Verdict::Diverged => {
                    self.diverge(now, out);
                    if self.lifecycle.end().is_none() {
                        self.settle(now, out); // if nothing is under way, the run goes back now
                    }
                    return;
                }
                Verdict::Theirs | Verdict::Unclear => {
                    let refusal = doubt.first_to_refuse(&self.members.roster);
                    // A disconnected suspect is refused when it is back.
                    let Some((worker, peer, Suspect { sequence, key, .. })) = refusal else {
                        return;
                    };
                    // `refuse` settles, which comes back here: the flag keeps it from a second
                    // refusal.
                    doubt.refuses = true;
                    self.refuse(now, peer, Refusal::NotFinite { sequence, key }, out);
                    let Some(doubt) = &mut self.doubt else {
                        return; // without that worker the run has gone back
                    };
                    doubt.refuses = false;
                    doubt.suspects.remove(&worker);
                    if verdict == Verdict::Unclear {
                        doubt.refused.insert(worker);
                    }
                }
            }
        }
    }

    /// Acts on the verdict that the version in doubt admits no finite gradient.
    pub(super) fn diverge(&mut self, now: Time, out: &mut Outbox) {
        let Some(Doubt { version, .. }) = self.doubt else { unreachable!("a version is in doubt") };
        if !self.try_go_back(now, version, out) {
            self.end(now, EndReason::Diverged(version), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_make_it_the_versions_fault_and_half_make_it_the_workers() {
        let verdict =
            |voters, without, with, is_open| Answers { voters, without, with, is_open }.verdict();
        assert_eq!(verdict(1, 1, 0, false), Verdict::Diverged);
        assert_eq!(verdict(5, 3, 0, true), Verdict::Diverged);
        assert_eq!(verdict(4, 2, 0, true), Verdict::Open);
        assert_eq!(verdict(4, 2, 2, true), Verdict::Theirs);
        assert_eq!(verdict(3, 1, 2, true), Verdict::Theirs);
        assert_eq!(verdict(3, 1, 1, true), Verdict::Open);
        assert_eq!(verdict(3, 1, 1, false), Verdict::Unclear);
    }
}
