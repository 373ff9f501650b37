//! The status of a run without a server.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::Meeting;
use super::members::{Presence, Slot};
use crate::node::server::Account;
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{Clock, PeerId, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::Scheme;
use pstrain_wire::identity::Identity;
use pstrain_wire::{
    Endpoint, MemberState, MemberStatus, Phase, Refusal, Status, Unreached, Wait, WaitReason,
};

impl Meeting {
    pub(super) fn on_pull_status(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let identity = self.strangers.get(&peer).map_or_else(Identity::default, |(_, it)| *it);
        if let Err(other) = identity.may_control() {
            return self.refuse(now, peer, Refusal::from(other), out);
        }
        let links = self.slots.iter().map(|(_, slot)| slot.peer).collect();
        let status = Box::new(self.status(now));
        out.push(Effect::SendStatus { peer, status, links });
    }

    /// How updates are made, in words.
    const fn rule(&self) -> &'static str {
        let job = self.job.get();
        match (job.architecture.is_asynchronous(), job.membership.partial_after) {
            (true, _) => "each worker averages with one neighbor at each of its updates",
            (false, None) => "each update has a gradient of every worker",
            (false, Some(_)) => {
                "each update has the gradients that are there in time; a late one is of a later \
                 update"
            }
        }
    }

    pub(super) fn status(&self, now: Time) -> Status {
        let (point, wait) = (self.point(), self.wait(now));
        let awaited = wait.as_ref().map_or(&[][..], |wait| &wait.workers);
        let members = self.slots.iter().map(|(id, slot)| self.member(now, id, slot, awaited));
        Status {
            job: self.job.name.clone(),
            consistency: match (self.job.mode.in_flight, self.job.membership.partial_after) {
                (_, Some(after)) => {
                    alloc::format!("{}, partial after {after:?}", self.job.architecture)
                }
                (Some(in_flight), None) => {
                    alloc::format!("{}, {in_flight} in flight", self.job.architecture)
                }
                (None, None) => self.job.architecture.to_string(),
            },
            rule: self.rule().into(),
            lease: self.job.membership.lease,
            data_from: self.job.data.from,
            recipe: self.job.data.recipe.clone(),
            scenario: self.job.scenario.clone(),
            ordered: None,
            phase: match self.stops_at() {
                Some(_) => Phase::Draining,
                None => self.lifecycle.phase(),
            },
            uptime: now.since(Time::ZERO),
            version: point.version,
            samples: point.samples,
            samples_wanted: self.lockstep.samples_wanted(),
            epoch: point.epoch,
            loss: self.loss(),
            evaluated: self.evaluations.latest.clone(),
            history: self.evaluations.history.clone(),
            members: members.collect(),
            wait,
            standby: None,
            leader: None,
            servers: Vec::new(),
            refused: Vec::new(),
            processor_wait: None,
        }
    }

    /// Mean loss of the last mini-batches of all workers.
    pub(super) fn loss(&self) -> Option<f64> {
        Account::loss_of(self.slots.iter().map(|(_, slot)| &slot.account))
    }

    fn member(
        &self,
        now: Time,
        worker: WorkerId,
        slot: &Slot,
        awaited: &[WorkerId],
    ) -> MemberStatus {
        let batch = self.lockstep.batch(worker);
        let is_member = self.group.has(worker);
        let is_together = is_member && !self.job.architecture.is_asynchronous();
        MemberStatus {
            worker,
            name: slot.name.clone(),
            state: match slot.presence {
                Presence::Awaited => MemberState::Awaited,
                Presence::Lost => MemberState::Lost,
                Presence::Left => MemberState::Left,
                Presence::Refused => MemberState::Refused,
                _ if slot.peer.is_none() => MemberState::CutOff,
                Presence::Preparing => MemberState::Preparing,
                // No member ends an update without the awaited ones.
                Presence::Ready if is_member && awaited.is_empty() => MemberState::Computing,
                Presence::Ready if awaited.contains(&worker) => MemberState::Computing,
                Presence::Ready => MemberState::Waiting,
            },
            // A member begins its next gradient with each update, of all or of its own.
            since: now.since(if is_together {
                slot.since.max(self.clock.last())
            } else {
                slot.since
            }),
            silent: now.since(slot.heard),
            clock: Clock(batch.0),
            batch,
            updates: slot.updates,
            pushes: slot.updates,
            dropped: 0,
            called_off: 0,
            staleness: 0,
            recent: slot.account.recent(),
            link: None,
            reassigned: 0,
            why_left: slot.why_left.clone(),
            unreached: self.unreached_by(now, worker),
            relayed: self.relayed_of(worker),
        }
    }

    /// The first member that a worker does not reach, and for how long.
    fn unreached_by(&self, now: Time, worker: WorkerId) -> Option<(Unreached, Duration)> {
        let (to, detour) = self.group.detours.first_of(worker)?;
        let present = self.group.has(worker) && self.group.has(to);
        let address = self.slots.get(to).map_or_else(String::new, |slot| slot.address.clone());
        let why = detour.why.clone();
        let unreached = Unreached { node: Endpoint::Worker(to), address, why };
        present.then(|| (unreached, now.since(detour.since)))
    }

    /// The neighbors of a worker whose messages go by way of the meeting point.
    fn relayed_of(&self, worker: WorkerId) -> Vec<WorkerId> {
        if !self.group.relays_any(worker) {
            return Vec::new();
        }
        let members: Vec<WorkerId> = self.group.ranked().collect();
        let place = members.iter().position(|member| *member == worker);
        let neighbors = Scheme::of(&self.job).zip(place).map(|(scheme, place)| {
            let place = scheme.place(place as Rank, &members, self.parameters as usize);
            place.neighbors()
        });
        self.group.relayed(worker, &neighbors.unwrap_or_default())
    }

    fn wait(&self, now: Time) -> Option<Wait> {
        let mut since = self.lifecycle.since;
        let (reason, workers): (_, Vec<WorkerId>) = match self.lifecycle.phase() {
            Phase::Gathering if self.initial.sender().is_some() => {
                (WaitReason::Initial, self.initial.sender().into_iter().collect())
            }
            Phase::Gathering => {
                let absent = self.slots.iter().filter(|(_, it)| it.presence != Presence::Ready);
                (WaitReason::Workers, absent.map(|(worker, _)| worker).collect())
            }
            Phase::Ending => {
                let alive = self.slots.iter().filter(|(_, slot)| slot.presence.is_alive());
                (WaitReason::Goodbyes, alive.map(|(worker, _)| worker).collect())
            }
            Phase::Training | Phase::Draining => {
                let Some((members, halting)) = self.group.halting() else {
                    return self.silence(now);
                };
                since = halting;
                (WaitReason::Gradients, members.iter().copied().collect())
            }
        };
        Some(Wait { reason, workers, waited: now.since(since), left: None })
    }

    /// The wait for members that are silent for longer than a living one, until they are lost.
    fn silence(&self, now: Time) -> Option<Wait> {
        let (beat, lease) = (self.job.membership.heartbeat(), self.job.membership.lease);
        let silent: Vec<(WorkerId, Time)> = self
            .slots
            .iter()
            .filter(|(worker, slot)| self.group.has(*worker) && now > slot.heard + beat * 2)
            .map(|(worker, slot)| (worker, slot.heard))
            .collect();
        let heard = || silent.iter().map(|(_, heard)| *heard);
        let (first, last) = (heard().min()?, heard().max()?);
        Some(Wait {
            reason: WaitReason::Gradients,
            workers: silent.iter().map(|(worker, _)| *worker).collect(),
            waited: now.since(first),
            left: Some((last + lease).since(now)),
        })
    }
}
