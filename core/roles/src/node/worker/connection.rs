//! Connecting and reconnecting to the server: hello, welcome, redial, giving up.

use alloc::boxed::Box;
use alloc::string::String;

use super::early::EarlyValues;
use super::group::Servers;
use super::{Data, Member, NodeError, Standing, Worker};
use crate::node::admission::check_job;
use crate::node::dialler::Unreachable;
use crate::node::evaluating::Evaluating;
use crate::node::{DialFault, Effect, Event, Outbox};
use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_wire::holders::Unreached;
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{EndReason, Hello, Resume, Welcome};
use pstrain_wire::{Limits, Message};

impl Worker {
    pub(super) fn on_dialled(
        &mut self,
        now: Time,
        peer: PeerId,
        identity: Identity,
        out: &mut Outbox,
    ) {
        self.standing = Standing::Stranger;
        self.dialler.connected(now, peer);
        if !identity.may_serve() {
            return self.on_impostor(now, identity, out);
        }
        // A server may send parameters right after the welcome of a worker that it knows. They may
        // arrive in one piece with the welcome, and are judged before that is handled.
        let limits = self
            .member
            .as_ref()
            .map_or(Limits::DIALER, |member| Limits::of_server(member.model_keys.len() as usize));
        out.push(Effect::Limit(peer, limits));
        let hello = Hello {
            resume: self.member.as_ref().map(|member| Resume {
                worker: member.worker,
                incarnation: member.incarnation,
                run: member.run,
                allowed: self.work.allowed(),
                decided: self.work.last_decided(),
            }),
            wants_examples: self.config.wants_examples,
            term: self.allegiance.term(),
            unreached: self.unreached.clone(),
            ..Hello::new(self.config.name.clone(), self.config.worker)
        };
        self.send(now, Message::Hello(hello), out);
    }

    pub(super) fn on_dial_failed(
        &mut self,
        now: Time,
        why: String,
        fault: DialFault,
        out: &mut Outbox,
    ) {
        if self.dialler.release() {
            if self.dialler.peer().is_none() {
                return; // the coordinator is lost, too: reconnect from there
            }
            let Some(server) = self.servers.awaited() else {
                return self.dial_servers(now, out); // no longer in the key map
            };
            if self.member.is_some() {
                return self.come_back_from(now, server, why, out);
            }
        }
        // A worker that was admitted before may be kept out by a temporary fault of another node.
        let is_new = self.member.is_none() && !self.dialler.is_elsewhere();
        match fault {
            DialFault::Permanent if is_new => {
                let Unreachable { attempts, tried, .. } = self.dialler.give_up(now);
                self.finish(Err(NodeError::Unreachable { why, attempts, tried }), out);
            }
            DialFault::Mismatch if is_new => match self.damage.mismatched(why) {
                Ok(why) => self.redial(now, why, out),
                Err(error) => self.finish(Err(error), out),
            },
            _ => self.redial(now, self.dialler.name(why), out),
        }
    }

    /// The peer that answered the dial has proved not to be a server.
    pub(super) fn on_impostor(&mut self, now: Time, identity: Identity, out: &mut Outbox) {
        let why = alloc::format!("who answers there is {identity}, which is no server");
        if self.member.is_some() || self.dialler.is_elsewhere() {
            self.redial(now, why, out);
        } else {
            self.finish(Err(NodeError::Protocol(why)), out);
        }
    }

    /// Disconnects from all servers and dials again after a pause: the server or its standby, in
    /// turn.
    pub(super) fn redial(&mut self, now: Time, why: String, out: &mut Outbox) {
        self.dialler.turn_to(self.allegiance.turn());
        self.come_back(now, why, out);
    }

    /// A message to or from `peer` was damaged in transit: drops the connection.
    pub(super) fn on_damage(
        &mut self,
        now: Time,
        peer: PeerId,
        error: &str,
        may_be_foreign: bool,
        out: &mut Outbox,
    ) {
        let server = self.servers.behind(peer);
        if server.is_none() && self.dialler.peer() != Some(peer) {
            return; // already closed
        }
        match (self.damage.again(error, may_be_foreign), server) {
            (Ok(why), Some(server)) => self.come_back_from(now, server, why, out),
            (Ok(why), None) => self.redial(now, why, out),
            (Err(error), _) => self.finish(Err(error), out),
        }
    }

    /// Disconnects from all servers and reconnects after a pause, or gives up.
    pub(super) fn come_back(&mut self, now: Time, why: String, out: &mut Outbox) {
        self.standing = Standing::Stranger;
        (self.sent_ranges, self.early_values) = (None, EarlyValues::default());
        self.servers.close(out);
        if self.draining {
            return self.finish(Ok(EndReason::Stopped), out);
        }
        if let Err(Unreachable { why, attempts, tried }) =
            self.dialler.redial(now, why, self.lease(), out)
        {
            self.finish(Err(NodeError::Unreachable { why, attempts, tried }), out);
        }
    }

    /// Reconnects as [`Self::come_back`] does, because of a server other than the coordinator; the
    /// next Hello names that server.
    pub(super) fn come_back_from(
        &mut self,
        now: Time,
        server: ServerId,
        why: String,
        out: &mut Outbox,
    ) {
        let address = self.servers.address(server).unwrap_or_default();
        let said = alloc::format!("server {server} at {address}: {why}");
        self.unreached = Some(Unreached::new(server, &why));
        self.come_back(now, said, out);
    }

    pub(super) fn on_welcome(&mut self, now: Time, welcome: Welcome, out: &mut Outbox) {
        let Some(peer) = self.dialler.peer() else { unreachable!("the server is connected") };
        if let Err(error) = check_job(&welcome) {
            return self.finish(Err(error), out);
        }
        let workers = welcome.job.membership.workers;
        if let Some(wanted) = self.wanted.filter(|&wanted| wanted != workers) {
            // Say goodbye, so that the servers do not wait for this worker until its lease expires.
            let error = NodeError::Workers { wanted, workers };
            self.say_goodbye(now, welcome.incarnation, Some(&error), out);
            return self.finish(Err(error), out);
        }
        let architecture = welcome.job.architecture;
        if !architecture.has_server() {
            let cure = "workers reach each other: say with --listen where this one is reached";
            let error = NodeError::Architecture { architecture, cure };
            self.say_goodbye(now, welcome.incarnation, Some(&error), out);
            return self.finish(Err(error), out);
        }
        let model = match welcome.job.build_model() {
            Ok(model) => model,
            Err(error) => {
                let what = alloc::format!("its job has an impossible model: {error}");
                return self.finish(Err(NodeError::Protocol(what)), out);
            }
        };
        let keys = KeyRange::new(0, model.parameters() as u64);
        let servers = Servers::of(welcome.holders, model.parameters());
        let (Ok(keys), Some(servers)) = (keys, servers) else {
            let what = String::from("its job has a model without parameters for every server");
            return self.finish(Err(NodeError::Protocol(what)), out);
        };
        if !self.allegiance.follow(welcome.run, welcome.term, welcome.standby) {
            return self.redial(now, String::from("it leads no more"), out);
        }
        out.push(Effect::Limit(peer, Limits::of_server(model.parameters())));
        let before = core::mem::replace(&mut self.servers, servers);
        self.servers.begin_after(before, out);
        let (worker, resumed) = (welcome.worker, welcome.resumed);
        let same_data = self.member.as_ref().is_some_and(|member| {
            member.worker == worker
                && member.job.data == welcome.job.data
                && member.job.seed == welcome.job.seed
                && member.job.batch_size == welcome.job.batch_size
                && member.job.redundancy == welcome.job.redundancy
        });
        let job = Box::new(welcome.job);
        out.push(Effect::Report(Event::Welcomed { worker, resumed, job: job.clone() }));
        let member = Member {
            worker,
            incarnation: welcome.incarnation,
            run: welcome.run,
            model_keys: keys,
            keys,
            examples_from_server: welcome.examples_from_server,
            parts: job.parts_of(worker),
            job,
        };
        if !resumed {
            self.begin_filtering(&member, &model, out);
            // The pushes belonged to another incarnation.
            self.work.reset();
            self.evaluating = Evaluating::default();
            if !same_data {
                self.data = Data::None;
            }
        }
        if let Some(was) = &self.member {
            self.allegiance.becomes(was, &member);
        }
        (self.member, self.standing) = (Some(member), Standing::Admitted);
        self.unknown.clear();
        self.narrow();
        self.dial_servers(now, out);
    }
}
