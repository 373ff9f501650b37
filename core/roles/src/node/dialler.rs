//! A connection that its owner dials and keeps up: heartbeats, silence, dialling again.

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

/// The connection to a server, and what is done to have it.
#[derive(Debug)]
pub(super) struct Dialler {
    link: Link,
    /// Whom it dials.
    target: Target,
    /// Whether a dial of another server is under way: one at a time.
    held: bool,
    backoff: Backoff,
    /// Since when it has not been welcome there.
    away_since: Option<Time>,
    /// What went wrong last.
    trouble: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Link {
    /// No connection; dial at the time given.
    Down { dial_at: Time },
    /// A dial is under way.
    Dialling,
    /// Connected; `asked` is when the last sign of life was sent, which is answered with another.
    Up { peer: PeerId, heard: Time, sent: Time, asked: Time },
}

impl Link {
    /// When a sign of life is due: the other side wants one, and so does this one, which may have
    /// sent much that is not answered for a while.
    fn beat_at(heard: Time, sent: Time, asked: Time, lease: Duration) -> Time {
        sent.min(heard.max(asked)) + heartbeat(lease)
    }
}

/// It cannot be reached, for longer than the patience of the job.
#[derive(Debug)]
pub(super) struct Unreachable {
    pub(super) why: String,
    pub(super) attempts: u32,
    pub(super) tried: Duration,
}

/// The longest pause between two dials: the other side takes a dial for a sign of life under this
/// lease, and most of the lease is left for it to get there over a slow link.
fn longest_pause(lease: Duration) -> Duration {
    lease / 4
}

/// What is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// A sign of life.
    Beat,
    /// It has been silent for a lease, and this long.
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

    /// Saves or restores everything: whoever is handed what came after dials at the same times.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(&mut self.link)?;
        archive.small(&mut self.target)?;
        archive.small(&mut self.held)?;
        archive.small(&mut self.backoff)?;
        archive.small(&mut self.away_since)?;
        archive.small(&mut self.trouble)
    }

    /// Whether a dial is under way.
    pub(super) const fn is_dialling(&self) -> bool {
        matches!(self.link, Link::Dialling) || self.held
    }

    /// Dials another server; [`Self::release`] follows once that has been answered.
    pub(super) fn dial_other(&mut self, address: String, out: &mut Outbox) {
        self.held = true;
        out.push(Effect::Dial(Target::Address(address)));
    }

    /// Whether a dial of another server is under way.
    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// The dial of another server has been answered; false if there was none.
    pub(super) const fn release(&mut self) -> bool {
        core::mem::replace(&mut self.held, false)
    }

    /// Dials for the first time.
    pub(super) fn start(&mut self, now: Time, out: &mut Outbox) {
        self.away_since = Some(now);
        out.push(Effect::Dial(self.target.clone()));
    }

    /// Dials another from now on.
    pub(super) fn turn_to(&mut self, target: Target) {
        self.target = target;
    }

    /// Whether it dials another than the server that its driver was told of.
    pub(super) const fn is_elsewhere(&self) -> bool {
        matches!(self.target, Target::Address(_))
    }

    /// What went wrong with a dial, with where that was; whoever drives this one knows the address
    /// of [`Target::Server`].
    pub(super) fn name(&self, why: String) -> String {
        match &self.target {
            Target::Server => why,
            Target::Address(address) => alloc::format!("{address}: {why}"),
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

    /// It has been reached, and takes us.
    pub(super) const fn welcomed(&mut self) {
        self.away_since = None;
        self.backoff.reset();
    }

    /// Takes note of a sign of life; whether it is from this connection.
    pub(super) fn heard(&mut self, now: Time, from: PeerId) -> bool {
        match &mut self.link {
            Link::Up { peer, heard, .. } if *peer == from => {
                *heard = now;
                true
            }
            _ => false,
        }
    }

    /// Its owner was not there to hear it.
    pub(super) const fn overslept(&mut self, now: Time) {
        if let Link::Up { heard, .. } = &mut self.link {
            *heard = now;
        }
    }

    /// Something was sent: the other side needs no sign of life for a while.
    pub(super) const fn sent(&mut self, now: Time) {
        if let Link::Up { sent, .. } = &mut self.link {
            *sent = now;
        }
    }

    /// The connection is gone already; whether it was this one.
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
    /// [`Unreachable`] if it has been away for longer than the patience of the job.
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

    /// Dials at once, if it is in a pause.
    pub(super) const fn hasten(&mut self, now: Time) {
        if let Link::Down { dial_at } = &mut self.link {
            *dial_at = now;
        }
    }

    /// For how long nothing has been heard on the connection, if there is one.
    pub(super) fn silent(&self, now: Time) -> Option<Duration> {
        match self.link {
            Link::Up { heard, .. } => Some(now.since(heard)),
            Link::Down { .. } | Link::Dialling => None,
        }
    }

    /// When nothing will have been heard on the connection for so long.
    pub(super) fn silent_at(&self, long: Duration) -> Option<Time> {
        match self.link {
            Link::Up { heard, .. } => Some(heard + long),
            Link::Down { .. } | Link::Dialling => None,
        }
    }

    /// Dials no more, because of what went wrong last.
    pub(super) fn give_up(&mut self, now: Time) -> Unreachable {
        let tried = self.away_since.map_or_else(Default::default, |at| now.since(at));
        let attempts = self.backoff.attempt().max(1);
        Unreachable { why: core::mem::take(&mut self.trouble), attempts, tried }
    }

    /// Dials if it is time to; says what else is due.
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
                // It is answered, but no other message is.
                Due::Beat => {
                    beats += 1;
                    assert!(dialler.heard(now, peer));
                }
                Due::Silence(silent) => panic!("{silent:?} at {now:?}"),
            }
        }
        assert_eq!(beats, 1000 / 20);
        // Nobody answers: it goes on asking until a lease is over.
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
