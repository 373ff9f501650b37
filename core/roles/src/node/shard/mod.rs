//! The shard: a server that does not coordinate. It holds the parameters of a key range, receives
//! the workers' parts of each gradient, and applies the coordinator's decisions to them.
//!
//! A shard decides nothing itself, not even which workers are members: all comes from the stream of
//! decisions, in order.

mod checkpoints;
mod decisions;
mod keys;
mod rebalance;
mod saving;
mod workers;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use rebalance::Moving;
use workers::Workers;

use super::addresses::Addresses;
use super::damage::{Damage, is_foreign};
use super::dialler::{Dialler, Due, Unreachable};
use super::{DialFault, Effect, Event, Input, Node, NodeError, Outbox, Target};
use crate::store::Store;
use pstrain_compute::id::{Incarnation, PeerId, ServerId, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::{Exchange, Job};
use pstrain_wire::checkpoint::{OnDisk, Written};
use pstrain_wire::group::{Arrived, Enlist, Enlisted, Fault, Leave, Measured, Place, Slice};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{EndReason, Heartbeat, Push};
use pstrain_wire::{BUILD, Limits, Message, PROTOCOL_VERSION, Refusal, job_digest};

/// Configuration of a shard, known before it has met the coordinator.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The requested id; not the coordinator's.
    pub place: Place,
    /// The address at which workers reach it.
    pub address: String,
    /// The lease until the job's is known.
    pub lease: Duration,
    /// Random stream for the jitter of the back-off.
    pub stream: Stream,
}

/// A shard as a state machine.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    /// The addresses of the coordinator and its standby.
    coordinators: Addresses,
    dialler: Dialler,
    damage: Damage,
    /// True if the coordinator has admitted the shard on this connection.
    welcome: bool,
    following: Option<Following>,
    /// Number of decisions applied.
    followed: u64,
    /// The number of decisions last acknowledged to the coordinator.
    told: u64,
    workers: Workers,
    /// Parameters that the coordinator requested and may not have received.
    shown: Vec<Slice>,
    /// The checkpoints on its disk, if it takes checkpoints.
    on_disk: Option<OnDisk>,
    /// The last checkpoint written in this run.
    written: Option<Written>,
    /// The last requested measurement, with its result, which the coordinator may not have
    /// received.
    measured: Option<Measured>,
    /// Connections before their first message, with the time they were opened.
    unauthenticated: BTreeSet<(Time, PeerId)>,
    /// The verified identities of those connections.
    identities: BTreeMap<PeerId, Identity>,
    /// True if it wants to leave once its keys are rebalanced.
    leaving: bool,
    done: bool,
}

/// The run that the shard follows.
#[derive(Debug)]
struct Following {
    run: u64,
    server: ServerId,
    job: Box<Job>,
    /// Parameters of the whole model.
    parameters: usize,
    /// The version of the key map.
    map: u64,
    /// None before the shard has keys.
    store: Option<Store>,
    /// True if the coordinator relies on the shard to apply decisions: not at first for one that
    /// joins.
    begun: bool,
    /// The rebalance in progress, from the decision to move keys on.
    moving: Option<Moving>,
}

impl Shard {
    /// A server that will dial the coordinator at [`Input::Start`].
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        Self {
            dialler: Dialler::new(config.stream),
            damage: Damage::default(),
            config,
            coordinators: Addresses::new(Target::Server),
            welcome: false,
            following: None,
            followed: 0,
            told: 0,
            workers: Workers::default(),
            shown: Vec::new(),
            on_disk: None,
            written: None,
            measured: None,
            unauthenticated: BTreeSet::new(),
            identities: BTreeMap::new(),
            leaving: false,
            done: false,
        }
    }

    /// Sets the coordinator's address, whichever server the driver dials by default.
    #[must_use]
    pub fn follows(mut self, coordinator: String) -> Self {
        let target = Target::Address(coordinator);
        self.dialler.turn_to(target.clone());
        self.coordinators = Addresses::new(target);
        self
    }

    pub(super) fn lease(&self) -> Duration {
        let job = self.following.as_ref().map(|following| &following.job);
        job.map_or(self.config.lease, |job| job.membership.lease)
    }

    fn store(&self) -> Option<&Store> {
        self.following.as_ref()?.store.as_ref()
    }

    fn store_mut(&mut self) -> Option<&mut Store> {
        self.following.as_mut()?.store.as_mut()
    }

    /// The key range that it holds, if any.
    fn keys(&self) -> Option<KeyRange> {
        self.store().map(Store::keys)
    }

    /// The id and the key range, if the shard has keys.
    pub(super) fn holds(&self) -> Option<(ServerId, KeyRange)> {
        Some((self.following.as_ref()?.server, self.keys()?))
    }

    /// The version of the key map that the shard uses.
    fn map(&self) -> u64 {
        self.following.as_ref().map_or(0, |following| following.map)
    }

    /// Sends a message to the coordinator, if it has admitted this shard.
    fn tell(&mut self, now: Time, message: Message, out: &mut Outbox) {
        if let Some(peer) = self.dialler.peer().filter(|_| self.welcome) {
            self.dialler.sent(now);
            out.push(Effect::Send(peer, message));
        }
    }

    /// Tells the coordinator the bytes that were exchanged with the workers.
    fn tell_traffic(&mut self, now: Time, out: &mut Outbox) {
        let traffic = self.workers.traffic();
        self.tell(now, Message::Traffic(traffic), out);
    }

    fn finish(&mut self, result: Result<EndReason, NodeError>, out: &mut Outbox) {
        let peers = self.dialler.peer().into_iter().chain(self.workers.peers());
        out.extend(peers.map(Effect::Close));
        self.done = true;
        out.push(Effect::Done(result));
    }

    fn fail(&mut self, what: String, out: &mut Outbox) {
        self.finish(Err(NodeError::Protocol(what)), out);
    }

    fn redial(&mut self, now: Time, why: String, out: &mut Outbox) {
        self.welcome = false;
        let lease = self.lease();
        self.dialler.turn_to(self.coordinators.turn());
        if let Err(unreachable) = self.dialler.redial(now, why, lease, out) {
            self.give_up(unreachable, out);
        }
    }

    /// A message to or from the coordinator was damaged in transit: drops the connection.
    fn on_damage(&mut self, now: Time, error: &str, may_be_foreign: bool, out: &mut Outbox) {
        match self.damage.again(error, may_be_foreign) {
            Ok(why) => self.redial(now, why, out),
            Err(error) => self.finish(Err(error), out),
        }
    }

    fn on_dial_failed(&mut self, now: Time, why: String, fault: DialFault, out: &mut Outbox) {
        let is_new = self.following.is_none();
        match fault {
            DialFault::Permanent if is_new => {
                let unreachable = self.dialler.give_up(now);
                self.give_up(Unreachable { why, ..unreachable }, out);
            }
            DialFault::Mismatch if is_new => match self.damage.mismatched(why) {
                Ok(why) => self.redial(now, why, out),
                Err(error) => self.finish(Err(error), out),
            },
            _ => self.redial(now, why, out),
        }
    }

    fn give_up(&mut self, Unreachable { why, attempts, tried }: Unreachable, out: &mut Outbox) {
        self.finish(Err(NodeError::Unreachable { why, attempts, tried }), out);
    }

    fn on_dialled(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        self.dialler.connected(now, peer);
        // A large portion of rebalanced keys may follow the first answer at once.
        out.push(Effect::Limit(peer, Limits::of_coordinator()));
        let begun = self.following.as_ref().filter(|following| following.begun);
        let enlist = Enlist {
            protocol: PROTOCOL_VERSION,
            build: String::from(BUILD),
            place: match (self.config.place, begun) {
                (Place::Wanted, Some(begun)) => Place::Given { server: begun.server },
                (place, _) => place,
            },
            address: self.config.address.clone(),
            standby: None,
            followed: begun.map(|begun| (begun.run, self.followed)),
            on_disk: self.on_disk.clone(),
        };
        out.push(Effect::Send(peer, Message::Enlist(enlist)));
    }

    fn on_coordinator(&mut self, now: Time, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Refused(Refusal::Frame { what }) => self.on_damage(now, &what, false, out),
            Message::Refused(why) if why.is_permanent() => {
                self.finish(Err(NodeError::Refused(why)), out);
            }
            Message::Refused(why) => {
                if let Refusal::Standby { leader } = &why {
                    self.coordinators.note_other(leader.clone());
                }
                self.redial(now, why.to_string(), out);
            }
            Message::End(end) => {
                // The last decisions, and the stop among them, may not have come.
                if end.reason == EndReason::Stopped && self.has_keys() {
                    out.push(Effect::Pause);
                }
                self.finish(Ok(end.reason), out);
            }
            Message::Enlisted(enlisted) => self.on_enlisted(now, *enlisted, out),
            Message::Decisions(decisions) => self.on_decisions(now, decisions, out),
            Message::Begin(begin) => self.on_begin(begin, out),
            Message::Portion(portion) => self.on_portion(now, portion, out),
            Message::GoBack(go_back) => self.on_go_back(go_back, out),
            Message::Standby(standby) => self.coordinators.note_standby(standby.address),
            other => {
                self.fail(alloc::format!("it sent a {:?} message to a server", other.kind()), out);
            }
        }
    }

    fn on_enlisted(&mut self, now: Time, enlisted: Enlisted, out: &mut Outbox) {
        if let Err(what) = self.take_place(enlisted, out) {
            return self.fail(what, out);
        }
        self.welcome = true;
        self.dialler.welcomed();
        // Repeat what was lost with the previous connection, or arrived while there was none.
        if !self.shown.is_empty() {
            self.tell_traffic(now, out);
        }
        for slice in self.shown.clone() {
            self.tell(now, Message::Slice(slice), out);
        }
        if let Some(measured) = self.measured.clone() {
            self.tell(now, Message::Measured(measured), out);
        }
        let held: Vec<_> = self.workers.held().collect();
        for (worker, incarnation, push) in held {
            self.announce(now, worker, incarnation, &push, out);
        }
        self.tell_written(now, out);
        if self.leaving {
            self.tell(now, Message::Leave(Leave), out);
        }
    }

    fn take_place(&mut self, enlisted: Enlisted, out: &mut Outbox) -> Result<(), String> {
        let Enlisted { run, server, job, digest, standby, origin } = enlisted;
        self.coordinators.leads(standby);
        self.check_origin(origin)?;
        if let Some(following) = &self.following {
            let (was, had, has_keys) = (following.run, following.server, following.store.is_some());
            if was != run && !self.goes_on_in(run) {
                return Err(String::from("it is another run than before"));
            }
            if had == server {
                return Ok(());
            }
            if has_keys {
                return Err(alloc::format!("it says that this is server {server} now"));
            }
            // Its keys were assigned otherwise while it was cut off: it restarts.
            (self.followed, self.told) = (0, 0);
        }
        if job_digest(&job) != digest {
            return Err(String::from("its job means something else here; use the same release"));
        }
        job.validate().map_err(|error| alloc::format!("its job makes no sense: {error}"))?;
        let model = job
            .build_model()
            .map_err(|error| alloc::format!("its job has an impossible model: {error}"))?;
        let store = match self.config.place {
            Place::First { .. } => {
                let keys = job.keys_of(server, model.parameters());
                let keys = keys.ok_or_else(|| String::from("its job has no keys for this one"))?;
                let store = Store::new(&job, &model, keys);
                Some(store.map_err(|error| alloc::format!("its job makes no sense: {error}"))?)
            }
            Place::Wanted | Place::Given { .. } => None,
        };
        self.workers = Workers::new(job.membership.workers);
        if let Some(store) = &store {
            let keys = store.keys();
            out.push(Effect::Report(Event::Enlisted { job: Box::new(job.clone()), server, keys }));
        }
        let (job, begun) = (Box::new(job), store.is_some());
        let (parameters, map) = (model.parameters(), 0);
        let following = Following { run, server, job, parameters, map, store, begun, moving: None };
        self.following = Some(following);
        Ok(())
    }

    fn on_push(&mut self, now: Time, peer: PeerId, worker: WorkerId, push: Push, out: &mut Outbox) {
        let Some(store) = self.store() else {
            return; // the keys have moved away, and the push will be repeated where they are
        };
        let all = store.keys();
        let keys = (store.place_of(worker).unwrap_or(all), all);
        let incarnation = push.header.incarnation;
        let by_range =
            self.following.as_ref().is_some_and(|it| it.job.exchange == Exchange::Layers);
        let push = match by_range {
            true => self.workers.take_range(worker, push, keys.0),
            false => Ok(Some(push)),
        };
        let held = match push {
            Ok(Some(push)) => self.workers.hold(worker, push, keys),
            Ok(None) => return, // the rest is in transit
            Err(why) => Err(why),
        };
        match held {
            Ok(None) => {} // already decided: the coordinator answers
            Ok(Some(push)) => self.announce(now, worker, incarnation, &push, out),
            Err(why) => self.refuse(peer, why, out),
        }
    }

    /// Notifies the coordinator that this shard's part of a push has arrived.
    fn announce(
        &mut self,
        now: Time,
        worker: WorkerId,
        incarnation: Incarnation,
        push: &Push,
        out: &mut Outbox,
    ) {
        let Some(store) = self.store() else { unreachable!("a shard without keys holds no push") };
        let fault = push
            .first_not_finite()
            .map(|key| Fault { key, has_diverged: store.first_not_finite().is_some() });
        let job = self.following.as_ref().map(|following| &following.job);
        let squares = job.and_then(|job| store.squares(&job.update, &push.gradient));
        let (sequence, base) = (push.header.sequence, push.header.base);
        let arrived = Arrived { worker, incarnation, sequence, base, fault, squares };
        self.tell(now, Message::Arrived(arrived), out);
    }
}

impl Node for Shard {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.done {
            return;
        }
        match input {
            Input::Start => self.dialler.start(now, out),
            Input::Dialled(peer, identity) if !identity.may_serve() => {
                self.dialler.connected(now, peer);
                let why = alloc::format!("who answers there is {identity}, which is no server");
                match self.following {
                    Some(_) => self.redial(now, why, out),
                    None => self.fail(why, out),
                }
            }
            Input::Dialled(peer, _) => self.on_dialled(now, peer, out),
            Input::DialFailed { why, fault } => self.on_dial_failed(now, why, fault, out),
            Input::Connected(peer, identity) => {
                self.unauthenticated.insert((now, peer));
                self.identities.insert(peer, identity);
                out.push(Effect::Limit(peer, Limits::UNAUTHENTICATED));
            }
            Input::Message(from, message) => {
                if self.dialler.heard(now, from) {
                    self.on_coordinator(now, message, out);
                } else {
                    self.on_message(now, from, message, out);
                }
            }
            Input::Receiving(from) => {
                if !self.dialler.heard(now, from) {
                    self.workers.hear(now, from, self.lease(), out);
                }
            }
            Input::Garbage(peer, error) if self.dialler.peer() != Some(peer) => {
                self.refuse(peer, error.into(), out);
            }
            Input::Garbage(_, error) => {
                let may_be_foreign = self.following.is_none() && is_foreign(error);
                self.on_damage(now, &error.to_string(), may_be_foreign, out);
            }
            Input::Disconnected { peer, why } => {
                self.forget_stranger(peer);
                self.workers.detach(peer);
                if self.dialler.lost(peer) {
                    self.redial(now, why, out);
                }
            }
            Input::Overslept => self.dialler.overslept(now),
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Written(number) => self.on_written(now, number, out),
            Input::Prepared(_)
            | Input::WorkersDown
            | Input::Extend(_)
            | Input::ComputedRange(_)
            | Input::Computed(_)
            | Input::ComputeFailed(_)
            | Input::Evaluated(_)
            | Input::Unevaluated { .. }
            | Input::EvaluatedHere(..)
            | Input::Initial(_)
            | Input::Checkpoint(_) => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        let stranger = self.unauthenticated.first().map(|&(since, _)| since + self.lease());
        self.dialler.deadline(self.lease()).into_iter().chain(stranger).min()
    }
}

impl Shard {
    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.lease();
        while let Some(&(since, peer)) = self.unauthenticated.first()
            && now >= since + lease
        {
            self.forget_stranger(peer);
            out.push(Effect::Close(peer));
        }
        match self.dialler.wake(now, lease, out) {
            Due::Nothing => {}
            Due::Beat => {
                if self.welcome && self.told < self.followed {
                    self.tell_followed(now, out);
                }
                let heartbeat = Message::Heartbeat(Heartbeat::default());
                out.extend(self.dialler.peer().map(|peer| Effect::Send(peer, heartbeat)));
            }
            Due::Silence(silent) => {
                let why = alloc::format!("it has been silent for {silent:?}");
                self.redial(now, why, out);
            }
        }
    }
}
