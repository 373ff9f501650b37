//! The worker's examples: from its own copy of the data, or sent by the server.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Data, NodeError, Worker, admitted};
use crate::node::{Effect, Outbox, Prepare, Prepared};
use pstrain_compute::examples::Examples;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::range::{PartDue, RangePart};
use pstrain_wire::worker::{ExamplesChunk, PullExamples, Ready};

impl Worker {
    /// Continues with the data or the pushes where they are, on a new connection.
    pub(super) fn go_on(&mut self, now: Time, out: &mut Outbox) {
        let member = admitted(&self.member);
        match &self.data {
            Data::None if member.examples_from_server => {
                self.data = Data::Fetching(Vec::new(), Examples::new(member.job.data.shape));
                self.fetch(now, out);
            }
            Data::None => self.prepare(None, out),
            Data::Fetching(..) => self.fetch(now, out),
            Data::Preparing => {}
            Data::Ready(_) => {
                if !self.introduce_keys(out) {
                    self.take_up(now, out);
                }
            }
        }
    }

    /// Continues with the pushes where they are; the servers know the working set by now.
    pub(super) fn take_up(&mut self, now: Time, out: &mut Outbox) {
        let Data::Ready(prepared) = &self.data else { unreachable!("the data are ready") };
        let member = admitted(&self.member);
        let rows = member.parts.iter().copied().zip(prepared.rows.iter().copied()).collect();
        let ready = Ready { rows, train: prepared.train.clone() };
        self.send(now, Message::Ready(ready), out);
        if self.work.is_idle() {
            return self.pull(now, out);
        }
        let unanswered: Vec<_> = self.work.sent().cloned().collect();
        for push in unanswered {
            self.send_push(now, push, out);
        }
    }

    /// Sends the requested part of the initial parameters.
    pub(super) fn on_initial_due(&mut self, now: Time, due: PartDue, out: &mut Outbox) {
        let Data::Ready(Prepared { initial: Some(initial), .. }) = &self.data else {
            let what = String::from("it requested initial parameters that this worker lacks");
            return self.finish(Err(NodeError::Protocol(what)), out);
        };
        let Some(values) = initial.get(due.part.indices()) else {
            let what = alloc::format!("it requested initial parameters of keys {}", due.part);
            return self.finish(Err(NodeError::Protocol(what)), out);
        };
        let part = RangePart::new(due.part, values);
        self.send(now, Message::RangePart(part), out);
    }

    /// Requests the examples that follow the received ones.
    fn fetch(&mut self, now: Time, out: &mut Outbox) {
        let Data::Fetching(whole, examples) = &self.data else {
            unreachable!("examples are being fetched")
        };
        let member = admitted(&self.member);
        if let Some(&part) = member.parts.get(whole.len()) {
            let from = examples.len() as u64;
            self.send(now, Message::PullExamples(PullExamples { part, from }), out);
        }
    }

    pub(super) fn prepare(&mut self, examples: Option<Vec<Examples>>, out: &mut Outbox) {
        self.data = Data::Preparing;
        self.preparations += 1;
        let member = admitted(&self.member);
        let (job, worker) = ((*member.job).clone(), member.worker);
        out.push(Effect::Prepare(Box::new(Prepare { job, worker, examples })));
    }

    pub(super) fn on_examples(&mut self, now: Time, chunk: &ExamplesChunk, out: &mut Outbox) {
        let (Data::Fetching(whole, examples), Some(member)) = (&mut self.data, &self.member) else {
            return; // ordered on the last connection, too: all are here
        };
        let rows = chunk.rows;
        let fits = rows.from == examples.len() as u64 && rows.total <= member.job.data.train.rows;
        let unpacked = if fits && !chunk.packed.is_empty() {
            examples.unpack(&chunk.packed).map_err(|error| error.to_string())
        } else {
            Err(alloc::format!("rows from {} of {} were not asked for", rows.from, rows.total))
        };
        if let Err(what) = unpacked {
            let what = alloc::format!("its examples are unusable: {what}");
            return self.finish(Err(NodeError::Protocol(what)), out);
        }
        if examples.len() as u64 >= rows.total {
            let next = Examples::new(member.job.data.shape);
            whole.push(core::mem::replace(examples, next));
        }
        if whole.len() < member.parts.len() {
            self.fetch(now, out);
        } else {
            let whole = core::mem::take(whole);
            self.prepare(Some(whole), out);
        }
    }

    pub(super) fn on_prepared(
        &mut self,
        now: Time,
        prepared: Result<Prepared, String>,
        out: &mut Outbox,
    ) {
        self.preparations = self.preparations.saturating_sub(1);
        if self.preparations > 0 || !matches!(self.data, Data::Preparing) {
            return; // the partition is no longer this worker's
        }
        match prepared {
            Ok(prepared) => {
                self.data = Data::Ready(prepared);
                self.narrow();
                if self.server().is_some() {
                    self.go_on(now, out);
                }
            }
            Err(what) => self.leave(now, Err(NodeError::Data(what)), out),
        }
    }
}
