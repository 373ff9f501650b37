//! An outgoing connection that its owner keeps up: heartbeats, silence, redials with back-off.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use super::{Effect, Event, Outbox, Target};
use pstrain_compute::id::PeerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::job::{heartbeat, patience};

/// An outgoing connection to a server, with the state of its dials.
#[derive(Debug)]
pub(super) struct Dialler {
    link: Link,
    /// The server to dial.
    target: Target,
    /// True while the owner dials another node: one dial at a time.
    held: bool,
    backoff: Backoff,
    /// Start of the current absence: since then the server has not admitted this node.
    away_since: Option<Time>,
    /// The last error, in words.
    trouble: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Link {
    /// No connection; dial at `dial_at`.
    Down { dial_at: Time },
    /// A dial is under way.
    Dialling,
    /// Connected; `asked` is when the last heartbeat was sent. The server answers each with its
    /// own.
    Up { peer: PeerId, heard: Time, sent: Time, asked: Time },
}

impl Link {
    /// When a heartbeat is due: to show this node alive, and to have the server show itself alive,
    /// which may not answer other messages for a while.
    fn beat_at(heard: Time, sent: Time, asked: Time, lease: Duration) -> Time {
        sent.min(heard.max(asked)) + heartbeat(lease)
    }
}

/// The server could not be reached for longer than the job's patience.
#[derive(Debug)]
pub(super) struct Unreachable {
    pub(super) why: String,
    pub(super) attempts: u32,
    pub(super) tried: Duration,
}

/// The longest pause between two dials. The server counts a dial as a sign of life under this
/// lease, so most of the lease must be left for the dial to cross a slow link.
fn longest_pause(lease: Duration) -> Duration {
    lease / 4
}

/// The next step of the owner for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Send a heartbeat.
    Beat,
    /// Redial: the server has been silent for at least a lease; the duration is given.
    Silence(Duration),
}

impl Dialler {
    pub(super) fn new(stream: Stream) -> Self {
        let backoff = Backoff::new(stream.fork("backoff", 0));
        Self {
            link: Link::Dialling,
            target: Target::Server,
            held: false,
            backoff,
            away_since: None,
            trouble: String::new(),
        }
    }

    /// Saves or restores the whole state, back-off included: after a restore the same inputs lead
    /// to dials at the same times.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.link)?;
        archive.small(&mut self.target)?;
        archive.small(&mut self.held)?;
        archive.small(&mut self.backoff)?;
        archive.small(&mut self.away_since)?;
        archive.small(&mut self.trouble)
    }

    /// True if a dial is under way.
    pub(super) const fn is_dialling(&self) -> bool {
        matches!(self.link, Link::Dialling) || self.held
    }

    /// Dials another node; [`Self::release`] follows once the dial is answered.
    pub(super) fn dial_other(&mut self, target: Target, out: &mut Outbox) {
        self.held = true;
        out.push(Effect::Dial(target));
    }

    /// True if a dial of another node is under way.
    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// Ends the dial of another node; returns false if none was under way.
    pub(super) const fn release(&mut self) -> bool {
        core::mem::replace(&mut self.held, false)
    }

    /// Dials for the first time.
    pub(super) fn start(&mut self, now: Time, out: &mut Outbox) {
        self.away_since = Some(now);
        out.push(Effect::Dial(self.target.clone()));
    }

    /// Changes the server to dial from now on.
    pub(super) fn turn_to(&mut self, target: Target) {
        self.target = target;
    }

    /// True if it dials another server than the one that its driver was configured with.
    pub(super) const fn is_elsewhere(&self) -> bool {
        matches!(self.target, Target::Address(_))
    }

    /// Prefixes a dial error with the address, except for [`Target::Server`]: the driver knows that
    /// address.
    pub(super) fn name(&self, why: String) -> String {
        match &self.target {
            Target::Server => why,
            Target::Address(address) | Target::Worker(address) => {
                alloc::format!("{address}: {why}")
            }
        }
    }

    /// The connection, while there is one.
    pub(super) const fn peer(&self) -> Option<PeerId> {
        match self.link {
            Link::Up { peer, .. } => Some(peer),
            Link::Down { .. } | Link::Dialling => None,
        }
    }

    pub(super) const fn connected(&mut self, now: Time, peer: PeerId) {
        self.link = Link::Up { peer, heard: now, sent: now, asked: now };
    }

    /// The server has admitted this node: ends the absence and resets the back-off.
    pub(super) const fn welcomed(&mut self) {
        self.away_since = None;
        self.backoff.reset();
    }

    /// Records a sign of life; returns true if it came over this connection.
    pub(super) fn heard(&mut self, now: Time, from: PeerId) -> bool {
        match &mut self.link {
            Link::Up { peer, heard, .. } if *peer == from => {
                *heard = now;
                true
            }
            _ => false,
        }
    }

    /// Restarts the silence timer: the process was suspended and could not receive.
    pub(super) const fn overslept(&mut self, now: Time) {
        if let Link::Up { heard, .. } = &mut self.link {
            *heard = now;
        }
    }

    /// Records a sent message, which postpones the next heartbeat.
    pub(super) const fn sent(&mut self, now: Time) {
        if let Link::Up { sent, .. } = &mut self.link {
            *sent = now;
        }
    }

    /// Records that a connection is gone; returns true if it was this one.
    pub(super) fn lost(&mut self, gone: PeerId) -> bool {
        let was = self.peer() == Some(gone);
        if was {
            self.link = Link::Dialling; // there is nothing left to close
        }
        was
    }

    /// Closes the connection and dials again after a pause.
    ///
    /// # Errors
    /// [`Unreachable`] if the absence has lasted longer than the job's patience.
    pub(super) fn redial(
        &mut self,
        now: Time,
        why: String,
        lease: Duration,
        out: &mut Outbox,
    ) -> Result<(), Unreachable> {
        if let Some(peer) = self.peer() {
            out.push(Effect::Close(peer));
        }
        self.trouble = why;
        let since = *self.away_since.get_or_insert(now);
        if now >= since + patience(lease) {
            return Err(self.give_up(now));
        }
        let pause = self.backoff.pause(longest_pause(lease));
        self.link = Link::Down { dial_at: now + pause };
        let (attempt, why) = (self.backoff.attempt(), self.trouble.clone());
        out.push(Effect::Report(Event::Redialling { attempt, pause, why }));
        Ok(())
    }

    /// Ends a pause: dials at once.
    pub(super) const fn hasten(&mut self, now: Time) {
        if let Link::Down { dial_at } = &mut self.link {
            *dial_at = now;
        }
    }

    /// How long the server has been silent, if there is a connection.
    pub(super) fn silent(&self, now: Time) -> Option<Duration> {
        match self.link {
            Link::Up { heard, .. } => Some(now.since(heard)),
            Link::Down { .. } | Link::Dialling => None,
        }
    }

    /// When the server will have been silent for `long`, if there is a connection.
    pub(super) fn silent_at(&self, long: Duration) -> Option<Time> {
        match self.link {
            Link::Up { heard, .. } => Some(heard + long),
            Link::Down { .. } | Link::Dialling => None,
        }
    }

    /// Stops dialling; reports the last error.
    pub(super) fn give_up(&mut self, now: Time) -> Unreachable {
        let tried = self.away_since.map_or_else(Default::default, |at| now.since(at));
        let attempts = self.backoff.attempt().max(1);
        Unreachable { why: core::mem::take(&mut self.trouble), attempts, tried }
    }

    /// Dials if a pause has ended; returns what else is due.
    pub(super) fn wake(&mut self, now: Time, lease: Duration, out: &mut Outbox) -> Due {
        match &mut self.link {
            Link::Down { .. } if self.held => Due::Nothing,
            Link::Down { dial_at } if now >= *dial_at => {
                self.link = Link::Dialling;
                out.push(Effect::Dial(self.target.clone()));
                Due::Nothing
            }
            Link::Up { heard, .. } if now >= *heard + lease => Due::Silence(now.since(*heard)),
            Link::Up { heard, sent, asked, .. }
                if now >= Link::beat_at(*heard, *sent, *asked, lease) =>
            {
                (*sent, *asked) = (now, now);
                Due::Beat
            }
            _ => Due::Nothing,
        }
    }

    pub(super) fn deadline(&self, lease: Duration) -> Option<Time> {
        match self.link {
            Link::Down { dial_at } if !self.held => Some(dial_at),
            Link::Down { .. } | Link::Dialling => None,
            Link::Up { heard, sent, asked, .. } => {
                Some(Link::beat_at(heard, sent, asked, lease).min(heard + lease))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_finds_nobody_dials_again_while_most_of_its_lease_is_left() {
        let (lease, mut now) = (Duration::from_secs(5), Time::ZERO);
        let mut dialler = Dialler::new(Stream::new(1));
        let mut out = Outbox::new();
        let mut longest = Duration::ZERO;
        while dialler.redial(now, String::new(), lease, &mut out).is_ok() {
            let next = dialler.deadline(lease).unwrap_or(now);
            longest = longest.max(next.since(now));
            now = next;
            dialler.wake(now, lease, &mut out);
        }
        assert!(longest > lease / 8 && longest <= lease / 4, "{longest:?}");
    }

    #[test]
    fn whoever_sends_much_and_hears_nothing_asks_for_a_sign_of_life() {
        let (lease, peer) = (Duration::from_millis(100), PeerId(1));
        let mut dialler = Dialler::new(Stream::new(1));
        let mut out = Outbox::new();
        dialler.connected(Time::ZERO, peer);
        let mut beats = 0;
        for millis in 1..=1000 {
            let now = Time::ZERO + Duration::from_millis(millis);
            dialler.sent(now);
            match dialler.wake(now, lease, &mut out) {
                Due::Nothing => {}
                // Only heartbeats are answered, other messages are not.
                Due::Beat => {
                    beats += 1;
                    assert!(dialler.heard(now, peer));
                }
                Due::Silence(silent) => panic!("{silent:?} at {now:?}"),
            }
        }
        assert_eq!(beats, 1000 / 20);
        // No answer: it sends heartbeats until the lease is over.
        let begun = Time::ZERO + Duration::from_millis(1000);
        let asked = (1..100).filter(|millis| {
            let now = begun + Duration::from_millis(*millis);
            dialler.sent(now);
            dialler.wake(now, lease, &mut out) == Due::Beat
        });
        assert_eq!(asked.count(), 4);
        let late = begun + lease;
        assert_eq!(dialler.wake(late, lease, &mut out), Due::Silence(lease));
    }
}
