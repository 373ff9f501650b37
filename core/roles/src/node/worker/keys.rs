//! The worker's working set: announced to every server before any values are sent.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Data, NodeError, Worker};
use crate::node::{Effect, Outbox};
use pstrain_compute::filter::KeyCaching;
use pstrain_compute::id::PeerId;
use pstrain_compute::params::{KeyList, KeyRange};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::keys::{Keys, KeysHeader, KeysKnown};

impl Worker {
    /// Narrows the worker's vectors to the keys of its working set, if it has one.
    pub(super) fn narrow(&mut self) {
        // Called when the worker is admitted, and when its data are there.
        let (Data::Ready(prepared), Some(member)) = (&self.data, &mut self.member) else { return };
        let Some(list) = &prepared.keys else { return };
        if let Ok(all) = KeyRange::new(0, list.len() as u64) {
            member.keys = all;
            self.servers.narrow(list);
        }
    }

    /// Announces the working set on new connections; returns true if there is one, so that the
    /// worker must wait for the answers.
    pub(super) fn introduce_keys(&mut self, out: &mut Outbox) -> bool {
        let Data::Ready(prepared) = &self.data else { unreachable!("the data are ready") };
        let Some(list) = prepared.keys.clone() else { return false };
        self.unknown = self.servers.peers(self.dialler.peer());
        for peer in self.unknown.clone() {
            if let Some((header, _)) = self.part_of(peer, &list) {
                out.push(Effect::Send(peer, Message::UseKeys(header)));
            }
        }
        true
    }

    /// The positions of a gradient of `task` in the worker's vectors, if it is of one block of the
    /// keys.
    pub(super) fn block_of(&self, task: Task) -> Option<Range<usize>> {
        let (Data::Ready(prepared), Some(member)) = (&self.data, &self.member) else { return None };
        let block = member.job.block_of(task, member.model_keys.len())?;
        Some(prepared.keys.as_ref()?.places(block))
    }

    /// Sends every server its part of the list again, if key caching is off.
    pub(super) fn repeat_keys(&self, out: &mut Outbox) {
        let (Data::Ready(prepared), Some(member)) = (&self.data, &self.member) else { return };
        let repeats = member.job.filters.key_caching == KeyCaching::Off;
        let Some(list) = prepared.keys.as_ref().filter(|_| repeats) else { return };
        for peer in self.servers.peers(self.dialler.peer()) {
            if let Some((header, part)) = self.part_of(peer, list) {
                out.push(Effect::Send(peer, Message::Keys(Keys::of(header, &part))));
            }
        }
    }

    /// The part of a list that the server behind `peer` holds.
    fn part_of(&self, peer: PeerId, list: &KeyList) -> Option<(KeysHeader, KeyList)> {
        let total = list.len() as u64;
        let whole = self.member.as_ref()?.model_keys;
        let range = self.servers.range_of(peer, whole);
        let part = list.part(range);
        let place = list.places(range);
        let place = KeyRange::new(place.start as u64, place.end as u64).ok()?;
        let digest = part.digest(place, total);
        let curved = part.curvature().is_some();
        Some((KeysHeader { place, total, digest, curved }, part))
    }

    /// Handles a server's answer: it knows the worker's list, or requests it.
    pub(super) fn on_keys_known(
        &mut self,
        now: Time,
        from: PeerId,
        answer: KeysKnown,
        out: &mut Outbox,
    ) {
        let Data::Ready(prepared) = &self.data else {
            return; // it answers for data that this worker had before
        };
        let part = prepared.keys.as_ref().and_then(|list| self.part_of(from, list));
        let Some((header, part)) = part.filter(|(header, _)| header.digest == answer.digest) else {
            let what = "it answered for a working set that this worker does not have";
            return self.finish(Err(NodeError::Protocol(what.into())), out);
        };
        if !answer.known {
            out.push(Effect::Send(from, Message::Keys(Keys::of(header, &part))));
            return;
        }
        let before = self.unknown.len();
        self.unknown.retain(|&peer| peer != from);
        if before > 0 && self.unknown.is_empty() {
            self.take_up(now, out);
        }
    }
}

/// Connections to servers that do not know the worker's working set yet.
pub(super) type Unknown = Vec<PeerId>;
