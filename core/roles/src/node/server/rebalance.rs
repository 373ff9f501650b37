//! Rebalances key ranges when a server joins or leaves during the run.
//!
//! First the run quiesces: no parameters are given out, and when nothing is under way the
//! coordinator decides on the moves ([`Decision::Cut`]). The server that holds a moving range sends
//! its whole state of that range, with the gradients of the open round; the coordinator forwards
//! it. Once everything has arrived, the coordinator decides that the keys have moved
//! ([`Decision::Map`]). Until then nothing has changed: if a server that takes part is cut off, the
//! state that has arrived is dropped, and the rebalance is tried again when all servers are
//! connected. Then the workers are sent the new key map, and a worker that confirms it may be given
//! parameters again.
//!
//! So no gradient is ever cut by two key maps, and the result of the run does not depend on which
//! server held which keys when.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Server;
use super::mode_change::answer;
use super::roster::Slot;
use crate::node::{Effect, Event, Outbox};
use crate::store::{IncomingKeys, PartError, Store};
use pstrain_compute::id::{Incarnation, PeerId, Sequence, ServerId, WorkerId};
use pstrain_compute::params::{KeyMap, Move};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::MAX_SERVERS;
use pstrain_wire::client::{Begun, Control};
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{Begin, Mapped, Portion};
use pstrain_wire::worker::{End, EndReason};
use pstrain_wire::{Message, Refusal};

/// Why no server can join or leave under checkpoints.
const NO_CHANGES: &str =
    "it has --durability checkpoint, and then no server can join or leave; use log";

/// Requests of servers to join or to leave, and the rebalance for the first of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Changes {
    wanted: VecDeque<Wanted>,
    attempt: Option<Attempt>,
}

/// A request that a server joins or leaves.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    change: Change,
    since: Time,
    /// Clients that wait for it to be carried out.
    askers: Vec<PeerId>,
}

/// The change of the group that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Change {
    /// This server wants keys.
    Join(ServerId),
    /// This server gives its keys away.
    Leave(ServerId),
}

/// A rebalance in progress.
#[derive(Debug, Serialize, Deserialize)]
struct Attempt {
    /// The number of its `Cut` decision.
    cut: u64,
    /// The key map after it.
    map: KeyMap,
    moves: Vec<Move>,
    /// State of the ranges that this server receives.
    coming: Vec<IncomingKeys>,
    /// The servers that have received all of their ranges.
    taken: BTreeSet<ServerId>,
}

impl Changes {
    /// Saves or restores the state that has arrived, which serde skips.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut coming = self.attempt.iter_mut().flat_map(|attempt| &mut attempt.coming);
        coming.try_for_each(|coming| coming.archive(archive))
    }

    /// The number of the `Cut` decision, while a rebalance is in progress.
    pub(super) fn cut(&self) -> Option<u64> {
        self.attempt.as_ref().map(|attempt| attempt.cut)
    }

    /// Since when the first request has been waiting.
    pub(super) fn since(&self) -> Option<Time> {
        self.wanted.front().map(|wanted| wanted.since)
    }

    /// Records a request, unless it is there already.
    pub(super) fn want(&mut self, change: Change, now: Time) {
        if self.wanted.iter().all(|wanted| wanted.change != change) {
            self.wanted.push_back(Wanted { change, since: now, askers: Vec::new() });
        }
    }

    /// Drops the requests about a server that is gone.
    pub(super) fn forget(&mut self, server: ServerId) {
        let is_its = |change| [Change::Join(server), Change::Leave(server)].contains(&change);
        self.wanted.retain(|wanted| !is_its(wanted.change));
    }

    /// The clients that wait for an answer.
    pub(super) fn askers(&self) -> impl Iterator<Item = PeerId> {
        self.wanted.iter().flat_map(|wanted| &wanted.askers).copied()
    }

    /// Removes a client that waits for an answer.
    pub(super) fn forget_asker(&mut self, peer: PeerId) {
        self.wanted.iter_mut().for_each(|wanted| wanted.askers.retain(|asker| *asker != peer));
    }
}

impl Attempt {
    /// True if every receiving server has the whole state of its ranges.
    fn is_taken(&self) -> bool {
        self.moves.iter().all(|it| self.taken.contains(&it.to))
    }

    fn is_about(&self, server: ServerId) -> bool {
        self.moves.iter().any(|it| it.from == server || it.to == server)
    }
}

impl Server {
    /// Returns the key map.
    #[must_use]
    pub const fn key_map(&self) -> &KeyMap {
        &self.group.map
    }

    /// Checks that one more server may join; if not, returns the reason.
    pub(super) fn check_join(&self) -> Result<(), String> {
        if !self.may_change() {
            return Err("the run is over, or about to be".into());
        }
        if self.takes_checkpoints() {
            return Err(NO_CHANGES.into());
        }
        if self.job.is_sparse() || !self.job.filters.pull.is_none() {
            return Err(
                "its workers keep lists of keys, or parameters that they had: those do not \
                        move; begin the run with as many servers as it needs"
                    .into(),
            );
        }
        let servers = self.group.others() as u32 + 1;
        if servers >= MAX_SERVERS {
            return Err(alloc::format!("there are {servers} servers, and no more are possible"));
        }
        Ok(())
    }

    /// Handles the request of a server to leave.
    pub(super) fn on_leave(&mut self, now: Time, server: ServerId, out: &mut Outbox) {
        if self.group.map.keys_of(server).is_some() && !self.takes_checkpoints() {
            self.group.changes.want(Change::Leave(server), now);
        }
        self.settle(now, out);
    }

    /// Handles a client's order that a server leaves. It is answered once that has happened.
    pub(super) fn order_leave(
        &mut self,
        now: Time,
        peer: PeerId,
        control: &Control,
        out: &mut Outbox,
    ) {
        let number = control.value.parse::<u32>().ok().and_then(|number| number.checked_sub(1));
        let server = number.map(ServerId).filter(|it| self.group.map.keys_of(*it).is_some());
        match server {
            None => {
                let what = alloc::format!("there is no server {} with keys", control.value);
                answer(peer, Err(what), out);
            }
            Some(_) if self.takes_checkpoints() => answer(peer, Err(NO_CHANGES.into()), out),
            Some(ServerId::COORDINATOR) => {
                answer(peer, Err("server 1 coordinates, and cannot go".into()), out);
            }
            Some(server) => {
                let change = Change::Leave(server);
                self.group.changes.want(change, now);
                let mut all = self.group.changes.wanted.iter_mut();
                let wanted = all.find(|wanted| wanted.change == change);
                wanted.into_iter().for_each(|wanted| wanted.askers.push(peer));
                self.settle(now, out);
            }
        }
    }

    /// Cancels all requests to join or to leave, for the reason `why`.
    pub(super) fn stop_changes(&mut self, why: &str, out: &mut Outbox) {
        self.void();
        for wanted in core::mem::take(&mut self.group.changes.wanted) {
            for asker in wanted.askers {
                answer(asker, Err(why.into()), out);
            }
        }
    }

    /// Abandons a rebalance in which `server` takes part: it is or was disconnected.
    pub(super) fn stay(&mut self, server: ServerId) {
        if self.group.changes.attempt.as_ref().is_some_and(|attempt| attempt.is_about(server)) {
            self.void();
        }
    }

    fn void(&mut self) {
        if self.group.changes.attempt.take().is_some() {
            self.group.tell(|| Decision::Stay);
        }
    }

    /// True if a rebalance is requested or in progress, for which the run must quiesce.
    pub(super) fn is_fenced(&self) -> bool {
        !self.group.changes.wanted.is_empty()
    }

    /// Takes the rebalance as far as it can go now; returns whether it is complete.
    pub(super) fn move_keys(&mut self, now: Time, out: &mut Outbox) -> bool {
        if !self.may_change() || self.is_measuring() {
            return false;
        }
        match &self.group.changes.attempt {
            None => {
                self.begin_move(out);
                false
            }
            // Parameters that are being collected arrive in slices of the old key map, so they must
            // be complete before it changes.
            Some(attempt) if attempt.is_taken() && self.group.shown() == 0 => {
                self.finish_move(now, out)
            }
            Some(_) => false,
        }
    }

    fn begin_move(&mut self, out: &mut Outbox) {
        let Some(change) = self.group.changes.wanted.front().map(|wanted| wanted.change) else {
            return;
        };
        // Only when nothing is under way, so that no push is cut by two key maps.
        if self.rounds.busy > 0 || self.group.first_away().is_some() {
            return;
        }
        let map = match change {
            Change::Join(server) => self.group.map.joined(server),
            Change::Leave(server) => self.group.map.left(server),
        };
        let Some(map) = map else { return self.turn_away(change, out) };
        // All earlier decisions leave before the joining server follows: it has no state that they
        // could apply to.
        self.group.flush(out);
        if let Change::Join(server) = change {
            self.let_begin(server, out);
        }
        let cut = self.group.next();
        let moves = self.group.map.moves(&map);
        self.group.tell(|| Decision::Cut { moves: moves.clone() });
        // Each receiver needs the `Cut` before the portions, which name it.
        self.group.flush(out);
        for &Move { keys, to, .. } in moves.iter().filter(|it| it.from == ServerId::COORDINATOR) {
            let (Some(part), Some(peer)) = (self.store.part(keys), self.group.peer_of(to)) else {
                unreachable!("own keys move to a server that is connected")
            };
            let part = part.to_bytes();
            let portions = Portion::cut(cut, keys, &part).map(Message::Portion);
            out.extend(portions.map(|portion| Effect::Send(peer, portion)));
        }
        let own = moves.iter().filter(|it| it.to == ServerId::COORDINATOR);
        let coming = own.map(|it| IncomingKeys::new(it.keys)).collect();
        let taken = BTreeSet::new();
        self.group.changes.attempt = Some(Attempt { cut, map, moves, coming, taken });
    }

    /// Makes a server without keys follow from the next decision on.
    fn let_begin(&mut self, server: ServerId, out: &mut Outbox) {
        let (Some(followed), Some(peer)) = (self.group.begin(server), self.group.peer_of(server))
        else {
            return; // it follows already
        };
        let state = |(_, slot): (WorkerId, &Slot)| -> (Incarnation, Sequence) {
            let decided = slot.pushes.decided.map(|decided| decided.sequence);
            (slot.incarnation, decided.unwrap_or_default())
        };
        let slots = self.members.roster.iter().map(state).collect();
        out.push(Effect::Send(peer, Message::Begin(Begin { followed, slots })));
    }

    /// Drops a request that is impossible.
    fn turn_away(&mut self, change: Change, out: &mut Outbox) {
        let why = "there are not enough keys";
        if let Some(wanted) = self.group.changes.wanted.pop_front() {
            wanted.askers.into_iter().for_each(|asker| answer(asker, Err(why.into()), out));
        }
        if let Change::Join(server) = change
            && let Some(peer) = self.group.remove(server)
        {
            let refusal = Refusal::Server { what: why.into() };
            out.push(Effect::Send(peer, Message::Refused(refusal)));
            out.push(Effect::Close(peer));
        }
    }

    /// Receives part of the state of moving keys from `server`.
    pub(super) fn on_portion(
        &mut self,
        now: Time,
        server: ServerId,
        portion: Portion,
        out: &mut Outbox,
    ) {
        let attempt = self.group.changes.attempt.as_mut();
        let Some(attempt) = attempt.filter(|attempt| attempt.cut == portion.header.cut) else {
            return; // of an abandoned rebalance
        };
        let is_it = |it: &&Move| it.from == server && it.keys == portion.header.keys;
        let Some(to) = attempt.moves.iter().find(is_it).map(|it| it.to) else {
            return; // not one of the moves: the receiver would refuse it
        };
        if to != ServerId::COORDINATOR {
            if let Some(peer) = self.group.peer_of(to) {
                out.push(Effect::Send(peer, Message::Portion(portion)));
            }
            return;
        }
        let mut coming = attempt.coming.iter_mut();
        if let Err(error) = coming.try_for_each(|coming| coming.take(&portion)) {
            return self.refuse_part(now, server, &error, out);
        }
        if attempt.coming.iter().all(IncomingKeys::is_whole) {
            attempt.taken.insert(to);
        }
        self.settle(now, out);
    }

    fn refuse_part(&mut self, now: Time, server: ServerId, error: &PartError, out: &mut Outbox) {
        let Some(peer) = self.group.peer_of(server) else {
            unreachable!("the part came from server {server}")
        };
        let what = alloc::format!("keys were to move from it, but {error}");
        self.refuse(now, peer, Refusal::Unexpected { what }, out);
    }

    /// Records that `server` has received all of its ranges.
    pub(super) fn on_taken(&mut self, now: Time, server: ServerId, cut: u64, out: &mut Outbox) {
        let attempt = self.group.changes.attempt.as_mut();
        if let Some(attempt) = attempt.filter(|attempt| attempt.cut == cut) {
            attempt.taken.insert(server);
        }
        self.settle(now, out);
    }

    /// Completes the rebalance; false if the state that arrived is not valid.
    fn finish_move(&mut self, now: Time, out: &mut Outbox) -> bool {
        let Some(attempt) = self.group.changes.attempt.take() else {
            unreachable!("a rebalance is in progress")
        };
        let Attempt { cut, map, moves, coming, .. } = attempt;
        // The own store comes first: building it can fail, and then nothing has moved.
        let (had, has) = (self.store.keys(), map.keys_of(ServerId::COORDINATOR));
        if has != Some(had) {
            match self.moved_store(cut, &map, coming) {
                Ok(store) => self.store = store,
                Err(error) => {
                    self.group.tell(|| Decision::Stay);
                    let wanted = self.group.changes.wanted.pop_front();
                    for asker in wanted.into_iter().flat_map(|wanted| wanted.askers) {
                        answer(asker, Err(error.to_string()), out);
                    }
                    return false;
                }
            }
        }
        // Sent before `let_go`, after which a leaving server receives no more decisions.
        self.group.tell(|| Decision::Map(map.clone()));
        self.group.flush(out);
        self.group.map = map;
        let wanted = self.group.changes.wanted.pop_front();
        let (mut joined, mut left) = (None, None);
        match wanted.as_ref().map(|wanted| wanted.change) {
            Some(Change::Join(server)) => joined = Some(server),
            Some(Change::Leave(server)) => {
                left = Some(server);
                self.group.let_go(server);
            }
            None => {}
        }
        let keys = moves.iter().map(|it| it.keys.len()).sum();
        let since = wanted.as_ref().map_or(now, |wanted| wanted.since);
        let (map, took) = (self.group.map.version(), now.since(since));
        out.push(Effect::Report(Event::KeysMoved { map, joined, left, keys, took }));
        self.tell_workers(out);
        let (version, mode) = (self.version(), self.mode_in_words());
        for asker in wanted.into_iter().flat_map(|wanted| wanted.askers) {
            answer(asker, Ok(Begun { version, mode: mode.clone() }), out);
        }
        true
    }

    /// Builds this server's store under `map`, from the keys that it keeps and those that it
    /// receives.
    fn moved_store(
        &mut self,
        cut: u64,
        map: &KeyMap,
        coming: Vec<IncomingKeys>,
    ) -> Result<Store, PartError> {
        let keys = map.keys_of(ServerId::COORDINATOR).ok_or(PartError::Keys)?;
        let kept = self.store.keys().overlap(keys).ok_or(PartError::Keys)?;
        let model = self.job.build_model();
        let model = model.map_err(|_error| PartError::Keys)?;
        let since = self.group.since(cut);
        let mut parts: Vec<_> = self.store.part(kept).into_iter().collect();
        for coming in coming {
            parts.push(coming.finish(&self.job, &model, &since)?);
        }
        Store::of_parts(&self.job, &model, keys, parts)
    }

    /// Sends the key map to all connected workers. A worker is given no parameters until it has
    /// confirmed the map.
    fn tell_workers(&mut self, out: &mut Outbox) {
        let there =
            self.members.roster.iter().filter_map(|(worker, slot)| Some((worker, slot.peer?)));
        for (worker, peer) in there.collect::<Vec<_>>() {
            self.rounds.waiting.remove(worker);
            self.members.roster[worker].pushes.remapping = true;
            out.push(Effect::Send(peer, Message::Holders(self.group.table())));
        }
    }

    /// Dismisses the servers that have given their keys away, once all connected workers have
    /// confirmed the key map.
    pub(super) fn dismiss_gone(&mut self, out: &mut Outbox) {
        if self.members.roster.iter().any(|(_, slot)| slot.peer.is_some() && slot.pushes.remapping)
        {
            return;
        }
        while let Some((server, peer)) = self.group.first_gone() {
            self.group.remove(server);
            if let Some(peer) = peer {
                let end = End { reason: EndReason::Stopped };
                out.push(Effect::Send(peer, Message::End(end)));
                out.push(Effect::Close(peer));
            }
        }
    }

    /// Handles a worker's confirmation of a key map. The worker asks again for what it wants.
    pub(super) fn on_mapped(
        &mut self,
        now: Time,
        worker: WorkerId,
        mapped: Mapped,
        out: &mut Outbox,
    ) {
        if mapped.map == self.group.map.version() {
            self.members.roster[worker].pushes.remapping = false;
        }
        self.settle(now, out);
    }
}
