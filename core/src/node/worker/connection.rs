//! Getting to the server and back to it: hello, welcome, dialling again, giving up.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Data, Link, Member, Worker, WorkerError};
use crate::id::PeerId;
use crate::job::heartbeat;
use crate::model::Model;
use crate::node::{Effect, Event, Outbox};
use crate::params::KeyRange;
use crate::protocol::message::{EndReason, Hello, Resume, Welcome};
use crate::protocol::{BUILD, Limits, Message, PROTOCOL_VERSION, job_digest};
use crate::time::Time;

impl Worker {
    pub(super) fn on_connected(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let beat_at = now + heartbeat(self.lease());
        self.link = Link::Up { peer, welcome: false, heard: now, beat_at };
        out.push(Effect::Limit(peer, Limits::DIALER));
        let hello = Hello {
            protocol_min: PROTOCOL_VERSION,
            protocol_max: PROTOCOL_VERSION,
            build: String::from(BUILD),
            name: self.config.name.clone(),
            worker: self.config.worker,
            resume: self.member.as_ref().map(|member| Resume {
                worker: member.worker,
                incarnation: member.incarnation,
                run: member.run,
            }),
            wants_examples: self.config.wants_examples,
            credentials: Vec::new(),
        };
        self.send(now, Message::Hello(hello), out);
    }

    /// Goes away from the server and comes back after a pause, or gives up.
    pub(super) fn redial(&mut self, now: Time, why: String, out: &mut Outbox) {
        if let Link::Up { peer, .. } = self.link {
            out.push(Effect::Close(peer));
        }
        self.trouble = why;
        let since = *self.away_since.get_or_insert(now);
        if self.draining {
            return self.finish(Ok(EndReason::Stopped), out);
        }
        if now >= since + self.patience() {
            return self.give_up(now, out);
        }
        let pause = self.backoff.pause(self.lease());
        self.link = Link::Down { dial_at: now + pause };
        let (attempt, why) = (self.backoff.attempt(), self.trouble.clone());
        out.push(Effect::Report(Event::Redialling { attempt, pause, why }));
    }

    pub(super) fn give_up(&mut self, now: Time, out: &mut Outbox) {
        let tried = self.away_since.map_or_else(Default::default, |at| now.since(at));
        let attempts = self.backoff.attempt().max(1);
        let why = core::mem::take(&mut self.trouble);
        self.finish(Err(WorkerError::Unreachable { why, attempts, tried }), out);
    }

    pub(super) fn on_welcome(&mut self, now: Time, welcome: Welcome, out: &mut Outbox) {
        let Link::Up { peer, welcome: is_welcome, .. } = &mut self.link else { return };
        let peer = *peer;
        *is_welcome = true;
        if job_digest(&welcome.job) != welcome.digest {
            let what = String::from("its job means something else here; use the same release");
            return self.finish(Err(WorkerError::Protocol(what)), out);
        }
        if let Err(error) = welcome.job.validate() {
            let what = alloc::format!("its job makes no sense: {error}");
            return self.finish(Err(WorkerError::Protocol(what)), out);
        }
        let model = match Model::new(&welcome.job.model, welcome.job.data.shape) {
            Ok(model) => model,
            Err(error) => {
                let what = alloc::format!("its job has an impossible model: {error}");
                return self.finish(Err(WorkerError::Protocol(what)), out);
            }
        };
        let Ok(keys) = KeyRange::new(0, model.parameters() as u64) else {
            let what = String::from("its job has a model without parameters");
            return self.finish(Err(WorkerError::Protocol(what)), out);
        };
        out.push(Effect::Limit(peer, Limits::of_server(model.parameters())));
        self.away_since = None;
        self.backoff.reset();
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
            keys,
            examples_from_server: welcome.examples_from_server,
            parts: job.parts_of(worker),
            job,
        };
        if !resumed {
            self.begin_filtering(&member, &model, out);
            // Whatever was under way belonged to another incarnation.
            self.work.reset();
            if !same_data {
                self.data = Data::None;
            }
        }
        self.member = Some(member);
        self.go_on(now, out);
    }
}
