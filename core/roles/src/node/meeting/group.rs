//! The group of workers that train together: how it is formed, halted and formed again.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::Meeting;
use super::checkpoints::Checkpoints;
use super::members::Presence;
use crate::node::{Departure, Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::Scheme;
use pstrain_policy::lockstep;
use pstrain_wire::peers::{Complaint, Connection, Halt, Halted, RankOf, Ranks};
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Phase};

/// Most edges that a reason names.
const MOST_BRIDGES: usize = 8;

/// The group.
#[derive(Debug, Default)]
pub(super) struct Group {
    generation: u64,
    ranks: Vec<RankOf>,
    /// Its members that are not gone. A worker that comes back is a member of the next group.
    present: BTreeSet<WorkerId>,
    version: Version,
    state: State,
    /// When it was formed.
    formed: Time,
    /// The version of the last two groups, if it is the same, and since when: no update was made
    /// between them.
    stuck: Option<(Version, Time)>,
    /// Why the last group halted, if a member did not reach another one.
    unreached: Option<Unreached>,
}

/// A member that did not reach another one.
#[derive(Debug)]
pub(super) struct Unreached {
    pub(super) from: WorkerId,
    pub(super) to: WorkerId,
    pub(super) why: String,
    /// Since the first group that halted for this reason was formed.
    pub(super) since: Time,
}

#[derive(Debug, Default)]
enum State {
    /// There is none yet, or no more.
    #[default]
    None,
    Training,
    /// Members that have not halted yet, why they must, and since when.
    Halting(BTreeSet<WorkerId>, String, Time),
}

impl Group {
    /// True if the worker is a member, and not gone.
    pub(super) fn has(&self, worker: WorkerId) -> bool {
        self.present.contains(&worker)
    }

    /// Its members that are not gone.
    pub(super) fn members(&self) -> impl Iterator<Item = WorkerId> {
        self.present.iter().copied()
    }

    /// The members that are awaited to halt, and since when.
    pub(super) fn halting(&self) -> Option<(&BTreeSet<WorkerId>, Time)> {
        match &self.state {
            State::Halting(waiting, _, since) => Some((waiting, *since)),
            State::None | State::Training => None,
        }
    }

    /// True if its members make updates.
    pub(super) const fn is_training(&self) -> bool {
        matches!(self.state, State::Training)
    }

    /// Its members in the order of their ranks.
    pub(super) fn ranked(&self) -> impl Iterator<Item = WorkerId> {
        self.ranks.iter().map(|member| member.worker)
    }

    /// The member that does not reach another one, if groups make no update for that reason, and
    /// since when they make none. `latest` is the version of the run.
    pub(super) fn unreached(&self, latest: Version) -> Option<(&Unreached, Time)> {
        let (_, since) = self.stuck.filter(|_| latest <= self.version)?;
        Some((self.unreached.as_ref()?, since))
    }

    /// The rank of a member that is not gone, in the group with this number while it trains.
    pub(super) fn rank(&self, worker: WorkerId, generation: u64) -> Option<Rank> {
        let trains = self.is_training() && self.generation == generation && self.has(worker);
        let place = self.ranked().position(|member| member == worker)?;
        trains.then_some(place as Rank)
    }

    /// The number of the group.
    pub(super) const fn generation(&mut self) -> &mut u64 {
        &mut self.generation
    }

    fn ranks(&self) -> Message {
        let (generation, version, members) = (self.generation, self.version, self.ranks.clone());
        Message::Ranks(Ranks { generation, version, members })
    }
}

impl Meeting {
    /// Forms a group of all workers that are ready.
    pub(super) fn form(&mut self, now: Time, why: Option<String>, out: &mut Outbox) {
        if self.stop.is_some() && !self.job.architecture.is_asynchronous() {
            return self.ask_for_last_models(now, out);
        }
        let ready = self.slots.with(Presence::Ready);
        let ranks: Vec<RankOf> = ready
            .map(|(worker, slot)| RankOf {
                worker,
                address: slot.address.clone(),
                rows: slot.rows,
                version: slot.version,
                joins: slot.joins,
                awaits: slot.awaits,
            })
            .collect();
        let is_asynchronous = self.job.architecture.is_asynchronous();
        let version = match is_asynchronous {
            // Each member has its own.
            true if ranks.iter().all(|member| member.joins) => Version(0),
            true => self.lockstep.version(),
            false => ranks.iter().map(|member| member.version).max().unwrap_or_default(),
        };
        // Members that are gone are waited for no more.
        self.catch_up(now, out);
        if self.lifecycle.phase() != Phase::Training {
            return;
        }
        let latest = self.lockstep.version();
        if version < latest {
            // Workers that have joined since do not have the parameters.
            return self.end(now, EndReason::ParametersLost(latest), out);
        }
        // A member that is gone may have made an update that no other has.
        self.models.go_back_to(version);
        let members = ranks.iter();
        let members = members.map(|it| lockstep::Member { worker: it.worker, rows: it.rows });
        self.lockstep.set_members(version, members.collect());
        if version == Version(0) {
            // Its members have the initial state of the run. A worker that loads its data joins.
            for member in &ranks {
                self.slots[member.worker].joins = false;
            }
        }
        self.group.generation += 1;
        self.group.formed = now;
        let stuck = self.group.stuck.filter(|(stuck, _)| *stuck == version);
        self.group.stuck = why.is_some().then(|| stuck.unwrap_or((version, now)));
        self.group.present = ranks.iter().map(|member| member.worker).collect();
        let present = &self.group.present;
        let are_here = |it: &Unreached| present.contains(&it.from) && present.contains(&it.to);
        if version > self.group.version || !self.group.unreached.as_ref().is_some_and(are_here) {
            self.group.unreached = None;
        }
        (self.group.ranks, self.group.version) = (ranks, version);
        self.group.state = State::Training;
        self.aggregator = self.new_aggregator();
        self.pace.regroup();
        if let Some(why) = why {
            let why = why + &self.bridged();
            let (generation, members) = (self.group.generation, self.group.ranks.len() as u32);
            out.push(Effect::Report(Event::Regrouped { generation, members, version, why }));
        }
        let message = self.group.ranks();
        let peers = self.group.ranks.iter().filter_map(|it| self.slots[it.worker].peer);
        out.extend(peers.map(|peer| Effect::Send(peer, message.clone())));
        if is_asynchronous {
            for worker in self.group.members().collect::<Vec<_>>() {
                // An allowance may have been lost with a connection meanwhile.
                let slot = &mut self.slots[worker];
                slot.allowed = slot.version;
                self.allow(worker, out);
            }
            return self.request(out);
        }
        self.ask_for_states(out);
    }

    /// Names edges that the graph of the job does not have, and the group cannot do without.
    fn bridged(&self) -> String {
        let Some(Scheme::Gossip(graph) | Scheme::Pairwise(graph)) = Scheme::of(&self.job) else {
            return String::new();
        };
        let members: Vec<WorkerId> = self.group.ranked().collect();
        let bridges = graph.bridges(&members);
        if bridges.is_empty() {
            return String::new();
        }
        let more = bridges.len().saturating_sub(MOST_BRIDGES);
        let shown = bridges.iter().take(MOST_BRIDGES);
        let shown: Vec<String> =
            shown.map(|(one, other)| alloc::format!("{one} and {other}")).collect();
        let more = if more > 0 { alloc::format!(" and {more} more") } else { String::new() };
        alloc::format!(
            "; the graph falls apart without the workers that are gone: neighbors now are {}{more}",
            shown.join(", ")
        )
    }

    /// Tells a worker that has resumed its membership what it may have missed.
    pub(super) fn tell_group(&self, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        if !self.group.has(worker) {
            return;
        }
        out.push(Effect::Send(peer, self.group.ranks()));
        if let State::Halting(waiting, ..) = &self.group.state
            && waiting.contains(&worker)
        {
            let generation = self.group.generation;
            out.push(Effect::Send(peer, Message::Halt(Halt { generation })));
        }
    }

    /// Halts the group; the next is formed once all its members have halted.
    pub(super) fn halt(&mut self, now: Time, why: String, out: &mut Outbox) {
        if !matches!(self.group.state, State::Training) {
            return; // its members halt already, or there is none
        }
        if let Some((version, since)) = self.group.stuck
            && version >= self.lockstep.version()
            && now >= since + self.job.membership.patience()
            && let Some(first) = self.group.ranks.first()
        {
            // They reach the meeting point, but not each other.
            let reason = match self.group.unreached {
                Some(Unreached { from, to, .. }) => EndReason::Unreached { from, to },
                None => EndReason::WorkerLost(first.worker, Departure::Lost),
            };
            return self.end(now, reason, out);
        }
        let generation = self.group.generation;
        let waiting = self.group.present.clone();
        let peers = waiting.iter().filter_map(|worker| self.slots[*worker].peer);
        out.extend(peers.map(|peer| Effect::Send(peer, Message::Halt(Halt { generation }))));
        self.group.state = State::Halting(waiting, why, now);
        self.checkpoints.iter_mut().for_each(Checkpoints::halted);
        self.form_if_halted(now, out);
    }

    /// A member has halted.
    pub(super) fn on_halted(
        &mut self,
        now: Time,
        worker: WorkerId,
        Halted { generation, version, why, awaits }: Halted,
        out: &mut Outbox,
    ) {
        if generation != self.group.generation {
            return; // of an earlier group, on its way when the next was formed
        }
        let most = self.most_updates();
        if self.job.architecture.is_asynchronous() {
            self.count(now, worker, version, out);
        } else {
            self.slots[worker].made(version.min(most));
        }
        self.slots[worker].awaits = awaits;
        let said = match why {
            Some(Complaint { about, connection, why }) => {
                let why = as_reason(&why);
                let said = alloc::format!("worker {worker} halted: worker {about}: {why}");
                let known = self.group.unreached.as_ref();
                let since = known.map_or(self.group.formed, |it| it.since);
                match connection {
                    Connection::Made => {}
                    Connection::Outgoing => {
                        let (from, to) = (worker, about);
                        self.group.unreached = Some(Unreached { from, to, why, since });
                    }
                    // The member that dials knows more.
                    Connection::Incoming if known.is_some() => {}
                    Connection::Incoming => {
                        let (from, to) = (about, worker);
                        let why = String::from("it has not connected");
                        self.group.unreached = Some(Unreached { from, to, why, since });
                    }
                }
                said
            }
            None => alloc::format!("worker {worker} halted: a member has halted"),
        };
        self.halt(now, said, out);
        if let State::Halting(waiting, ..) = &mut self.group.state {
            waiting.remove(&worker);
        }
        self.form_if_halted(now, out);
    }

    /// A member is gone.
    pub(super) fn halt_without(
        &mut self,
        now: Time,
        worker: WorkerId,
        why: String,
        out: &mut Outbox,
    ) {
        if !self.group.present.remove(&worker) {
            return; // it had not joined the group yet
        }
        self.halt(now, why, out);
        if let State::Halting(waiting, ..) = &mut self.group.state {
            waiting.remove(&worker);
        }
        self.form_if_halted(now, out);
    }

    /// When a group that has halted is followed by the next, if it has: groups that make no update
    /// follow each other after a pause.
    pub(super) fn forms_at(&self) -> Option<Time> {
        let State::Halting(waiting, ..) = &self.group.state else { return None };
        let is_stuck = self.group.stuck.is_some() && self.lockstep.version() <= self.group.version;
        let pause = if is_stuck { self.job.membership.heartbeat() } else { Duration::ZERO };
        waiting.is_empty().then(|| self.group.formed + pause)
    }

    pub(super) fn form_if_halted(&mut self, now: Time, out: &mut Outbox) {
        if self.forms_at().is_some_and(|at| now >= at)
            && let State::Halting(_, why, _) = &mut self.group.state
        {
            let why = core::mem::take(why);
            self.form(now, Some(why), out);
        }
    }

    /// The run has ended: there is no group any more.
    pub(super) fn dissolve(&mut self) {
        self.group.state = State::None;
    }
}
