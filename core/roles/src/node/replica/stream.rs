//! The primary's side of the stream: entries that the standby has not confirmed, and the effects
//! that wait for them.
//!
//! An entry is sent, with all entries before it, once a peer waits for one of its effects. Until
//! then it is [withheld](super::withheld), and may turn out to need fewer bytes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::withheld::{HeldPush, PushId, PushOutcome, cheaper_combined, fates};
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Term};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::replica::{Combined, Electorate, Entry, EntryHeader, EntryKind};

/// Entries that the standby has not confirmed.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    entries: VecDeque<Waiting>,
    /// The first withheld entry: all before it have been sent, if there was a standby to send to.
    kept_back: u64,
    /// The entry numbers of withheld pushes.
    pushes: BTreeMap<PushId, u64>,
    /// The electorate that an unconfirmed entry proposes, and the number of that entry.
    proposed: Option<(u64, Electorate)>,
    /// The first entry of a new term, and the term.
    claim: Option<(u64, Term)>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    /// When the entry was created, and sent, by the clock of the stream.
    at: Time,
    sent: Time,
    content: Content,
    /// The last entry of its group: entries of a group count only together.
    last: u64,
    /// Combined gradients to send before the entry.
    combined: Vec<Combined>,
    effects: Vec<Effect>,
}

/// The content of an entry.
#[derive(Debug)]
pub(super) enum Content {
    /// Encoded, as it is sent.
    Ready(EntryKind, Arc<Vec<u8>>),
    /// A withheld push.
    Held(HeldPush),
}

/// The result of a confirmation by the standby.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Effects that may be executed now.
    pub(super) effects: Vec<Effect>,
    /// The electorate in force from now on, if it has changed.
    pub(super) electorate: Option<Electorate>,
    /// The term in force from now on, if it has changed.
    pub(super) term: Option<Term>,
}

impl Unsettled {
    /// Appends a withheld entry; its effects follow with [`Self::hold`].
    pub(super) fn push(&mut self, number: u64, at: Time, content: Content) {
        match &content {
            Content::Ready(EntryKind::Electorate(list) | EntryKind::Paired(list), _) => {
                self.proposed = Some((number, list.clone()));
            }
            Content::Ready(..) => {}
            Content::Held(push) => drop(self.pushes.insert(push.id(), number)),
        }
        let (combined, effects) = (Vec::new(), Vec::new());
        let last = number;
        self.entries.push_back(Waiting { number, at, sent: at, content, last, combined, effects });
    }

    /// Records that entry `number` is the first of `term`.
    pub(super) const fn claim(&mut self, number: u64, term: Term) {
        self.claim = Some((number, term));
    }

    /// The term of entries that are sent now, if it is not confirmed.
    pub(super) fn claimed(&self) -> Option<Term> {
        self.claim.map(|(_, term)| term)
    }

    /// Withholds effects until the newest entry is confirmed.
    pub(super) fn hold(&mut self, effects: impl Iterator<Item = Effect>) {
        if let Some(last) = self.entries.back_mut() {
            last.effects.extend(effects);
        }
    }

    /// Queues effects that reveal no entry behind the effects of entries that were sent; returns
    /// them if there are none.
    pub(super) fn queue(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let sent = self.entries.partition_point(|waiting| waiting.number < self.kept_back);
        match sent.checked_sub(1).and_then(|last| self.entries.get_mut(last)) {
            Some(last) => {
                last.effects.extend(effects);
                Vec::new()
            }
            None => effects,
        }
    }

    /// Records the decisions of the newest entry about pushes, and its combined gradients.
    pub(super) fn note(&mut self, effects: &[Effect], combined: Vec<Combined>) {
        for (push, fate) in fates(effects) {
            let number = self.pushes.remove(&push);
            let place = number.map(|number| self.entries.partition_point(|it| it.number < number));
            let waiting = place.and_then(|place| self.entries.get_mut(place));
            if let Some(Waiting { content: Content::Held(push), .. }) = waiting {
                push.fate = fate;
            }
        }
        if let Some(last) = self.entries.back_mut() {
            last.combined.extend(combined);
        }
    }

    /// Number of withheld entries if they include a push that may need no values; else 0.
    pub(super) fn spares(&self) -> usize {
        if self.pushes.is_empty() {
            return 0;
        }
        self.entries.len() - self.entries.partition_point(|it| it.number < self.kept_back)
    }

    /// Encodes all withheld entries as they are to be sent; returns the number of the first.
    pub(super) fn seal(&mut self, now: Time) -> u64 {
        let first = self.kept_back;
        let from = self.entries.partition_point(|waiting| waiting.number < first);
        let Some(newest) = self.entries.back().map(|waiting| waiting.number) else { return first };
        self.kept_back = newest + 1;
        self.pushes.clear();
        let held = self.entries.range(from..).filter_map(|waiting| match &waiting.content {
            Content::Held(push) => Some(push),
            Content::Ready(..) => None,
        });
        let combined = self.entries.range(from..).flat_map(|waiting| &waiting.combined);
        let worth = cheaper_combined(held, combined);
        for waiting in self.entries.range_mut(from..) {
            waiting.sent = now;
            for effect in &mut waiting.effects {
                if let Effect::Report(event) = effect {
                    event.is_told_later(now.since(waiting.at));
                }
            }
            waiting.combined.retain(|combined| worth.contains(&combined.header.version));
            if !worth.is_empty() {
                // A bare push needs the combined gradient that it became part of: one group up to
                // the newest.
                waiting.last = newest;
            }
            if let Content::Held(push) = &waiting.content {
                let is_bare = match push.fate {
                    PushOutcome::Open => false,
                    PushOutcome::Dropped => push.is_whole(),
                    PushOutcome::Applied(version) => push.is_whole() && worth.contains(&version),
                };
                let (kind, input) = push.encode(is_bare);
                waiting.content = Content::Ready(kind, Arc::new(input));
            }
        }
        first
    }

    /// Drops effects for a closed connection. After the server restarts, another connection may get
    /// the same id.
    pub(super) fn forget(&mut self, gone: PeerId) {
        let is_its = |effect: &Effect| match effect {
            Effect::Send(peer, _) | Effect::Limit(peer, _) | Effect::Close(peer) => *peer == gone,
            Effect::SendExamples { peer, .. } | Effect::SendStatus { peer, .. } => *peer == gone,
            _ => false,
        };
        self.entries.iter_mut().for_each(|waiting| waiting.effects.retain(|it| !is_its(it)));
    }

    /// True if a proposed electorate is not confirmed.
    pub(super) const fn is_proposing(&self) -> bool {
        self.proposed.is_some()
    }

    /// True if the end of the run is among the effects that wait.
    pub(super) fn holds_end(&self) -> bool {
        let effects = self.entries.iter().flat_map(|waiting| &waiting.effects);
        effects.into_iter().any(|it| matches!(it, Effect::Report(Event::Ended { .. })))
    }

    /// True if the same evaluation, or the final effect, is among the effects that wait.
    pub(super) fn holds(&self, effect: &Effect) -> bool {
        let mut held = self.entries.iter().flat_map(|waiting| &waiting.effects);
        held.any(|it| match (it, effect) {
            (Effect::Evaluate(held), Effect::Evaluate(it)) => {
                held.point.version == it.point.version
            }
            (held, it) => matches!((held, it), (Effect::Done(_), Effect::Done(_))),
        })
    }

    /// True if an entry from number `from` on waits.
    pub(super) fn has_from(&self, from: u64) -> bool {
        self.entries.back().is_some_and(|newest| newest.number >= from)
    }

    /// The number of the first unconfirmed entry, if there is one.
    pub(super) fn first(&self) -> Option<u64> {
        self.entries.front().map(|waiting| waiting.number)
    }

    /// When the oldest unconfirmed entry was sent, by the clock of the stream; none if none is in
    /// transit.
    pub(super) fn sent_at(&self) -> Option<Time> {
        let oldest = self.entries.front().filter(|oldest| oldest.number < self.kept_back);
        oldest.map(|oldest| oldest.sent)
    }

    /// Records that the standby has all entries before `entries`.
    pub(super) fn settle(&mut self, entries: u64) -> Settled {
        let mut settled = Settled::default();
        let count = self.entries.partition_point(|waiting| waiting.number < entries);
        settled.effects.extend(self.entries.drain(..count).flat_map(|waiting| waiting.effects));
        if let Some((_, electorate)) = self.proposed.take_if(|(number, _)| *number < entries) {
            settled.electorate = Some(electorate);
        }
        settled.term = self.claim.take_if(|(number, _)| *number < entries).map(|(_, term)| term);
        settled
    }

    /// Returns all effects that wait: no standby need confirm them any more.
    pub(super) fn release(&mut self) -> Vec<Effect> {
        self.pushes.clear();
        self.settle(u64::MAX).effects
    }

    /// Sends the entries from `from` on that are not withheld.
    pub(super) fn send(
        &self,
        from: u64,
        peer: PeerId,
        (term, settled): (Term, u64),
        out: &mut Outbox,
    ) {
        let from = self.entries.partition_point(|waiting| waiting.number < from);
        for Waiting { number, sent, content, last, combined, .. } in self.entries.range(from..) {
            let Content::Ready(kind, input) = content else {
                return; // withheld, as are all after it
            };
            for combined in combined {
                out.push(Effect::Send(peer, Message::Combined(combined.clone())));
            }
            let header = EntryHeader {
                number: *number,
                term,
                settled,
                last: *last,
                sent: *sent,
                kind: kind.clone(),
            };
            let entry = Entry { header, input: Arc::clone(input) };
            out.push(Effect::Send(peer, Message::Entry(entry)));
        }
    }
}
