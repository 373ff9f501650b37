//! Worker processes of a world, and the faults that hit them.

use std::time::Duration;

use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_policy::job::InitialFrom;
use pstrain_roles::node::{
    Compute, Computed, ComputedRange, DialFault, Effect, Event, Input, MOST_IN_A_ROW, Node,
    NodeError, Outbox, Prepare, Prepared, STOP, Ticket, Worker, WorkerConfig,
};
use pstrain_wire::client::{Control, PullStatus};
use pstrain_wire::range::PullRange;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{FrameError, Message, Refusal};

use super::links::{End, Item, Link};
use super::settings::Fault;
use super::{Entry, Process, World};
use crate::policies::draw_control;
use crate::toy::{all_keys, initial_of, partition_of, parts_of, working_sets};

impl World<'_> {
    pub(super) fn spawn(&mut self, wish: Option<WorkerId>) {
        let number = self.processes.len();
        let config = WorkerConfig {
            name: format!("process-{number}"),
            worker: wish,
            wants_examples: false,
            lease: self.settings.job.membership.lease,
            stream: Stream::new(self.settings.network).fork("process", number as u64),
        };
        self.processes.push(Process {
            node: Worker::new(config),
            wake: None,
            speed: self.settings.compute[number % self.settings.compute.len()],
            begins: self.now,
            bad: 0,
            busy_until: self.now,
            runs: true,
            run: 0,
            result: None,
        });
        self.worker_input(number, Input::Start);
    }

    /// Hands an input to a worker and carries out its effects.
    pub(super) fn worker_input(&mut self, process: usize, input: Input) {
        if !self.processes[process].runs {
            return;
        }
        let mut out = Outbox::new();
        self.processes[process].node.handle(self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Dial(target) => {
                    let takes = self.span(self.settings.delay);
                    let callee = World::shard_of(&target);
                    self.after(takes, Entry::Dialled(process, callee));
                }
                Effect::Send(peer, message) => {
                    if let (Message::Push(push), Some(worker)) =
                        (&message, self.processes[process].node.id())
                        && self.is_heard(peer, self.processes[process].run)
                    {
                        self.checker.sent(worker, push);
                    }
                    self.send(peer.0 as usize, End::Server, Item::Message(message));
                }
                Effect::Close(peer) => self.close(peer.0 as usize, End::Worker),
                Effect::Prepare(order) => self.prepare(process, &order),
                Effect::Compute(order) => self.compute(process, order),
                Effect::EvaluateHere(order) => self.evaluate_here(process, &order),
                Effect::Done(result) => {
                    self.check_result(&result);
                    self.processes[process].result = Some(result);
                    self.stop(process);
                }
                Effect::Report(_) | Effect::Limit(..) | Effect::Recycle(_) => {}
                effect => panic!("no worker asks for {effect:?}"),
            }
        }
        self.plan_wake(process);
    }

    /// Checks that no worker breaks the protocol, and that none is refused without cause.
    fn check_result(&mut self, result: &Result<EndReason, NodeError>) {
        match result {
            // The worker may know of an end that was lost with the server.
            Ok(reason) if *reason == EndReason::Stopped || self.settings.forgets => {}
            Ok(reason) if self.server_ended_with() == Some(*reason) => {}
            // A part of the result was lost after the end: the server finishes with this reason.
            Ok(reason @ EndReason::ServerLost(_)) if self.server_ended_with().is_some() => {
                self.told.push(*reason);
            }
            Ok(reason) => panic!("a worker was told that {reason}"),
            Err(NodeError::Unreachable { .. } | NodeError::Refused(Refusal::Over)) => {}
            Err(NodeError::Data(_) | NodeError::Refused(Refusal::Data { .. }))
                if self.settings.faults.bad_data > 0 => {}
            Err(NodeError::Refused(Refusal::NotFinite { .. }))
                if self.settings.faults.bad_gradients > 0 => {}
            Err(NodeError::Refused(Refusal::Frame { .. }) | NodeError::Damaged { .. })
                if self.settings.garbage() => {}
            Err(error) => panic!("a worker failed: {error}"),
        }
    }

    fn server_ended_with(&self) -> Option<EndReason> {
        self.events.iter().rev().find_map(|(_, event)| match event {
            Event::Ended { reason } => Some(*reason),
            _ => None,
        })
    }

    /// Ends a process; its system closes its connections.
    fn stop(&mut self, process: usize) {
        self.processes[process].runs = false;
        for link in 0..self.links.len() {
            if self.links[link].process == Some(process) {
                self.close(link, End::Worker);
            }
        }
    }

    pub(super) fn dialled(&mut self, process: usize, callee: Option<usize>) {
        let chance = self.settings.faults.dial_fails;
        if self.reason.is_some() || (!self.calm && self.percent(chance)) {
            let input =
                Input::DialFailed { why: "connection refused".into(), fault: DialFault::Temporary };
            return self.worker_input(process, input);
        }
        self.connect(Some(process), callee);
    }

    pub(super) fn connect(&mut self, process: Option<usize>, callee: Option<usize>) {
        let link = self.links.len();
        self.links.push(Link { callee, ..Link::new(process) });
        self.send(link, End::Server, Item::Open);
        self.send(link, End::Worker, Item::Open);
        if process.is_some_and(|process| !self.processes[process].runs) {
            self.close(link, End::Worker);
        }
    }

    /// Returns the time until a new order of the process is done: after its earlier orders, and
    /// never in the same instant, since their answers might change places.
    fn takes(&mut self, process: usize, span: Duration) -> Duration {
        let begin = self.processes[process].busy_until.max(self.now) + Duration::from_nanos(1);
        self.processes[process].begins = begin;
        self.processes[process].busy_until = begin + span;
        (begin + span) - self.now
    }

    fn prepare(&mut self, process: usize, order: &Prepare) {
        let train = &self.settings.train;
        let parts = parts_of(train, order.job.parts(), order);
        if let Some(sent) = &order.examples {
            assert_eq!(*sent, parts, "other examples came than were sent");
        }
        let own = order.examples.is_none().then(|| order.job.data.train.clone());
        let rows: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
        let worker = order.worker.0 as usize;
        let keys = working_sets(&order.job, train).into_iter().nth(worker);
        let job = &order.job;
        let initial = initial_of(job).filter(|_| job.initial == InitialFrom::Worker);
        let mut prepared = Ok(Prepared {
            rows: rows.clone(),
            train: own,
            keys: keys.clone(),
            initial: initial.clone(),
        });
        let bad = self.settings.faults.bad_data;
        if !self.calm && self.percent(bad) {
            let other = Fingerprint::of(&parts[0].select(&[0]));
            prepared = match self.percent(50) {
                true => Ok(Prepared { rows, train: Some(other), keys, initial }),
                false => Err("the disk is broken".into()),
            };
        }
        let span = self.span(self.settings.prepare);
        let takes = self.takes(process, span);
        self.after(takes, Entry::To(process, Input::Prepared(prepared)));
    }

    fn compute(&mut self, process: usize, order: Compute) {
        let worker = self.processes[process].node.id().expect("a worker that computes has an id");
        let (settings, part) = (self.settings, order.task.part);
        let rows = partition_of(&settings.train, settings.job.parts(), part).len();
        let batches = rows.div_ceil(settings.job.batch_size as usize);
        let place = order.task.batch.0 as usize % batches;
        // Small integers that depend on each parameter, the part and the mini-batch.
        let mut gradient: Vec<f32> = (0..order.parameters.len())
            .map(|key| {
                let value = u64::from(order.parameters[key].to_bits());
                let name = Stream::new(value).fork("gradient", part.0.into());
                name.fork("batch", order.task.batch.0).rng().below(17) as f32 - 8.0
            })
            .collect();
        let mut first = Some(0);
        if let Some(keys) = working_sets(&settings.job, &settings.train).get(worker.0 as usize) {
            // Keys that the list has only so that every server has one belong to no example.
            let parts = settings.job.parts();
            let touched = partition_of(&settings.train, parts, part).touched();
            let own = |(key, _): &(&u32, &mut f32)| touched.binary_search(key).is_err();
            let places = keys.keys().iter().zip(&mut gradient).filter(own);
            places.for_each(|(_, value)| *value = 0.0);
            if let Some(block) = settings.job.block_of(order.task, settings.columns()) {
                let block = keys.places(block);
                first = (!block.is_empty()).then_some(block.start);
                gradient[..block.start].fill(0.0);
                gradient[block.end..].fill(0.0);
            }
        }
        let bad = self.settings.faults.bad_gradients;
        if !self.calm && self.processes[process].bad == 0 && self.percent(bad) {
            let rows = [1, MOST_IN_A_ROW, 2 * MOST_IN_A_ROW];
            self.processes[process].bad = rows[self.rng.below(3) as usize];
        }
        let bad = &mut self.processes[process].bad;
        if !self.calm
            && *bad > 0
            && let Some(first) = first
        {
            *bad -= 1;
            gradient[first] = f32::NAN;
        }
        self.processes[process].run = order.ticket.run;
        if self.is_of_this_lineage(order.ticket.run) {
            self.checker.computed(worker, &order, &gradient);
        }
        let span = self.processes[process].speed.mul_f64(0.5 + self.rng.unit());
        let Process { begins, busy_until, .. } = &mut self.processes[process];
        // An order that has not begun when another comes never begins.
        *busy_until = if *begins > self.now { *begins } else { *busy_until };
        let takes = self.takes(process, span);
        let samples = (rows * (place + 1) / batches - rows * place / batches) as u32;
        if order.by_range {
            self.finish_ranges(process, (order.ticket, samples), &gradient, (takes, span));
        }
        let computed = Computed {
            ticket: order.ticket,
            gradient,
            loss: self.loss(order.ticket.base),
            samples,
            took: span,
        };
        self.after(takes, Entry::To(process, Input::Computed(computed)));
    }

    /// Lets some ranges of a gradient be final before it is, the last keys first. The gradient is
    /// there after `takes`, of which it is computed during the last `span`.
    fn finish_ranges(
        &mut self,
        process: usize,
        (ticket, samples): (Ticket, u32),
        gradient: &[f32],
        (takes, span): (Duration, Duration),
    ) {
        let (mut end, mut left) = (gradient.len(), span);
        while self.percent(70) {
            let begin = self.rng.below(end as u64 + 1) as usize;
            left = left.mul_f64(self.rng.unit());
            let Ok(keys) = KeyRange::new(begin as u64, end as u64) else { continue };
            if begin == 0 {
                return; // the first layer comes with the whole
            }
            let values = gradient[begin..end].to_vec();
            let range = ComputedRange { ticket, keys, values, samples };
            self.after(takes - left, Entry::To(process, Input::ComputedRange(range)));
            end = begin;
        }
    }

    /// Returns the loss on the parameters of a version.
    fn loss(&self, version: Version) -> f32 {
        let step = |climbs: u64| version.0 % climbs * 8 / climbs;
        self.settings.climbs.map_or(1.0, |climbs| 1.0 + step(climbs) as f32)
    }

    pub(super) fn next_fault(&mut self) {
        if let Some(every) = self.settings.faults.every.filter(|_| self.faults_left > 0) {
            self.faults_left -= 1;
            let span = self.span(every * 2);
            self.after(span, Entry::Fault);
        }
    }

    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let weights = self.settings.faults.weights;
        let mut draw = self.rng.below(weights.iter().sum());
        for (fault, weight) in Fault::ALL.into_iter().zip(weights) {
            if draw < weight {
                self.inflict(fault);
                break;
            }
            draw -= weight;
        }
        self.next_fault();
    }

    fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Break => {
                if let Some(link) = self.any(self.links.len(), |world, i| world.links[i].is_whole())
                {
                    self.break_link(link);
                }
            }
            Fault::Crash => {
                if let Some(process) = self.any_process() {
                    self.crash(process);
                }
            }
            Fault::DrainWorker => {
                if let Some(process) = self.any_process() {
                    self.restart(process);
                    self.worker_input(process, Input::Drain);
                }
            }
            Fault::Newcomer => {
                let workers = self.settings.job.membership.workers;
                let wish = WorkerId(self.rng.below(workers.into()) as u32);
                let wishes = self.percent(50);
                self.spawn(wishes.then_some(wish));
            }
            Fault::DrainServer => self.drain_server(),
            Fault::Stranger => self.connect(None, None),
            Fault::Status => {
                self.connect(None, None);
                let number = self.links.len() as u64;
                let ask = match number % 2 {
                    0 => Message::PullStatus(PullStatus { protocol_max: 1 }),
                    _ => {
                        let all = all_keys(self.server.job()).len();
                        let begin = number % all;
                        let end =
                            if number % 4 < 2 { all } else { all.min(begin + 1 + number % 5) };
                        let keys = KeyRange::new(begin, end).ok();
                        let (keys, values) = (keys.filter(|_| !number.is_multiple_of(3)), true);
                        Message::PullRange(PullRange { protocol_max: 1, keys, values })
                    }
                };
                self.send(self.links.len() - 1, End::Server, Item::Message(ask));
            }
            Fault::Control => {
                self.connect(None, None);
                let link = self.links.len() - 1;
                // Most clients send one order and wait; another order meanwhile does no harm.
                for _ in 0..=u64::from(self.percent(10)) {
                    let workers = self.settings.job.membership.workers;
                    let (key, value) = draw_control(&mut self.rng, workers);
                    let control = Control { protocol_max: 1, key, value };
                    self.send(link, End::Server, Item::Message(Message::Control(control)));
                }
            }
            Fault::ServerJoins => self.one_more_shard(),
            Fault::ServerLeaves => self.one_shard_less(),
            Fault::Garbage => {
                let is_its = |world: &Self, i: usize| {
                    let link = &world.links[i];
                    link.is_whole() && link.shard.is_none() && link.callee.is_none()
                };
                if let Some(link) = self.any(self.links.len(), is_its) {
                    let input = Input::Garbage(PeerId(link as u64), FrameError::Kind(0));
                    self.server_input(input, None);
                }
            }
            Fault::Wake => {
                self.server_input(Input::Wake, None);
                if let Some(process) = self.any_process() {
                    self.worker_input(process, Input::Wake);
                }
            }
        }
    }

    /// Tells the server to end the run, by a signal or by an order.
    fn drain_server(&mut self) {
        if self.links.len().is_multiple_of(2) {
            self.checker.drained();
            self.server_input(Input::Drain, None);
        } else {
            let (key, value) = (STOP.to_owned(), String::new());
            self.order(Control { protocol_max: 1, key, value });
        }
    }

    /// Lets a client send an order.
    pub(super) fn order(&mut self, control: Control) {
        self.connect(None, None);
        let link = self.links.len() - 1;
        self.send(link, End::Server, Item::Message(Message::Control(control)));
    }

    pub(super) fn any(
        &mut self,
        count: usize,
        which: impl Fn(&Self, usize) -> bool,
    ) -> Option<usize> {
        let those: Vec<usize> = (0..count).filter(|&index| which(self, index)).collect();
        let draw = self.rng.below(those.len() as u64) as usize;
        those.get(draw).copied()
    }

    fn any_process(&mut self) -> Option<usize> {
        self.any(self.processes.len(), |world, index| world.processes[index].runs)
    }

    /// Breaks a connection in one direction or both. Each end learns of it at a time of its own, or
    /// never.
    fn break_link(&mut self, link: usize) {
        let both = self.percent(70);
        let one = End::BOTH[self.rng.below(2) as usize];
        for end in End::BOTH {
            if both || end == one {
                self.links[link].cut(end);
            }
        }
        for end in End::BOTH {
            // A failed dial is always noticed: it has a time limit of its own.
            let dialling = end == End::Worker && !self.links[link].is_known(end);
            if self.percent(self.settings.faults.learn) || dialling {
                let span = self.span(self.settings.job.membership.lease);
                self.after(span, Entry::Learn(link, end));
            }
        }
    }

    /// Kills a process. Its connections close, or its machine is gone with it and no peer is
    /// notified.
    fn crash(&mut self, process: usize) {
        self.restart(process);
        let machine = self.percent(50);
        for link in 0..self.links.len() {
            if machine && self.links[link].process == Some(process) {
                self.links[link].cut(End::Server);
            }
        }
        self.stop(process);
    }

    /// Plans another process in place of one that goes.
    fn restart(&mut self, process: usize) {
        if self.percent(self.settings.faults.restarts) {
            let id = self.processes[process].node.id();
            let same = self.percent(70);
            let span = self.span(self.settings.job.membership.lease * 4);
            self.after(span, Entry::Spawn(id.filter(|_| same)));
        }
    }

    /// Stops the faults. In half of the worlds missing workers are replaced.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        if self.settings.faults.every.is_some() && self.percent(50) {
            for worker in (0..self.settings.job.membership.workers).map(WorkerId) {
                let held = |process: &Process| process.runs && process.node.id() == Some(worker);
                if !self.processes.iter().any(held) {
                    let wish = self.percent(50).then_some(worker);
                    self.after(Duration::ZERO, Entry::Spawn(wish));
                }
            }
        }
    }
}
