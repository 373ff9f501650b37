//! The group of workers that train together: how it is formed, halted and formed again.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::Meeting;
use super::checkpoints::Checkpoints;
use super::detours::{Detours, Pair};
use super::members::Presence;
use crate::node::{Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::Scheme;
use pstrain_policy::lockstep;
use pstrain_wire::peers::{Complaint, Halt, Halted, RankOf, Ranks, Route};
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Phase};

/// Most edges, and most routes, that a reason names.
const MOST_NAMED: usize = 8;

/// The group.
#[derive(Debug, Default)]
pub(super) struct Group {
    ranks: Ranks,
    /// Its members that are not gone. A worker that comes back is a member of the next group.
    present: BTreeSet<WorkerId>,
    state: State,
    /// When it was formed.
    formed: Time,
    /// The version of the last two groups, if it is the same, and since when: no update was made
    /// between them.
    stuck: Option<(Version, Time)>,
    /// Complaints of members about others since it was formed.
    complaints: Vec<(WorkerId, Complaint)>,
    pub(super) detours: Detours,
    /// The member that was looked at last for one that has not made the next update.
    looked_at: WorkerId,
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

    /// Number of its members that are not gone.
    pub(super) fn len(&self) -> usize {
        self.present.len()
    }

    /// True if a member that is not gone is behind. One that still is when it is asked again is
    /// found at once: a report of another costs little.
    pub(super) fn any(&mut self, is_behind: impl Fn(WorkerId) -> bool) -> bool {
        let from = self.looked_at;
        let all = self.present.range(from..).chain(self.present.range(..from));
        let found = all.copied().find(|worker| is_behind(*worker));
        self.looked_at = found.unwrap_or(from);
        found.is_some()
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
        self.ranks.members.iter().map(|member| member.worker)
    }

    /// Names the members that the next group does not have.
    fn left_out(&self, next: &[RankOf]) -> String {
        let is_left = |worker: &WorkerId| next.iter().all(|member| member.worker != *worker);
        let left: Vec<String> =
            self.ranked().filter(is_left).map(|worker| alloc::format!("{worker}")).collect();
        match left.len() {
            0 => String::new(),
            1 => alloc::format!("without worker {}: ", left.join(", ")),
            _ => alloc::format!("without workers {}: ", left.join(", ")),
        }
    }

    /// True if groups make no update. `latest` is the version of the run.
    fn is_stuck(&self, latest: Version) -> bool {
        self.stuck.is_some() && latest <= self.ranks.version
    }

    /// The rank of a member that is not gone, in the group with this number while it trains.
    pub(super) fn rank(&self, worker: WorkerId, generation: u64) -> Option<Rank> {
        let trains = self.is_training() && self.ranks.generation == generation && self.has(worker);
        self.place(worker).filter(|_| trains)
    }

    /// The number of the group.
    pub(super) const fn generation(&mut self) -> &mut u64 {
        &mut self.ranks.generation
    }

    /// Notes complaints of a member about other members. It repeats them after a reconnect.
    fn complain(&mut self, by: WorkerId, complaints: Vec<Complaint>) {
        self.complaints.retain(|(worker, _)| *worker != by);
        let of_members = complaints.into_iter().filter(|it| self.present.contains(&it.about));
        self.complaints.extend(of_members.map(|complaint| (by, complaint)));
    }

    /// Tells which routes messages take instead of the usual one.
    fn rerouted(&self, pairs: &[Pair]) -> String {
        let of_members =
            |(from, to): &Pair| Some((*from, *to, self.place(*from)?, self.place(*to)?));
        let told = pairs.iter().filter_map(of_members).take(MOST_NAMED);
        told.map(|(from, to, own, other)| match self.ranks.route(own, other) {
            Route::Relayed => alloc::format!(
                "; worker {from} does not reach worker {to}: their messages go by way of the \
                 meeting point"
            ),
            _ => alloc::format!("; worker {from} does not reach worker {to}, which dials it"),
        })
        .collect()
    }

    /// True if messages of two members, by their ranks, go by way of the meeting point.
    pub(super) fn relays(&self, own: Rank, other: Rank) -> bool {
        self.ranks.route(own, other) == Route::Relayed
    }

    /// True if messages of a member and another one go by way of the meeting point.
    pub(super) fn relays_any(&self, worker: WorkerId) -> bool {
        let own = self.place(worker).filter(|_| self.has(worker));
        let others = || (0..).zip(&self.ranks.members).map(|(other, _)| other);
        own.is_some_and(|own| others().any(|other| other != own && self.relays(own, other)))
    }

    /// The members whose messages with `worker` go by way of the meeting point, among its
    /// `neighbors`.
    pub(super) fn relayed(&self, worker: WorkerId, neighbors: &[Rank]) -> Vec<WorkerId> {
        let Some(own) = self.place(worker) else { return Vec::new() };
        let relayed = neighbors.iter().filter(|other| self.relays(own, **other));
        relayed.filter_map(|rank| Some(self.ranks.members.get(*rank as usize)?.worker)).collect()
    }

    /// The rank of a worker.
    fn place(&self, worker: WorkerId) -> Option<Rank> {
        // The group is formed in the order of the workers.
        let place = self.ranks.members.binary_search_by_key(&worker, |member| member.worker);
        place.ok().map(|place| place as Rank)
    }

    fn ranks(&self) -> Message {
        Message::Ranks(self.ranks.clone())
    }
}

impl Meeting {
    /// Forms a group of all workers that are ready.
    pub(super) fn form(&mut self, now: Time, why: Option<String>, out: &mut Outbox) {
        if self.stop.is_some() && !self.job.architecture.is_asynchronous() {
            return self.ask_for_last_models(now, out);
        }
        let ready = self.slots.with(Presence::Ready);
        let members: Vec<RankOf> = ready
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
            true if members.iter().all(|member| member.joins) => Version(0),
            true => self.lockstep.version(),
            false => members.iter().map(|member| member.version).max().unwrap_or_default(),
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
        let of_step = |it: &RankOf| lockstep::Member { worker: it.worker, rows: it.rows };
        self.lockstep.set_members(version, members.iter().map(of_step).collect());
        if version == Version(0) {
            // Its members have the initial state of the run. A worker that loads its data joins.
            for member in &members {
                self.slots[member.worker].joins = false;
                let peer = self.slots[member.worker].peer;
                peer.into_iter().for_each(|peer| self.send_initial(peer, out));
            }
        }
        let without = self.group.left_out(&members);
        self.group.formed = now;
        let complaints = core::mem::take(&mut self.group.complaints);
        let rerouted = self.group.detours.note(now, &complaints, self.group.is_stuck(latest));
        let stuck = self.group.stuck.filter(|(stuck, _)| *stuck == version);
        self.group.stuck = why.is_some().then(|| stuck.unwrap_or((version, now)));
        self.group.present = members.iter().map(|member| member.worker).collect();
        let (generation, unreached) =
            (self.group.ranks.generation + 1, self.group.detours.among(&members));
        self.group.ranks = Ranks { generation, version, members, unreached };
        self.group.state = State::Training;
        self.aggregator = self.new_aggregator();
        self.pace.regroup();
        if let Some(why) = why {
            let why = without + &why + &self.bridged() + &self.group.rerouted(&rerouted);
            let members = self.group.ranks.members.len() as u32;
            out.push(Effect::Report(Event::Regrouped { generation, members, version, why }));
        }
        let message = self.group.ranks();
        let peers = self.group.ranked().filter_map(|worker| self.slots[worker].peer);
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

    /// True if a worker that is present has parameters of the run: one that has joined since they
    /// were last given out has none.
    pub(super) fn has_parameters(&self) -> bool {
        let latest = self.lockstep.version();
        self.slots.with(Presence::Ready).any(|(_, slot)| {
            match self.job.architecture.is_asynchronous() {
                true => !slot.joins,
                false => slot.version >= latest,
            }
        })
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
        let more = bridges.len().saturating_sub(MOST_NAMED);
        let shown = bridges.iter().take(MOST_NAMED);
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
            let generation = self.group.ranks.generation;
            out.push(Effect::Send(peer, Message::Halt(Halt { generation })));
        }
    }

    /// Halts the group because of a worker; the next is formed once all its members have halted.
    pub(super) fn halt_for(&mut self, now: Time, worker: WorkerId, why: String, out: &mut Outbox) {
        if let State::Training = self.group.state
            && let Some((version, since)) = self.group.stuck
            && version >= self.lockstep.version()
            && now >= since + self.job.membership.patience()
        {
            // They reach the meeting point, but not each other.
            return self.end(now, EndReason::Apart(worker), out);
        }
        self.halt(now, why, out);
    }

    /// Halts the group; the next is formed once all its members have halted.
    pub(super) fn halt(&mut self, now: Time, why: String, out: &mut Outbox) {
        if !matches!(self.group.state, State::Training) {
            return; // its members halt already, or there is none
        }
        let generation = self.group.ranks.generation;
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
        Halted { generation, version, complaints, awaits }: Halted,
        out: &mut Outbox,
    ) {
        if generation != self.group.ranks.generation {
            return; // of an earlier group, on its way when the next was formed
        }
        let most = self.most_updates();
        if self.job.architecture.is_asynchronous() {
            self.count(now, worker, version, out);
        } else {
            self.slots[worker].made(version.min(most));
        }
        self.slots[worker].awaits = awaits;
        let (cause, said) = match complaints.first() {
            Some(Complaint { about, why, .. }) => {
                let why = as_reason(why);
                (*about, alloc::format!("worker {worker} halted: worker {about}: {why}"))
            }
            None => (worker, alloc::format!("worker {worker} halted: a member has halted")),
        };
        self.group.complain(worker, complaints);
        self.halt_for(now, cause, said, out);
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
        self.halt_for(now, worker, why, out);
        if let State::Halting(waiting, ..) = &mut self.group.state {
            waiting.remove(&worker);
        }
        self.form_if_halted(now, out);
    }

    /// When a group that has halted is followed by the next, if it has: groups that make no update
    /// follow each other after a pause.
    pub(super) fn forms_at(&self) -> Option<Time> {
        let State::Halting(waiting, ..) = &self.group.state else { return None };
        let is_stuck = self.group.is_stuck(self.lockstep.version());
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
