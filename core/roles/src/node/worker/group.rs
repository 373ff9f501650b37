//! Connections of a worker to the servers other than the coordinator, each with its key range.
//!
//! The connections share one fate: when one is lost, the worker reopens all, and the coordinator
//! allows again what was lost with it. So a worker is in step with all servers, or with none. When
//! keys were rebalanced, the worker attaches to all servers as at first, but keeps its open
//! connections; it ignores parameters on a connection until the server has confirmed the same key
//! map.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::assembly::{Assembly, Sources};
use super::early::EarlyValues;
use super::{Data, NodeError, Standing, Worker, admitted};
use crate::node::{Effect, Outbox, Target};
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::params::{KeyList, KeyRange, cleared};
use pstrain_compute::time::Time;
use pstrain_policy::job::heartbeat;
use pstrain_wire::group::{Attach, Attached, Mapped};
use pstrain_wire::holders::Holders;
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{Heartbeat, Parameters, Push, PushHeader};
use pstrain_wire::{Limits, Message, PROTOCOL_VERSION, Refusal};

/// The other servers, and parameters that only some servers have sent.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// The coordinator's key range, if it does not hold all keys.
    own: Option<Share>,
    others: Vec<Other>,
    /// The version of the key map.
    map: u64,
    /// The server that is being dialled.
    dialling: Option<ServerId>,
    /// True if the coordinator must be told when all servers are attached.
    moved: bool,
    /// True if the worker has continued its work since it reached the coordinator.
    begun: bool,
    /// The last parameters from the coordinator, if it may send only changes to them.
    had: Vec<f32>,
    assembly: Assembly,
    /// The part of the last gradient that was sent to the coordinator; its buffer is reused.
    sent: Arc<Vec<f32>>,
}

/// A server's key range.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// In keys of the model.
    range: KeyRange,
    /// In positions of the worker's vectors: the same, unless it has a working set.
    keys: KeyRange,
}

impl Share {
    const fn of(range: KeyRange) -> Self {
        Self { range, keys: range }
    }

    /// Narrows the positions to the keys of `list`.
    fn narrow(&mut self, list: &KeyList) {
        let places = list.places(self.range);
        if let Ok(keys) = KeyRange::new(places.start as u64, places.end as u64) {
            self.keys = keys;
        }
    }
}

#[derive(Debug)]
struct Other {
    server: ServerId,
    address: String,
    share: Share,
    link: Option<Link>,
    /// The part of the last gradient that was sent to this server; its buffer is reused.
    sent: Arc<Vec<f32>>,
}

#[derive(Debug)]
struct Link {
    peer: PeerId,
    attached: bool,
    heard: Time,
    beat_at: Time,
    /// The last parameters from this server, if it may send only changes to them.
    had: Vec<f32>,
}

impl Servers {
    /// Servers other than the coordinator, of a model with this many parameters; none if `holders`
    /// is inconsistent.
    pub(super) fn of(holders: Holders, parameters: usize) -> Option<Self> {
        let Holders { map, addresses } = holders;
        let (&(_, own), rest) = map.shares().split_first()?;
        if !map.is_whole(parameters as u64) || rest.len() != addresses.len() {
            return None;
        }
        let others = rest.iter().zip(addresses);
        let others: Vec<Other> = others
            .map(|(&(server, keys), address)| Other {
                server,
                address,
                share: Share::of(keys),
                link: None,
                sent: Arc::default(),
            })
            .collect();
        let own = (!others.is_empty()).then(|| Share::of(own));
        Some(Self { own, others, map: map.version(), ..Self::default() })
    }

    /// Takes over the connections of `before` to unchanged servers; closes the others.
    fn keep(&mut self, mut before: Self, out: &mut Outbox) {
        for other in &mut self.others {
            let same = |it: &&mut Other| it.server == other.server && it.address == other.address;
            let link = before.others.iter_mut().find(same).and_then(|it| it.link.take());
            other.link = link.map(|link| Link { attached: false, ..link });
        }
        before.close(out);
        (self.dialling, self.begun, self.moved) = (before.dialling, before.begun, true);
    }

    /// Starts afresh: keeps nothing of `before` but the dial that is under way.
    pub(super) fn begin_after(&mut self, mut before: Self, out: &mut Outbox) {
        before.close(out);
        self.dialling = before.dialling;
    }

    /// Returns the server that was dialled, if it is still one of these and not connected. A second
    /// call returns none.
    pub(super) fn awaited(&mut self) -> Option<ServerId> {
        let dialled = self.dialling.take()?;
        let is_it = |other: &Other| other.link.is_none() && other.server == dialled;
        self.others.iter().any(is_it).then_some(dialled)
    }

    /// The address of a server.
    pub(super) fn address(&self, server: ServerId) -> Option<&str> {
        let other = self.others.iter().find(|other| other.server == server);
        other.map(|other| other.address.as_str())
    }

    /// Closes all connections.
    pub(super) fn close(&mut self, out: &mut Outbox) {
        let open = self.others.iter_mut().filter_map(|other| other.link.take());
        out.extend(open.map(|link| Effect::Close(link.peer)));
        self.assembly.clear();
    }

    /// Removes a closed connection; returns its server, if it was one of these.
    pub(super) fn lost(&mut self, gone: PeerId) -> Option<ServerId> {
        let is_it = |other: &&mut Other| other.link.as_ref().is_some_and(|link| link.peer == gone);
        let other = self.others.iter_mut().find(is_it)?;
        other.link = None;
        Some(other.server)
    }

    /// Records a sign of life; returns true if it is from one of these servers.
    pub(super) fn heard(&mut self, now: Time, from: PeerId) -> bool {
        self.link_mut(from).is_some_and(|link| {
            link.heard = now;
            true
        })
    }

    pub(super) fn overslept(&mut self, now: Time) {
        self.others.iter_mut().flat_map(|other| &mut other.link).for_each(|link| link.heard = now);
    }

    pub(super) fn deadline(&self, lease: Duration) -> Option<Time> {
        let links = self.others.iter().filter_map(|other| other.link.as_ref());
        links.map(|link| link.beat_at.min(link.heard + lease)).min()
    }

    fn link_mut(&mut self, peer: PeerId) -> Option<&mut Link> {
        self.others.iter_mut().filter_map(|other| other.link.as_mut()).find(|it| it.peer == peer)
    }

    fn by_peer(&self, peer: PeerId) -> Option<&Other> {
        self.others.iter().find(|other| other.link.as_ref().is_some_and(|link| link.peer == peer))
    }

    /// The server behind `peer`, if it is one of these.
    pub(super) fn behind(&self, peer: PeerId) -> Option<ServerId> {
        self.by_peer(peer).map(|other| other.server)
    }

    /// The positions of the server behind `peer`: the coordinator's if it is none of these.
    fn keys_of(&self, peer: PeerId, all: KeyRange) -> KeyRange {
        let other = self.by_peer(peer).map(|other| other.share.keys);
        other.or_else(|| self.own.map(|own| own.keys)).unwrap_or(all)
    }

    /// The model keys of the server behind `peer`: the coordinator's if it is none of these.
    pub(super) fn range_of(&self, peer: PeerId, all: KeyRange) -> KeyRange {
        let other = self.by_peer(peer).map(|other| other.share.range);
        other.or_else(|| self.own.map(|own| own.range)).unwrap_or(all)
    }

    /// Narrows the worker's vectors to the keys of `list`.
    pub(super) fn narrow(&mut self, list: &KeyList) {
        let others = self.others.iter_mut().map(|other| &mut other.share);
        others.chain(&mut self.own).for_each(|share| share.narrow(list));
    }

    /// The connections to all servers, `coordinator` first.
    pub(super) fn peers(&self, coordinator: Option<PeerId>) -> Vec<PeerId> {
        let others = self.others.iter().filter_map(|other| other.link.as_ref());
        coordinator.into_iter().chain(others.map(|link| link.peer)).collect()
    }

    /// Applies changes to the previous values; none if there are no matching values.
    fn complete(&mut self, peer: PeerId, mut parameters: Parameters) -> Option<Parameters> {
        let link = self.link_mut(peer);
        let had = match link {
            Some(link) => &mut link.had,
            None => &mut self.had,
        };
        if let Some(changes) = parameters.changes.take() {
            changes.patch(had).ok()?;
            parameters.values = Arc::new(had.clone());
        } else {
            had.clone_from(&parameters.values);
        }
        Some(parameters)
    }

    /// The servers that send parts of the parameters, if there are others than the coordinator.
    fn sources(&self) -> Option<Sources> {
        self.own.map(|own| Sources { own: own.keys, others: self.others.len() })
    }

    /// Takes a parameter buffer for reuse; returns it if it is shared or not needed.
    pub(super) fn recycle(&mut self, parameters: Arc<Vec<f32>>) -> Option<Arc<Vec<f32>>> {
        match self.own {
            Some(_) => self.assembly.recycle(parameters),
            None => Some(parameters),
        }
    }
}

impl Worker {
    /// Dials the next missing server; continues the work once all are attached.
    pub(super) fn dial_servers(&mut self, now: Time, out: &mut Outbox) {
        let missing = self.servers.others.iter().find(|other| other.link.is_none());
        if let Some(other) = missing {
            if !self.dialler.is_held() {
                self.servers.dialling = Some(other.server);
                self.dialler.dial_other(Target::Address(other.address.clone()), out);
            }
            return;
        }
        let mut links = self.servers.others.iter().filter_map(|other| other.link.as_ref());
        if !links.all(|link| link.attached) {
            return;
        }
        self.dialler.welcomed();
        self.standing = Standing::Attached;
        self.unreached = None;
        if core::mem::take(&mut self.servers.moved) {
            let map = self.servers.map;
            self.send(now, Message::Mapped(Mapped { map }), out);
        }
        let begun = core::mem::replace(&mut self.servers.begun, true);
        if !begun || matches!(self.data, Data::Ready(_)) {
            self.go_on(now, out);
        } // otherwise data preparation is still in progress
    }

    /// Keys were rebalanced: switches to the key map of `holders`.
    pub(super) fn on_holders(&mut self, now: Time, holders: Holders, out: &mut Outbox) {
        let Some(member) = &self.member else {
            return; // a server tells its members
        };
        let Some(servers) = Servers::of(holders, member.model_keys.len() as usize) else {
            let what = String::from("it says that keys have moved, but not all to one server");
            return self.finish(Err(NodeError::Protocol(what)), out);
        };
        let before = core::mem::replace(&mut self.servers, servers);
        self.servers.keep(before, out);
        (self.standing, self.sent_ranges) = (Standing::Admitted, None);
        self.early_values = EarlyValues::default();
        let peers = self.servers.others.iter().filter_map(|other| Some(other.link.as_ref()?.peer));
        for peer in peers.collect::<Vec<_>>() {
            self.attach(peer, out);
        }
        self.dial_servers(now, out);
    }

    /// Introduces the worker to a server.
    fn attach(&self, peer: PeerId, out: &mut Outbox) {
        let member = admitted(&self.member);
        let Some(other) = self.servers.by_peer(peer) else {
            unreachable!("the connection is one to a server")
        };
        out.push(Effect::Limit(peer, Limits::of_server(other.share.range.len() as usize)));
        let attach = Attach {
            protocol: PROTOCOL_VERSION,
            run: member.run,
            worker: member.worker,
            incarnation: member.incarnation,
            map: self.servers.map,
        };
        out.push(Effect::Send(peer, Message::Attach(attach)));
    }

    /// Handles the success of a dial by [`Self::dial_servers`].
    pub(super) fn on_server_dialled(
        &mut self,
        now: Time,
        peer: PeerId,
        identity: Identity,
        out: &mut Outbox,
    ) {
        if !identity.may_serve() {
            out.push(Effect::Close(peer));
            let Some(server) = self.servers.awaited() else {
                return self.on_impostor(now, identity, out);
            };
            let why = alloc::format!("who answers there is {identity}, which is no server");
            return self.come_back_from(now, server, why, out);
        }
        let beat_at = now + heartbeat(self.lease());
        let dialled = self.servers.dialling.take();
        let is_it = |other: &&mut Other| other.link.is_none() && Some(other.server) == dialled;
        let wanted = self.servers.others.iter_mut().find(is_it);
        let is_up = self.dialler.peer().is_some() && self.member.is_some();
        match wanted.filter(|_| is_up) {
            Some(other) => {
                other.link =
                    Some(Link { peer, attached: false, heard: now, beat_at, had: Vec::new() });
                self.attach(peer, out);
            }
            None => {
                out.push(Effect::Close(peer));
                if is_up {
                    self.dial_servers(now, out); // the dialled server is no longer in the key map
                }
            }
        }
    }

    /// Handles a message of a server that does not coordinate.
    pub(super) fn on_server_message(
        &mut self,
        now: Time,
        from: PeerId,
        message: Message,
        out: &mut Outbox,
    ) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Attached(attached) => self.on_attached(now, from, attached, out),
            Message::Parameters(parameters) => {
                if self.servers.link_mut(from).is_some_and(|link| link.attached) {
                    self.on_parameters(now, from, parameters, out);
                }
            }
            Message::KeysKnown(answer) => self.on_keys_known(now, from, answer, out),
            Message::Refused(Refusal::Frame { what }) => {
                self.on_damage(now, from, &what, false, out)
            }
            // Not final: only the coordinator's refusals are.
            Message::Refused(why) => match self.servers.behind(from) {
                Some(server) => self.come_back_from(now, server, why.to_string(), out),
                None => self.come_back(now, why.to_string(), out),
            },
            other => {
                let what = alloc::format!("it sent a {:?} message to a worker", other.kind());
                self.finish(Err(NodeError::Protocol(what)), out);
            }
        }
    }

    fn on_attached(&mut self, now: Time, from: PeerId, attached: Attached, out: &mut Outbox) {
        if attached.map != self.servers.map {
            return; // the new key map will follow from the coordinator, and a new Attach
        }
        let wanted = self.servers.by_peer(from).map(|other| other.share.range);
        if wanted != Some(attached.keys) {
            let what = alloc::format!("it says that a server has keys {}", attached.keys);
            return self.finish(Err(NodeError::Protocol(what)), out);
        }
        if let Some(link) = self.servers.link_mut(from)
            && !core::mem::replace(&mut link.attached, true)
        {
            self.dial_servers(now, out);
        }
    }

    /// Sends heartbeats to the other servers, and reconnects if one is silent.
    pub(super) fn watch_servers(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.lease();
        let incarnation = self.member.as_ref().map(|member| member.incarnation);
        let mut silent = None;
        for other in &mut self.servers.others {
            let Some(link) = &mut other.link else { continue };
            if now >= link.heard + lease {
                silent.get_or_insert_with(|| (other.server, now.since(link.heard)));
            } else if now >= link.beat_at {
                link.beat_at = now + heartbeat(lease);
                let heartbeat = Message::Heartbeat(Heartbeat::of(incarnation));
                out.push(Effect::Send(link.peer, heartbeat));
            }
        }
        if let Some((server, silent)) = silent {
            let why = alloc::format!("it has been silent for {silent:?}");
            self.come_back_from(now, server, why, out);
        }
    }

    /// Sends every server its part of the values of some keys, as ranges of a push.
    pub(super) fn send_range(
        &mut self,
        now: Time,
        header: PushHeader,
        values: &[f32],
        out: &mut Outbox,
    ) {
        let range = |share: Option<Share>| {
            let keys = share.map_or(Some(header.keys), |share| share.keys.overlap(header.keys))?;
            let values = values.get(keys.within(header.keys)?)?.to_vec();
            let push = Push::new(PushHeader { keys, ..header }, Arc::new(values));
            Some(Message::Push(push))
        };
        for other in &self.servers.others {
            if let (Some(link), Some(push)) = (&other.link, range(Some(other.share))) {
                out.push(Effect::Send(link.peer, push));
            }
        }
        if let Some(push) = range(self.servers.own) {
            self.send(now, push, out);
        }
    }

    /// Sends every server its part of a gradient.
    pub(super) fn send_push(&mut self, now: Time, push: Push, out: &mut Outbox) {
        self.repeat_keys(out);
        let encoded = |keys: KeyRange| {
            let filter_chain = self.filter_chain.as_ref()?;
            filter_chain.encode(push.header.sequence, keys).map(Arc::new)
        };
        let Some(own) = self.servers.own else {
            let encoded = encoded(push.header.keys);
            return self.send(now, Message::Push(Push { encoded, ..push }), out);
        };
        let push_of = |keys: KeyRange, sent: &mut Arc<Vec<f32>>| {
            let mut header = push.header;
            header.keys = keys;
            let part = push.gradient.get(keys.indices()).unwrap_or_default();
            cleared(sent).extend_from_slice(part);
            let push = Push::new(header, Arc::clone(sent));
            Message::Push(Push { encoded: encoded(keys), ..push })
        };
        for other in &mut self.servers.others {
            if let Some(link) = &other.link {
                out.push(Effect::Send(link.peer, push_of(other.share.keys, &mut other.sent)));
            }
        }
        let own = push_of(own.keys, &mut self.servers.sent);
        self.send(now, own, out);
    }

    /// Checks parameters from `peer` and adds them to the assembly; returns the next that are
    /// complete.
    pub(super) fn assemble(
        &mut self,
        peer: PeerId,
        parameters: Parameters,
        all: KeyRange,
        out: &mut Outbox,
    ) -> Result<Option<Parameters>, String> {
        let is_received = parameters.changes.is_none();
        let filters = self.member.as_ref().is_some_and(|it| !it.job.pull_filter().is_none());
        let parameters = match filters || parameters.changes.is_some() {
            true => self.servers.complete(peer, parameters),
            false => Some(parameters),
        };
        let Some(parameters) = parameters else {
            return Err(String::from("it sent changes of parameters that it had not sent"));
        };
        let wanted = self.servers.keys_of(peer, all);
        if parameters.is_early() {
            self.early_values.add(&parameters, wanted)?;
            out.push(Effect::Recycle(parameters.values));
            return Ok(None);
        }
        let parameters = self.early_values.complete(parameters, wanted);
        let (header, values) = (parameters.header, parameters.values.len());
        if header.keys != wanted || values as u64 != wanted.len() {
            return Err(alloc::format!(
                "it sent {values} values for keys {} where it has keys {wanted}",
                header.keys
            ));
        }
        let Some(sources) = self.servers.sources() else { return Ok(Some(parameters)) };
        let next = self.servers.assembly.add(sources, header, &parameters.values, all);
        if is_received {
            out.push(Effect::Recycle(parameters.values));
        }
        Ok(next)
    }

    /// Further parameters that are complete.
    pub(super) fn next_assembled(&mut self) -> Option<Parameters> {
        self.servers.assembly.next_whole(self.servers.sources()?)
    }
}
