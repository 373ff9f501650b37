//! TCP and Unix sockets over mio: one loop, edge-triggered, without a buffer per connection in
//! the steady state.

mod connection;
mod listener;
mod stream;
mod tcp_info;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use pstrain_core::id::PeerId;
use pstrain_core::node::Target;
use pstrain_core::protocol::{Limits, LinkFigures, Message};
use pstrain_core::time::Time;

use crate::address::{Address, AddressError};
use crate::clock::WallClock;
use crate::transport::{Transport, TransportError, TransportEvent, Waker};
use connection::{Connection, Progress};
use listener::Listener;
use stream::Stream;

pub use traffic::Traffic;

const WAKE: Token = Token(0);
const LISTEN: Token = Token(1);
/// Peers have the tokens from here on.
const FIRST_PEER: usize = 2;
/// Bytes read at a time; one buffer serves every connection.
const READ_BYTES: usize = 64 * 1024;
/// How long a closed peer may take to read the last words.
const LINGER: Duration = Duration::from_secs(1);
/// How long a dial may take. Without a limit the system would decide, and it takes minutes.
const DIAL: Duration = Duration::from_secs(5);
/// The steps in which epoll counts.
const COARSENESS: Duration = Duration::from_millis(1);
/// How long to wait after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A transport over TCP or Unix sockets, to listen or to dial.
#[derive(Debug)]
pub struct SocketTransport {
    clock: WallClock,
    poll: Poll,
    polled: Events,
    waker: Arc<mio::Waker>,
    listener: Option<Listener>,
    accept_at: Option<Time>,
    target: Option<Address>,
    dials: usize,
    connections: BTreeMap<PeerId, Connection>,
    /// When the time is over for dials under way, and for peers that are not heard any more and
    /// may still read.
    deadlines: BTreeSet<(Time, PeerId)>,
    /// Peers from which more can be read although no event will say so.
    unread: BTreeSet<PeerId>,
    next_id: u64,
    buffer: Vec<u8>,
    events: Vec<TransportEvent>,
    traffic: Arc<Traffic>,
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> TransportError {
    move |source| TransportError::System { what, source }
}

impl SocketTransport {
    fn new() -> Result<Self, TransportError> {
        let poll = Poll::new().map_err(system("poll sockets"))?;
        let waker = mio::Waker::new(poll.registry(), WAKE).map_err(system("make a waker"))?;
        Ok(Self {
            clock: WallClock::start(),
            poll,
            polled: Events::with_capacity(1024),
            waker: Arc::new(waker),
            listener: None,
            accept_at: None,
            target: None,
            dials: 0,
            connections: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            unread: BTreeSet::new(),
            next_id: 0,
            buffer: vec![0; READ_BYTES],
            events: Vec::new(),
            traffic: Arc::default(),
        })
    }

    /// A transport that listens at `address`. Port 0 takes any free port.
    ///
    /// # Errors
    /// [`TransportError`] if it cannot listen there.
    pub fn listen(address: &Address) -> Result<Self, TransportError> {
        let mut transport = Self::new()?;
        let listen_error = |source| TransportError::Listen { address: address.to_string(), source };
        let mut listener = Listener::bind(address).map_err(listen_error)?;
        listener
            .register(transport.poll.registry(), LISTEN)
            .map_err(system("poll the listening socket"))?;
        transport.listener = Some(listener);
        Ok(transport)
    }

    /// A transport that dials `address`.
    ///
    /// # Errors
    /// [`TransportError`] if the operating system gives no poll.
    pub fn dialer(address: Address) -> Result<Self, TransportError> {
        let mut transport = Self::new()?;
        transport.target = Some(address);
        Ok(transport)
    }

    /// The same transport, which dials `address` too.
    #[must_use]
    pub fn with_target(mut self, address: Address) -> Self {
        self.target = Some(address);
        self
    }

    /// The same transport on a clock that others share, so that their times can be compared.
    #[must_use]
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// The bytes of all connections, counted as they come and go.
    #[must_use]
    pub fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// Where it listens, with the port it got.
    #[must_use]
    pub fn local_address(&self) -> Option<Address> {
        self.listener.as_ref().map(Listener::address)
    }

    fn add(&mut self, stream: Stream, accepted: bool) -> io::Result<PeerId> {
        let id = PeerId(self.next_id);
        self.next_id += 1;
        let mut connection = Connection::new(stream, accepted, Arc::clone(&self.traffic));
        let both = Interest::READABLE | Interest::WRITABLE;
        let token = Token(id.0 as usize + FIRST_PEER);
        self.poll.registry().register(connection.stream(), token, both)?;
        self.connections.insert(id, connection);
        if accepted {
            self.events.push(TransportEvent::Connected(id));
        } else {
            self.end_within(id, DIAL);
        }
        Ok(id)
    }

    fn accept(&mut self) {
        self.accept_at = None;
        while let Some(listener) = &self.listener {
            match listener.accept() {
                // A connection that cannot be polled is dropped, which closes it.
                Ok(stream) => drop(self.add(stream, true)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_no_room) => {
                    self.accept_at = Some(self.clock.now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn try_dial(&mut self, target: &Target) -> io::Result<()> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let nobody = || invalid("this transport has nobody to dial".into());
        let address = match target {
            Target::Server => self.target.clone().ok_or_else(nobody)?,
            Target::Address(address) => {
                address.parse().map_err(|error: AddressError| invalid(error.to_string()))?
            }
        };
        let stream = Stream::connect(&address, self.dials)?;
        self.add(stream, false)?;
        Ok(())
    }

    /// Lets go of a connection after `span`.
    fn end_within(&mut self, id: PeerId, span: Duration) {
        let at = self.clock.now() + span;
        self.set_end(id, Some(at));
    }

    fn set_end(&mut self, id: PeerId, at: Option<Time>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut connection.ends_at, at) {
            self.deadlines.remove(&(before, id));
        }
        if let Some(at) = at {
            self.deadlines.insert((at, id));
        }
    }

    /// Takes note that a connection is gone.
    fn lose(&mut self, id: PeerId, why: String) {
        self.unread.remove(&id);
        self.set_end(id, None);
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.poll.registry().deregister(connection.stream()).unwrap_or_default();
        if connection.is_lingering() {
            return; // its owner has closed it and wants to hear no more
        }
        self.events.push(if connection.is_connected() {
            TransportEvent::Disconnected { peer: id, why }
        } else {
            TransportEvent::DialFailed { why, permanent: false }
        });
    }

    fn on_ready(&mut self, id: PeerId, event: &mio::event::Event) {
        let closed = event.is_read_closed() || event.is_error();
        let (readable, writable) = (event.is_readable() || closed, event.is_writable());
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_connected() {
            match connection.finish_connect() {
                Ok(true) => {
                    self.events.push(TransportEvent::Dialled(id));
                    self.set_end(id, None);
                }
                Ok(false) => return,
                Err(error) => return self.lose(id, error.to_string()),
            }
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if closed {
            connection.hang_up();
        }
        if writable && let Err(error) = connection.write() {
            return self.lose(id, error.to_string());
        }
        if readable || connection.wants_more() {
            self.read(id);
        }
    }

    fn read(&mut self, id: PeerId) {
        self.unread.remove(&id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.read(&mut self.buffer, id, &mut self.events) {
            Ok(Progress::Drained) => {}
            Ok(Progress::More) => drop(self.unread.insert(id)),
            Err(why) => self.lose(id, why),
        }
    }

    /// The next moment at which something is due without an event.
    fn own_deadline(&self) -> Option<Time> {
        if !self.unread.is_empty() || !self.events.is_empty() {
            return Some(Time::ZERO);
        }
        let first = self.deadlines.first().map(|&(at, _)| at);
        [first, self.accept_at].into_iter().flatten().min()
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
        let polled = std::mem::replace(&mut self.polled, Events::with_capacity(0));
        for event in &polled {
            match event.token() {
                WAKE => woken = true,
                LISTEN => self.accept(),
                Token(token) => self.on_ready(PeerId((token - FIRST_PEER) as u64), event),
            }
        }
        self.polled = polled;
        for id in std::mem::take(&mut self.unread) {
            self.read(id);
        }
        let now = self.clock.now();
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.lose(id, format!("no answer within {DIAL:?}"));
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept();
        }
        Ok(woken)
    }
}

impl Transport for SocketTransport {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn dial(&mut self, target: &Target) {
        if let Err(error) = self.try_dial(target) {
            let permanent = matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
            );
            let why = error.to_string();
            self.events.push(TransportEvent::DialFailed { why, permanent });
        }
        self.dials += 1;
    }

    fn send(&mut self, id: PeerId, message: Message) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Err(error) = connection.send(message) {
            self.lose(id, error.to_string());
        }
    }

    fn limit(&mut self, id: PeerId, limits: Limits) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.limit(limits);
        }
    }

    fn close(&mut self, id: PeerId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // What the peer still sends is read and thrown away for a moment: closing with unread
        // bytes would reset the connection and could destroy the last words under way to it.
        connection.linger();
        self.unread.insert(id);
        self.end_within(id, LINGER);
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError> {
        loop {
            let woken = self.poll_once(until)?;
            events.append(&mut self.events);
            let late = until.is_some_and(|until| until <= self.clock.now());
            if woken || late || !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // If the system cannot wake the loop, its next event or deadline will.
        Waker::new(move || waker.wake().unwrap_or_default())
    }

    fn coarseness(&self) -> Duration {
        COARSENESS
    }

    fn link(&self, id: PeerId) -> Option<LinkFigures> {
        self.connections.get(&id).map(Connection::figures)
    }

    fn flush(&mut self, until: Time) -> Result<(), TransportError> {
        let busy = |transport: &Self| transport.connections.values().any(Connection::is_unflushed);
        while busy(self) && self.clock.now() < until {
            self.poll_once(Some(until))?;
            self.events.clear();
        }
        Ok(())
    }
}
