//! A server asks for no memory once it has warmed up: from the bytes of a push that came to those of
//! the answer.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pstrain_core::consistency::ConsistencySpec;
use pstrain_core::id::{Incarnation, PartId, PeerId, Sequence, Term, WorkerId};
use pstrain_core::mode::Mode;
use pstrain_core::node::{Effect, Identity, Input, Node, Outbox, Server};
use pstrain_core::params::KeyRange;
use pstrain_core::protocol::message::{Hello, ParametersHeader, Pull, Push, PushHeader, Ready};
use pstrain_core::protocol::{BUILD, Decoder, Message, Outgoing, PROTOCOL_VERSION, Spares, encode};
use pstrain_core::time::Time;
use pstrain_tests::{OPEN, Toy};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts for the whole process, so this is its one test.
#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WORKERS: u32 = 4;
const TICK: Duration = Duration::from_micros(50);
const FIRST: Incarnation = Incarnation(1);

/// A server as its driver has it: bytes in, bytes out, and memory that goes round.
struct Lab {
    server: Server,
    out: Outbox,
    decoder: Decoder,
    spares: Spares,
    head: Vec<u8>,
    now: Time,
    /// What each worker may push.
    given: Vec<Option<ParametersHeader>>,
    /// The frame that a worker sends; kept for its memory.
    frame: Vec<u8>,
    gradient: Arc<Vec<f32>>,
    bytes: usize,
}

impl Lab {
    fn new(consistency: ConsistencySpec) -> Self {
        let mut job = Toy::new(WORKERS, 8).job;
        job.mode = Mode::of(consistency);
        // No epoch ends.
        job.data.train.rows = 1 << 40;
        let server = Server::new(job, 1).unwrap();
        let parameters = server.parameters().len();
        let mut lab = Self {
            server,
            out: Outbox::new(),
            decoder: Decoder::new(OPEN),
            spares: Spares::default(),
            head: Vec::new(),
            now: Time::ZERO,
            given: vec![None; WORKERS as usize],
            frame: Vec::new(),
            gradient: Arc::new(vec![1e-9; parameters]),
            bytes: 0,
        };
        lab.handle(Input::Start);
        let keys = KeyRange::new(0, parameters as u64).unwrap();
        for worker in 0..WORKERS {
            let (peer, rows) = (PeerId(worker.into()), BTreeMap::from([(PartId(worker), 2)]));
            let train = Some(lab.server.job().data.train.clone());
            lab.handle(Input::Connected(peer, Identity::Anyone));
            lab.handle(Input::Message(peer, Message::Hello(hello(worker))));
            lab.handle(Input::Message(peer, Message::Ready(Ready { rows, train })));
            let pull = Pull { incarnation: FIRST, keys, allowed: Sequence(0) };
            lab.handle(Input::Message(peer, Message::Pull(pull)));
        }
        lab
    }

    fn handle(&mut self, input: Input) {
        self.now = self.now + TICK;
        self.server.handle(self.now, input, &mut self.out);
        for effect in self.out.drain(..) {
            match effect {
                Effect::Send(peer, message) => {
                    if let Message::Parameters(parameters) = &message {
                        self.given[peer.0 as usize] = Some(parameters.header);
                    }
                    let mut frame = Outgoing::new(message, std::mem::take(&mut self.head));
                    while frame.remaining() > 0 {
                        let more = frame.parts().iter().map(|part| part.len()).sum();
                        frame.wrote(more);
                        self.bytes += more;
                    }
                    self.head = frame.into_head();
                }
                Effect::Spare(vector) => self.spares.give(vector),
                _ => {}
            }
        }
    }

    /// Takes a gradient of each worker that may push one.
    fn turn(&mut self) {
        for worker in 0..WORKERS {
            let Some(given) = self.given[worker as usize].take() else { continue };
            let header = PushHeader {
                incarnation: FIRST,
                sequence: given.sequence,
                base: given.version,
                task: given.task,
                samples: 1,
                loss: 1.0,
                compute_ns: 1000,
                keys: given.keys,
                pull: true,
                allowed: given.sequence,
            };
            let message = Message::Push(Push::new(header, Arc::clone(&self.gradient)));
            self.frame.clear();
            encode(&message, &mut self.frame).append_to(&mut self.frame);
            self.decoder.feed(&self.frame);
            let message = self.decoder.next_in(&mut self.spares).unwrap().unwrap();
            self.handle(Input::Message(PeerId(worker.into()), message));
        }
    }
}

fn hello(worker: u32) -> Hello {
    Hello {
        protocol_min: PROTOCOL_VERSION,
        protocol_max: PROTOCOL_VERSION,
        build: BUILD.into(),
        name: format!("worker {worker}"),
        worker: Some(WorkerId(worker)),
        resume: None,
        wants_examples: false,
        term: Term(0),
        unreached: None,
        credentials: Vec::new(),
    }
}

#[test]
fn a_server_asks_for_no_memory_once_it_has_warmed_up() {
    let all = [ConsistencySpec::Bsp, ConsistencySpec::Asp, ConsistencySpec::Ssp { slack: 3 }];
    for consistency in all {
        let mut lab = Lab::new(consistency);
        (0..2000).for_each(|_| lab.turn());
        let (version, bytes) = (lab.server.point().version, lab.bytes);
        let counted = Region::new(MEMORY);
        (0..1000).for_each(|_| lab.turn());
        let asked = counted.change();
        assert!(lab.server.point().version.0 >= version.0 + 1000 && lab.bytes > bytes);
        assert_eq!((asked.allocations, asked.reallocations), (0, 0), "{consistency:?}");
    }
}
