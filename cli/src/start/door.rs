//! A door for the clients of a run in one process: `status`, `why`, `top` and `control` connect to
//! an address, and each of them is put through to the server, wherever its workers reach it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_compute::id::PeerId;
use pstrain_roles::node::Target;
use pstrain_transports::{SocketTransport, Transport, TransportEvent, Waker};
use pstrain_wire::{Limits, Message};

/// Period of looks at the answers while clients are there.
const GLANCE: Duration = Duration::from_millis(5);

/// An open door; it closes on drop.
#[derive(Debug)]
pub(crate) struct Door {
    is_closed: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens a door at which `clients` connect. `way` makes a transport that can dial the server.
    pub(crate) fn open<T: Transport + 'static>(
        clients: SocketTransport,
        way: impl Fn() -> Option<T> + Send + 'static,
    ) -> Self {
        let (is_closed, waker) = (Arc::new(AtomicBool::new(false)), clients.waker());
        let closed = Arc::clone(&is_closed);
        let put_through = move || put_through(clients, way, &closed);
        Self { is_closed, waker, thread: Some(std::thread::spawn(put_through)) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A client's way to the server.
struct Way<T> {
    transport: T,
    server: Option<PeerId>,
    /// Messages of the client that came before the server was reached.
    unsent: Vec<Message>,
}

impl<T: Transport> Way<T> {
    fn send(&mut self, message: Message) {
        match self.server {
            Some(server) => self.transport.send(server, message),
            None => self.unsent.push(message),
        }
    }

    /// Passes on what the server says. Returns false once the connection is over.
    fn answers(&mut self, client: PeerId, clients: &mut SocketTransport) -> bool {
        let (now, mut events) = (self.transport.now(), Vec::new());
        if self.transport.wait(Some(now), &mut events).is_err() {
            return false;
        }
        for event in events {
            match event {
                TransportEvent::Dialled(server, _) => {
                    self.server = Some(server);
                    self.transport.limit(server, Limits::PULLER);
                    for message in std::mem::take(&mut self.unsent) {
                        self.transport.send(server, message);
                    }
                }
                TransportEvent::Message(_, message) => clients.send(client, message),
                TransportEvent::Receiving(_) | TransportEvent::Connected(..) => {}
                TransportEvent::Garbage(..)
                | TransportEvent::DialFailed { .. }
                | TransportEvent::Disconnected { .. } => return false,
            }
        }
        true
    }
}

fn put_through<T: Transport>(
    mut clients: SocketTransport,
    way: impl Fn() -> Option<T>,
    is_closed: &AtomicBool,
) {
    let mut ways: BTreeMap<PeerId, Way<T>> = BTreeMap::new();
    let mut events = Vec::new();
    while !is_closed.load(Ordering::Relaxed) {
        let until = (!ways.is_empty()).then(|| clients.now() + GLANCE);
        if clients.wait(until, &mut events).is_err() {
            return;
        }
        for event in events.drain(..) {
            match event {
                TransportEvent::Connected(client, _) => match way() {
                    Some(mut transport) => {
                        transport.dial(&Target::Server);
                        ways.insert(client, Way { transport, server: None, unsent: Vec::new() });
                    }
                    None => clients.close(client),
                },
                TransportEvent::Message(client, message) => {
                    if let Some(way) = ways.get_mut(&client) {
                        way.send(message);
                    }
                }
                TransportEvent::Garbage(client, _) => {
                    ways.remove(&client);
                    clients.close(client);
                }
                TransportEvent::Disconnected { peer, .. } => drop(ways.remove(&peer)),
                TransportEvent::Receiving(_)
                | TransportEvent::Dialled(..)
                | TransportEvent::DialFailed { .. } => {}
            }
        }
        ways.retain(|client, way| {
            let goes_on = way.answers(*client, &mut clients);
            if !goes_on {
                clients.close(*client);
            }
            goes_on
        });
    }
}
