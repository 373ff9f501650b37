//! Pushes that are withheld from the standby, and the form in which they are sent later.
//!
//! No peer waits for an answer to a push while its round is open. When the round closes, the values
//! of its pushes have become part of a sum, and the standby needs only that: one gradient for the
//! whole round instead of one per push. (Replication after aggregation: Li et al., "Scaling
//! distributed machine learning with the parameter server", OSDI 2014, section 4.3.)

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

/// Identifies a withheld push. The incarnation is not needed: a worker is welcomed before it pushes
/// under a new one, and a welcome sends all withheld entries.
pub(super) type PushId = (WorkerId, Sequence);

/// A withheld push, with the server's decision about it.
#[derive(Debug)]
pub(super) struct HeldPush {
    at: Time,
    peer: PeerId,
    worker: WorkerId,
    push: Push,
    pub(super) fate: PushOutcome,
}

/// The server's decision about a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    /// None yet, as far as the primary knows.
    Open,
    /// The push was valid, and is dropped.
    Dropped,
    /// The push is part of the update that was made of this version.
    Applied(Version),
}

impl HeldPush {
    /// A push that arrived at a time of the stream, on a connection of the server.
    pub(super) const fn new(at: Time, peer: PeerId, worker: WorkerId, push: Push) -> Self {
        Self { at, peer, worker, push, fate: PushOutcome::Open }
    }

    pub(super) const fn id(&self) -> PushId {
        (self.worker, self.push.header.sequence)
    }

    /// True if it has a value for each key in its header.
    pub(super) fn is_whole(&self) -> bool {
        self.push.gradient.len() as u64 == self.push.header.keys.len()
    }

    /// Encodes the entry to send: with the values of the gradient, or bare.
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

/// The decisions about pushes in the server's effects.
pub(super) fn fates(effects: &[Effect]) -> Vec<(PushId, PushOutcome)> {
    let mut fates = Vec::new();
    // An update is reported after the gradients that it was made from.
    let mut applied = Vec::new();
    for effect in effects {
        let Effect::Report(event) = effect else { continue };
        match event {
            Event::Applied { worker, sequence, .. } => applied.push((*worker, *sequence)),
            Event::Updated { point, .. } => {
                let fate = PushOutcome::Applied(Version(point.version.0.saturating_sub(1)));
                fates.extend(applied.drain(..).map(|push| (push, fate)));
            }
            // After the end of the run the drop does not say whether the push was valid; and a bare
            // push is finite, so that the standby could not reproduce `NotFinite`.
            Event::Dropped { worker, sequence, reason }
                if !matches!(reason, DropReason::Over | DropReason::NotFinite) =>
            {
                fates.push(((*worker, *sequence), PushOutcome::Dropped));
            }
            _ => {}
        }
    }
    fates
}

/// Versions whose update is sent as its combined gradient: where that is shorter than the withheld
/// pushes that are part of it.
pub(super) fn cheaper_combined<'a>(
    held: impl Iterator<Item = &'a HeldPush>,
    combined: impl Iterator<Item = &'a Combined>,
) -> BTreeSet<Version> {
    let mut spared: BTreeMap<Version, u64> = BTreeMap::new();
    for push in held.filter(|push| push.is_whole()) {
        if let PushOutcome::Applied(version) = push.fate {
            *spared.entry(version).or_default() += push.push.bytes();
        }
    }
    let is_shorter =
        |it: &&Combined| spared.get(&it.header.version).is_some_and(|spared| it.bytes() < *spared);
    combined.filter(is_shorter).map(|it| it.header.version).collect()
}

/// True if a peer waits for the effect, so that the standby must have its input.
pub(super) fn is_awaited(effect: &Effect) -> bool {
    match effect {
        Effect::Report(Event::Pushed { .. } | Event::Dropped { .. }) => false,
        // Other servers do not act on these before the round closes.
        Effect::Send(_, Message::Decisions(told)) => {
            let waits =
                |it: &Decision| matches!(it, Decision::Gather { .. } | Decision::Merge { .. });
            !told.decisions.iter().all(waits)
        }
        _ => true,
    }
}
