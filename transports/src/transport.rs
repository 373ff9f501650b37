//! What every transport is to a driver.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Target};
use pstrain_wire::identity::Identity;
use pstrain_wire::{FrameError, Limits, LinkFigures, Message};

/// Once more than this is queued for a peer that dialled, nothing more is read from it until it has
/// taken its answers: a slow reader slows its sender.
pub(crate) const HIGH_WATER_BYTES: usize = 1024 * 1024;

/// The most that may be queued for one peer, beside one message of any size. A peer that lets it
/// come to this does not read at all, and is given up.
pub const MAX_BACKLOG_BYTES: usize = 64 * 1024 * 1024;

/// Peers by id, messages, a clock.
///
/// Messages to one peer arrive in order and whole, or the connection ends. Queues are bounded:
/// from a peer that dialled and does not take its answers nothing more is read, and one that never
/// takes them is disconnected. The dialler always reads, so that two that send much at once do not
/// wait for each other for ever.
pub trait Transport {
    /// The time since the transport was made, or since the start of a clock it was given.
    fn now(&self) -> Time;

    /// Begins to connect, to the server this transport was made for or to another. `Dialled` or
    /// `DialFailed` follows.
    fn dial(&mut self, target: &Target);

    /// Queues a message. To a peer that is gone it is dropped.
    fn send(&mut self, peer: PeerId, message: Message);

    /// Sets what is accepted from a peer from now on.
    fn limit(&mut self, peer: PeerId, limits: Limits);

    /// Takes memory that values came in and that is not needed any more.
    fn recycle(&mut self, vector: Arc<Vec<f32>>) {
        drop(vector);
    }

    /// Closes a connection once what was queued is out. Nothing more is heard of the peer.
    fn close(&mut self, peer: PeerId);

    /// Waits until something happened, the waker was used, or `until` has come, and appends what
    /// happened to `events`.
    ///
    /// # Errors
    /// [`TransportError`] if the operating system can give no more events at all.
    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError>;

    /// Ends a `wait` from another thread.
    fn waker(&self) -> Waker;

    /// Waits until everything that was queued is out, or `until` has come.
    ///
    /// # Errors
    /// As [`Self::wait`].
    fn flush(&mut self, until: Time) -> Result<(), TransportError>;

    /// By how much a wait may end late because the system counts in larger steps.
    fn coarseness(&self) -> Duration {
        Duration::ZERO
    }

    /// What is known of a connection that is up; none where nothing is measured.
    fn link(&self, peer: PeerId) -> Option<LinkFigures> {
        let _unheeded = peer;
        None
    }

    /// The host that a connection comes from, in words; none if nothing tells.
    fn origin(&self, peer: PeerId) -> Option<String> {
        let _unheeded = peer;
        None
    }

    /// Hears what its node reports. A transport that models a link learns from the welcome which.
    fn note(&mut self, _event: &Event) {}
}

/// One that is lent.
impl<T: Transport> Transport for &mut T {
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

/// What a transport reports.
#[derive(Debug)]
pub enum TransportEvent {
    /// Somebody has dialled, and proved to be whom it says.
    Connected(PeerId, Identity),
    /// A dial has succeeded, and whoever answers has proved to be whom it says.
    Dialled(PeerId, Identity),
    /// A dial did not succeed.
    DialFailed {
        /// What went wrong, in words.
        why: String,
        /// Whether trying again cannot help.
        permanent: bool,
    },
    /// A message came.
    Message(PeerId, Message),
    /// Part of a message came; the rest is still on its way.
    Receiving(PeerId),
    /// Bytes came that are no frame. Nothing more is read from this peer; it can still be told.
    Garbage(PeerId, FrameError),
    /// A connection is gone.
    Disconnected {
        /// Which.
        peer: PeerId,
        /// Why, in words.
        why: String,
    },
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

/// A transport that cannot work.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransportError {
    /// It cannot listen where it should.
    Listen {
        /// The address.
        address: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The operating system refuses what every transport needs.
    System {
        /// What was asked for.
        what: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => {
                write!(f, "cannot listen on {address}: {source}")?;
                match source.kind() {
                    io::ErrorKind::AddrInUse => f.write_str(
                        "; another program has this address, choose another port or stop it",
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        f.write_str("; this machine does not have this address")
                    }
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; choose a port above 1023, or a folder you may write to")
                    }
                    _ => Ok(()),
                }
            }
            Self::System { what, source } => write!(f, "cannot {what}: {source}"),
        }
    }
}

impl std::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None // the text has it already
    }
}
