//! A server without a transport, fed with the bytes of pushes. Benchmarks and memory tests use it
//! to measure the cost of a push and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{Effect, Input, Node, Outbox, Server};
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{Hello, ParametersHeader, Pull, Push, PushHeader, Ready};
use pstrain_wire::{BufferPool, Decoder, Message, Outgoing, encode};

use crate::probe::OPEN;
use crate::toy::Toy;

const TICK: Duration = Duration::from_micros(50);
const FIRST: Incarnation = Incarnation(1);

/// A server as its driver holds it: bytes in, bytes out, and a buffer pool.
#[derive(Debug)]
pub struct Driven {
    server: Server,
    out: Outbox,
    decoder: Decoder,
    spares: BufferPool,
    head: Vec<u8>,
    now: Time,
    /// The push that each worker may send.
    given: Vec<Option<ParametersHeader>>,
    /// The frame that a worker sends; kept to reuse its memory.
    frame: Vec<u8>,
    gradient: Arc<Vec<f32>>,
    bytes: usize,
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl Driven {
    /// A server with `workers` connected workers, all of which have pulled parameters.
    ///
    /// # Panics
    /// If the server refuses its own job.
    #[must_use]
    pub fn new(consistency: ConsistencySpec, workers: u32) -> Self {
        let mut job = Toy::new(workers, workers as usize).job;
        job.mode = Mode::of(consistency);
        // So many rows that no epoch ends.
        job.data.train.rows = 1 << 40;
        let server = Server::new(job, 1).unwrap();
        let parameters = server.parameters().len();
        let mut driven = Self {
            server,
            out: Outbox::new(),
            decoder: Decoder::new(OPEN),
            spares: BufferPool::default(),
            head: Vec::new(),
            now: Time::ZERO,
            given: vec![None; workers as usize],
            frame: Vec::new(),
            gradient: Arc::new(vec![1e-9; parameters]),
            bytes: 0,
        };
        driven.handle(Input::Start);
        let keys = KeyRange::new(0, parameters as u64).unwrap();
        for worker in 0..workers {
            let (peer, rows) = (PeerId(worker.into()), BTreeMap::from([(PartId(worker), 2)]));
            let train = Some(driven.server.job().data.train.clone());
            driven.handle(Input::Connected(peer, Identity::Anyone));
            driven.handle(Input::Message(peer, Message::Hello(hello(worker))));
            driven.handle(Input::Message(peer, Message::Ready(Ready { rows, train })));
            let pull = Pull { incarnation: FIRST, keys, allowed: Sequence(0) };
            driven.handle(Input::Message(peer, Message::Pull(pull)));
        }
        driven
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
                Effect::Recycle(vector) => self.spares.give(vector),
                _ => {}
            }
        }
    }

    /// Number of updates so far.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.server.point().version.0
    }

    /// Number of bytes sent.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands the server a gradient of each of the first `busy` workers that may push one.
    ///
    /// # Panics
    /// If the server cannot decode a frame.
    pub fn turn(&mut self, busy: u32) {
        for worker in 0..busy {
            let Some(given) = self.given[worker as usize].take() else { continue };
            let header =
                PushHeader { loss: 1.0, compute_ns: 1000, ..PushHeader::answering(&given, FIRST) };
            let message = Message::Push(Push::new(header, Arc::clone(&self.gradient)));
            self.frame.clear();
            encode(&message, &mut self.frame).append_to(&mut self.frame);
            self.decoder.feed_in(&self.frame, &mut self.spares);
            let message = self.decoder.next_in(&mut self.spares).unwrap().unwrap();
            self.handle(Input::Message(PeerId(worker.into()), message));
        }
    }
}

fn hello(worker: u32) -> Hello {
    Hello::new(format!("worker {worker}"), Some(WorkerId(worker)))
}
