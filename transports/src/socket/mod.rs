//! TCP and Unix sockets over mio: one edge-triggered loop, without a buffer per connection in the
//! steady state.

mod arrivals;
mod connection;
mod files;
mod listener;
mod pending;
mod secure;
mod stream;
mod tcp_info;
mod traffic;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Target};
use pstrain_wire::identity::Identity;
use pstrain_wire::{BufferPool, Limits, LinkFigures, Message};

use crate::address::Address;
use crate::clock::WallClock;
use crate::transport::{
    LONGEST_DIAL, Transport, TransportError, TransportEvent, Waker, dial_limit,
};
use connection::{Connection, Progress, Shared};
pub use files::allow_more_files;
use listener::Listener;
use pending::{Notices, Pending};
use secure::{Broken, Layer};
pub use secure::{KeyAccess, Security, SecurityError};
use stream::Stream;

pub use traffic::Traffic;

const WAKE: Token = Token(0);
const LISTEN: Token = Token(1);
/// The first token of a peer.
const FIRST_PEER: usize = 2;
/// Maximum number of socket events per poll, and so of connections that are read before their
/// messages are handled: the pushed data should still be in the cache, and takes memory until then.
const READY: usize = 128;
/// Bytes per read; one buffer serves all connections.
const READ_BYTES: usize = 64 * 1024;
/// How long a closed peer may take to read its last messages.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Resolution of epoll's timeout.
const COARSENESS: Duration = Duration::from_millis(1);

/// A transport over TCP or Unix sockets, for listening and dialling.
#[derive(Debug)]
pub struct SocketTransport {
    clock: WallClock,
    poll: Poll,
    polled: Events,
    waker: Arc<mio::Waker>,
    listener: Option<Listener>,
    security: Security,
    refresh_at: Time,
    notices: Option<Notices>,
    pending: Pending,
    /// When pending connections are served next.
    pending_at: Time,
    /// When an event of a member last occurred.
    member_at: Option<Time>,
    /// When to accept connections, if some may wait, and the earliest time allowed.
    accept_at: Option<Time>,
    accepts_at: Time,
    target: Option<Address>,
    dials: usize,
    /// How long a dial may take.
    dial_limit: Duration,
    connections: BTreeMap<PeerId, Connection>,
    /// Deadlines of pending dials and handshakes, and of closed peers that may still read.
    deadlines: BTreeSet<(Time, PeerId)>,
    /// Peers with unread bytes that no event will report.
    unread: BTreeSet<PeerId>,
    next_id: u64,
    shared: Shared,
    traffic: Arc<Traffic>,
}

/// Events of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    readable: bool,
    writable: bool,
    closed: bool,
}

impl Ready {
    fn of(event: &mio::event::Event) -> Self {
        Self {
            readable: event.is_readable(),
            writable: event.is_writable(),
            closed: event.is_read_closed() || event.is_error(),
        }
    }

    const fn add(&mut self, other: Self) {
        self.readable |= other.readable;
        self.writable |= other.writable;
        self.closed |= other.closed;
    }
}

/// Action named in errors of the listening socket.
const POLL_LISTENER: &str = "poll the listening socket";

fn system(what: &'static str) -> impl FnOnce(io::Error) -> TransportError {
    move |why| TransportError::System { what, why }
}

impl SocketTransport {
    fn new() -> Result<Self, TransportError> {
        let poll = Poll::new().map_err(system("poll sockets"))?;
        let waker = mio::Waker::new(poll.registry(), WAKE).map_err(system("make a waker"))?;
        Ok(Self {
            clock: WallClock::start(),
            poll,
            polled: Events::with_capacity(READY),
            waker: Arc::new(waker),
            listener: None,
            security: Security::local(),
            refresh_at: Time::ZERO,
            notices: None,
            pending: Pending::new(),
            pending_at: Time::ZERO,
            member_at: None,
            accept_at: None,
            accepts_at: Time::ZERO,
            target: None,
            dials: 0,
            dial_limit: LONGEST_DIAL,
            connections: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            unread: BTreeSet::new(),
            next_id: 0,
            shared: Shared {
                buffer: vec![0; READ_BYTES],
                spares: BufferPool::default(),
                events: Vec::new(),
            },
            traffic: Arc::default(),
        })
    }

    /// Returns a transport that listens at `address`. Port 0 takes any free port. Without
    /// [`Self::secured`] it accepts no connection from another machine.
    ///
    /// # Errors
    /// [`TransportError`] if it cannot listen there.
    pub fn listen(address: &Address) -> Result<Self, TransportError> {
        let listen_error = |why| TransportError::Listen { address: address.to_string(), why };
        Self::new()?.at(Listener::bind(address).map_err(listen_error)?)
    }

    /// Adds the listener, so that the transport accepts connections.
    fn at(mut self, mut listener: Listener) -> Result<Self, TransportError> {
        listener.register(self.poll.registry(), LISTEN).map_err(system(POLL_LISTENER))?;
        self.listener = Some(listener);
        Ok(self)
    }

    /// Returns a transport that replaces this one without any of its connections, as after a
    /// restart of the process. Peers that dial meanwhile wait in the listener's backlog.
    ///
    /// # Errors
    /// [`TransportError`] if the operating system cannot create a poll.
    pub fn without_connections(self) -> Result<Self, TransportError> {
        let Self { clock, poll, listener, security, notices, target, traffic, .. } = self;
        let notices = notices.map(Notices::anew);
        let anew = Self { clock, security, notices, target, traffic, ..Self::new()? };
        let Some(mut listener) = listener else { return Ok(anew) };
        listener.deregister(poll.registry()).map_err(system(POLL_LISTENER))?;
        anew.at(listener)
    }

    /// Returns a transport that dials `address`. Without [`Self::secured`] it must be on this
    /// machine.
    ///
    /// # Errors
    /// [`TransportError`] if the operating system cannot create a poll.
    pub fn dialer(address: Address) -> Result<Self, TransportError> {
        let mut transport = Self::new()?;
        transport.target = Some(address);
        Ok(transport)
    }

    /// Secures the transport's connections.
    #[must_use]
    pub fn secured(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Passes to `tell` which connections were refused before the node learned of them, and why:
    /// each message at most once in ten seconds, and at most ten messages in that time.
    #[must_use]
    pub fn telling(mut self, tell: impl FnMut(&str) + Send + 'static) -> Self {
        self.notices = Some(Notices::new(tell));
        self
    }

    /// Sets the address that the transport dials, also if it listens.
    #[must_use]
    pub fn with_target(mut self, address: Address) -> Self {
        self.target = Some(address);
        self
    }

    /// Uses a clock that others share, so that their times can be compared.
    #[must_use]
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the byte counters of all connections, which are updated continuously.
    #[must_use]
    pub fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// Returns the address it listens at, with the actual port.
    #[must_use]
    pub fn local_address(&self) -> Option<Address> {
        self.listener.as_ref().map(Listener::address)
    }

    fn add(&mut self, stream: Stream, layer: Layer, accepted: bool) -> io::Result<PeerId> {
        let id = PeerId(self.next_id);
        self.next_id += 1;
        let mut connection = Connection::new(stream, layer, accepted, Arc::clone(&self.traffic));
        let both = Interest::READABLE | Interest::WRITABLE;
        let token = Token(id.0 as usize + FIRST_PEER);
        self.poll.registry().register(connection.stream(), token, both)?;
        self.connections.insert(id, connection);
        Ok(id)
    }

    fn tell(&mut self, what: &str) {
        let now = self.clock.now();
        if let Some(notices) = &mut self.notices {
            notices.tell(now, what);
        }
    }

    /// Drops a connection after `span`.
    fn end_within(&mut self, id: PeerId, span: Duration) {
        let at = self.clock.now() + span;
        self.set_end(id, Some(at));
    }

    fn set_end(&mut self, id: PeerId, at: Option<Time>) {
        // The connection may have been lost meanwhile.
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut connection.ends_at, at) {
            self.deadlines.remove(&(before, id));
        }
        if let Some(at) = at {
            self.deadlines.insert((at, id));
        }
    }

    /// Removes a connection that has ended, and reports its end.
    fn lose(&mut self, id: PeerId, broken: Broken) {
        self.unread.remove(&id);
        self.set_end(id, None);
        let origin = self.pending.leave(id);
        let Some(mut connection) = self.connections.remove(&id) else {
            return; // lost already: reading after a failed write finds the same end
        };
        self.poll.registry().deregister(connection.stream()).unwrap_or_default();
        if connection.is_lingering() {
            return; // the node has closed it and expects no further events
        }
        let Broken { why, fault } = broken;
        if connection.is_connected() {
            self.shared.events.push(TransportEvent::Disconnected { peer: id, why });
        } else if !connection.is_accepted() {
            self.shared.events.push(TransportEvent::DialFailed { why, fault });
        } else if let Some(origin) = origin {
            self.tell(&format!("turned away {origin}: {why}"));
        }
    }

    /// Drops a connection after an error. A pending connection that is refused may still read the
    /// reason.
    fn fail(&mut self, id: PeerId, broken: Broken) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return; // lost already: reading after a failed write finds the same end
        };
        if connection.is_connected() || !connection.is_accepted() || connection.has_hung_up() {
            return self.lose(id, broken);
        }
        connection.linger();
        self.end_within(id, LINGER);
        if let Some(origin) = self.pending.origin(id) {
            self.tell(&format!("turned away {origin}: {}", broken.why));
        }
    }

    fn on_ready(&mut self, id: PeerId, ready: Ready) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return; // lost by an earlier event of the same poll
        };
        if connection.is_connecting() {
            match connection.finish_connect() {
                Ok(true) => {
                    let here = connection.check_here().map_err(Broken::permanent);
                    let connected = connection.is_connected();
                    match here {
                        Err(broken) if self.security.is_local() => return self.lose(id, broken),
                        _ if connected => {
                            self.shared.events.push(TransportEvent::Dialled(id, Identity::Anyone));
                            self.set_end(id, None);
                        }
                        _ => self.end_within(id, HANDSHAKE),
                    }
                }
                Ok(false) => return,
                Err(error) => return self.lose(id, error.into()),
            }
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            unreachable!("the connection is there")
        };
        if ready.closed {
            connection.hang_up();
        }
        if ready.writable
            && let Err(error) = connection.write()
        {
            let broken = connection.broken(error);
            self.read(id);
            return self.fail(id, broken);
        }
        if ready.readable || ready.closed || connection.wants_more() {
            self.read(id);
        }
    }

    /// Reads messages that have arrived. Also called when a write has failed: a peer that closes
    /// its end has sent its last messages before, such as the goodbye that a server waits for.
    fn read(&mut self, id: PeerId) {
        self.unread.remove(&id);
        let Some(connection) = self.connections.get_mut(&id) else {
            return; // lost since it was marked as unread
        };
        let was_connected = connection.is_connected();
        let progress = connection.read(id, &mut self.shared);
        if !was_connected && connection.is_connected() {
            let identity = connection.identity();
            self.set_end(id, None);
            if let Some(oldest) = self.pending.prove(id, identity) {
                self.evict(oldest);
            }
        }
        match progress {
            Ok(Progress::Drained) => {}
            Ok(Progress::More) if self.pending.has(id) => {
                self.call(id, Ready { readable: true, ..Ready::default() });
            }
            Ok(Progress::More) => drop(self.unread.insert(id)),
            Err(broken) => self.fail(id, broken),
        }
    }

    /// Returns when the transport next has work without an event.
    fn own_deadline(&self) -> Option<Time> {
        if !self.unread.is_empty() || !self.shared.events.is_empty() {
            return Some(Time::ZERO);
        }
        let first = self.deadlines.first().map(|&(at, _)| at);
        let calls = self.pending.is_called().then_some(self.pending_at);
        let accept = self.accept_at.map(|at| at.max(self.accepts_at));
        [first, calls, accept].into_iter().flatten().min()
    }

    fn poll_once(&mut self, until: Option<Time>) -> Result<bool, TransportError> {
        let due = [until, self.own_deadline()].into_iter().flatten().min();
        // epoll counts in milliseconds and mio rounds up, so a wake-up is never early.
        let timeout = due.map(|due| due - self.clock.now());
        match self.poll.poll(&mut self.polled, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(system("poll sockets")(error));
            }
            _ => {}
        }
        let mut woken = false;
        let now = self.clock.now();
        let polled = std::mem::replace(&mut self.polled, Events::with_capacity(0));
        for event in &polled {
            match event.token() {
                WAKE => woken = true,
                LISTEN => self.accept_at = Some(now),
                Token(token) => {
                    let (id, ready) = (PeerId((token - FIRST_PEER) as u64), Ready::of(event));
                    if self.pending.has(id) {
                        self.call(id, ready);
                    } else {
                        self.member_at = Some(now);
                        self.on_ready(id, ready);
                    }
                }
            }
        }
        self.polled = polled;
        for id in std::mem::take(&mut self.unread) {
            self.read(id);
        }
        // After the members, which have precedence over pending connections.
        self.serve_pending();
        let now = self.clock.now();
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            let connecting = self.connections.get(&id).is_some_and(Connection::is_connecting);
            let why = if connecting {
                format!("no answer within {:?}", self.dial_limit)
            } else {
                format!("no handshake within {HANDSHAKE:?}")
            };
            self.lose(id, why.into());
        }
        Ok(woken)
    }
}

impl Transport for SocketTransport {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn dial(&mut self, target: &Target) {
        if let Err(Broken { why, fault }) = self.try_dial(target) {
            self.shared.events.push(TransportEvent::DialFailed { why, fault });
        }
        self.dials += 1;
    }

    fn send(&mut self, id: PeerId, message: Message) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Err(error) = connection.send(message) {
            let broken = connection.broken(error);
            self.read(id);
            self.lose(id, broken);
        }
    }

    fn limit(&mut self, id: PeerId, limits: Limits) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.limit(limits);
            if limits != Limits::UNAUTHENTICATED
                && let Some(ready) = self.pending.take_in(id)
            {
                self.on_ready(id, ready);
            }
        }
    }

    fn recycle(&mut self, vector: Arc<Vec<f32>>) {
        self.shared.spares.give(vector);
    }

    fn close(&mut self, id: PeerId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // Input is read and discarded for a moment: closing a socket with unread bytes resets the
        // connection, which could destroy the last messages on their way to the peer.
        connection.linger();
        if self.pending.has(id) {
            self.call(id, Ready { readable: true, ..Ready::default() });
        } else {
            self.unread.insert(id);
        }
        self.end_within(id, LINGER);
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError> {
        loop {
            let woken = self.poll_once(until)?;
            events.append(&mut self.shared.events);
            let late = until.is_some_and(|until| until <= self.clock.now());
            if woken || late || !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // Ignore a failure: the next event or deadline wakes the loop.
        Waker::new(move || waker.wake().unwrap_or_default())
    }

    fn coarseness(&self) -> Duration {
        COARSENESS
    }

    fn link(&self, id: PeerId) -> Option<LinkFigures> {
        self.connections.get(&id).map(Connection::figures)
    }

    fn origin(&self, id: PeerId) -> Option<String> {
        self.connections.get(&id)?.origin().map(|origin| origin.to_string())
    }

    fn note(&mut self, event: &Event) {
        self.dial_limit = dial_limit(event).unwrap_or(self.dial_limit);
    }

    fn flush(&mut self, until: Time) -> Result<(), TransportError> {
        let busy = |transport: &Self| transport.connections.values().any(Connection::is_unflushed);
        while busy(self) && self.clock.now() < until {
            self.poll_once(Some(until))?;
            self.shared.events.clear();
        }
        Ok(())
    }
}
