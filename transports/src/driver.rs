//! The loop that drives a node over a transport.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pstrain_compute::id::{PartId, PeerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Checkpoint, Durable, Effect, Event, Input, Node, NodeError, Outbox};
use pstrain_wire::worker::{EndReason, ExamplesChunk};
use pstrain_wire::{Message, Status};

use crate::processors;
use crate::refusals::Refusals;
use crate::transport::{Transport, TransportError, TransportEvent, Waker};

/// Time limit for sending the last messages after the node has finished.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Lateness of a wait from which on the process or the machine must have been stopped. On a busy
/// machine a process wakes up only some milliseconds late.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// Performs the effects of a node that are not about messages.
pub trait Services {
    /// Records an event of the node.
    fn report(&mut self, now: Time, event: Event);

    /// Announces an effect that [`Self::work`] will receive after the messages before it are sent.
    fn foresee(&mut self, effect: &Effect) {
        let _unheeded = effect;
    }

    /// Begins the work of an effect. Returns the input that answers it, or posts it to `handle`
    /// later.
    fn work(&mut self, effect: Effect, handle: &Handle) -> Option<Input>;

    /// Returns rows of a part from row `from` on; `None` if there are none.
    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk>;

    /// Returns when the service next wants to [see](Self::look) the status of the node, if ever.
    fn looks_at(&self) -> Option<Time> {
        None
    }

    /// Receives the status of the node, if the node has one. Sets the next time to later than
    /// `now`.
    fn look(&mut self, now: Time, status: Option<Status>) {
        let _unheeded = (now, status);
    }
}

/// Posts inputs to a driven node from other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    inputs: Sender<Input>,
    waker: Waker,
}

impl Handle {
    /// Posts an input. A node that has finished ignores it.
    pub fn post(&self, input: Input) {
        if self.inputs.send(input).is_ok() {
            self.waker.wake();
        }
    }
}

/// Receiving end of a [`Handle`].
#[derive(Debug)]
pub struct Mailbox {
    handle: Handle,
    inputs: Receiver<Input>,
}

impl Mailbox {
    /// Returns a mailbox for a node that will be driven over `transport`.
    pub fn new(transport: &dyn Transport) -> Self {
        let (sender, inputs) = channel();
        Self { handle: Handle { inputs: sender, waker: transport.waker() }, inputs }
    }

    /// Returns a handle that posts inputs to this mailbox.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

/// Inputs could not be written durably, with the system's error text. None of their effects was
/// performed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}, and it is to end: all that was acknowledged is kept; free some space and continue with \
     --resume"
)]
pub struct JournalError(pub String);

/// Errors that stop the driver before the node has finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The transport failed as a whole.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The journal could not keep the inputs.
    #[error(transparent)]
    JournalError(#[from] JournalError),
}

/// Keeps the inputs of a node, so that they can be replayed after a restart.
pub trait Journal {
    /// True if the journal keeps inputs. Effects then wait until the inputs before them are
    /// committed.
    fn keeps(&self) -> bool {
        true
    }

    /// Appends an input that the node is about to handle.
    fn append(&mut self, now: Time, input: &Input);

    /// Keeps neither the last appended input nor any later one, and no later state.
    fn pause(&mut self) {}

    /// Returns once all appended inputs are durable.
    ///
    /// # Errors
    /// [`JournalError`] if they cannot be written and waiting would not help.
    fn commit(&mut self) -> Result<(), JournalError>;

    /// Called when the node is at rest: all effects of its inputs so far have been performed, so
    /// the journal may inspect or save the node. Returns the next input for the node, if any.
    fn rest(&mut self, now: Time, node: &mut dyn Durable) -> Option<Input> {
        let _nothing = (now, node);
        None
    }

    /// Takes a state, to be written when [`Self::write`] is called.
    fn take(&mut self, now: Time, checkpoint: Checkpoint) {
        let _nothing = (now, checkpoint);
    }

    /// Begins to write the state that was taken last.
    fn write(&mut self, now: Time) {
        let _nothing = now;
    }

    /// Called once the node has finished.
    fn end(&mut self, now: Time, node: &mut dyn Durable) {
        let _nothing = (now, node);
    }
}

/// Runs `node` until it has finished, and returns its result.
///
/// # Errors
/// [`DriveError`] if the transport fails as a whole; a failed connection is an input of the node.
pub fn drive(
    node: &mut dyn Node,
    transport: &mut dyn Transport,
    services: &mut dyn Services,
    mailbox: &Mailbox,
) -> Result<Result<EndReason, NodeError>, DriveError> {
    Driver::new(Driven::Alone(node), transport, services, mailbox).run(Begin::start())
}

/// Pending effects and first inputs of a node that is driven on.
#[derive(Debug)]
pub struct Begin {
    /// Effects that the node requested and that have not been performed.
    pub effects: Vec<Effect>,
    /// Inputs that the node handles first.
    pub inputs: Vec<Input>,
}

impl Begin {
    /// Returns the beginning of a new node.
    #[must_use]
    pub fn start() -> Self {
        Self { effects: Vec::new(), inputs: vec![Input::Start] }
    }
}

/// Runs `node` from its present state until it has finished, and returns its result. An effect
/// becomes visible only after `journal` has committed the inputs before it; all inputs of one wait
/// are committed together.
///
/// # Errors
/// As [`drive`], and if the journal gives up.
pub fn drive_from(
    node: &mut dyn Durable,
    transport: &mut dyn Transport,
    services: &mut dyn Services,
    mailbox: &Mailbox,
    journal: &mut dyn Journal,
    begin: Begin,
) -> Result<Result<EndReason, NodeError>, DriveError> {
    Driver::new(Driven::Kept(node, journal), transport, services, mailbox).run(begin)
}

fn input_of(event: TransportEvent) -> Input {
    match event {
        TransportEvent::Connected(peer, identity) => Input::Connected(peer, identity),
        TransportEvent::Dialled(peer, identity) => Input::Dialled(peer, identity),
        TransportEvent::DialFailed { why, fault } => Input::DialFailed { why, fault },
        TransportEvent::Message(peer, message) => Input::Message(peer, message),
        TransportEvent::Receiving(peer) => Input::Receiving(peer),
        TransportEvent::Garbage(peer, error) => Input::Garbage(peer, error),
        TransportEvent::Disconnected { peer, why } => Input::Disconnected { peer, why },
    }
}

/// A node, and the journal of its inputs if it has one.
enum Driven<'a> {
    Alone(&'a mut dyn Node),
    Kept(&'a mut dyn Durable, &'a mut dyn Journal),
}

impl Driven<'_> {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        match self {
            Self::Alone(node) => node.handle(now, input, out),
            Self::Kept(node, journal) => {
                journal.append(now, &input);
                node.handle(now, input, out);
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Self::Alone(node) => node.deadline(),
            Self::Kept(node, _) => node.deadline(),
        }
    }

    fn outlook(&self, now: Time) -> Option<Status> {
        match self {
            Self::Alone(node) => node.outlook(now),
            Self::Kept(node, _) => node.outlook(now),
        }
    }

    fn journal(&mut self) -> Option<&mut dyn Journal> {
        match self {
            Self::Alone(_) => None,
            Self::Kept(_, journal) => Some(&mut **journal),
        }
    }

    /// The next input of a journal for the node at rest.
    fn rest(&mut self, now: Time) -> Option<Input> {
        match self {
            Self::Alone(_) => None,
            Self::Kept(node, journal) => journal.rest(now, &mut **node),
        }
    }

    fn end(&mut self, now: Time) {
        if let Self::Kept(node, journal) = self {
            journal.end(now, &mut **node);
        }
    }
}

/// Not generic, so that the loop is compiled here, at the level of this crate.
struct Driver<'a> {
    driven: Driven<'a>,
    transport: &'a mut dyn Transport,
    services: &'a mut dyn Services,
    mailbox: &'a Mailbox,
    /// True if effects wait for the journal.
    keeps: bool,
    outbox: Outbox,
    /// Effects awaiting the journal, with the time of their input.
    held: Vec<(Time, Effect)>,
    /// Inputs that services returned at once.
    answers: Vec<Input>,
    /// Peers that the node closed; the current batch may still hold their events.
    closed: Vec<PeerId>,
    refusals: Refusals,
    /// The node has finished and handles no more inputs.
    over: bool,
    done: Option<Result<EndReason, NodeError>>,
}

impl<'a> Driver<'a> {
    fn new(
        mut driven: Driven<'a>,
        transport: &'a mut dyn Transport,
        services: &'a mut dyn Services,
        mailbox: &'a Mailbox,
    ) -> Self {
        let keeps = driven.journal().is_some_and(|journal| journal.keeps());
        Self {
            driven,
            transport,
            services,
            mailbox,
            keeps,
            outbox: Outbox::new(),
            held: Vec::new(),
            answers: Vec::new(),
            closed: Vec::new(),
            refusals: Refusals::default(),
            over: false,
            done: None,
        }
    }

    fn run(mut self, begin: Begin) -> Result<Result<EndReason, NodeError>, DriveError> {
        let mut events = Vec::new();
        let now = self.transport.now();
        self.held.extend(begin.effects.into_iter().map(|effect| (now, effect)));
        begin.inputs.into_iter().try_for_each(|input| self.input(input))?;
        loop {
            if let Some(result) = self.finished()? {
                return Ok(result);
            }
            self.show();
            let deadline = self.driven.deadline();
            let until = deadline.into_iter().chain(self.services.looks_at()).min();
            self.transport.wait(until, &mut events)?;
            self.closed.clear();
            let overslept = self.late(deadline).is_some_and(|late| late >= OVERSLEPT);
            if overslept {
                self.input(Input::Overslept)?;
            }
            for event in events.drain(..) {
                if event.peer().is_some_and(|peer| self.closed.contains(&peer)) {
                    continue;
                }
                self.input(input_of(event))?;
            }
            while let Ok(input) = self.mailbox.inputs.try_recv() {
                self.input(input)?;
            }
            // Events and posted inputs come before the wake-up, since the deadline may wait for
            // them. If the process was stopped after the wait, no wake-up: the node must handle
            // `Overslept` first.
            let late = self.late(self.driven.deadline());
            if late.is_some_and(|late| late < OVERSLEPT || overslept) {
                self.input(Input::Wake)?;
            }
        }
    }

    /// Returns how long ago `deadline` passed, if it has.
    fn late(&self, deadline: Option<Time>) -> Option<Duration> {
        let now = self.transport.now();
        deadline.filter(|&at| now >= at).map(|at| now - at)
    }

    /// Passes one input to the node. Its effects are performed now, or by [`Self::obey`] once the
    /// journal has committed the input.
    fn input(&mut self, input: Input) -> Result<(), JournalError> {
        self.handle(input);
        if self.keeps { Ok(()) } else { self.obey() }
    }

    fn handle(&mut self, input: Input) {
        if self.over {
            return;
        }
        let now = self.transport.now();
        self.driven.handle(now, input, &mut self.outbox);
        for effect in self.outbox.drain(..) {
            match effect {
                Effect::Pause => {
                    if let Some(journal) = self.driven.journal() {
                        journal.pause();
                    }
                    continue;
                }
                Effect::Close(peer) => self.closed.push(peer),
                Effect::Done(_) => self.over = true,
                _ => {}
            }
            self.held.push((now, effect));
        }
    }

    /// Commits the journal, then performs all held effects and those of the immediate answers.
    fn obey(&mut self) -> Result<(), JournalError> {
        while !self.held.is_empty() {
            if let Some(journal) = self.driven.journal() {
                journal.commit()?;
            }
            let mut held = std::mem::take(&mut self.held);
            // A compute process works while messages are sent.
            held.iter().for_each(|(_, effect)| self.services.foresee(effect));
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
                status.processor_wait = processors::waiting_share_here();
                self.transport.send(peer, Message::Status(status));
            }
            Effect::Report(mut event) => {
                self.complete(now, &mut event);
                self.transport.note(&event);
                self.services.report(now, event);
            }
            // A node takes checkpoints at the request of its journal.
            Effect::Checkpoint(checkpoint) => {
                if let Some(journal) = self.driven.journal() {
                    journal.take(now, *checkpoint);
                }
            }
            Effect::Write => {
                if let Some(journal) = self.driven.journal() {
                    journal.write(now);
                }
            }
            Effect::Recycle(vector) => self.transport.recycle(vector),
            Effect::Done(result) => self.done = Some(result),
            effect => self.answers.extend(self.services.work(effect, &self.mailbox.handle)),
        }
    }

    /// Adds the origin, which only the transport knows, to a refusal, and keeps it for the status.
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

    /// Passes the node's status to the services if they are due to see it.
    fn show(&mut self) {
        let Some(at) = self.services.looks_at() else { return };
        let now = self.transport.now();
        if now < at {
            return;
        }
        let refused = self.refusals.status(now);
        let status = self.driven.outlook(now).map(|status| Status { refused, ..status });
        self.services.look(now, status);
    }

    /// Performs pending effects. Returns the node's result once it has finished and its last
    /// messages have been sent.
    fn finished(&mut self) -> Result<Option<Result<EndReason, NodeError>>, DriveError> {
        self.obey()?;
        let mut now = self.transport.now();
        while self.done.is_none()
            && let Some(input) = self.driven.rest(now)
        {
            self.input(input)?;
            self.obey()?;
            now = self.transport.now();
        }
        if self.done.is_some() {
            self.transport.flush(now + FLUSH_LIMIT)?;
            self.driven.end(now);
        }
        Ok(self.done.take())
    }
}
