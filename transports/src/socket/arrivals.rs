//! New connections: dialling, accepting, and the time spent on pending connections.

use std::io;
use std::time::Duration;

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Target};
use pstrain_wire::identity::Identity;

use super::secure::{Broken, Callee};
use super::stream::Stream;
use super::turns::Step;
use super::{HANDSHAKE, Ready, SocketTransport};
use crate::address::{Address, AddressError};
use crate::transport::TransportEvent;

/// Time slice for pending connections, or for accepting, before the members have their turn.
const PENDING_TURN: Duration = Duration::from_micros(200);
/// While members are active, each time slice for pending connections is followed by a pause this
/// many times as long.
const PENDING_SHARE: u32 = 16;
/// The same for accepting connections, with a shorter pause: the origin of a connection is unknown
/// until then, so no connection may wait for long.
const ACCEPT_SHARE: u32 = 8;
/// Members are active if one of them sent something within this time.
const AT_WORK: Duration = Duration::from_millis(50);
/// Interval at which the list of revoked certificates is checked for changes.
const REFRESH: Duration = Duration::from_secs(1);
/// Pause after the system had no resources for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl SocketTransport {
    fn accept(&mut self) {
        self.accept_at = None;
        let begin = self.clock.now();
        self.refresh_security(begin);
        let until = begin + PENDING_TURN;
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok(stream) => self.add_pending(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_no_room) => {
                    self.make_room();
                    self.accept_at = Some(self.clock.now() + ACCEPT_PAUSE);
                    return;
                }
            }
            if self.clock.now() >= until {
                self.accept_at = Some(begin);
                return;
            }
        }
    }

    /// Looks for a new list of revoked certificates, at most once in [`REFRESH`].
    fn refresh_security(&mut self, now: Time) {
        if now >= self.refresh_at {
            self.refresh_at = now + REFRESH;
            if let Some(error) = self.security.refresh() {
                self.tell(&error.to_string());
            }
        }
    }

    fn add_pending(&mut self, stream: Stream) {
        let origin = stream.origin();
        let here = if self.security.is_local() { stream.check_here() } else { Ok(()) };
        let layer = here.map_err(Broken::from).and_then(|()| self.security.accepted());
        let layer = match layer {
            Ok(layer) => layer,
            Err(broken) => return self.tell(&format!("turned away {origin}: {}", broken.why)),
        };
        // Dropping a connection that cannot be polled closes it.
        let Ok(id) = self.add(stream, layer, true) else { return };
        if let Some(oldest) = self.pending.enter(id, origin) {
            self.evict(oldest);
        }
        let Some(connection) = self.connections.get(&id) else {
            return; // the oldest of its origin, and evicted at once
        };
        if connection.is_connected() {
            self.shared.events.push(TransportEvent::Connected(id, Identity::Anyone));
        } else {
            self.end_within(id, HANDSHAKE);
        }
    }

    /// Drops a pending connection, if there is one, to free its resources.
    fn make_room(&mut self) {
        if let Some(oldest) = self.pending.first_to_go() {
            self.evict(oldest);
        }
    }

    pub(super) fn evict(&mut self, id: PeerId) {
        let why = "too many come at once, most of them from there";
        self.lose(id, String::from(why).into());
    }

    pub(super) fn try_dial(&mut self, target: &Target) -> Result<(), Broken> {
        let no_server = || Broken::permanent("this transport has no server to dial".into());
        let address = match target {
            Target::Server => self.target.clone().ok_or_else(no_server)?,
            Target::Address(address) | Target::Worker(address) => address
                .parse()
                .map_err(|error: AddressError| Broken::permanent(error.to_string()))?,
        };
        self.refresh_security(self.clock.now());
        let layer = self.security.dialled(match target {
            Target::Server | Target::Address(_) => Callee::Server(address.host()),
            Target::Worker(_) => Callee::Worker,
        })?;
        let stream = Stream::connect(&address, self.dials, self.security.is_local());
        let stream = stream.map_err(|error| Broken {
            why: match (&address, error.kind()) {
                (Address::Unix(_), io::ErrorKind::PermissionDenied) => format!(
                    "{error}: it is a Unix socket of another user; run both as one user, or use \
                     --tls or --psk over TCP"
                ),
                _ => error.to_string(),
            },
            fault: match error.kind() {
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => {
                    DialFault::Permanent
                }
                _ => DialFault::Temporary,
            },
        })?;
        let id = self.add(stream, layer, false)?;
        self.end_within(id, self.dial_limit);
        Ok(())
    }

    /// Records an event of a pending connection.
    pub(super) fn call(&mut self, id: PeerId, ready: Ready) {
        let Some(connection) = self.connections.get(&id) else {
            return; // lost by an earlier event of the same poll
        };
        let step = if connection.awaits_hello() { Step::Hello } else { Step::Later };
        // A dialler that has closed is worth neither a signature nor, if it sent nothing, a slot in
        // the queue: a flood of such connections would fill all slots of its address, and an honest
        // dialler from there would be dropped before its turn.
        if ready.closed && (step == Step::Hello || connection.has_ended()) {
            return self.lose(id, String::from("closed by the peer").into());
        }
        if step == Step::Hello && !ready.readable {
            return self.on_ready(id, ready); // nothing was received, so this costs nothing
        }
        // Without active members pending connections get all the time, so none needs to be dropped.
        if let Some(oldest) = self.pending.call(id, step, ready)
            && self.is_at_work()
        {
            self.evict(oldest);
        }
    }

    /// Serves pending connections, for as long as the members can spare.
    pub(super) fn serve_pending(&mut self) {
        let begin = self.clock.now();
        if self.accept_at.is_some_and(|at| at.max(self.accepts_at) <= begin) {
            self.accept();
            self.accepts_at = self.pause_since(begin, ACCEPT_SHARE);
        }
        let begin = self.clock.now();
        if begin >= self.pending_at && self.pending.is_called() {
            while self.clock.now() < begin + PENDING_TURN
                && let Some((id, ready)) = self.pending.next()
            {
                self.on_ready(id, ready);
            }
            self.pending_at = self.pause_since(begin, PENDING_SHARE);
        }
    }

    /// Returns when work that began at `begin` may continue. While members are active, it pauses
    /// for `share` times the time it took.
    fn pause_since(&self, begin: Time, share: u32) -> Time {
        let now = self.clock.now();
        if self.is_at_work() { now + now.since(begin) * share } else { now }
    }

    /// True if members are active.
    fn is_at_work(&self) -> bool {
        let now = self.clock.now();
        self.member_at.is_some_and(|at| now < at + AT_WORK)
    }
}
