//! The stream that both keep, from the primary's side: what the standby has not said it has, and the
//! effects that wait for that.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{PeerId, Term};
use crate::node::{Effect, Event, Outbox};
use crate::protocol::Message;
use crate::protocol::replica::{Electorate, Entry, EntryHeader, EntryKind};

/// Entries that the standby has not said it has.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    entries: VecDeque<Waiting>,
    /// The electorate that one of them begins, and its number.
    proposed: Option<(u64, Electorate)>,
    /// The first entry in which a new term is, and the term.
    claim: Option<(u64, Term)>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    kind: EntryKind,
    input: Arc<Vec<u8>>,
    effects: Vec<Effect>,
}

/// What is settled once the standby has said so.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Effects that nothing holds back any more.
    pub(super) effects: Vec<Effect>,
    /// Whose promises count from now on, if that has changed.
    pub(super) electorate: Option<Electorate>,
    /// The term that is kept now, if it is another.
    pub(super) term: Option<Term>,
}

impl Unsettled {
    /// Adds an entry; its effects come with [`Self::hold`].
    pub(super) fn push(&mut self, number: u64, kind: EntryKind, input: Arc<Vec<u8>>) {
        if let EntryKind::Electorate(electorate) | EntryKind::Paired(electorate) = &kind {
            self.proposed = Some((number, electorate.clone()));
        }
        self.entries.push_back(Waiting { number, kind, input, effects: Vec::new() });
    }

    /// Notes that entry `number` is the first of `term`.
    pub(super) const fn claim(&mut self, number: u64, term: Term) {
        self.claim = Some((number, term));
    }

    /// The term of entries that are written now, if it is not settled.
    pub(super) fn claimed(&self) -> Option<Term> {
        self.claim.map(|(_, term)| term)
    }

    /// Holds effects back until the newest entry is settled.
    pub(super) fn hold(&mut self, effects: impl Iterator<Item = Effect>) {
        if let Some(last) = self.entries.back_mut() {
            last.effects.extend(effects);
        }
    }

    /// A connection is gone: nothing is sent there any more. Once the server begins anew, another may be
    /// called the same.
    pub(super) fn forget(&mut self, gone: PeerId) {
        let is_its = |effect: &Effect| match effect {
            Effect::Send(peer, _) | Effect::Limit(peer, _) | Effect::Close(peer) => *peer == gone,
            Effect::SendExamples { peer, .. } | Effect::SendStatus { peer, .. } => *peer == gone,
            _ => false,
        };
        self.entries.iter_mut().for_each(|waiting| waiting.effects.retain(|it| !is_its(it)));
    }

    /// Whether a list of whose promises count is not settled.
    pub(super) const fn is_proposing(&self) -> bool {
        self.proposed.is_some()
    }

    /// Whether the end of the run is among what waits.
    pub(super) fn holds_end(&self) -> bool {
        let effects = self.entries.iter().flat_map(|waiting| &waiting.effects);
        effects.into_iter().any(|it| matches!(it, Effect::Report(Event::Ended { .. })))
    }

    /// Whether such an effect is among what waits: an evaluation, or the end of all.
    pub(super) fn holds(&self, effect: &Effect) -> bool {
        let mut held = self.entries.iter().flat_map(|waiting| &waiting.effects);
        held.any(|it| match (it, effect) {
            (Effect::Evaluate(held), Effect::Evaluate(it)) => {
                held.point.version == it.point.version
            }
            (held, it) => matches!((held, it), (Effect::Done(_), Effect::Done(_))),
        })
    }

    /// The first entry that is not settled, if any is.
    pub(super) fn first(&self) -> Option<u64> {
        self.entries.front().map(|waiting| waiting.number)
    }

    /// The standby has all entries before `entries`.
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

    /// All that waits, since nobody but the workers need have it.
    pub(super) fn release(&mut self) -> Vec<Effect> {
        self.settle(u64::MAX).effects
    }

    /// Sends what waits once more.
    pub(super) fn repeat(&self, peer: PeerId, term: Term, settled: u64, out: &mut Outbox) {
        for Waiting { number, kind, input, .. } in &self.entries {
            let kind = kind.clone();
            let header = EntryHeader { number: *number, term, settled, kind };
            let entry = Entry { header, input: Arc::clone(input) };
            out.push(Effect::Send(peer, Message::Entry(entry)));
        }
    }
}
