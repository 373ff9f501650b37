//! Admits workers: assigns the worker id.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::roster::{Presence, PushState, Slot};
use super::{Server, unexpected};
use crate::node::admission::{check_fingerprint, check_hello, check_parts};
use crate::node::{Departure, Effect, Event, Outbox};
use pstrain_compute::id::{Incarnation, PeerId, Term, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::job::DataFrom;
use pstrain_wire::decision::Decision;
use pstrain_wire::identity::Identity;
use pstrain_wire::name::is_presentable;
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::{Bye, End, Hello, Ready, Resume, Welcome};
use pstrain_wire::{Limits, Message, PROTOCOL_VERSION, Phase, Refusal};

/// The most incarnations of a worker that can be lost with the end of a log: a worker that claims
/// more is not believed.
const MOST_LOST: u64 = 1 << 32;
/// The most rows that a worker alone has: the largest number of a row.
const MOST_LOCAL_ROWS: u64 = u32::MAX as u64;

impl Server {
    /// Removes a connection from the unauthenticated ones: it has said who it is, or it is gone.
    pub(super) fn forget_stranger(&mut self, peer: PeerId) {
        if self.members.identities.remove(&peer).is_some() {
            self.members.unauthenticated.retain(|&(_, stranger)| stranger != peer);
        }
    }

    /// Checks that `message`, a client's request, may come from this peer.
    pub(super) fn check_client(&self, peer: PeerId, message: &Message) -> Result<(), Refusal> {
        match self.members.identities.get(&peer) {
            Some(identity) => Ok(identity.may_control()?),
            None => Err(unexpected("a worker's message", message)),
        }
    }

    /// Checks that this peer may be a server.
    pub(super) fn check_server(&self, peer: PeerId) -> Result<(), Refusal> {
        let is = self.members.identities.get(&peer).copied().unwrap_or_default();
        if is.may_serve() {
            return Ok(());
        }
        Err(Refusal::Identity { is, wanted: Identity::Server })
    }

    pub(super) fn on_hello(&mut self, now: Time, peer: PeerId, hello: Hello, out: &mut Outbox) {
        let name = Some(&hello.name).filter(|name| is_presentable(name));
        let who = name.map(|name| alloc::format!("worker {name}"));
        if let Err(why) = self.take_hello(now, peer, hello, out) {
            self.refuse_as(now, peer, who, why, out);
        }
    }

    fn take_hello(
        &mut self,
        now: Time,
        peer: PeerId,
        mut hello: Hello,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if self.members.roster.worker_of(peer).is_some() {
            return Err(unexpected("a worker's message", &Message::Hello(hello)));
        }
        check_hello(&hello, &self.job)?;
        if let Some(server) = self.group.missing() {
            let why = Refusal::ServersMissing { server, servers: self.job.servers };
            self.refuse_silently(peer, why, out);
            return Ok(());
        }
        let resumed = hello.resume.and_then(|resume| self.resumable(resume));
        let identity = self.members.identities.get(&peer).copied().unwrap_or_default();
        let claimed = identity.claim(resumed.or(hello.worker))?;
        if resumed.is_none() {
            hello.worker = claimed;
        }
        if self.lifecycle.phase() == Phase::Ending && resumed.is_none() {
            return self.dismiss_after_end(now, peer, hello.resume, out);
        }
        let worker = resumed.map_or_else(|| self.choose(&hello, identity), Ok)?;
        if resumed.is_none() {
            self.members.roster[worker].any_id = hello.worker.is_none();
        }
        self.welcome(now, peer, worker, hello, resumed.is_some(), out);
        Ok(())
    }

    /// Answers a Hello after the end of the run. With checkpoints, a worker that was a member
    /// before all servers went back may have missed the end, and is told.
    fn dismiss_after_end(
        &mut self,
        now: Time,
        peer: PeerId,
        was: Option<Resume>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let (Some(was), true) = (was, self.takes_checkpoints()) else {
            return Err(Refusal::Over);
        };
        let is_its = |slot: &Slot| slot.peer.is_none() && was.incarnation >= slot.incarnation;
        let slot = self.members.roster.slot(was.worker).filter(|slot| slot.presence.is_alive());
        if self.tells_end() && slot.is_some_and(is_its) {
            self.depart(now, was.worker, Departure::Left, out);
        }
        self.send_away(peer, out);
        self.settle(now, out);
        Ok(())
    }

    /// Returns the worker whose membership `resume` continues, if that is still possible.
    fn resumable(&self, resume: Resume) -> Option<WorkerId> {
        let slot = self.members.roster.slot(resume.worker)?;
        let alive = slot.presence.is_alive() && slot.incarnation == resume.incarnation;
        let goes_on = resume.run == self.run && alive && slot.pushes.has_all_of(&resume);
        goes_on.then_some(resume.worker)
    }

    /// True if a worker knows more about this run than this server. Workers learn only what has
    /// been logged, so this server has lost the end of its log.
    fn is_behind(&self, resume: &Resume) -> bool {
        let slot = self.members.roster.slot(resume.worker).filter(|_| resume.run == self.run);
        slot.is_some_and(|slot| match resume.incarnation.cmp(&slot.incarnation) {
            Ordering::Less => false,
            Ordering::Equal => slot.presence.is_alive() && !slot.pushes.has_all_of(resume),
            Ordering::Greater => resume.incarnation.0 - slot.incarnation.0 <= MOST_LOST,
        })
    }

    /// Chooses the worker slot for a newcomer.
    fn choose(&self, hello: &Hello, identity: Identity) -> Result<WorkerId, Refusal> {
        let workers = self.job.membership.workers;
        // A worker that was away for too long gets its own partition back, if the slot is free.
        let back = hello.resume.map(|resume| resume.worker);
        // Its slot is still its own if it held it in a lineage of this run that was lost.
        let is_its = |slot: &Slot| {
            slot.peer.is_none() && hello.resume.is_some_and(|r| r.incarnation >= slot.incarnation)
        };
        let free = |worker: &WorkerId| {
            let slot = self.members.roster.slot(*worker);
            slot.is_some_and(|slot| !slot.presence.is_alive() || is_its(slot))
        };
        let Some(worker) = hello.worker.or_else(|| back.filter(free)) else {
            return self.members.roster.vacancy().ok_or(Refusal::Full { workers });
        };
        let slot =
            self.members.roster.slot(worker).ok_or(Refusal::UnknownWorker { worker, workers })?;
        // Before the run begins, a worker whose identity allows only this slot displaces one that
        // can take any slot.
        let yields = slot.any_id && self.lifecycle.phase() == Phase::Gathering;
        let may = yields && matches!(identity, Identity::Worker(Some(_)));
        if slot.presence.is_alive() && slot.peer.is_some() && !may {
            return Err(Refusal::WorkerTaken { worker, owner: slot.name.clone() });
        }
        Ok(worker)
    }

    fn welcome(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        hello: Hello,
        resumed: bool,
        out: &mut Outbox,
    ) {
        let was = hello.resume.filter(|was| was.worker == worker && self.is_behind(was));
        if let Some(Resume { incarnation, .. }) = was {
            out.push(Effect::Report(Event::Behind { worker, incarnation }));
        }
        // Comes first, for the order of decisions: `Forget` for the old incarnation, then `Admit`.
        if !resumed && self.members.roster[worker].presence.is_alive() {
            self.depart(now, worker, Departure::Replaced, out);
        }
        self.forget_stranger(peer);
        if let Some(older) = self.members.roster.attach(worker, peer) {
            out.push(Effect::Close(older));
        }
        self.store.reconnected(worker);
        // The worker asks again on this connection. Until then it does not know the size of the
        // parameters, and would reject them as garbage.
        self.rounds.waiting.remove(worker);
        if !resumed {
            self.members.roster.set_presence(worker, Presence::Preparing, now);
        } else if self.members.roster.are_up(now) {
            self.members.lease_check = None;
        }
        let slot = &mut self.members.roster[worker];
        slot.heard = now;
        let before = slot.unreached.take().map(|(_, since)| since);
        slot.unreached = hello.unreached.map(|it| (it, before.unwrap_or(now)));
        let examples_from_server = hello.wants_examples || self.job.data.from == DataFrom::Server;
        slot.has_own_data = !examples_from_server;
        slot.pushes.grants_unconfirmed = true;
        slot.pushes.went_down = false;
        slot.pushes.remapping = false;
        slot.pushes.cut_off();
        if !resumed {
            // An incarnation that the worker had and this server lost must not be issued again.
            let last = was.map_or(slot.incarnation, |was| was.incarnation.max(slot.incarnation));
            slot.incarnation = last.next();
            slot.pushes = PushState::default();
            slot.name.clone_from(&hello.name);
        }
        let incarnation: Incarnation = slot.incarnation;
        if !resumed {
            self.group.tell(|| Decision::Admit { worker, incarnation });
        }
        self.schedule_lease_check(now);
        // A repeated push may be of an earlier key map, under which this server held more keys.
        out.push(Effect::Limit(peer, Limits::of_worker(self.keys.len() as usize)));
        out.push(Effect::Report(Event::Joined { worker, name: hello.name, incarnation, resumed }));
        let (job, digest) = self.job.for_member();
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            run: self.run,
            worker,
            incarnation,
            resumed,
            examples_from_server,
            holders: self.group.table(),
            job,
            digest,
            term: Term(0),
            standby: None,
        };
        out.push(Effect::Send(peer, Message::Welcome(Box::new(welcome))));
        if let Some(reason) = self.lifecycle.end().filter(|_| self.tells_end()) {
            // The worker was disconnected when the others were told.
            out.push(Effect::Send(peer, Message::End(End { reason })));
        }
        self.settle(now, out);
    }

    pub(super) fn on_ready(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        ready: &Ready,
        out: &mut Outbox,
    ) {
        let own = self.members.roster[worker].has_own_data;
        let checked = check_fingerprint(&self.job, ready, own);
        let checked = checked.and_then(|()| check_parts(&self.job, worker, ready));
        let (rows, differs) = match checked {
            Ok(rows) if self.job.data.is_local() => {
                let all = rows.iter().fold(0_u64, |all, &rows| all.saturating_add(rows));
                (rows, self.differs_from_before(worker, all))
            }
            Ok(rows) => (rows, None),
            Err(difference) => (Vec::new(), Some(difference)),
        };
        let difference =
            differs.or_else(|| self.rounds.assigner.as_mut()?.set_rows(worker, &rows).err());
        if let Some(difference) = difference {
            return self.refuse(now, peer, Refusal::Data { difference }, out);
        }
        let slot = &mut self.members.roster[worker];
        if slot.presence != Presence::Preparing {
            return; // repeated after a reconnect
        }
        let rows = self.job.own_rows(&rows);
        slot.rows = rows;
        self.set_rows(worker, rows);
        self.members.roster.set_presence(worker, Presence::Ready, now);
        out.push(Effect::Report(Event::Ready { worker, rows }));
        self.members.awaited_back.retain(|&(_, awaited)| awaited != worker);
        if self.lifecycle.phase() != Phase::Gathering {
            self.enrol(worker);
        }
        self.settle(now, out);
    }

    /// Compares the number of rows that a worker alone has with the number when it joined before:
    /// they are its part of the training split, which stays the same for the whole run.
    fn differs_from_before(&self, worker: WorkerId, rows: u64) -> Option<String> {
        if rows > MOST_LOCAL_ROWS {
            return Some(alloc::format!("{rows} rows, but {MOST_LOCAL_ROWS} at most are allowed"));
        }
        let before = self.members.roster[worker].rows;
        (before != 0 && before != rows).then(|| {
            alloc::format!(
                "{rows} rows where worker {worker} of this run had {before}: give the worker its \
                 own file, or another --id"
            )
        })
    }

    /// Adds a ready worker to the cohort, at once or with the next round.
    pub(super) fn enrol(&mut self, worker: WorkerId) {
        let slot = &self.members.roster[worker];
        if self.members.finished.contains(&worker) || self.rounds.cohort.contains(worker) {
            return; // it has finished its share, or its slot in the cohort was kept
        }
        if self.rounds.policy.in_rounds() {
            // If no round is open, `settle` adds it at once.
            self.members.joining.insert(worker);
        } else {
            let clock = self.entry().unwrap_or(slot.clock);
            self.count(worker, clock);
        }
    }

    pub(super) fn on_bye(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        bye: Bye,
        out: &mut Outbox,
    ) {
        out.push(Effect::Close(peer));
        self.members.roster.detach(peer);
        self.members.roster[worker].why_left = bye.why.as_deref().map(as_reason);
        self.depart(now, worker, Departure::Left, out);
        self.settle(now, out);
    }
}
