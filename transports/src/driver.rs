//! The loop that drives a node over a transport.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pstrain_core::id::{PartId, PeerId};
use pstrain_core::node::{Effect, Event, Input, Node, Outbox, WorkerError};
use pstrain_core::protocol::Message;
use pstrain_core::protocol::message::{EndReason, ExamplesChunk};
use pstrain_core::time::Time;

use crate::transport::{Transport, TransportError, TransportEvent, Waker};

/// How long the last messages may take to get out after the node has finished.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A wait that ends this long after its deadline was no wait: the process or the machine was
/// stopped. A busy machine wakes a process some milliseconds late.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// What a node's effects need beside a transport.
pub trait Services {
    /// Takes note of something that happened.
    fn report(&mut self, now: Time, event: Event);

    /// Begins work that is answered by an input: at once, or later through `handle`.
    fn work(&mut self, effect: Effect, handle: &Handle) -> Option<Input>;

    /// Rows of a part from row `from` on; none if there are none to give.
    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk>;
}

/// Hands inputs to a driven node from other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    inputs: Sender<Input>,
    waker: Waker,
}

impl Handle {
    /// Hands in an input; a node that has finished takes no notice.
    pub fn post(&self, input: Input) {
        if self.inputs.send(input).is_ok() {
            self.waker.wake();
        }
    }
}

/// Where the inputs of a [`Handle`] arrive.
#[derive(Debug)]
pub struct Mailbox {
    handle: Handle,
    inputs: Receiver<Input>,
}

impl Mailbox {
    /// A mailbox for a node that will be driven over `transport`.
    pub fn new(transport: &impl Transport) -> Self {
        let (sender, inputs) = channel();
        Self { handle: Handle { inputs: sender, waker: transport.waker() }, inputs }
    }

    /// Hands inputs in.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

/// Runs `node` until it has finished, and returns how it did.
///
/// # Errors
/// [`TransportError`] if the transport fails as a whole; a connection that fails is an input.
pub fn drive<N: Node, T: Transport, S: Services>(
    node: &mut N,
    transport: &mut T,
    services: &mut S,
    mailbox: &Mailbox,
) -> Result<Result<EndReason, WorkerError>, TransportError> {
    let mut driver =
        Driver { node, transport, services, mailbox, outbox: Outbox::new(), closed: Vec::new() };
    let mut events = Vec::new();
    if let Some(result) = driver.input(Input::Start)? {
        return Ok(result);
    }
    loop {
        let deadline = driver.node.deadline();
        driver.transport.wait(deadline, &mut events)?;
        driver.closed.clear();
        let overslept = driver.late(deadline).is_some_and(|late| late >= OVERSLEPT);
        if overslept && let Some(result) = driver.input(Input::Overslept)? {
            return Ok(result);
        }
        for event in events.drain(..) {
            if peer_of(&event).is_some_and(|peer| driver.closed.contains(&peer)) {
                continue;
            }
            if let Some(result) = driver.input(input_of(event))? {
                return Ok(result);
            }
        }
        while let Ok(input) = driver.mailbox.inputs.try_recv() {
            if let Some(result) = driver.input(input)? {
                return Ok(result);
            }
        }
        // What has come is handed in before the wake-up: it may be what the deadline waits for.
        // And if the process was stopped since the wait, the node must hear of that first.
        let late = driver.late(driver.node.deadline());
        if late.is_some_and(|late| late < OVERSLEPT || overslept)
            && let Some(result) = driver.input(Input::Wake)?
        {
            return Ok(result);
        }
    }
}

fn peer_of(event: &TransportEvent) -> Option<PeerId> {
    match event {
        TransportEvent::Connected(peer)
        | TransportEvent::Message(peer, _)
        | TransportEvent::Receiving(peer)
        | TransportEvent::Garbage(peer, _)
        | TransportEvent::Disconnected { peer, .. } => Some(*peer),
        TransportEvent::DialFailed { .. } => None,
    }
}

fn input_of(event: TransportEvent) -> Input {
    match event {
        TransportEvent::Connected(peer) => Input::Connected(peer),
        TransportEvent::DialFailed { why, permanent } => Input::DialFailed { why, permanent },
        TransportEvent::Message(peer, message) => Input::Message(peer, message),
        TransportEvent::Receiving(peer) => Input::Receiving(peer),
        TransportEvent::Garbage(peer, error) => Input::Garbage(peer, error),
        TransportEvent::Disconnected { peer, why } => Input::Disconnected { peer, why },
    }
}

struct Driver<'a, N, T, S> {
    node: &'a mut N,
    transport: &'a mut T,
    services: &'a mut S,
    mailbox: &'a Mailbox,
    outbox: Outbox,
    /// Peers that were closed while events of theirs may still be in the batch.
    closed: Vec<PeerId>,
}

impl<N: Node, T: Transport, S: Services> Driver<'_, N, T, S> {
    /// How long ago a deadline was, if it has come.
    fn late(&self, deadline: Option<Time>) -> Option<Duration> {
        let now = self.transport.now();
        deadline.filter(|&at| now >= at).map(|at| now - at)
    }

    /// Hands one input in and obeys all that follows from it. Returns the node's result once it
    /// has finished.
    fn input(
        &mut self,
        input: Input,
    ) -> Result<Option<Result<EndReason, WorkerError>>, TransportError> {
        let mut next = Some(input);
        let mut done = None;
        while let Some(input) = next.take() {
            let now = self.transport.now();
            self.node.handle(now, input, &mut self.outbox);
            let mut outbox = std::mem::take(&mut self.outbox);
            for effect in outbox.drain(..) {
                match effect {
                    Effect::Dial => self.transport.dial(),
                    Effect::Send(peer, message) => self.transport.send(peer, message),
                    Effect::Limit(peer, limits) => self.transport.limit(peer, limits),
                    Effect::Close(peer) => {
                        self.closed.push(peer);
                        self.transport.close(peer);
                    }
                    Effect::SendExamples { peer, part, from } => {
                        match self.services.examples(part, from) {
                            Some(chunk) => self.transport.send(peer, Message::Examples(chunk)),
                            None => self.transport.close(peer),
                        }
                    }
                    Effect::Report(event) => {
                        self.transport.note(&event);
                        self.services.report(now, event);
                    }
                    Effect::Done(result) => done = Some(result),
                    effect => {
                        if let Some(answer) = self.services.work(effect, &self.mailbox.handle) {
                            // A node asks for one thing at a time that is answered at once.
                            debug_assert!(next.is_none(), "two answers to one input");
                            next = Some(answer);
                        }
                    }
                }
            }
            self.outbox = outbox;
        }
        if done.is_some() {
            self.transport.flush(self.transport.now() + LAST_WORDS)?;
        }
        Ok(done)
    }
}
