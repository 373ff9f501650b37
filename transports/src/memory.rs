//! Transport between threads of one process; messages are handed over without a copy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Target};
use pstrain_wire::identity::Identity;
use pstrain_wire::{CHECKSUM_BYTES, FrameError, HEADER_BYTES, Limits, Message};

use crate::clock::WallClock;
use crate::transport::{
    HIGH_WATER_BYTES, MAX_BACKLOG_BYTES, Transport, TransportError, TransportEvent, Waker,
};

/// Rendezvous in memory: servers of a job listen here, workers of the same process dial them.
#[derive(Clone, Debug, Default)]
pub struct MemoryHub {
    server: Arc<Endpoint>,
    others: Others,
}

/// Servers that are not the coordinator, by address.
type Others = Arc<Mutex<BTreeMap<String, Arc<Endpoint>>>>;

impl MemoryHub {
    /// Returns a hub without servers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the coordinator's transport, which can be dialled from now on.
    #[must_use]
    pub fn server(&self) -> MemoryTransport {
        self.server.lock().open = true;
        MemoryTransport::new(Arc::clone(&self.server), None, Arc::clone(&self.others))
    }

    /// Returns the transport of a server that dials the coordinator and is dialled at `address`.
    #[must_use]
    pub fn other_server(&self, address: &str) -> MemoryTransport {
        let transport = self.worker();
        let endpoint = Arc::clone(&transport.endpoint);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.insert(address.to_owned(), endpoint);
        transport
    }

    /// Returns a transport that dials the coordinator.
    #[must_use]
    pub fn worker(&self) -> MemoryTransport {
        let endpoint = Arc::new(Endpoint::default());
        endpoint.lock().open = true;
        MemoryTransport::new(endpoint, Some(Arc::clone(&self.server)), Arc::clone(&self.others))
    }
}

/// Where parcels for one transport arrive.
#[derive(Debug, Default)]
struct Endpoint {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    open: bool,
    woken: bool,
    /// The transport sleeps. Waking one that is awake would waste a system call.
    asleep: bool,
    parcels: VecDeque<Parcel>,
}

#[derive(Debug)]
enum Parcel {
    Dial { caller: Arc<Endpoint>, caller_id: PeerId, line: Arc<Line> },
    Accepted { id: PeerId, remote_id: PeerId },
    Message { id: PeerId, message: Message },
    Closed { id: PeerId },
}

const TO_SERVER: usize = 0;
const TO_WORKER: usize = 1;

/// Unread bytes in each direction: [`TO_SERVER`] and [`TO_WORKER`].
#[derive(Debug, Default)]
struct Line {
    unread: [AtomicUsize; 2],
}

impl Endpoint {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // No code that holds the lock can panic half-way through a change.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a parcel. Returns false if no transport receives here.
    fn deliver(&self, parcel: Parcel) -> bool {
        let mut inbox = self.lock();
        let (open, asleep) = (inbox.open, inbox.asleep);
        if open {
            inbox.parcels.push_back(parcel);
        }
        // Release the lock first: the thread that wakes up needs it.
        drop(inbox);
        if open && asleep {
            self.arrived.notify_one();
        }
        open
    }

    fn wake(&self) {
        self.lock().woken = true;
        self.arrived.notify_one();
    }
}

/// A transport between threads. See [`MemoryHub`].
#[derive(Debug)]
pub struct MemoryTransport {
    clock: WallClock,
    endpoint: Arc<Endpoint>,
    /// Endpoint of the coordinator; `None` if this transport is the coordinator's.
    target: Option<Arc<Endpoint>>,
    others: Others,
    peers: BTreeMap<PeerId, Peer>,
    /// Peers with queued messages.
    backlogged: BTreeSet<PeerId>,
    next_id: u64,
    /// Parcels taken from the inbox and not processed yet.
    parcels: VecDeque<Parcel>,
    events: Vec<TransportEvent>,
}

#[derive(Debug)]
struct Peer {
    remote: Arc<Endpoint>,
    /// The remote side's id of this connection; `None` until it has accepted.
    remote_id: Option<PeerId>,
    line: Arc<Line>,
    /// Index in [`Line::unread`] of the outgoing direction.
    outward: usize,
    limits: Limits,
    backlog: VecDeque<Message>,
    backlog_bytes: usize,
    /// Messages that arrived while the peer did not take its answers.
    held: VecDeque<Message>,
    closing: bool,
    failed: bool,
}

fn size_of_message(message: &Message) -> usize {
    HEADER_BYTES + message.payload().len() + CHECKSUM_BYTES
}

impl MemoryTransport {
    fn new(endpoint: Arc<Endpoint>, target: Option<Arc<Endpoint>>, others: Others) -> Self {
        Self {
            clock: WallClock::start(),
            endpoint,
            target,
            others,
            peers: BTreeMap::new(),
            backlogged: BTreeSet::new(),
            next_id: 0,
            parcels: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// Returns the transport on a clock that others share, so that their times can be compared.
    #[must_use]
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    fn add_peer(&mut self, remote: Arc<Endpoint>, line: Arc<Line>, outward: usize) -> PeerId {
        let id = PeerId(self.next_id);
        self.next_id += 1;
        let peer = Peer {
            remote,
            remote_id: None,
            line,
            outward,
            limits: Limits::UNAUTHENTICATED,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            held: VecDeque::new(),
            closing: false,
            failed: false,
        };
        self.peers.insert(id, peer);
        id
    }

    fn open_parcel(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Dial { caller, caller_id, line } => {
                let id = self.add_peer(Arc::clone(&caller), line, TO_WORKER);
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.remote_id = Some(caller_id);
                }
                if caller.deliver(Parcel::Accepted { id: caller_id, remote_id: id }) {
                    self.events.push(TransportEvent::Connected(id, Identity::Anyone));
                } else {
                    self.peers.remove(&id);
                }
            }
            Parcel::Accepted { id, remote_id } => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.remote_id = Some(remote_id);
                    self.events.push(TransportEvent::Dialled(id, Identity::Anyone));
                }
            }
            Parcel::Message { id, message } => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    if peer.owes_reading() || !peer.held.is_empty() {
                        peer.held.push_back(message);
                    } else {
                        peer.take(id, message, &mut self.events);
                    }
                }
            }
            Parcel::Closed { id } => self.lose(id, "closed by the peer"),
        }
    }

    fn lose(&mut self, id: PeerId, why: &str) {
        self.backlogged.remove(&id);
        match self.peers.remove(&id) {
            Some(peer) if peer.closing => {}
            // The server closed before it accepted the dial.
            Some(peer) if peer.remote_id.is_none() => {
                let why = why.into();
                self.events.push(TransportEvent::DialFailed { why, fault: DialFault::Temporary });
            }
            Some(_) => {
                self.events.push(TransportEvent::Disconnected { peer: id, why: why.into() });
            }
            None => {}
        }
    }

    /// Delivers queued messages, in both directions, as far as capacity allows.
    fn relieve(&mut self) {
        for id in std::mem::take(&mut self.backlogged) {
            let Some(peer) = self.peers.get_mut(&id) else { continue }; // it has closed meanwhile
            while let Some(message) = peer.backlog.pop_front() {
                if !peer.has_room() {
                    peer.backlog.push_front(message);
                    break;
                }
                peer.backlog_bytes -= size_of_message(&message);
                peer.hand_over(message);
            }
            while !peer.owes_reading()
                && let Some(message) = peer.held.pop_front()
            {
                peer.take(id, message, &mut self.events);
            }
            if !peer.backlog.is_empty() {
                self.backlogged.insert(id);
            } else if peer.closing {
                self.hang_up(id);
            }
        }
    }

    fn hang_up(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.remove(&id)
            && let Some(remote_id) = peer.remote_id
        {
            peer.remote.deliver(Parcel::Closed { id: remote_id });
        }
    }
}

impl Peer {
    /// True if the peer has read enough of its messages to be sent more.
    fn has_room(&self) -> bool {
        self.line.unread[self.outward].load(Ordering::Relaxed) <= HIGH_WATER_BYTES
    }

    /// True if the peer must take its answers before more is read from it. Only a peer that dialled
    /// is slowed down this way: if both sides did it, each could wait for the other to read.
    fn owes_reading(&self) -> bool {
        self.outward == TO_WORKER && !self.closing && self.backlog_bytes > HIGH_WATER_BYTES
    }

    fn hand_over(&self, message: Message) {
        if let Some(id) = self.remote_id {
            let bytes = size_of_message(&message);
            self.line.unread[self.outward].fetch_add(bytes, Ordering::Relaxed);
            self.remote.deliver(Parcel::Message { id, message });
        }
    }

    /// Reads a message. Its bytes become free, so the sender may send as much again.
    fn take(&mut self, id: PeerId, message: Message, events: &mut Vec<TransportEvent>) {
        let bytes = size_of_message(&message);
        let before = self.line.unread[1 - self.outward].fetch_sub(bytes, Ordering::Relaxed);
        if before > HIGH_WATER_BYTES && before - bytes <= HIGH_WATER_BYTES {
            self.remote.wake();
        }
        if self.closing || self.failed {
            return;
        }
        let length = message.payload().len() as u32;
        if length > self.limits.payload {
            self.failed = true;
            let error = FrameError::Payload { length, limit: self.limits.payload };
            events.push(TransportEvent::Garbage(id, error));
        } else {
            events.push(TransportEvent::Message(id, message));
        }
    }
}

impl Transport for MemoryTransport {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn dial(&mut self, target: &Target) {
        let target = match target {
            Target::Server => self.target.clone(),
            Target::Address(address) | Target::Worker(address) => {
                let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
                others.get(address).cloned()
            }
        };
        let Some(target) = target else {
            let why = String::from("there is no server to dial");
            return self
                .events
                .push(TransportEvent::DialFailed { why, fault: DialFault::Permanent });
        };
        let line = Arc::new(Line::default());
        let id = self.add_peer(Arc::clone(&target), Arc::clone(&line), TO_SERVER);
        let caller = Arc::clone(&self.endpoint);
        if !target.deliver(Parcel::Dial { caller, caller_id: id, line }) {
            self.peers.remove(&id);
            let why = String::from("no server listens in this process");
            self.events.push(TransportEvent::DialFailed { why, fault: DialFault::Temporary });
        }
    }

    fn send(&mut self, id: PeerId, message: Message) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.closing {
            return;
        }
        if peer.backlog.is_empty() && peer.has_room() {
            return peer.hand_over(message);
        }
        // The next message does not count: it may be of any size.
        let next = peer.backlog.front().map_or(0, size_of_message);
        if peer.backlog_bytes - next > MAX_BACKLOG_BYTES {
            if let Some(remote_id) = peer.remote_id {
                peer.remote.deliver(Parcel::Closed { id: remote_id });
            }
            return self.lose(id, "it does not take its messages");
        }
        peer.backlog_bytes += size_of_message(&message);
        peer.backlog.push_back(message);
        self.backlogged.insert(id);
    }

    fn limit(&mut self, id: PeerId, limits: Limits) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.limits = limits;
        }
    }

    fn close(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.closing = true;
        if peer.backlog.is_empty() {
            self.hang_up(id);
        }
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError> {
        loop {
            let woken = {
                let mut inbox = self.endpoint.lock();
                while inbox.parcels.is_empty() && !inbox.woken && self.events.is_empty() {
                    let now = self.clock.now();
                    if until.is_some_and(|until| until <= now) {
                        break;
                    }
                    inbox.asleep = true;
                    let arrived = &self.endpoint.arrived;
                    inbox = match until {
                        None => arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                        Some(until) => {
                            let waited = arrived.wait_timeout(inbox, until - now);
                            waited.unwrap_or_else(PoisonError::into_inner).0
                        }
                    };
                    inbox.asleep = false;
                }
                // Take all parcels at once, so that senders need not wait while they are opened.
                std::mem::swap(&mut self.parcels, &mut inbox.parcels);
                std::mem::take(&mut inbox.woken)
            };
            while let Some(parcel) = self.parcels.pop_front() {
                self.open_parcel(parcel);
            }
            self.relieve();
            events.append(&mut self.events);
            let late = until.is_some_and(|until| until <= self.clock.now());
            if woken || late || !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let endpoint = Arc::clone(&self.endpoint);
        Waker::new(move || endpoint.wake())
    }

    fn flush(&mut self, until: Time) -> Result<(), TransportError> {
        let mut events = Vec::new();
        while !self.backlogged.is_empty() && self.clock.now() < until {
            self.wait(Some(until), &mut events)?;
            events.clear();
        }
        Ok(())
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        let parcels = {
            let mut inbox = self.endpoint.lock();
            inbox.open = false;
            std::mem::take(&mut inbox.parcels)
        };
        for parcel in parcels {
            match parcel {
                // A caller whose dial was never processed must not wait for an answer.
                Parcel::Dial { caller, caller_id, .. } => {
                    caller.deliver(Parcel::Closed { id: caller_id });
                }
                // The server counts this connection as open: learn its id, so that `hang_up` closes
                // it.
                Parcel::Accepted { id, remote_id } => {
                    if let Some(peer) = self.peers.get_mut(&id) {
                        peer.remote_id = Some(remote_id);
                    }
                }
                Parcel::Message { .. } | Parcel::Closed { .. } => {}
            }
        }
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.hang_up(id);
        }
    }
}
