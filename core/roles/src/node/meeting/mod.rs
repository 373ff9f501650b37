//! The meeting point of workers without a server.
//!
//! It admits the workers, tells them the ranks of their group, and keeps the records: which updates
//! they have made, and the parameters at evaluations and at the end. It takes no part in an update.
//! When a member is lost it halts the others, finds out which updates each has made, and forms the
//! next group ([`Peer`](super::Peer) has the contract).

mod aggregation;
mod by_workers;
mod checkpoints;
mod clock;
mod detours;
mod doubt;
mod group;
mod initial;
mod members;
mod models;
mod pace;
mod progress;
mod relaying;
mod saving;
mod status;
mod stopping;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::checkpoints::{Checkpoints, States};
use self::clock::TrainingClock;
use self::group::Group;
use self::initial::Initial;
use self::members::{Presence, Slots};
use self::models::Models;
use self::pace::Pace;
use self::stopping::Stop;
use super::admission::{check_fingerprint, check_hello, check_parts};
use super::damage::in_words;
use super::flood::FloodControl;
use super::run_job::RunJob;
use super::server::{Evaluations, Ledger, Lifecycle, ServerError};
use super::{Departure, Effect, Event, Input, Node, Outbox, Point, Trained};
use crate::node::doubt::Doubt;
use pstrain_compute::id::{PeerId, Term, Version, WorkerId};
use pstrain_compute::params::{KeyMap, KeyRange};
use pstrain_compute::time::Time;
use pstrain_policy::in_network::Aggregator;
use pstrain_policy::job::{Job, OnLoss};
use pstrain_policy::lockstep::Lockstep;
use pstrain_wire::group::{Exchanged, is_address};
use pstrain_wire::holders::Holders;
use pstrain_wire::identity::Identity;
use pstrain_wire::peers::Reachable;
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::{Bye, End, EndReason, Heartbeat, Hello, Ready, Welcome};
use pstrain_wire::{FrameError, Limits, Message, PROTOCOL_VERSION, Phase, Refusal};

/// The meeting point as a state machine.
#[derive(Debug)]
pub struct Meeting {
    job: RunJob,
    run: u64,
    parameters: u64,
    /// Connections that have not said who they are, and since when.
    strangers: BTreeMap<PeerId, (Time, Identity)>,
    slots: Slots,
    lifecycle: Lifecycle,
    /// A stop on request that is under way.
    stop: Option<Stop>,
    group: Group,
    lockstep: Lockstep,
    doubt: Doubt,
    /// Requests to workers that train at their own pace.
    pace: Pace,
    /// The sums of the group's gradients, if the meeting point makes them.
    aggregator: Option<Aggregator>,
    ledger: Ledger,
    /// Examples of the mini-batches that were applied.
    applied_samples: u64,
    clock: TrainingClock,
    /// Parameters that have come from members, of versions that not all have made yet.
    models: Models,
    /// The latest parameters.
    snapshot: (Point, Arc<Vec<f32>>),
    evaluations: Evaluations,
    /// The consensus distances of versions under evaluation.
    distances: BTreeMap<Version, f64>,
    initial: Initial,
    /// Checkpoints, if the run takes them.
    checkpoints: Option<Checkpoints>,
    /// The state that the run is resumed from, until all members of its first group have made an
    /// update.
    states: Option<States>,
}

/// Most connections that have not said who they are.
const MOST_STRANGERS: usize = 1024;

impl Meeting {
    /// A meeting point for `job`, whose architecture has no servers. `run` tells this run from
    /// others at the same address.
    ///
    /// # Errors
    /// [`ServerError`] if the job's settings or model are invalid.
    pub fn new(job: Job, run: u64) -> Result<Self, ServerError> {
        job.validate().map_err(ServerError::Job)?;
        let model = job.build_model().map_err(ServerError::Model)?;
        let point = Point { version: Version(0), samples: 0, epoch: 0.0, time: Default::default() };
        Ok(Self {
            run,
            parameters: model.parameters() as u64,
            strangers: BTreeMap::new(),
            slots: Slots::new(job.membership.workers),
            lifecycle: Lifecycle::new(),
            stop: None,
            group: Group::default(),
            lockstep: Lockstep::new(&job),
            doubt: Doubt::default(),
            pace: Pace::default(),
            aggregator: None,
            ledger: Ledger::default(),
            applied_samples: 0,
            clock: TrainingClock::default(),
            models: Models::default(),
            snapshot: (point, Arc::new(job.initial(&model))),
            evaluations: Evaluations::default(),
            distances: BTreeMap::new(),
            initial: Initial::of(job.initial),
            checkpoints: None,
            states: None,
            job: RunJob::new(job),
        })
    }

    /// The job.
    #[must_use]
    pub const fn job(&self) -> &Job {
        self.job.get()
    }

    /// The result of the run so far.
    #[must_use]
    pub fn trained(&self) -> Trained {
        let (point, parameters) = &self.snapshot;
        // No other node has anything of the workers' gradients.
        let elsewhere = self.slots.iter().map(|_| Exchanged::default()).collect();
        let parameters = Some(Arc::clone(parameters));
        let last = Trained { point: *point, ledger: self.ledger, elsewhere, parameters };
        last.with_kept(self.evaluations.kept())
    }

    /// The keys of the model.
    fn keys(&self) -> KeyRange {
        KeyRange::new(0, self.parameters).unwrap_or_else(|_| unreachable!("a model has parameters"))
    }

    fn refuse(&mut self, now: Time, peer: PeerId, why: Refusal, out: &mut Outbox) {
        let worker = self.slots.of_peer(peer).map(|(worker, slot)| {
            slot.why_left = Some(as_reason(&alloc::format!("{why}")));
            worker
        });
        if let Some(worker) = worker {
            self.slots.detach(worker);
        }
        self.strangers.remove(&peer);
        out.push(Effect::Send(peer, Message::Refused(why.clone())));
        out.push(Effect::Close(peer));
        let (from, who) = (None, None);
        out.push(Effect::Report(Event::Refused { peer, from, worker, who, why }));
        if let Some(worker) = worker {
            self.depart(now, worker, Departure::Refused, out);
        }
    }

    /// Handles bytes that are not a frame. From a member they mean damage on the way, and its
    /// connection counts as lost. Any other peer is refused.
    fn on_garbage(&mut self, now: Time, peer: PeerId, error: FrameError, out: &mut Outbox) {
        if self.slots.of_peer(peer).is_none() {
            return self.refuse(now, peer, error.into(), out);
        }
        out.push(Effect::Send(peer, Message::Refused(error.into())));
        out.push(Effect::Close(peer));
        self.cut_off(peer, in_words(error), out);
    }

    /// A connection is gone. A member comes back within its lease, with nothing lost.
    fn cut_off(&mut self, peer: PeerId, why: String, out: &mut Outbox) {
        self.strangers.remove(&peer);
        if let Some((worker, _)) = self.slots.of_peer(peer) {
            self.slots.detach(worker);
            out.push(Effect::Report(Event::CutOff { worker, why }));
        }
    }

    fn on_hello(&mut self, now: Time, peer: PeerId, hello: Hello, out: &mut Outbox) {
        if let Err(why) = self.take_hello(now, peer, hello, out) {
            self.refuse(now, peer, why, out);
        }
    }

    fn take_hello(
        &mut self,
        now: Time,
        peer: PeerId,
        hello: Hello,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        check_hello(&hello, &self.job)?;
        let resumed = hello.resume.filter(|resume| {
            let slot = self.slots.get(resume.worker);
            let is_its = slot.is_some_and(|slot| {
                slot.presence.is_alive() && slot.incarnation == resume.incarnation
            });
            resume.run == self.run && is_its
        });
        let (_, identity) = self.strangers.get(&peer).copied().unwrap_or_default();
        // A worker that was away for too long gets its own part back, if the slot is free.
        let back = hello
            .resume
            .map(|resume| resume.worker)
            .filter(|worker| self.slots.get(*worker).is_some_and(|slot| !slot.presence.is_alive()));
        let wanted = resumed.map(|resume| resume.worker).or(hello.worker).or(back);
        let claimed = identity.claim(wanted)?;
        let is_over = self.lifecycle.phase() == Phase::Ending || self.stop.is_some();
        if resumed.is_none() && is_over {
            return Err(Refusal::Over);
        }
        let workers = self.job.membership.workers;
        let worker = claimed.or_else(|| self.slots.vacancy()).ok_or(Refusal::Full { workers })?;
        let slot = self.slots.get(worker).ok_or(Refusal::UnknownWorker { worker, workers })?;
        if resumed.is_none() && slot.presence.is_alive() && slot.peer.is_some() {
            return Err(Refusal::WorkerTaken { worker, owner: slot.name.clone() });
        }
        if resumed.is_none() && slot.presence.is_alive() {
            self.depart(now, worker, Departure::Replaced, out);
        }
        let version = self.first_version(worker);
        self.strangers.remove(&peer);
        out.extend(self.slots.attach(worker, peer).map(Effect::Close));
        self.slots.begin_lease(worker, now, self.job.membership.lease);
        if resumed.is_none() {
            self.slots.set_presence(worker, Presence::Preparing, now);
            let slot = &mut self.slots[worker];
            slot.incarnation = slot.incarnation.next();
            slot.finite = None;
            (slot.version, slot.idle) = (version, FloodControl::default());
            (slot.joins, slot.awaits) = (true, None);
            (slot.base, slot.allowed) = (self.lockstep.version(), version);
            slot.reports.clear();
            slot.why_left = None;
            slot.name.clone_from(&hello.name);
            self.group.detours.forget(worker);
        }
        let slot = &mut self.slots[worker];
        let (incarnation, resumed) = (slot.incarnation, resumed.is_some());
        out.push(Effect::Limit(
            peer,
            Limits::of_member(self.job.summed_values(self.parameters as usize)),
        ));
        out.push(Effect::Report(Event::Joined { worker, name: hello.name, incarnation, resumed }));
        let map = KeyMap::even(1, self.parameters);
        let map = map.unwrap_or_else(|| unreachable!("a model has parameters"));
        let (job, digest) = self.job.for_member();
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            run: self.run,
            worker,
            incarnation,
            resumed,
            examples_from_server: false,
            holders: Holders { map, addresses: Vec::new() },
            job,
            digest,
            term: Term(0),
            standby: None,
        };
        out.push(Effect::Send(peer, Message::Welcome(Box::new(welcome))));
        if let Some(reason) = self.lifecycle.end() {
            out.push(Effect::Send(peer, Message::End(End { reason })));
        } else if resumed {
            self.welcome_back(now, worker, peer, out);
        }
        Ok(())
    }

    /// Repeats to a worker that is back after its connection broke what it may have missed.
    fn welcome_back(&mut self, now: Time, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        // Messages on their way on the last connection are lost. This side repeats its own, but
        // not the values of other members.
        if self.group.relays_any(worker) {
            let why = alloc::format!("worker {worker} is back: values for it may be lost");
            self.halt_for(now, worker, why, out);
        }
        let slot = &self.slots[worker];
        let (is_member, has_updates) = (!slot.joins, slot.version > Version(0));
        if is_member && !has_updates {
            self.send_initial(peer, out);
        }
        if is_member {
            self.send_state(worker, peer, out);
        }
        self.tell_group(worker, peer, out);
        self.repeat_requests(worker, peer, out);
        self.repeat_stop(worker, peer, out);
    }

    fn on_message(&mut self, now: Time, peer: PeerId, message: Message, out: &mut Outbox) {
        let Some((worker, slot)) = self.slots.of_peer(peer) else {
            return match message {
                Message::Hello(hello) => self.on_hello(now, peer, hello, out),
                Message::PullStatus(_) => self.on_pull_status(now, peer, out),
                other => {
                    let what = alloc::format!(
                        "a {:?} message: the workers have the parameters, and this is their \
                         meeting point; ask for the status",
                        other.kind()
                    );
                    self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
            };
        };
        slot.heard = now;
        let is_awaited = match &message {
            Message::Inherit(part) => {
                self.checkpoints.as_ref().is_some_and(|it| it.awaits(worker, part.header.version))
            }
            Message::Packet(packet) => self.awaits(worker, &packet.header),
            Message::Relayed(relayed) => self.is_relayed(worker, relayed),
            _ => false,
        };
        let slot = &mut self.slots[worker];
        if !is_awaited && slot.idle.is_flood(now, self.job.membership.lease, &message) {
            return self.refuse(now, peer, Refusal::Flooding, out);
        }
        match message {
            Message::Heartbeat(_) => {
                let incarnation = Some(slot.incarnation);
                out.push(Effect::Send(peer, Message::Heartbeat(Heartbeat::of(incarnation))));
            }
            Message::Reachable(Reachable { address })
                if address.is_empty() || is_address(&address) =>
            {
                slot.address = address;
            }
            Message::Ready(ready) => self.on_ready(now, peer, worker, &ready, out),
            Message::Reduced(reduced) => self.on_reduced(now, worker, reduced, out),
            Message::Halted(halted) => self.on_halted(now, worker, halted, out),
            Message::Rested(rested) => self.on_rested(worker, rested, out),
            Message::Snapshot(snapshot) => self.on_snapshot(now, peer, worker, snapshot, out),
            Message::EvaluationAnswer(answer) => {
                self.on_evaluation_answer(now, peer, worker, answer, out);
            }
            Message::Inherit(part) => {
                if let Err(what) = self.on_state(worker, &part, out) {
                    return self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
            }
            Message::Packet(packet) => {
                if let Err(error) = self.on_packet(worker, packet, out) {
                    let what = alloc::format!("{error}");
                    return self.refuse(now, peer, Refusal::Unexpected { what }, out);
                }
            }
            Message::Relayed(relayed) => {
                return self.on_relayed(now, peer, worker, relayed, out);
            }
            Message::Bye(Bye { why, .. }) => {
                slot.why_left = why.as_deref().map(as_reason);
                self.slots.detach(worker);
                out.push(Effect::Close(peer));
                self.depart(now, worker, Departure::Left, out);
            }
            Message::Refused(_) => out.push(Effect::Close(peer)),
            other => {
                let what = alloc::format!("a {:?} message of a worker", other.kind());
                self.refuse(now, peer, Refusal::Unexpected { what }, out);
            }
        }
        self.settle(now, out);
    }

    fn on_ready(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        ready: &Ready,
        out: &mut Outbox,
    ) {
        let checked = check_fingerprint(&self.job, ready, true);
        let rows = match checked.and_then(|()| check_parts(&self.job, worker, ready)) {
            Ok(rows) => self.job.own_rows(&rows),
            Err(difference) => return self.refuse(now, peer, Refusal::Data { difference }, out),
        };
        let slot = &mut self.slots[worker];
        if slot.presence != Presence::Preparing {
            return; // repeated after a reconnect
        }
        slot.rows = rows;
        self.slots.set_presence(worker, Presence::Ready, now);
        out.push(Effect::Report(Event::Ready { worker, rows }));
        match self.lifecycle.phase() {
            Phase::Gathering => self.send_state(worker, peer, out),
            Phase::Training if self.stop.is_none() => {
                self.halt_for(now, worker, alloc::format!("worker {worker} joins"), out);
            }
            Phase::Training | Phase::Draining | Phase::Ending => {}
        }
    }

    /// Records that a worker is gone, and goes on as the job says.
    fn depart(&mut self, now: Time, worker: WorkerId, how: Departure, out: &mut Outbox) {
        let presence = match how {
            Departure::Left => Presence::Left,
            Departure::Refused => Presence::Refused,
            _ => Presence::Lost,
        };
        self.slots.set_presence(worker, presence, now);
        let why = self.slots[worker].why_left.clone();
        self.evaluations.by_workers.left(worker);
        if self.job.architecture.is_gossip() {
            self.models.forget(worker);
        }
        out.extend(self.slots.detach(worker).map(Effect::Close));
        out.push(Effect::Report(Event::Departed { worker, how, lost: 0, why }));
        if self.lifecycle.phase() != Phase::Training {
            return; // there is no group to halt
        }
        if self.is_saving_last() {
            // The run can only not be extended.
            return self.end(now, EndReason::BudgetReached, out);
        }
        if self.stop.is_some() {
            self.halt_without(now, worker, alloc::format!("worker {worker} is gone"), out);
            self.halt_once_saved(now, out);
            return self.stop_without(now, worker, out);
        }
        let (present, needed) = (self.slots.ready(), self.job.membership.needed_to_run());
        match self.job.membership.on_loss {
            OnLoss::Stop if how != Departure::Replaced => {
                self.end(now, EndReason::WorkerLost(worker, how), out)
            }
            _ if present < needed => {
                let latest = self.lockstep.version();
                let is_kept = self.snapshot.0.version >= latest;
                let reason = match is_kept || self.has_parameters() {
                    true => EndReason::TooFewWorkers { present, needed },
                    false => EndReason::ParametersLost(latest),
                };
                self.end(now, reason, out);
            }
            _ => self.halt_without(now, worker, alloc::format!("worker {worker} is gone"), out),
        }
    }

    /// Takes every step that is possible now.
    fn settle(&mut self, now: Time, out: &mut Outbox) {
        self.settle_doubt(now, out);
        self.see_to_initial(out);
        self.see_to_evaluations(now, out);
        let needed = self.job.membership.needed_to_start();
        // A worker that joins later halts the group: the start waits while one loads its data.
        let is_complete = self.slots.ready() >= needed && !self.slots.is_any_preparing();
        let may_begin = is_complete && self.initial.is_known();
        if self.lifecycle.phase() == Phase::Gathering && may_begin {
            self.lifecycle.train(now);
            self.begin(now, out);
        }
        let is_asynchronous = self.job.architecture.is_asynchronous();
        let is_last = match is_asynchronous {
            true => self.pace.has_ended(),
            false => self.snapshot.0.version == self.lockstep.version(),
        };
        let is_evaluated = self.evaluations.requested.is_empty();
        if self.lifecycle.phase() == Phase::Training && is_last && is_evaluated {
            if self.lockstep.is_over() && self.has_last_states(now, out) {
                self.end(now, EndReason::BudgetReached, out);
            } else if is_asynchronous && self.ends_on_request() {
                self.end(now, EndReason::Stopped, out);
            }
        }
        let has_stopped = self.stop.as_ref().is_some_and(Stop::is_evaluating) && is_evaluated;
        if has_stopped || self.stops_at().is_some_and(|at| now >= at) {
            self.end(now, EndReason::Stopped, out);
        }
        let has_left = !self.slots.is_any_alive();
        let is_late = now >= self.lifecycle.since + self.job.membership.lease;
        if let Some(reason) = self.lifecycle.end().filter(|_| has_left || is_late)
            && !self.lifecycle.is_done()
        {
            self.lifecycle.finish();
            out.push(Effect::Done(Ok(reason)));
        }
    }

    /// The workers are here: the run begins, or goes on from a checkpoint.
    fn begin(&mut self, now: Time, out: &mut Outbox) {
        if self.resumes() {
            return self.form(now, Some("the run goes on from a checkpoint".into()), out);
        }
        out.push(Effect::Report(Event::Started { workers: self.slots.ready() }));
        self.form(now, None, out);
        if self.job.architecture.is_gossip() {
            self.distances.insert(Version(0), 0.0);
        }
        let (point, parameters) = self.snapshot.clone();
        self.evaluations.request(super::Evaluate { point, parameters }, out);
    }

    fn end(&mut self, now: Time, reason: EndReason, out: &mut Outbox) {
        if self.lifecycle.phase() == Phase::Ending {
            return;
        }
        self.lifecycle.end_with(reason, now);
        self.dissolve();
        out.push(Effect::Report(Event::Ended { reason }));
        let peers = self.slots.iter().filter_map(|(_, slot)| slot.peer);
        out.extend(peers.map(|peer| Effect::Send(peer, Message::End(End { reason }))));
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.job.membership.lease;
        let late = self.strangers.iter().filter(|(_, (since, _))| now >= *since + lease);
        for peer in late.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.strangers.remove(&peer);
            out.push(Effect::Close(peer));
        }
        for worker in self.slots.expired(now, lease) {
            self.depart(now, worker, Departure::Lost, out);
        }
        self.form_if_halted(now, out);
        let (present, needed) = (self.slots.ready(), self.job.membership.needed_to_start());
        if self.lifecycle.phase() == Phase::Gathering
            && now >= self.lifecycle.since + self.job.membership.start_patience()
        {
            self.end(now, EndReason::TooFewWorkers { present, needed }, out);
        }
        self.settle(now, out);
    }
}

impl Node for Meeting {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.lifecycle.is_done() && !matches!(input, Input::Extend(_)) {
            return;
        }
        match input {
            Input::Connected(peer, identity) if self.strangers.len() < MOST_STRANGERS => {
                self.strangers.insert(peer, (now, identity));
                out.push(Effect::Limit(peer, Limits::UNAUTHENTICATED));
            }
            Input::Connected(peer, _) => out.push(Effect::Close(peer)),
            Input::Message(peer, message) => self.on_message(now, peer, message, out),
            Input::Receiving(peer) => {
                if let Some((_, slot)) = self.slots.of_peer(peer) {
                    slot.heard = now;
                }
            }
            Input::Disconnected { peer, why } => self.cut_off(peer, why, out),
            Input::Garbage(peer, error) => self.on_garbage(now, peer, error, out),
            Input::Evaluated(evaluated) => self.on_evaluated(now, evaluated, out),
            Input::Unevaluated { version, why } => self.on_unevaluated(now, version, why, out),
            Input::Drain => {
                self.stop(now, out);
                self.settle(now, out);
            }
            Input::Overslept => {
                self.slots.iter_mut().for_each(|slot| slot.heard = now);
                self.strangers.values_mut().for_each(|(since, _)| *since = now);
                self.evaluations.by_workers.renew(now);
                if self.lifecycle.phase() == Phase::Gathering {
                    self.lifecycle.since = now;
                }
            }
            Input::Initial(Message::RangePart(part)) => {
                self.on_given(&part, out);
                self.settle(now, out);
            }
            Input::Checkpoint(number) => self.on_checkpoint(number, out),
            Input::Written(number) => self.on_written(now, number, out),
            Input::Extend(epochs) => self.extend(now, epochs, out),
            Input::Wake => self.on_wake(now, out),
            // Inputs of other roles.
            Input::Start
            | Input::Dialled(..)
            | Input::DialFailed { .. }
            | Input::Prepared(_)
            | Input::ComputedRange(_)
            | Input::Computed(_)
            | Input::ComputeFailed(_)
            | Input::EvaluatedHere(..)
            | Input::Initial(_)
            | Input::WorkersDown => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.lifecycle.is_done() {
            return None;
        }
        let lease = self.job.membership.lease;
        let strangers = self.strangers.values().map(|(since, _)| *since + lease);
        let phase = match self.lifecycle.phase() {
            Phase::Gathering => Some(self.lifecycle.since + self.job.membership.start_patience()),
            Phase::Ending => Some(self.lifecycle.since + lease),
            Phase::Training | Phase::Draining => None,
        };
        let (leases, stops) = (self.slots.lease_check(), self.stops_at());
        let own =
            [phase, leases, self.forms_at(), stops, self.last_states_due(), self.evaluation_due()];
        strangers.chain(own.into_iter().flatten()).min()
    }

    fn outlook(&self, now: Time) -> Option<pstrain_wire::Status> {
        Some(self.status(now))
    }
}
