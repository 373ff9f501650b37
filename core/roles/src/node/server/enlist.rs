//! The other servers as peers: admission, messages, loss and dismissal.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Server;
use super::checkpoints::Standing;
use super::group::Other;
use super::rebalance::Change;
use crate::node::{Effect, Evaluate, Event, Outbox};
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::time::Time;
use pstrain_wire::group::{Enlist, Enlisted, Followed, Place, is_address};
use pstrain_wire::replica::{Elector, Standby, VoteRequest};
use pstrain_wire::worker::{End, EndReason, Heartbeat};
use pstrain_wire::{BUILD, Limits, Message, PROTOCOL_VERSION, Phase, Refusal};

impl Server {
    /// Handles the Enlist message of another server.
    pub(super) fn on_enlist(&mut self, now: Time, peer: PeerId, enlist: Enlist, out: &mut Outbox) {
        let server = match enlist.place {
            Place::First { server, .. } | Place::Given { server } => Some(server),
            Place::Wanted => None,
        };
        if let Err(why) = self.take_enlist(now, peer, server, enlist, out) {
            let who = server.map_or_else(
                || String::from("one more server"),
                |server| alloc::format!("server {server}"),
            );
            self.refuse_as(now, peer, Some(who), why, out);
        }
    }

    fn take_enlist(
        &mut self,
        now: Time,
        peer: PeerId,
        server: Option<ServerId>,
        enlist: Enlist,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.check_enlist(&enlist)?;
        self.check_server(peer)?;
        if server.is_some_and(|server| self.group.gone.contains(&server)) {
            // It was disconnected when it was told that other servers hold its keys now.
            self.send_away(peer, out);
            return Ok(());
        }
        match server.filter(|server| self.group.get(*server).is_some()) {
            Some(server) => match self.standing(server, &enlist) {
                Ok(Standing::GoesOn) => {
                    self.count_on(server);
                    self.take_back(now, peer, server, enlist, out)?;
                }
                Ok(Standing::NotNeeded) => {
                    self.note_told(server);
                    self.send_away(peer, out);
                }
                Ok(_) if self.group.peer_of(server).is_some() => {
                    // Otherwise the two would displace each other for ever.
                    return Err(Refusal::ServerTaken { server });
                }
                Ok(Standing::Behind(checkpoint)) => self.send_back(peer, checkpoint, out),
                Ok(Standing::Lost(checkpoint)) => {
                    self.go_back_with(server, checkpoint, out);
                    return Ok(());
                }
                Err(what) => return Err(Refusal::Server { what }),
            },
            None => self.take_in(now, peer, enlist, out)?,
        }
        self.settle(now, out);
        Ok(())
    }

    /// Tells a peer that is not needed any more that it can leave. If it may not be told yet, its
    /// connection is only closed, and it comes again.
    pub(super) fn send_away(&mut self, peer: PeerId, out: &mut Outbox) {
        self.forget_stranger(peer);
        if self.tells_end() {
            let reason = self.lifecycle.end().unwrap_or(EndReason::Stopped);
            out.push(Effect::Send(peer, Message::End(End { reason })));
        }
        out.push(Effect::Close(peer));
    }

    /// Admits a server of the job that connects, for the first time or again.
    fn take_back(
        &mut self,
        now: Time,
        peer: PeerId,
        server: ServerId,
        enlist: Enlist,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let (first, next) = (self.group.first, self.group.next());
        let followed = enlist.followed.map_or(0, |(_, followed)| followed);
        let is_known = (first..=next).contains(&followed);
        let Some(other) = self.group.other(server).filter(|_| is_known) else {
            let what = alloc::format!(
                "it has followed {followed} decisions, but {first} to {next} are known here: its \
                 part of the parameters is lost, if no other process has it"
            );
            return Err(Refusal::Server { what });
        };
        let before = other.peer.replace(peer);
        let has_moved = !other.address.is_empty() && other.address != enlist.address;
        (other.address, other.heard, other.away_since) = (enlist.address, now, None);
        other.standby = enlist.standby;
        other.followed = followed;
        out.extend(before.map(Effect::Close));
        self.stay(server);
        self.enlisted(peer, server, out);
        out.push(Effect::Report(match self.group.map.keys_of(server) {
            Some(_) => Event::ServerJoined { server },
            None => Event::ServerWaits { server },
        }));
        // After the admission, the decisions that it missed; `flush` sends those after `sent`.
        self.group.send(followed..self.group.sent, peer, out);
        if has_moved {
            self.call_workers_back(now, server, out);
        }
        Ok(())
    }

    /// Disconnects all workers, since another process at another address has taken over a server.
    /// Workers that have not noticed the loss of the old process would wait for it for a lease.
    /// When they come back they are sent the new address.
    fn call_workers_back(&mut self, now: Time, server: ServerId, out: &mut Outbox) {
        for peer in self.worker_peers().collect::<Vec<_>>() {
            let why = Refusal::ServerMoved { server };
            let said = why.to_string();
            out.extend([Effect::Send(peer, Message::Refused(why)), Effect::Close(peer)]);
            self.on_disconnected(now, peer, said, out);
        }
    }

    /// Admits one more server, which wants keys.
    fn take_in(
        &mut self,
        now: Time,
        peer: PeerId,
        enlist: Enlist,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.check_join().map_err(|what| Refusal::Server { what })?;
        let server = self.group.add(now, peer, (enlist.address, enlist.standby));
        self.group.changes.want(Change::Join(server), now);
        self.enlisted(peer, server, out);
        out.push(Effect::Report(Event::ServerWaits { server }));
        Ok(())
    }

    fn enlisted(&mut self, peer: PeerId, server: ServerId, out: &mut Outbox) {
        self.forget_stranger(peer);
        out.push(Effect::Limit(peer, Limits::of_holder(self.keys.len() as usize)));
        let (job, digest) = self.job.for_member();
        let (standby, origin) = (None, self.origin());
        let enlisted = Enlisted { run: self.run, server, job, digest, standby, origin };
        out.push(Effect::Send(peer, Message::Enlisted(Box::new(enlisted))));
    }

    fn check_enlist(&self, enlist: &Enlist) -> Result<(), Refusal> {
        let Enlist { protocol, build, place, address, followed, .. } = enlist;
        if *protocol != PROTOCOL_VERSION {
            return Err(Refusal::Protocol {
                theirs: (*protocol, *protocol),
                ours: PROTOCOL_VERSION,
            });
        }
        if build != BUILD {
            return Err(Refusal::Build { worker: build.clone(), server: String::from(BUILD) });
        }
        let has = self.job.servers;
        let what = if let Place::First { servers, .. } = place
            && *servers != has
        {
            alloc::format!("it is one of {servers} servers, but the job has servers = {has}")
        } else if let Place::First { server, servers } = place
            && (*server == ServerId::COORDINATOR || server.0 >= *servers)
        {
            alloc::format!("there is no other server {server} of {servers}")
        } else if !is_address(address)
            || enlist.standby.as_deref().is_some_and(|it| !is_address(it))
        {
            String::from("its address is no address")
        } else if followed.is_some_and(|(run, _)| run != self.run) && !self.takes_checkpoints() {
            String::from("it belongs to another run")
        } else {
            return Ok(());
        };
        Err(Refusal::Server { what })
    }

    pub(super) fn on_server_message(
        &mut self,
        now: Time,
        peer: PeerId,
        server: ServerId,
        message: Message,
        out: &mut Outbox,
    ) {
        if let Some(other) = self.group.other(server) {
            other.heard = now;
        }
        match message {
            Message::Heartbeat(_) => {
                out.push(Effect::Send(peer, Message::Heartbeat(Heartbeat::default())));
            }
            Message::Followed(Followed { decisions }) => {
                let next = self.group.next();
                if let Some(other) = self.group.other(server) {
                    other.followed = other.followed.max(decisions.min(next));
                }
                self.group.prune();
            }
            Message::VoteRequest(asked) => self.on_candidacy(now, peer, asked, out),
            Message::Standby(Standby { address }) => {
                if let Some(other) = self.group.other(server) {
                    other.standby = address.filter(|address| is_address(address));
                }
            }
            Message::Arrived(arrived) => self.on_arrived(now, peer, server, arrived, out),
            Message::Measured(measured) => self.on_measured(now, peer, server, &measured, out),
            Message::Portion(portion) => self.on_portion(now, server, portion, out),
            Message::Taken(taken) => self.on_taken(now, server, taken.cut, out),
            Message::Leave(_) => self.on_leave(now, server, out),
            Message::Written(written) => self.on_other_written(server, written.number, out),
            Message::Traffic(traffic) => {
                let (given, workers) = (traffic.workers.len(), self.job.membership.workers);
                if given != workers as usize {
                    let what = alloc::format!(
                        "the traffic of {given} workers came from server {server}, but the job has \
                         {workers}"
                    );
                    return self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
                self.group.note_traffic(server, traffic);
            }
            Message::Slice(slice) if !self.group.shown.contains_key(&slice.header.version) => {}
            Message::Slice(slice) => {
                // The slice may be a repetition from before its keys moved: `take_slice` checks
                // whether it is the one that is due.
                if !self.keys.contains(slice.header.keys)
                    || slice.header.keys.len() != slice.values.len() as u64
                {
                    let what = alloc::format!(
                        "{} values for keys {} came from server {server}",
                        slice.values.len(),
                        slice.header.keys
                    );
                    return self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
                if let Some(whole) = self.group.take_slice(server, &slice, self.keys) {
                    self.answer_pullers(&whole, out);
                    if let Some(point) = whole.evaluates {
                        self.evaluations
                            .request(Evaluate { point, parameters: whole.parameters }, out);
                    }
                    self.settle(now, out); // a rebalance or the end may need it
                }
            }
            message => {
                let unexpected = super::unexpected("a server's message", &message);
                self.refuse(now, peer, unexpected, out);
            }
        }
    }

    /// Answers a candidate that wants to lead another server: the coordinator votes on that.
    pub(super) fn on_candidacy(
        &mut self,
        now: Time,
        peer: PeerId,
        asked: VoteRequest,
        out: &mut Outbox,
    ) {
        if let Err(why) = self.check_server(peer) {
            return self.refuse(now, peer, why, out);
        }
        let other = self.group.other(asked.server).filter(|_| asked.run == self.run);
        let Some(other) = other else {
            let what = String::from("it wants to lead a server that this run does not have");
            return self.refuse(now, peer, Refusal::Server { what }, out);
        };
        let vote = other.vote.answer(Elector::Coordinator, asked);
        out.push(Effect::Send(peer, Message::Vote(vote)));
    }

    /// Handles part of a long message from another server; false if the peer is none.
    pub(super) fn hear_server(&mut self, now: Time, peer: PeerId) -> bool {
        let server = self.group.of_peer(peer);
        if let Some(other) = server.and_then(|server| self.group.other(server)) {
            other.heard = now;
        }
        server.is_some()
    }

    /// Handles the loss of a connection, which may be the one to a server. That server keeps its
    /// parameters and may come back.
    pub(super) fn lose_server(&mut self, now: Time, peer: PeerId, why: String, out: &mut Outbox) {
        let Some(server) = self.group.of_peer(peer) else { return };
        self.stay(server);
        if self.group.map.keys_of(server).is_none() {
            // It holds no keys (not yet, or not any more), so there is no state to wait for.
            self.group.remove(server);
        } else if let Some(other) = self.group.other(server) {
            (other.peer, other.away_since) = (None, Some(now));
        }
        out.push(Effect::Report(Event::ServerCutOff { server, why }));
    }

    /// Disconnects silent servers, and ends the run if a server has been away for too long.
    pub(super) fn watch_servers(&mut self, now: Time, out: &mut Outbox) {
        let membership = self.job.membership;
        let silent = |other: &&Other| other.peer.is_some() && now >= other.heard + membership.lease;
        let silent: Vec<PeerId> =
            self.group.others.iter().filter(silent).filter_map(|other| other.peer).collect();
        for peer in silent {
            out.push(Effect::Close(peer));
            let why = alloc::format!("it has been silent for {:?}", membership.lease);
            self.lose_server(now, peer, why, out);
        }
        let is_lost =
            |other: &&Other| other.away_since.is_some_and(|since| now >= self.due_back(since));
        let overdue: Vec<ServerId> =
            self.group.others.iter().filter(is_lost).map(|other| other.server).collect();
        let Some(&first) = overdue.first() else { return };
        let lost = EndReason::ServerLost(first);
        // Its slices and its shares of sums will not arrive.
        let never = core::mem::take(&mut self.group.shown).len();
        if (self.stop_measuring() || never > 0) && self.lifecycle.end().is_some() {
            self.lifecycle.amend(lost); // part of the result is missing
        }
        // Each is reported once per patience. All that are overdue start a new one, since nothing
        // else may be due: after the end of the run the deadline would stay in the past.
        for other in self.group.others.iter_mut().filter(|it| overdue.contains(&it.server)) {
            other.away_since = Some(now);
        }
        self.end(now, lost, out);
    }

    /// Returns until when a server that disconnected at `since` is waited for. Without all servers
    /// no worker can become ready, so at the start they have as long as the workers.
    pub(super) fn due_back(&self, since: Time) -> Time {
        let membership = self.job.membership;
        match self.lifecycle.phase() {
            Phase::Gathering => self.lifecycle.since + membership.start_patience(),
            Phase::Training | Phase::Draining | Phase::Ending => since + membership.patience(),
        }
    }

    /// Tells the other servers that the run has ended.
    pub(super) fn dismiss_servers(&mut self, reason: EndReason, out: &mut Outbox) {
        for peer in self.group.others.iter_mut().filter_map(|other| other.peer.take()) {
            out.push(Effect::Send(peer, Message::End(End { reason })));
            out.push(Effect::Close(peer));
        }
    }
}
