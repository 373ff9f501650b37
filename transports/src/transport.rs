//! The interface of a transport to the driver.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Event, Target};
use pstrain_wire::identity::Identity;
use pstrain_wire::{FrameError, Limits, LinkFigures, Message};

/// Queued bytes above which nothing more is read from a peer that dialled until it has taken its
/// answers: a slow reader slows its sender.
pub(crate) const HIGH_WATER_BYTES: usize = 1024 * 1024;

/// Maximum bytes queued for one peer, not counting the next message, which may be of any size. A
/// peer beyond this limit does not read at all and is disconnected.
pub const MAX_BACKLOG_BYTES: usize = 64 * 1024 * 1024;

/// Time limit of a dial until a lease is known, and at most. The system's own limit is minutes.
pub(crate) const LONGEST_DIAL: Duration = Duration::from_secs(5);
/// Least time limit of a dial: links over satellites take most of it for an answer.
const SHORTEST_DIAL: Duration = Duration::from_secs(1);

/// The time limit of dials after an event of the node, if that tells the lease: a machine that has
/// vanished does not answer, and a node makes no other dial meanwhile.
pub(crate) fn dial_limit(event: &Event) -> Option<Duration> {
    match event {
        Event::Welcomed { job, .. } | Event::Enlisted { job, .. } => {
            Some(job.membership.lease.clamp(SHORTEST_DIAL, LONGEST_DIAL))
        }
        _ => None,
    }
}

/// Messages to and from peers by id, and a clock.
///
/// Messages to one peer arrive in order and whole, or the connection ends. Queues are bounded:
/// nothing more is read from a peer that dialled and does not take its answers, and a peer that
/// never takes them is disconnected. The dialler always reads, so that two nodes that both send
/// much do not wait for each other forever.
pub trait Transport: Send {
    /// Returns the time since the transport was created, or since the start of a shared clock.
    fn now(&self) -> Time;

    /// Begins to connect to the transport's default server or to another address. `Dialled` or
    /// `DialFailed` follows.
    fn dial(&mut self, target: &Target);

    /// Queues a message. Drops it if the peer is gone.
    fn send(&mut self, peer: PeerId, message: Message);

    /// Sets the limits of what is accepted from a peer from now on.
    fn limit(&mut self, peer: PeerId, limits: Limits);

    /// Takes back memory of received values that is no longer needed.
    fn recycle(&mut self, vector: Arc<Vec<f32>>) {
        drop(vector);
    }

    /// Closes a connection once its queue has been sent. No further events of the peer follow.
    fn close(&mut self, peer: PeerId);

    /// Waits until an event occurs, the waker is used, or `until` has passed, and appends the
    /// events to `events`.
    ///
    /// # Errors
    /// [`TransportError`] if the operating system can deliver no more events at all.
    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError>;

    /// Returns a waker, which ends a `wait` from another thread.
    fn waker(&self) -> Waker;

    /// Waits until all queues are empty, or `until` has passed.
    ///
    /// # Errors
    /// As [`Self::wait`].
    fn flush(&mut self, until: Time) -> Result<(), TransportError>;

    /// Returns how late a wait may end because the system's timer is coarse.
    fn coarseness(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the measurements of an open connection; `None` if the transport does not measure.
    fn link(&self, peer: PeerId) -> Option<LinkFigures> {
        let _unheeded = peer;
        None
    }

    /// Returns the host that a connection comes from, in words; `None` if unknown.
    fn origin(&self, peer: PeerId) -> Option<String> {
        let _unheeded = peer;
        None
    }

    /// Receives the events that the node reports. From the welcome a shaped transport learns its
    /// link, and one of sockets how long a dial may take.
    fn note(&mut self, _event: &Event) {}
}

/// A borrowed transport.
impl<T: Transport + ?Sized> Transport for &mut T {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn dial(&mut self, target: &Target) {
        (**self).dial(target);
    }

    fn send(&mut self, peer: PeerId, message: Message) {
        (**self).send(peer, message);
    }

    fn limit(&mut self, peer: PeerId, limits: Limits) {
        (**self).limit(peer, limits);
    }

    fn recycle(&mut self, vector: Arc<Vec<f32>>) {
        (**self).recycle(vector);
    }

    fn close(&mut self, peer: PeerId) {
        (**self).close(peer);
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError> {
        (**self).wait(until, events)
    }

    fn waker(&self) -> Waker {
        (**self).waker()
    }

    fn flush(&mut self, until: Time) -> Result<(), TransportError> {
        (**self).flush(until)
    }

    fn coarseness(&self) -> Duration {
        (**self).coarseness()
    }

    fn link(&self, peer: PeerId) -> Option<LinkFigures> {
        (**self).link(peer)
    }

    fn origin(&self, peer: PeerId) -> Option<String> {
        (**self).origin(peer)
    }

    fn note(&mut self, event: &Event) {
        (**self).note(event);
    }
}

/// Events of a transport.
#[derive(Debug)]
pub enum TransportEvent {
    /// A peer has dialled and proved its identity.
    Connected(PeerId, Identity),
    /// A dial has succeeded, and the peer has proved its identity.
    Dialled(PeerId, Identity),
    /// A dial has failed.
    DialFailed {
        /// The error, in words.
        why: String,
        /// The prospect of another attempt.
        fault: DialFault,
    },
    /// A message arrived.
    Message(PeerId, Message),
    /// Part of a message arrived; the rest is on its way.
    Receiving(PeerId),
    /// Bytes arrived that are not a frame. Nothing more is read from the peer; it can still be sent
    /// to.
    Garbage(PeerId, FrameError),
    /// A connection has ended.
    Disconnected {
        /// The peer.
        peer: PeerId,
        /// The reason, in words.
        why: String,
    },
}

impl TransportEvent {
    /// The connection that it is about.
    #[must_use]
    pub const fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Connected(peer, _)
            | Self::Dialled(peer, _)
            | Self::Message(peer, _)
            | Self::Receiving(peer)
            | Self::Garbage(peer, _)
            | Self::Disconnected { peer, .. } => Some(*peer),
            Self::DialFailed { .. } => None,
        }
    }
}

/// Ends a [`Transport::wait`] from another thread.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Wakes the transport.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// Errors that make a transport unusable. The text contains the inner error, so `source` returns
/// none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The transport cannot listen on its address.
    #[error("cannot listen on {address}: {why}{}", listen_advice(.why))]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        why: io::Error,
    },
    /// The operating system refuses a service that every transport needs.
    #[error("cannot {what}: {why}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The operating system's error.
        why: io::Error,
    },
}

/// Returns advice for a failed `listen`, to be appended to the error.
fn listen_advice(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program has this address, choose another port or stop it"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine does not have this address",
        io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023, or a folder you may write to"
        }
        _ => "",
    }
}
