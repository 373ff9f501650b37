//! The loop that drives a node over a transport.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pstrain_compute::id::{PartId, PeerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Checkpoint, Effect, Event, Input, Node, Outbox, WorkerError};
use pstrain_wire::worker::{EndReason, ExamplesChunk};
use pstrain_wire::{Message, Status};

use crate::refusals::Refusals;
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

    /// When it wants to [see](Self::look) how the node is doing, if ever.
    fn looks_at(&self) -> Option<Time> {
        None
    }

    /// Sees how the node is doing, if that knows. The next time that it wants to is after `now`.
    fn look(&mut self, now: Time, status: Option<Status>) {
        let _unheeded = (now, status);
    }
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

/// Inputs cannot be kept: the system's words. No effect of theirs was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unkept(pub String);

/// A node that could not be driven to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum DriveError {
    /// The transport fails as a whole.
    Transport(TransportError),
    /// The inputs cannot be kept.
    Unkept(Unkept),
}

impl From<TransportError> for DriveError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

impl From<Unkept> for DriveError {
    fn from(error: Unkept) -> Self {
        Self::Unkept(error)
    }
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::Unkept(Unkept(why)) => write!(
                f,
                "{why}, and it is to end: all that was acknowledged is kept; free some space and \
                 go on with --resume"
            ),
        }
    }
}

impl std::error::Error for DriveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transport(error) => error.source(),
            Self::Unkept(_) => None,
        }
    }
}

/// Keeps the inputs of a node, so that one that begins anew can be handed them again.
pub trait Journal<N> {
    /// Whether anything is kept: then effects wait for the inputs before them to be.
    const KEEPS: bool = true;

    /// Takes note of an input, which the node is about to be handed.
    fn append(&mut self, now: Time, input: &Input);

    /// Returns once everything that was appended is kept.
    ///
    /// # Errors
    /// [`Unkept`] if it cannot be, and is not to be waited for.
    fn commit(&mut self) -> Result<(), Unkept>;

    /// The node rests: all effects of its inputs so far have been obeyed. It may be looked at, or
    /// saved. Gives what it is to be handed next, if anything.
    fn rest(&mut self, now: Time, node: &mut N) -> Option<Input> {
        let _nothing = (now, node);
        None
    }

    /// Takes note of a state, to be written once that is asked for.
    fn take(&mut self, now: Time, checkpoint: Checkpoint) {
        let _nothing = (now, checkpoint);
    }

    /// Begins to write the state that was taken last.
    fn write(&mut self, now: Time) {
        let _nothing = now;
    }

    /// The node has finished.
    fn end(&mut self, now: Time, node: &mut N) {
        let _nothing = (now, node);
    }
}

/// Nothing is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl<N> Journal<N> for NoJournal {
    const KEEPS: bool = false;

    fn append(&mut self, _now: Time, _input: &Input) {}

    fn commit(&mut self) -> Result<(), Unkept> {
        Ok(())
    }
}

/// Runs `node` until it has finished, and returns how it did.
///
/// # Errors
/// [`DriveError`] if the transport fails as a whole; a connection that fails is an input.
pub fn drive<N: Node, T: Transport, S: Services>(
    node: &mut N,
    transport: &mut T,
    services: &mut S,
    mailbox: &Mailbox,
) -> Result<Result<EndReason, WorkerError>, DriveError> {
    drive_from(node, transport, services, mailbox, &mut NoJournal, Begin::start())
}

/// How a node that exists already begins.
#[derive(Debug)]
pub struct Begin {
    /// What it asked for and has not been answered.
    pub effects: Vec<Effect>,
    /// What it is handed first.
    pub inputs: Vec<Input>,
}

impl Begin {
    /// How a new node begins.
    #[must_use]
    pub fn start() -> Self {
        Self { effects: Vec::new(), inputs: vec![Input::Start] }
    }
}

/// Runs `node` from where it is until it has finished, and returns how it did. Nobody sees an
/// effect of inputs that `journal` has not committed; all that came at once are committed at once.
///
/// # Errors
/// As [`drive`], and if the journal gives up.
pub fn drive_from<N: Node, T: Transport, S: Services, J: Journal<N>>(
    node: &mut N,
    transport: &mut T,
    services: &mut S,
    mailbox: &Mailbox,
    journal: &mut J,
    begin: Begin,
) -> Result<Result<EndReason, WorkerError>, DriveError> {
    let mut driver = Driver {
        node,
        transport,
        services,
        mailbox,
        journal,
        outbox: Outbox::new(),
        held: Vec::new(),
        answers: Vec::new(),
        closed: Vec::new(),
        refusals: Refusals::default(),
        over: false,
        done: None,
    };
    let mut events = Vec::new();
    let now = driver.transport.now();
    driver.held.extend(begin.effects.into_iter().map(|effect| (now, effect)));
    begin.inputs.into_iter().try_for_each(|input| driver.input(input))?;
    loop {
        if let Some(result) = driver.finished()? {
            return Ok(result);
        }
        driver.show();
        let deadline = driver.node.deadline();
        let until = deadline.into_iter().chain(driver.services.looks_at()).min();
        driver.transport.wait(until, &mut events)?;
        driver.closed.clear();
        let overslept = driver.late(deadline).is_some_and(|late| late >= OVERSLEPT);
        if overslept {
            driver.input(Input::Overslept)?;
        }
        for event in events.drain(..) {
            if peer_of(&event).is_some_and(|peer| driver.closed.contains(&peer)) {
                continue;
            }
            driver.input(input_of(event))?;
        }
        while let Ok(input) = driver.mailbox.inputs.try_recv() {
            driver.input(input)?;
        }
        // What has come is handed in before the wake-up: it may be what the deadline waits for.
        // And if the process was stopped since the wait, the node must hear of that first.
        let late = driver.late(driver.node.deadline());
        if late.is_some_and(|late| late < OVERSLEPT || overslept) {
            driver.input(Input::Wake)?;
        }
    }
}

fn peer_of(event: &TransportEvent) -> Option<PeerId> {
    match event {
        TransportEvent::Connected(peer, _)
        | TransportEvent::Dialled(peer, _)
        | TransportEvent::Message(peer, _)
        | TransportEvent::Receiving(peer)
        | TransportEvent::Garbage(peer, _)
        | TransportEvent::Disconnected { peer, .. } => Some(*peer),
        TransportEvent::DialFailed { .. } => None,
    }
}

fn input_of(event: TransportEvent) -> Input {
    match event {
        TransportEvent::Connected(peer, identity) => Input::Connected(peer, identity),
        TransportEvent::Dialled(peer, identity) => Input::Dialled(peer, identity),
        TransportEvent::DialFailed { why, permanent } => Input::DialFailed { why, permanent },
        TransportEvent::Message(peer, message) => Input::Message(peer, message),
        TransportEvent::Receiving(peer) => Input::Receiving(peer),
        TransportEvent::Garbage(peer, error) => Input::Garbage(peer, error),
        TransportEvent::Disconnected { peer, why } => Input::Disconnected { peer, why },
    }
}

struct Driver<'a, N, T, S, J> {
    node: &'a mut N,
    transport: &'a mut T,
    services: &'a mut S,
    mailbox: &'a Mailbox,
    journal: &'a mut J,
    outbox: Outbox,
    /// What is to be obeyed, and when it was asked for.
    held: Vec<(Time, Effect)>,
    /// Answers that were there at once.
    answers: Vec<Input>,
    /// Peers that were closed while events of theirs may still be in the batch.
    closed: Vec<PeerId>,
    refusals: Refusals,
    /// Whether the node has finished: nothing is handed in any more.
    over: bool,
    done: Option<Result<EndReason, WorkerError>>,
}

impl<N: Node, T: Transport, S: Services, J: Journal<N>> Driver<'_, N, T, S, J> {
    /// How long ago a deadline was, if it has come.
    fn late(&self, deadline: Option<Time>) -> Option<Duration> {
        let now = self.transport.now();
        deadline.filter(|&at| now >= at).map(|at| now - at)
    }

    /// Hands one input in. What follows from it is obeyed now, or by [`Self::obey`] once the input
    /// is kept.
    fn input(&mut self, input: Input) -> Result<(), Unkept> {
        self.handle(input);
        if J::KEEPS { Ok(()) } else { self.obey() }
    }

    fn handle(&mut self, input: Input) {
        if self.over {
            return;
        }
        let now = self.transport.now();
        self.journal.append(now, &input);
        self.node.handle(now, input, &mut self.outbox);
        for effect in self.outbox.drain(..) {
            match effect {
                Effect::Close(peer) => self.closed.push(peer),
                Effect::Done(_) => self.over = true,
                _ => {}
            }
            self.held.push((now, effect));
        }
    }

    /// Obeys all that is held, and what follows from answers that are there at once.
    fn obey(&mut self) -> Result<(), Unkept> {
        while !self.held.is_empty() {
            self.journal.commit()?;
            let mut held = std::mem::take(&mut self.held);
            held.drain(..).for_each(|(now, effect)| self.perform(now, effect));
            self.held = held;
            let mut answers = std::mem::take(&mut self.answers);
            answers.drain(..).for_each(|answer| self.handle(answer));
            self.answers = answers;
        }
        Ok(())
    }

    fn perform(&mut self, now: Time, effect: Effect) {
        match effect {
            Effect::Dial(target) => self.transport.dial(&target),
            Effect::Send(peer, message) => self.transport.send(peer, message),
            Effect::Limit(peer, limits) => self.transport.limit(peer, limits),
            Effect::Close(peer) => self.transport.close(peer),
            Effect::SendExamples { peer, part, from } => match self.services.examples(part, from) {
                Some(chunk) => self.transport.send(peer, Message::Examples(chunk)),
                None => self.transport.close(peer),
            },
            Effect::SendStatus { peer, mut status, links } => {
                for (member, link) in status.members.iter_mut().zip(links) {
                    member.link = link.and_then(|link| self.transport.link(link));
                }
                status.refused = self.refusals.status(now);
                self.transport.send(peer, Message::Status(status));
            }
            Effect::Report(mut event) => {
                self.complete(now, &mut event);
                self.transport.note(&event);
                self.services.report(now, event);
            }
            Effect::Checkpoint(checkpoint) => self.journal.take(now, *checkpoint),
            Effect::Write => self.journal.write(now),
            Effect::Spare(vector) => self.transport.recycle(vector),
            Effect::Done(result) => self.done = Some(result),
            effect => self.answers.extend(self.services.work(effect, &self.mailbox.handle)),
        }
    }

    /// Adds what only the transport knows to an event, and keeps refusals for a status.
    fn complete(&mut self, now: Time, event: &mut Event) {
        let Event::Refused { peer, from, worker, who, why } = event else { return };
        if from.is_none() {
            *from = self.transport.origin(*peer);
        }
        let who = who.clone().or_else(|| worker.map(|worker| format!("worker {worker}")));
        if let Some(who) = who {
            self.refusals.note(now, who, from.clone(), &why.to_string());
        }
    }

    /// Shows how the node is doing, if it is time to.
    fn show(&mut self) {
        let Some(at) = self.services.looks_at() else { return };
        let now = self.transport.now();
        if now < at {
            return;
        }
        let refused = self.refusals.status(now);
        let status = self.node.outlook(now).map(|status| Status { refused, ..status });
        self.services.look(now, status);
    }

    /// What the node has finished with, once its last messages are out.
    fn finished(&mut self) -> Result<Option<Result<EndReason, WorkerError>>, DriveError> {
        self.obey()?;
        let mut now = self.transport.now();
        while self.done.is_none()
            && let Some(input) = self.journal.rest(now, self.node)
        {
            self.input(input)?;
            self.obey()?;
            now = self.transport.now();
        }
        if self.done.is_some() {
            self.transport.flush(now + LAST_WORDS)?;
            self.journal.end(now, self.node);
        }
        Ok(self.done.take())
    }
}
