//! Single servers and workers, each on a thread and over TCP. Use it where a test must watch, stop
//! or kill individual nodes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{PartId, PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Event, Input, Ledger, NodeError, Prepare, Server, Target, Worker, WorkerConfig,
};
use pstrain_transports::{
    Address, Evaluator, Handle, Mailbox, ServerServices, SocketTransport, Transport,
    TransportError, TransportEvent, Waker, WorkerServices, drive,
};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Limits, Message};

use crate::toy::{Toy, partition_of, parts_of};

/// A transport that can be taken from its node, as if the process had been killed.
struct Mortal {
    inner: SocketTransport,
    killed: Arc<AtomicBool>,
}

impl Transport for Mortal {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn dial(&mut self, target: &Target) {
        self.inner.dial(target);
    }

    fn send(&mut self, peer: PeerId, message: Message) {
        self.inner.send(peer, message);
    }

    fn limit(&mut self, peer: PeerId, limits: Limits) {
        self.inner.limit(peer, limits);
    }

    fn close(&mut self, peer: PeerId) {
        self.inner.close(peer);
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError> {
        self.inner.wait(until, events)?;
        if self.killed.load(Ordering::SeqCst) {
            let why = io::Error::other("the test has killed this node");
            return Err(TransportError::System { what: "live on", why });
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn flush(&mut self, until: Time) -> Result<(), TransportError> {
        self.inner.flush(until)
    }
}

/// Control over a running node.
#[derive(Clone, Debug)]
struct Reins {
    killed: Arc<AtomicBool>,
    waker: Waker,
    handle: Handle,
}

impl Reins {
    fn new(transport: &Mortal, mailbox: &Mailbox) -> Self {
        let (killed, waker) = (Arc::clone(&transport.killed), transport.waker());
        Self { killed, waker, handle: mailbox.handle() }
    }

    fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

/// The events that a node has reported so far.
#[derive(Clone, Debug, Default)]
struct Log(Arc<(Mutex<Vec<Event>>, Condvar)>);

impl Log {
    fn push(&self, event: Event) {
        let (events, more) = &*self.0;
        events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        more.notify_all();
    }

    fn wait_for(&self, what: &str, mut found: impl FnMut(&[Event]) -> bool) {
        const PATIENCE: Duration = Duration::from_secs(20);
        let (events, more) = &*self.0;
        let guard = events.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = more.wait_timeout_while(guard, PATIENCE, |events| !found(events));
        let (events, late) = waited.unwrap_or_else(PoisonError::into_inner);
        let last = &events[events.len().saturating_sub(20)..];
        assert!(!late.timed_out(), "not within {PATIENCE:?}: {what}; the last events: {last:#?}");
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A server on its own thread, listening on TCP.
#[derive(Debug)]
pub struct ServerThread {
    /// The address at which it listens.
    pub address: Address,
    reins: Reins,
    log: Log,
    thread: JoinHandle<Option<ServerEnd>>,
}

/// Result of a server.
#[derive(Debug)]
pub struct ServerEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// The final parameters.
    pub parameters: Vec<f32>,
    /// The final ledger of mini-batches.
    pub ledger: Ledger,
    /// All events that it reported.
    pub events: Vec<Event>,
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl ServerThread {
    /// Starts a server for the job of `toy`.
    ///
    /// # Panics
    /// If it cannot listen or the job is invalid.
    #[must_use]
    pub fn start(toy: &Toy) -> Self {
        let inner = SocketTransport::listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = inner.local_address().unwrap();
        let mut transport = Mortal { inner, killed: Arc::default() };
        let mailbox = Mailbox::new(&transport);
        let reins = Reins::new(&transport, &mailbox);
        let log = Log::default();
        let mut server = Server::new(toy.job.clone(), 1).unwrap();
        let model = toy.job.build_model().unwrap();
        let evaluator = Evaluator::new(Box::new(Local::new(model, [toy.train.clone()])));
        let (train, count) = (toy.train.clone(), toy.job.parts());
        let partition = move |part: PartId| Some(partition_of(&train, count, part));
        let report = log.clone();
        let events = log.clone();
        let thread = std::thread::spawn(move || {
            let report = move |_: Time, event: Event| report.push(event);
            let mut services = ServerServices::new(evaluator, partition, report);
            let end = drive(&mut server, &mut transport, &mut services, &mailbox).ok()?;
            Some(ServerEnd {
                reason: end.unwrap(),
                parameters: server.parameters().to_vec(),
                ledger: server.ledger(),
                events: events.take(),
            })
        });
        Self { address, reins, log, thread }
    }

    /// Waits until `found` accepts the events that the server has reported since it started.
    ///
    /// # Panics
    /// If it takes too long.
    pub fn wait_for(&self, what: &str, found: impl FnMut(&[Event]) -> bool) {
        self.log.wait_for(what, found);
    }

    /// Waits until the parameters have had this many updates.
    ///
    /// # Panics
    /// If it takes too long.
    pub fn wait_for_version(&self, version: u64) {
        self.wait_for("updates", |events| {
            events.iter().rev().any(
                |event| matches!(event, Event::Updated { point, .. } if point.version.0 >= version),
            )
        });
    }

    /// Tells the server to finish in order.
    pub fn drain(&self) {
        self.reins.handle.post(Input::Drain);
    }

    /// Takes its transport away, without a goodbye to any peer.
    pub fn kill(self) {
        self.reins.kill();
        let _ended = self.thread.join();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it was killed.
    #[must_use]
    pub fn join(self) -> ServerEnd {
        self.thread.join().unwrap().unwrap()
    }
}

/// A worker on its own thread, over TCP.
#[derive(Debug)]
pub struct WorkerThread {
    reins: Reins,
    log: Log,
    thread: JoinHandle<Option<Result<EndReason, NodeError>>>,
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl WorkerThread {
    /// Starts a worker with the examples of `toy` that dials `address` and asks for the id
    /// `worker`.
    ///
    /// # Panics
    /// If the system gives no sockets.
    #[must_use]
    pub fn start(toy: &Toy, worker: u32, address: &Address) -> Self {
        let inner = SocketTransport::dialer(address.clone()).unwrap();
        let mut transport = Mortal { inner, killed: Arc::default() };
        let mailbox = Mailbox::new(&transport);
        let reins = Reins::new(&transport, &mailbox);
        let mut node = Worker::new(WorkerConfig {
            name: format!("test-{worker}"),
            worker: Some(WorkerId(worker)),
            wants_examples: false,
            lease: toy.job.membership.lease,
            stream: Stream::new(u64::from(worker)),
        });
        let (train, count) = (toy.train.clone(), toy.job.parts());
        let load = move |order: &Prepare| -> Result<(Vec<Examples>, Fingerprint), String> {
            Ok((parts_of(&train, count, order), Fingerprint::of(&train)))
        };
        let log = Log::default();
        let report = log.clone();
        let thread = std::thread::spawn(move || {
            let mut services = WorkerServices::new(load, move |_, event| report.push(event));
            drive(&mut node, &mut transport, &mut services, &mailbox).ok()
        });
        Self { reins, log, thread }
    }

    /// Waits until `found` accepts the events that the worker has reported since it started.
    ///
    /// # Panics
    /// If it takes too long.
    pub fn wait_for(&self, what: &str, found: impl FnMut(&[Event]) -> bool) {
        self.log.wait_for(what, found);
    }

    /// Tells the worker to finish in order.
    pub fn drain(&self) {
        self.reins.handle.post(Input::Drain);
    }

    /// Takes its transport away, without a goodbye to any peer.
    pub fn kill(self) {
        self.reins.kill();
        let _ended = self.thread.join();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The worker's own error.
    ///
    /// # Panics
    /// If it was killed.
    pub fn join(self) -> Result<EndReason, NodeError> {
        self.thread.join().unwrap().unwrap()
    }
}
