//! Transports without nodes: exposes what a driver would see, one event at a time. Use it to test
//! that transports conform to their contract.

use std::collections::VecDeque;
use std::time::Duration;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_roles::node::{DialFault, Event, Target};
use pstrain_transports::scenario::{Scenario, ServerLink};
use pstrain_transports::{Address, MemoryHub, Shaped, SocketTransport, Transport, TransportEvent};
use pstrain_wire::identity::Identity;
use pstrain_wire::{Limits, Message};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::cluster::Kind;
use crate::toy::Toy;

/// Limits that nothing in a test exceeds by accident.
pub const OPEN: Limits = Limits { control: 1 << 24, payload: 1 << 28 };
/// Time without an event after which a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A transport of any kind, and its events.
pub struct Probe {
    /// The transport.
    pub transport: Box<dyn Transport>,
    events: VecDeque<TransportEvent>,
    /// `Receiving` events, which are only counted: their timing is chance.
    pub parts: u64,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("events", &self.events).finish_non_exhaustive()
    }
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl Probe {
    /// Wraps `transport`.
    #[must_use]
    pub fn new(transport: impl Transport + 'static) -> Self {
        Self { transport: Box::new(transport), events: VecDeque::new(), parts: 0 }
    }

    /// Lets the transport work once, for at most `span`. Returns true if it has events.
    ///
    /// # Panics
    /// If the transport fails.
    pub fn work(&mut self, span: Duration) -> bool {
        let mut events = Vec::new();
        let until = self.transport.now() + span;
        self.transport.wait(Some(until), &mut events).unwrap();
        for event in events {
            match event {
                TransportEvent::Receiving(_) => self.parts += 1,
                event => self.events.push_back(event),
            }
        }
        !self.events.is_empty()
    }

    /// Notifies the transport that its node was welcomed to a job with these links.
    ///
    /// # Panics
    /// If `links` do not parse.
    pub fn welcome(&mut self, links: &str) {
        let mut job = Toy::new(1, 8).job;
        // The lease is so long that no message that is held back is reported in parts.
        job.membership.lease = Duration::from_secs(3600);
        job.scenario = Scenario::parse(links, "none", "none").unwrap().to_text();
        let (worker, job) = (WorkerId(0), Box::new(job));
        self.transport.note(&Event::Welcomed { worker, resumed: false, job });
    }

    /// Returns the next event that is there already, without letting the transport work.
    pub fn pop(&mut self) -> Option<TransportEvent> {
        self.events.pop_front()
    }

    /// Returns the next event.
    ///
    /// # Panics
    /// If none comes.
    pub fn event(&mut self) -> TransportEvent {
        let until = self.transport.now() + PATIENCE;
        while self.events.is_empty() && self.transport.now() < until {
            self.work(PATIENCE);
        }
        self.events.pop_front().unwrap_or_else(|| panic!("no event within {PATIENCE:?}"))
    }

    /// Returns the next event, while `other` works as well: the event depends on it.
    ///
    /// # Panics
    /// If none comes.
    pub fn event_with(&mut self, other: &mut Self) -> TransportEvent {
        let until = self.transport.now() + PATIENCE;
        while !self.work(Duration::from_millis(1)) && self.transport.now() < until {
            other.work(Duration::ZERO);
        }
        self.event()
    }

    /// Returns the peer of the next event, which must be a connection.
    ///
    /// # Panics
    /// If something else happens.
    pub fn connected(&mut self) -> PeerId {
        Self::of_connection(self.event())
    }

    /// Returns the peer of the next event, which must be the connection of `dialler`, which works
    /// as well: both take part in a handshake.
    ///
    /// # Panics
    /// If something else happens.
    pub fn connected_with(&mut self, dialler: &mut Self) -> PeerId {
        Self::of_connection(self.event_with(dialler))
    }

    fn of_connection(event: TransportEvent) -> PeerId {
        match event {
            TransportEvent::Connected(peer, _) => peer,
            other => panic!("{other:?} instead of a connection"),
        }
    }

    /// Returns the peer of the next event, which must be a dial that succeeded.
    ///
    /// # Panics
    /// If something else happens.
    pub fn dialled(&mut self) -> PeerId {
        match self.event() {
            TransportEvent::Dialled(peer, _) => peer,
            other => panic!("{other:?} instead of a connection"),
        }
    }

    /// Returns the next event, which must be a message.
    ///
    /// # Panics
    /// If something else happens.
    pub fn message(&mut self) -> (PeerId, Message) {
        match self.event() {
            TransportEvent::Message(peer, message) => (peer, message),
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// Returns the peer and the reason of the next event, which must be the end of a connection.
    ///
    /// # Panics
    /// If something else happens.
    pub fn disconnected(&mut self) -> (PeerId, String) {
        match self.event() {
            TransportEvent::Disconnected { peer, why } => (peer, why),
            other => panic!("{other:?} instead of the end of a connection"),
        }
    }

    /// Returns why the next event, a failed dial, failed, and what that says about another one.
    ///
    /// # Panics
    /// If something else happens.
    pub fn dial_failed(&mut self) -> (String, DialFault) {
        match self.event() {
            TransportEvent::DialFailed { why, fault } => (why, fault),
            other => panic!("{other:?} instead of a failed dial"),
        }
    }
}

/// A server's transport, and a way to dial it.
pub struct Net {
    /// The server.
    pub server: Probe,
    /// The address at which it listens, if its transport has addresses.
    pub address: Option<Address>,
    dial: Box<dyn Fn() -> Probe + Send>,
    /// The folder of the Unix socket.
    _folder: Option<TempDir>,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("server", &self.server).finish_non_exhaustive()
    }
}

#[expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure here fails the test")]
impl Net {
    /// A server over `kind`.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let (address, folder): (Address, _) = match kind {
            Kind::Memory => {
                let hub = MemoryHub::new();
                let server = Probe::new(hub.server());
                let dial = Box::new(move || Probe::new(hub.worker()));
                return Self { server, address: None, dial, _folder: None };
            }
            Kind::ShapedMemory => {
                let hub = MemoryHub::new();
                let server =
                    Probe::new(Shaped::server(hub.server(), ServerLink::default(), PATIENCE));
                let dial = Box::new(move || Probe::new(Shaped::worker(hub.worker())));
                return Self { server, address: None, dial, _folder: None };
            }
            Kind::Unix => {
                let folder = TempDir::new().unwrap();
                (Address::Unix(folder.path().join("socket")), Some(folder))
            }
            Kind::Tcp | Kind::Tls | Kind::ShapedTcp => ("127.0.0.1:0".parse().unwrap(), None),
        };
        let server = SocketTransport::listen(&address).unwrap();
        let address = server.local_address().expect("it listens");
        let target = address.clone();
        let dialer = move || SocketTransport::dialer(target.clone()).unwrap();
        let (server, dial): (_, Box<dyn Fn() -> Probe + Send>) = match kind {
            Kind::ShapedTcp => {
                let server = Probe::new(Shaped::server(server, ServerLink::default(), PATIENCE));
                (server, Box::new(move || Probe::new(Shaped::worker(dialer()))))
            }
            Kind::Tls => {
                let certificates = Certificates::new();
                let server = server.secured(certificates.security(Identity::Server));
                let worker = move || certificates.security(Identity::Worker(None));
                (Probe::new(server), Box::new(move || Probe::new(dialer().secured(worker()))))
            }
            _ => (Probe::new(server), Box::new(move || Probe::new(dialer()))),
        };
        Self { server, address: Some(address), dial, _folder: folder }
    }

    /// A transport that can dial the server.
    #[must_use]
    pub fn dialer(&self) -> Probe {
        (self.dial)()
    }

    /// Connects `client` and lifts the limits. Returns the server's peer id at the client, and the
    /// client's at the server.
    pub fn connect(&mut self, client: &mut Probe) -> (PeerId, PeerId) {
        client.transport.dial(&Target::Server);
        let at_server = self.server.connected_with(client);
        let at_client = client.dialled();
        self.server.transport.limit(at_server, OPEN);
        client.transport.limit(at_client, OPEN);
        (at_client, at_server)
    }

    /// Returns a server, one connected client, the server's peer id at the client, and the client's
    /// at the server.
    #[must_use]
    pub fn pair(kind: Kind) -> (Self, Probe, PeerId, PeerId) {
        let mut net = Self::new(kind);
        let mut client = net.dialer();
        let (at_client, at_server) = net.connect(&mut client);
        (net, client, at_client, at_server)
    }

    /// Stops the server and returns a transport that can only dial its former address.
    #[must_use]
    pub fn abandon(self) -> Probe {
        let dialer = self.dialer();
        drop(self.server);
        dialer
    }
}
