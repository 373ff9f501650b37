//! Clients that ask for the parameters of a key range.
//!
//! An answer is of one version on all servers: the one that was the current one when the question
//! came. Where there are several servers, the others send theirs as they do for an evaluation.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use crate::id::{PeerId, Version};
use crate::node::{Effect, Outbox};
use crate::params::KeyRange;
use crate::protocol::range::{PullRange, RangeOf};
use crate::protocol::{Message, Refusal};
use crate::time::Time;

/// Versions that clients may make the servers send at once.
const MOST_WANTED: usize = 4;

/// A client that waits until the parameters have come from all servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Puller {
    peer: PeerId,
    keys: KeyRange,
    values: bool,
    version: Version,
}

/// Those who wait.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Pullers(Vec<Puller>);

impl Pullers {
    /// The connections.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.0.iter().map(|puller| puller.peer)
    }

    /// Forgets a connection.
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
        let version = self.version();
        let puller = Puller { peer, keys, values: pull.values, version };
        if self.answer_range(puller, out) {
            return self.forget_stranger(peer);
        }
        if !self.group.shown.contains_key(&version) && self.group.shown() >= MOST_WANTED {
            let what = String::from("it is putting other versions together; try again");
            return self.refuse(now, peer, Refusal::Server { what }, out);
        }
        self.forget_stranger(peer);
        self.pullers.0.push(puller);
        self.show_pulled(out);
    }

    /// Has the current parameters put together, if somebody waits for them. Those of an update that is
    /// being made are not there before it is.
    pub(super) fn show_pulled(&mut self, out: &mut Outbox) {
        let version = self.version();
        let is_wanted = self.pullers.0.iter().any(|puller| puller.version == version);
        let is_under_way = self.group.shown.contains_key(&version);
        if is_wanted && !is_under_way && !self.store.is_making() {
            let point = self.point();
            self.put_together(point, false, out);
        }
    }

    /// Answers, if all parameters of the version are here.
    fn answer_range(&self, puller: Puller, out: &mut Outbox) -> bool {
        let Puller { peer, keys, values: wanted, version } = puller;
        let all = match self.group.is_alone() {
            true => Some(self.store.parameters()),
            false => self.group.whole(version),
        };
        let Some(values) = all.and_then(|all| all.get(keys.indices())) else { return false };
        let answer = RangeOf::new(version, (keys, self.keys.len()), values, wanted);
        out.push(Effect::Send(peer, Message::RangeOf(answer)));
        out.push(Effect::Close(peer));
        true
    }

    /// Answers those who wait for parameters that have come from all servers now.
    pub(super) fn answer_pullers(&mut self, out: &mut Outbox) {
        let waiting = core::mem::take(&mut self.pullers.0);
        let waiting = waiting.into_iter().filter(|puller| !self.answer_range(*puller, out));
        self.pullers.0 = waiting.collect();
    }
}
