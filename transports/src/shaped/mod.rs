//! A transport that delays messages as long as a scenario says.
//!
//! It wraps any real transport. An outgoing message is held until it would have arrived at the
//! other end, and sent then; an incoming message is delivered when it would have arrived here. The
//! delay of the real transport comes on top. A worker shapes both directions of its own link; the
//! server shapes only the link that all workers share. Not modelled: the time to establish a
//! connection.

mod lane;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::job::{Job, heartbeat};
use pstrain_roles::node::{Event, Target};
use pstrain_wire::worker::Heartbeat;
use pstrain_wire::{Limits, LinkFigures, Message, frame_len};

use crate::punctuality::Lateness;
use crate::scenario::{Bottleneck, Scenario, ServerLink};
use crate::transport::{MAX_BACKLOG_BYTES, Transport, TransportError, TransportEvent, Waker};
use lane::{Delivery, Lane};

/// Sleep step just before a message is due, with a poll after each step: the wait of the operating
/// system is too coarse for that last stretch.
const STEP: Duration = Duration::from_micros(100);

/// A transport that models links over a real one.
pub struct Shaped<'a> {
    inner: Box<dyn Transport + 'a>,
    outward: Lane<Outgoing>,
    inward: Lane<TransportEvent>,
    /// The modelled link: its worker and the job's scenario.
    link: Option<(WorkerId, String)>,
    /// Peers whose events are dropped although the real transport may still report them: peers that
    /// were closed here while messages to them are in transit, and peers that were given up.
    closing: BTreeSet<PeerId>,
    /// Interval of the signs of life for messages in transit; `None` without a modelled link or if
    /// the link has outages.
    beat: Option<Duration>,
    beat_at: Time,
    /// Events that arose outside a wait.
    lost: Vec<TransportEvent>,
    /// The waker was used.
    woken: Arc<AtomicBool>,
    events: Vec<TransportEvent>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Outgoing {
    Message(Message),
    Close,
}

impl fmt::Debug for Shaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaped").field("link", &self.link).finish_non_exhaustive()
    }
}

impl<'a> Shaped<'a> {
    fn new(inner: Box<dyn Transport + 'a>, outward: Delivery, inward: Delivery) -> Self {
        Self {
            inner,
            outward: Lane::new(outward),
            inward: Lane::new(inward),
            link: None,
            closing: BTreeSet::new(),
            beat: None,
            beat_at: Time::ZERO,
            lost: Vec::new(),
            woken: Arc::default(),
            events: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Returns a worker's transport. It shapes nothing until the server has welcomed the worker,
    /// since the job describes the link.
    pub fn worker(inner: impl Transport + 'a) -> Self {
        Self::new(Box::new(inner), Delivery::Open, Delivery::Open)
    }

    /// Returns a server's transport, with the link that all workers share; `lease` is the job's.
    pub fn server(inner: impl Transport + 'a, link: ServerLink, lease: Duration) -> Self {
        let delivery = |rate: Option<_>| {
            rate.map_or(Delivery::Open, |rate| Delivery::Shared(Bottleneck::new(rate)))
        };
        let beat = Some(heartbeat(lease));
        Self { beat, ..Self::new(Box::new(inner), delivery(link.down), delivery(link.up)) }
    }

    /// Returns how late messages were delivered.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        let mut lateness = self.outward.lateness.clone();
        lateness.merge(&self.inward.lateness);
        lateness
    }

    /// Shapes the link of `worker` from now on. A scenario that cannot be parsed is ignored here:
    /// preparing the worker's computation fails because of it.
    fn shape(&mut self, worker: WorkerId, job: &Job) {
        if self.link.as_ref().is_some_and(|(id, text)| *id == worker && *text == job.scenario) {
            return; // the link continues, with the messages in transit
        }
        self.link = Some((worker, job.scenario.clone()));
        let link = Scenario::from_text(&job.scenario).ok().and_then(|it| it.links.of(worker));
        self.beat = link
            .as_ref()
            .filter(|link| link.up.outages.is_empty() && link.down.outages.is_empty())
            .map(|_| job.membership.heartbeat());
        (self.outward.delivery, self.inward.delivery) = match link {
            None => (Delivery::Open, Delivery::Open),
            Some(link) => {
                let (up, down) = link.pipes(worker, Scenario::stream(job.seed));
                let origin = self.inner.now();
                (Delivery::Link(Box::new(up), origin), Delivery::Link(Box::new(down), origin))
            }
        };
    }

    fn is_open(&self) -> bool {
        self.outward.is_open() && self.inward.is_open()
    }

    /// Puts the events of the real transport on their way.
    fn take_in(&mut self, events: &mut Vec<TransportEvent>) {
        let now = self.inner.now();
        self.reset_beat(now);
        let mut reported = std::mem::take(&mut self.events);
        for event in reported.drain(..) {
            let passed = match event {
                TransportEvent::Message(peer, _)
                | TransportEvent::Garbage(peer, _)
                | TransportEvent::Disconnected { peer, .. }
                    if self.closing.contains(&peer) =>
                {
                    None
                }
                TransportEvent::Receiving(peer) if self.closing.contains(&peer) => None,
                TransportEvent::Message(peer, message) => {
                    let bytes = frame_len(&message, &mut self.scratch);
                    let event = TransportEvent::Message(peer, message);
                    let passed = self.inward.begin(now, peer, bytes, event);
                    if self.inward.bytes(peer) > MAX_BACKLOG_BYTES {
                        self.give_up(peer, "it sends far more than its link is modelled to carry");
                    }
                    passed
                }
                TransportEvent::Garbage(peer, _) | TransportEvent::Disconnected { peer, .. } => {
                    self.inward.follow(peer, event)
                }
                TransportEvent::Connected(..) | TransportEvent::Dialled(..) => {
                    self.outward.delivery.reconnect();
                    self.inward.delivery.reconnect();
                    Some(event)
                }
                TransportEvent::DialFailed { .. } | TransportEvent::Receiving(_) => Some(event),
            };
            events.extend(passed);
        }
        self.events = reported;
    }

    fn give_up(&mut self, peer: PeerId, why: &str) {
        self.inward.forget(peer);
        self.outward.forget(peer);
        self.closing.insert(peer);
        self.inner.close(peer);
        self.lost.push(TransportEvent::Disconnected { peer, why: why.into() });
    }

    /// Delivers all items that have arrived, in both directions.
    fn release(&mut self, events: &mut Vec<TransportEvent>) {
        while let Some((peer, item)) = self.outward.arrived(self.inner.now()) {
            self.send_on(peer, item);
        }
        while let Some((_, event)) = self.inward.arrived(self.inner.now()) {
            events.push(event);
        }
    }

    /// Restarts the interval of signs of life while nothing is in transit.
    fn reset_beat(&mut self, now: Time) {
        let idle = self.outward.due().is_none() && self.inward.due().is_none();
        if let Some(beat) = self.beat.filter(|_| idle) {
            self.beat_at = now + beat;
        }
    }

    /// Signals to both ends that messages are in transit. Over a real link a long message arrives
    /// in parts, which show that its sender is alive; heartbeats replace the parts of a held one.
    fn signal_parts(&mut self, events: &mut Vec<TransportEvent>) {
        let (Some(beat), now) = (self.beat, self.inner.now()) else { return };
        if now < self.beat_at {
            return;
        }
        self.beat_at = now + beat;
        for peer in self.outward.peers() {
            self.inner.send(peer, Message::Heartbeat(Heartbeat::default()));
        }
        events.extend(self.inward.peers().map(TransportEvent::Receiving));
    }

    fn send_on(&mut self, peer: PeerId, item: Outgoing) {
        match item {
            Outgoing::Message(message) => self.inner.send(peer, message),
            Outgoing::Close => {
                self.closing.remove(&peer);
                self.inner.close(peer);
            }
        }
    }

    /// Waits on the real transport, at most until the next item arrives.
    fn wait_once(&mut self, until: Option<Time>) -> Result<(), TransportError> {
        let due = [self.outward.due(), self.inward.due()].into_iter().flatten().min();
        let Some(due) = due else { return self.inner.wait(until, &mut self.events) };
        let due = if self.beat.is_some() { due.min(self.beat_at) } else { due };
        let left = due - self.inner.now();
        let coarseness = self.inner.coarseness();
        if coarseness.is_zero() || left > coarseness {
            let early = Time::from_nanos(due.as_nanos() - coarseness.as_nanos() as u64);
            let until = until.map_or(early, |until| until.min(early));
            return self.inner.wait(Some(until), &mut self.events);
        }
        std::thread::sleep(left.min(STEP));
        self.inner.wait(Some(Time::ZERO), &mut self.events)
    }
}

impl Transport for Shaped<'_> {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn dial(&mut self, target: &Target) {
        self.inner.dial(target);
    }

    fn send(&mut self, peer: PeerId, message: Message) {
        if self.outward.is_open() {
            return self.inner.send(peer, message);
        }
        if self.closing.contains(&peer) {
            return;
        }
        let (now, bytes) = (self.inner.now(), frame_len(&message, &mut self.scratch));
        self.reset_beat(now);
        let message = Outgoing::Message(message);
        if let Some(passed) = self.outward.begin(now, peer, bytes, message) {
            self.send_on(peer, passed);
        }
        if self.outward.bytes(peer) > MAX_BACKLOG_BYTES {
            self.give_up(peer, "far more is sent to it than its link is modelled to carry");
        }
    }

    fn limit(&mut self, peer: PeerId, limits: Limits) {
        self.inner.limit(peer, limits);
    }

    fn recycle(&mut self, vector: Arc<Vec<f32>>) {
        self.inner.recycle(vector);
    }

    fn close(&mut self, peer: PeerId) {
        self.inward.forget(peer);
        self.lost.retain(|event| !matches!(event, TransportEvent::Disconnected { peer: lost, .. } if *lost == peer));
        match self.outward.follow(peer, Outgoing::Close) {
            Some(close) => self.send_on(peer, close),
            None => drop(self.closing.insert(peer)),
        }
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        events: &mut Vec<TransportEvent>,
    ) -> Result<(), TransportError> {
        if self.is_open() && self.lost.is_empty() {
            return self.inner.wait(until, events);
        }
        loop {
            let at_once = !self.lost.is_empty();
            self.wait_once(if at_once { Some(Time::ZERO) } else { until })?;
            self.take_in(events);
            events.append(&mut self.lost);
            self.release(events);
            self.signal_parts(events);
            let woken = self.woken.swap(false, Ordering::AcqRel);
            let late = until.is_some_and(|until| until <= self.inner.now());
            if woken || late || !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn waker(&self) -> Waker {
        let (woken, inner) = (Arc::clone(&self.woken), self.inner.waker());
        Waker::new(move || {
            woken.store(true, Ordering::Release);
            inner.wake();
        })
    }

    /// Sends messages that have not arrived by `until` at once, too early: a real network would
    /// deliver them after their sender has gone.
    fn flush(&mut self, until: Time) -> Result<(), TransportError> {
        while self.outward.due().is_some() && self.inner.now() < until {
            self.wait_once(Some(until))?;
            self.events.clear();
            while let Some((peer, item)) = self.outward.arrived(self.inner.now()) {
                self.send_on(peer, item);
            }
        }
        while let Some((peer, item)) = self.outward.hurry() {
            self.send_on(peer, item);
        }
        self.inner.flush(until)
    }

    fn coarseness(&self) -> Duration {
        self.inner.coarseness()
    }

    fn link(&self, peer: PeerId) -> Option<LinkFigures> {
        self.inner.link(peer)
    }

    fn origin(&self, peer: PeerId) -> Option<String> {
        self.inner.origin(peer)
    }

    fn note(&mut self, event: &Event) {
        if let Event::Welcomed { worker, job, .. } = event {
            self.shape(*worker, job);
        }
        self.inner.note(event);
    }
}
