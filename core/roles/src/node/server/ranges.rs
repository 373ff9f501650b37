//! Clients that pull the parameters of a key range.
//!
//! An answer has one version on all servers: the version that was current when the request arrived.
//! With several servers, each one that holds some of the keys sends them, as for an evaluation.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::Server;
use super::group::Whole;
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, Version};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_wire::range::{PullRange, RangeOf};
use pstrain_wire::{Message, Refusal};

/// The most versions that clients may have collected at once.
const MOST_WANTED: usize = 4;

/// A client that waits until the parameters have arrived from all servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Puller {
    peer: PeerId,
    keys: KeyRange,
    values: bool,
    version: Version,
}

/// The waiting clients.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Pullers(Vec<Puller>);

impl Pullers {
    /// The connections of the waiting clients.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.0.iter().map(|puller| puller.peer)
    }

    /// Removes a connection.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.0.retain(|puller| puller.peer != peer);
    }
}

impl Server {
    pub(super) fn on_pull_range(
        &mut self,
        now: Time,
        peer: PeerId,
        pull: PullRange,
        out: &mut Outbox,
    ) {
        if let Err(why) = self.check_client(peer, &Message::PullRange(pull)) {
            return self.refuse(now, peer, why, out);
        }
        let keys = pull.keys.unwrap_or(self.keys);
        if !self.keys.contains(keys) {
            let why = Refusal::Keys { given: keys, values: 0, wanted: self.keys };
            return self.refuse(now, peer, why, out);
        }
        if !self.initial.is_known() {
            let what = String::from("the initial parameters have not come from a worker yet");
            return self.refuse(now, peer, Refusal::Server { what }, out);
        }
        let version = self.version();
        let puller = Puller { peer, keys, values: pull.values, version };
        if let Some(values) = self.values_here(keys) {
            self.answer_range(puller, values, out);
            return self.forget_stranger(peer);
        }
        if self.has_kept_end() {
            return self.refuse(now, peer, Refusal::Over, out); // the other servers leave
        }
        if !self.group.shown.contains_key(&version) && self.group.shown() >= MOST_WANTED {
            let what = String::from("it is putting other versions together; try again");
            return self.refuse(now, peer, Refusal::Server { what }, out);
        }
        self.forget_stranger(peer);
        self.pullers.0.push(puller);
        self.show_pulled(out);
    }

    /// Collects the current parameters, if a client waits for them. While an update is in progress
    /// they do not exist yet.
    pub(super) fn show_pulled(&mut self, out: &mut Outbox) {
        let version = self.version();
        // A client may have waited for an update in progress, for keys of this server alone: no
        // other server will send those.
        for puller in core::mem::take(&mut self.pullers.0) {
            let here = self.values_here(puller.keys).filter(|_| puller.version == version);
            match here {
                Some(values) => self.answer_range(puller, values, out),
                None => self.pullers.0.push(puller),
            }
        }
        let wanted = self.pullers.0.iter().filter(|puller| puller.version == version);
        let wanted = wanted.map(|puller| puller.keys).reduce(KeyRange::hull);
        if let Some(keys) = wanted.filter(|_| !self.store.is_making()) {
            let point = self.point();
            self.collect(point, keys, false);
        }
    }

    /// The current parameters of `keys`, if all of them are available on this server.
    fn values_here(&self, keys: KeyRange) -> Option<&[f32]> {
        if let Some(whole) = self.group.whole(self.version()) {
            return whole.get(keys.indices());
        }
        let is_made = self.group.is_alone() || !self.store.is_making();
        let places = keys.within(self.store.keys()).filter(|_| is_made);
        self.store.parameters().get(places?)
    }

    fn answer_range(&self, puller: Puller, values: &[f32], out: &mut Outbox) {
        let Puller { peer, keys, values: wanted, version } = puller;
        let answer = RangeOf::new(version, (keys, self.keys.len()), values, wanted);
        out.push(Effect::Send(peer, Message::RangeOf(answer)));
        out.push(Effect::Close(peer));
    }

    /// Answers the clients whose parameters have now arrived from all servers.
    pub(super) fn answer_pullers(&mut self, whole: &Whole, out: &mut Outbox) {
        let waiting = core::mem::take(&mut self.pullers.0);
        for puller in waiting {
            let is_of = |_: &Range<usize>| puller.version == whole.version;
            let places = puller.keys.within(whole.keys).filter(is_of);
            match places.and_then(|places| whole.parameters.get(places)) {
                Some(values) => self.answer_range(puller, values, out),
                None => self.pullers.0.push(puller),
            }
        }
    }
}
