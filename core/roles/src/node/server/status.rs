//! The status of the job: what it waits for, for which workers or server, and since when.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::Server;
use super::roster::{Presence, Slot};
use crate::node::{Departure, Effect};
use pstrain_compute::id::PeerId;
use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_policy::mode::Mode;
use pstrain_wire::holders;
use pstrain_wire::{
    Endpoint, MemberState, MemberStatus, Phase, Status, Unreached, Wait, WaitReason,
};

impl Server {
    /// Returns the status of the job.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let members = self.members.roster.iter().map(|(worker, slot)| MemberStatus {
            worker,
            name: slot.name.clone(),
            state: self.state_of(worker, slot),
            since: now.since(slot.since),
            silent: now.since(slot.heard),
            clock: self.rounds.cohort.clock(worker).unwrap_or(slot.clock),
            batch: slot
                .pushes
                .grants
                .front()
                .map_or_else(|| slot.batches.first(), |grant| grant.task.batch),
            updates: slot.updates,
            pushes: slot.account.pushes,
            dropped: slot.account.dropped,
            called_off: slot.account.called_off,
            staleness: slot.account.staleness,
            recent: slot.account.recent(),
            link: None,
            why_left: slot.why_left.clone(),
            unreached: slot
                .unreached
                .as_ref()
                .filter(|_| slot.presence.is_alive())
                .map(|(unreached, since)| (self.unreached(unreached), now.since(*since))),
            relayed: Vec::new(),
            reassigned: self
                .rounds
                .assigner
                .as_ref()
                .map_or(0, |assigner| assigner.reassigned(worker)),
        });
        Status {
            job: self.job.name.clone(),
            consistency: self.mode_in_words(),
            rule: self.modes.current.consistency.rule().into(),
            lease: self.job.membership.lease,
            data_from: self.job.data.from,
            recipe: self.job.data.recipe.clone(),
            scenario: self.job.scenario.clone(),
            ordered: self.modes.ordered.as_ref().map(|ordered| ordered.mode.to_string()),
            phase: self.lifecycle.phase(),
            uptime: now.since(Time::ZERO),
            version: self.version(),
            samples: self.progress.samples,
            samples_wanted: self.samples_wanted(),
            epoch: self.point().epoch,
            loss: self.members.roster.loss(),
            evaluated: self.evaluations.latest.clone(),
            history: self.evaluations.history.clone(),
            wait: self.wait(now),
            standby: None,
            leader: None,
            servers: self.group.status(now, self.job.servers, self.takes_checkpoints()),
            members: members.collect(),
            refused: Vec::new(),
            processor_wait: None,
        }
    }

    /// Returns the answer to a client's status request.
    pub(super) fn answer_status(&self, now: Time, peer: PeerId) -> Effect {
        let links = self.members.roster.iter().map(|(_, slot)| slot.peer).collect();
        Effect::SendStatus { peer, status: Box::new(self.status(now)), links }
    }

    /// Describes the mode, with a prefix if `auto` has chosen it.
    pub(super) fn mode_in_words(&self) -> String {
        let Some(auto) = &self.modes.auto else { return self.modes.current.to_string() };
        let windows = self.rounds.cohort.workers().map(|worker| auto.window(worker));
        let widest = windows.max().unwrap_or(1);
        let mode = Mode { in_flight: Some(widest), ..self.modes.current };
        alloc::format!("auto: {mode}")
    }

    fn state_of(&self, worker: WorkerId, slot: &Slot) -> MemberState {
        match slot.presence {
            Presence::Awaited => MemberState::Awaited,
            Presence::Gone(Departure::Lost) => MemberState::Lost,
            Presence::Gone(Departure::Refused) => MemberState::Refused,
            Presence::Gone(_) => MemberState::Left,
            _ if slot.peer.is_none() => MemberState::CutOff,
            Presence::Preparing => MemberState::Preparing,
            Presence::Ready if !slot.pushes.grants.is_empty() => MemberState::Computing,
            Presence::Ready if self.members.finished.contains(&worker) => MemberState::Finished,
            Presence::Ready => MemberState::Waiting,
        }
    }

    /// Returns the first change that waits until no gradient is under way, and since when.
    fn pending_change(&self) -> Option<(WaitReason, Time)> {
        let changes = [
            (WaitReason::Fence, self.modes.ordered.as_ref().map(|ordered| ordered.since)),
            (WaitReason::Keys, self.group.changes.since()),
        ];
        changes.into_iter().find_map(|(reason, since)| Some((reason, since?)))
    }

    /// True if a worker holds others back: it owes a gradient and is not waiting itself.
    fn holds_back(&self, worker: WorkerId, slot: &Slot) -> bool {
        let is_gone = slot.presence != Presence::Ready;
        // If no worker waits, the run waits only for departed workers to come back.
        let is_awaited = self.rounds.policy.awaits(&self.rounds.cohort, worker)
            && !self.rounds.waiting.is_empty()
            && !slot.pushes.grants.is_empty();
        self.rounds.cohort.contains(worker)
            && !self.rounds.waiting.contains(worker)
            && (is_gone || is_awaited)
    }

    /// True if all that training needs to begin is the initial parameters.
    fn lacks_initial(&self) -> bool {
        !self.initial.is_known()
            && self.members.roster.ready() >= self.job.membership.needed_to_start()
    }

    /// Another server that a worker does not reach, with its address.
    fn unreached(&self, unreached: &holders::Unreached) -> Unreached {
        let server = self.group.get(unreached.server);
        let address = server.map_or_else(String::new, |server| server.address.clone());
        let (node, why) = (Endpoint::Server(unreached.server), unreached.why.clone());
        Unreached { node, address, why }
    }

    /// The cause that the final result waits for, since when and how long at most.
    fn wait_for_result(&self) -> Option<(WaitReason, Vec<WorkerId>, Time, Option<Duration>)> {
        let ended = self.lifecycle.since;
        if let Some(server) = self.group.first_to_show() {
            return Some((WaitReason::Part(server), Vec::new(), ended, None));
        }
        if !self.lifecycle.holds_end() {
            return None;
        }
        let (evaluator, since) = self.evaluations.by_workers.evaluator();
        let limit = Some(2 * self.job.membership.evaluation_patience());
        let evaluator = evaluator.into_iter().collect();
        Some((WaitReason::Evaluation, evaluator, since.unwrap_or(ended), limit))
    }

    /// The wait of the job, if there is one. The cause of all others comes first.
    fn wait(&self, now: Time) -> Option<Wait> {
        let membership = self.job.membership;
        let which = |wanted: &dyn Fn(WorkerId, &Slot) -> bool| -> Vec<WorkerId> {
            let all = self.members.roster.iter().filter(|(worker, slot)| wanted(*worker, slot));
            all.map(|(worker, _)| worker).collect()
        };
        let wait = |reason, workers, since: Time, limit: Option<Duration>| Wait {
            reason,
            workers,
            waited: now.since(since),
            left: limit.map(|limit| (since + limit).since(now)),
        };
        let absent = |worker: WorkerId, slot: &Slot| {
            slot.presence != Presence::Ready && !self.members.finished.contains(&worker)
        };
        if let Some((server, since)) = self.group.first_away() {
            let limit = Some(self.due_back(since).since(since));
            return Some(wait(WaitReason::Server(server), Vec::new(), since, limit));
        }
        if let Some((server, since)) = self.first_to_answer() {
            return Some(wait(WaitReason::Part(server), Vec::new(), since, None));
        }
        if let Some((unreached, since)) = self.members.roster.first_unreached()
            && self.lifecycle.phase() != Phase::Ending
        {
            let server = unreached.server;
            let those = which(&|_, slot| {
                let theirs = slot.unreached.as_ref().filter(|_| slot.presence.is_alive());
                theirs.is_some_and(|(unreached, _)| unreached.server == server)
            });
            let reason = WaitReason::Unreached(server);
            return Some(wait(reason, those, since, None));
        }
        match self.lifecycle.phase() {
            Phase::Gathering => {
                let limit = Some(membership.start_patience());
                let (reason, workers) = match self.lacks_initial() {
                    true => (WaitReason::Initial, self.initial.sender().into_iter().collect()),
                    false => (WaitReason::Workers, which(&absent)),
                };
                Some(wait(reason, workers, self.lifecycle.since, limit))
            }
            Phase::Ending => {
                if let Some((reason, workers, since, limit)) = self.wait_for_result() {
                    return Some(wait(reason, workers, since, limit));
                }
                let here = which(&|_, slot| slot.presence.is_alive());
                Some(wait(WaitReason::Goodbyes, here, self.lifecycle.since, Some(membership.lease)))
            }
            _ => {
                if let Some(since) = self.members.short_since {
                    let limit = Some(membership.patience());
                    return Some(wait(WaitReason::Workers, which(&absent), since, limit));
                }
                if let Some((reason, since)) = self.pending_change() {
                    let busy = which(&|_, slot| !slot.pushes.grants.is_empty());
                    return Some(wait(reason, busy, since, None));
                }
                if self.rounds.waiting.is_empty() && self.members.awaited_back.is_empty() {
                    return None;
                }
                let members_owing = which(&|worker, slot| self.holds_back(worker, slot));
                let asked = self.rounds.waiting.iter().map(|worker| &self.members.roster[worker]);
                let since = asked.filter_map(|slot| slot.pushes.asked).min();
                let gone = self.members.awaited_back.first().map(|&(since, _)| since);
                let limit = gone.map(|_| membership.patience());
                Some(wait(
                    WaitReason::Gradients,
                    members_owing,
                    gone.or(since).unwrap_or(now),
                    limit,
                ))
            }
        }
    }
}
