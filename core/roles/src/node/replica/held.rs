//! Pushes that are not sent to the standby at once, and what they need once they are.
//!
//! Of a push the server owes nobody a word while its round is open. When the round closes, its
//! values have become part of a sum, and the standby can do with that: one gradient for all of the
//! round, instead of each. (Replication after aggregation: Li et al., "Scaling distributed machine
//! learning with the parameter server", OSDI 2014, section 4.3.)

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::node::{Effect, Event, Input, encode_input};
use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{PeerId, Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::decision::Decision;
use pstrain_wire::replica::{Combined, EntryKind, Shape};
use pstrain_wire::worker::Push;

/// A push, among those that are held back: a worker that begins anew is welcomed first, and nothing
/// is held back any more then.
pub(super) type PushId = (WorkerId, Sequence);

/// A push that came, with what became of it.
#[derive(Debug)]
pub(super) struct HeldPush {
    at: Time,
    peer: PeerId,
    worker: WorkerId,
    push: Push,
    pub(super) fate: Fate,
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing yet, as far as is known here.
    Open,
    /// It was in order, and comes to nothing.
    Dropped,
    /// It is part of the update that was made of this version.
    Applied(Version),
}

impl HeldPush {
    /// One that came at a time of the stream, from a connection of the server.
    pub(super) const fn new(at: Time, peer: PeerId, worker: WorkerId, push: Push) -> Self {
        Self { at, peer, worker, push, fate: Fate::Open }
    }

    pub(super) const fn id(&self) -> PushId {
        (self.worker, self.push.header.sequence)
    }

    /// Whether it has a value for each key that it says.
    pub(super) fn is_whole(&self) -> bool {
        self.push.gradient.len() as u64 == self.push.header.keys.len()
    }

    /// The entry as it is sent: with the values of the gradient, or bare of them.
    pub(super) fn encode(&self, is_bare: bool) -> (EntryKind, Vec<u8>) {
        let Self { at, peer, push, .. } = self;
        let mut push = push.clone();
        let mut kind = EntryKind::Input;
        if is_bare {
            push.gradient = Arc::default();
            let encoded = push.encoded.take();
            kind = EntryKind::Bare(encoded.map(|encoded| Shape {
                form: encoded.form.clone(),
                bytes: encoded.bytes.len() as u64,
            }));
        }
        let input = Input::Message(*peer, Message::Push(push));
        let mut bytes = Vec::new();
        if let Some(tail) = encode_input(*at, &input, &mut bytes) {
            tail.append_to(&mut bytes);
        }
        (kind, bytes)
    }
}

/// What became of pushes, as effects of the server say.
pub(super) fn fates(effects: &[Effect]) -> Vec<(PushId, Fate)> {
    let mut fates = Vec::new();
    // An update comes after what it was made of.
    let mut applied = Vec::new();
    for effect in effects {
        let Effect::Report(event) = effect else { continue };
        match event {
            Event::Applied { worker, sequence, .. } => applied.push((*worker, *sequence)),
            Event::Updated { point, .. } => {
                let fate = Fate::Applied(Version(point.version.0.saturating_sub(1)));
                fates.extend(applied.drain(..).map(|push| (push, fate)));
            }
            // Once the run is over it is not said whether they were in order, and a push without
            // its values is finite.
            Event::Dropped { worker, sequence, reason }
                if !matches!(reason, DropReason::Over | DropReason::NotFinite) =>
            {
                fates.push(((*worker, *sequence), Fate::Dropped));
            }
            _ => {}
        }
    }
    fates
}

/// The versions of which the update is sent with what its gradients were combined to: where that is
/// shorter than those of them that are held back.
pub(super) fn worth_it<'a>(
    held: impl Iterator<Item = &'a HeldPush>,
    combined: impl Iterator<Item = &'a Combined>,
) -> BTreeSet<Version> {
    let mut spared: BTreeMap<Version, u64> = BTreeMap::new();
    for push in held.filter(|push| push.is_whole()) {
        if let Fate::Applied(version) = push.fate {
            *spared.entry(version).or_default() += push.push.bytes();
        }
    }
    let is_shorter =
        |it: &&Combined| spared.get(&it.header.version).is_some_and(|spared| it.bytes() < *spared);
    combined.filter(is_shorter).map(|it| it.header.version).collect()
}

/// Whether somebody waits for an effect, so that the standby must have what brought it about.
pub(super) fn is_awaited(effect: &Effect) -> bool {
    match effect {
        Effect::Report(Event::Pushed { .. } | Event::Dropped { .. }) => false,
        // Other servers do nothing about these before the round closes.
        Effect::Send(_, Message::Decisions(told)) => {
            let waits =
                |it: &Decision| matches!(it, Decision::Gather { .. } | Decision::Merge { .. });
            !told.decisions.iter().all(waits)
        }
        _ => true,
    }
}
