//! Arrival times of messages that are sent over a link.

use std::time::Duration;

use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use rand_distr::{Distribution as _, StandardNormal};

use super::links::{Distribution, Later, LinkSpec};
use super::outage::OpenTime;
use super::quantity::Rate;
use super::tcp::{Losses, Window, timeout};

/// One direction of a link: maps the times at which messages are sent to the times at which they
/// arrive.
///
/// A message first queues for the sender's rate, behind earlier messages, and with TCP's slow start
/// for its window. Then it takes the delay, varied by the jitter but never below 0, and the time to
/// resend lost segments. During outages its time stands still. Messages never overtake each other.
#[derive(Clone, Debug)]
pub struct LinkModel {
    delay: Duration,
    /// Delays that apply from later times on.
    later: Vec<Later>,
    last_arrival: Time,
    /// Everything except a constant delay.
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug)]
struct Rest {
    queue: Queue,
    window: Option<Window>,
    jitter: Option<Jitter>,
    losses: Option<Losses>,
    outages: Option<OpenTime>,
    random: Random,
}

impl LinkModel {
    /// Returns the model of a link that has carried nothing yet. TCP needs the `round_trip` of the
    /// whole link; randomness comes from `stream`.
    #[must_use]
    pub fn new(spec: LinkSpec, round_trip: Duration, stream: Stream) -> Self {
        let timeout = timeout(round_trip, spec.jitter);
        let rest = Rest {
            queue: Queue::new(spec.rate),
            window: spec.slow_start.then(|| Window::new(round_trip, timeout)),
            jitter: (!spec.jitter.is_zero()).then(|| Jitter::new(spec.jitter, spec.distribution)),
            losses: Losses::new(spec.loss, round_trip, timeout),
            outages: (!spec.outages.is_empty()).then(|| OpenTime::new(&spec.outages)),
            random: stream.rng(),
        };
        let constant = spec.rate.is_none()
            && rest.window.is_none()
            && rest.jitter.is_none()
            && rest.losses.is_none()
            && rest.outages.is_none();
        Self {
            delay: spec.delay,
            later: spec.later,
            last_arrival: Time::ZERO,
            rest: (!constant).then(|| Box::new(rest)),
        }
    }

    fn delay_at(&self, now: Time) -> Duration {
        let passed = self.later.partition_point(|later| later.from <= now);
        passed.checked_sub(1).map_or(self.delay, |last| self.later[last].delay)
    }

    fn outages(&self) -> Option<&OpenTime> {
        self.rest.as_ref()?.outages.as_ref()
    }

    /// Returns when the first bytes of a message sent at `now` arrive, if no message is before it.
    pub(crate) fn first_bytes(&self, now: Time) -> Time {
        let delay = self.delay_at(now);
        self.outages().map_or(now + delay, |outages| outages.clock(outages.by(now) + delay))
    }

    /// True if bytes can arrive at `at`.
    pub(crate) fn is_open(&self, at: Time) -> bool {
        self.outages().is_none_or(|outages| outages.clock(outages.by(at)) <= at)
    }

    /// Returns when a message of `bytes` bytes sent at `now` has completely arrived.
    pub fn send(&mut self, now: Time, bytes: u64) -> Time {
        let delay = self.delay_at(now);
        let arrival = match &mut self.rest {
            None => now + delay,
            Some(rest) => rest.send(now, bytes, delay),
        };
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_arrival
    }

    /// Begins a new connection: resets TCP's window.
    pub fn reconnect(&mut self) {
        if let Some(window) = self.rest.as_mut().and_then(|rest| rest.window.as_mut()) {
            window.reset();
        }
    }
}

impl Rest {
    fn send(&mut self, now: Time, bytes: u64, delay: Duration) -> Time {
        let begin = self.outages.as_ref().map_or(now, |outages| outages.by(now));
        let left = match &mut self.window {
            Some(window) => window.pass(begin, bytes, &mut self.queue),
            None => self.queue.pass(begin, bytes),
        };
        let flight =
            self.jitter.as_ref().map_or(delay, |jitter| jitter.vary(delay, &mut self.random));
        let lost = self
            .losses
            .as_ref()
            .map_or(Duration::ZERO, |losses| losses.delay(bytes, &mut self.random));
        let arrival = left + flight + lost;
        self.outages.as_ref().map_or(arrival, |outages| outages.clock(arrival))
    }
}

/// Variation of a delay.
#[derive(Clone, Debug)]
struct Jitter {
    nanos: f64,
    distribution: Distribution,
}

impl Jitter {
    const fn new(jitter: Duration, distribution: Distribution) -> Self {
        Self { nanos: jitter.as_nanos() as f64, distribution }
    }

    fn vary(&self, delay: Duration, random: &mut Random) -> Duration {
        let by = self.nanos * self.draw(random);
        let varied = delay.as_nanos() as f64 + by;
        // The cast turns negative values into 0.
        Duration::from_nanos(libm::round(varied) as u64)
    }

    /// Draws the deviation from the mean delay, in units of the jitter.
    fn draw(&self, random: &mut Random) -> f64 {
        match self.distribution {
            Distribution::Uniform => 2.0 * random.unit() - 1.0,
            Distribution::Normal => StandardNormal.sample(random.generator()),
            // The formula of netem's own table, which ends at 4.
            Distribution::Pareto => {
                let luck = 1.0 - random.unit();
                (4.0 / 3.0 * (1.0 / libm::cbrt(luck) - 1.5)).min(4.0)
            }
        }
    }
}

/// First-in-first-out queue before a link with a rate. Without a rate no message waits.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    rate: Option<Rate>,
    /// When everything queued so far has left, rounded down, ...
    free: Time,
    /// ... and the remainder, in nanoseconds divided by the rate.
    beyond: u64,
}

impl Queue {
    pub(super) const fn new(rate: Option<Rate>) -> Self {
        Self { rate, free: Time::ZERO, beyond: 0 }
    }

    /// Returns when the last bit has left, rounded up to a nanosecond. The remainder is kept for
    /// the next message.
    pub(super) fn pass(&mut self, now: Time, bytes: u64) -> Time {
        let Some(rate) = self.rate else { return now };
        let rate = u128::from(rate.bits_per_second());
        if now > self.free {
            (self.free, self.beyond) = (now, 0);
        }
        let bits = u128::from(bytes) * 8;
        let parts = bits * 1_000_000_000 + u128::from(self.beyond);
        let nanos = u64::try_from(parts / rate).unwrap_or(u64::MAX);
        self.free = self.free + Duration::from_nanos(nanos);
        self.beyond = (parts % rate) as u64;
        self.free + Duration::from_nanos(u64::from(self.beyond > 0))
    }
}

/// A shared link: first in, first out, at exactly its rate while it is busy.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    queue: Queue,
}

impl Bottleneck {
    /// Returns an idle link with this rate.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { queue: Queue::new(Some(rate)) }
    }

    /// Returns when a message of `bytes` bytes that comes at `now` has passed.
    pub fn pass(&mut self, now: Time, bytes: u64) -> Time {
        self.queue.pass(now, bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pstrain_compute::id::WorkerId;

    use super::super::links::Links;
    use super::*;

    fn pipe(text: &str, seed: u64) -> LinkModel {
        let link = text.parse::<Links>().unwrap().of(WorkerId(0)).unwrap();
        let round_trip = link.round_trip();
        LinkModel::new(link.up, round_trip, Stream::new(seed))
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_long_message_is_heard_of_while_nothing_is_out() {
        let pipe = pipe("delay=20ms later=50ms@80ms outage=100ms+50ms rate=8mbit", 1);
        for (sent, heard) in [(79, 99), (80, 180), (110, 200), (160, 210)] {
            assert_eq!(pipe.first_bytes(ms(sent)), ms(heard), "{sent}");
        }
        let open = [0, 99, 100, 149, 150, 1000].map(|at| pipe.is_open(ms(at)));
        assert_eq!(open, [true, true, false, false, true, true]);
    }

    #[test]
    fn closed_values() {
        for (text, sent, bytes, arrives) in [
            ("delay=100ms", 5, 1_000_000, 105),
            ("rate=8mbit", 0, 1_000_000, 1_000),
            ("rate=8mbit delay=20ms", 500, 1_000_000, 1_520),
            // The delay depends on the time at which a message is sent.
            ("delay=20ms later=50ms@80ms later=5ms@1s", 79, 1, 99),
            ("delay=20ms later=50ms@80ms later=5ms@1s", 80, 1, 130),
            ("delay=20ms later=5ms@1s later=50ms@80ms", 999, 1, 1_049),
            ("delay=20ms later=50ms@80ms later=5ms@1s", 1_100, 1, 1_105),
            ("delay=20ms outage=100ms+50ms", 79, 1, 99),
            // In transit when the outage begins: its last 10 ms follow after the outage.
            ("delay=20ms outage=100ms+50ms", 90, 1, 160),
            ("delay=20ms outage=100ms+50ms", 120, 1, 170),
            ("delay=20ms outage=100ms+50ms", 150, 1, 170),
            ("rate=8mbit outage=100ms+50ms", 50, 100_000, 200),
            ("delay=50ms down.delay=50ms slow-start=on", 0, 20 * 1448, 150),
        ] {
            assert_eq!(pipe(text, 1).send(ms(sent), bytes), ms(arrives), "{text} at {sent} ms");
        }
    }

    #[test]
    fn messages_queue_for_the_rate_and_for_nothing_else() {
        let mut pipe = pipe("rate=8mbit delay=100ms", 1);
        assert_eq!(pipe.send(ms(0), 10_000), ms(110));
        assert_eq!(pipe.send(ms(0), 10_000), ms(120));
        assert_eq!(pipe.send(ms(15), 10_000), ms(130));
        assert_eq!(pipe.send(ms(200), 10_000), ms(310));
    }

    #[test]
    fn jitter_is_distributed_as_asked() {
        for (how, low, high, deviation) in [
            ("uniform", 90.0, 110.0, 10.0 / 3.0_f64.sqrt()),
            ("normal", 50.0, 150.0, 10.0),
            ("pareto", 93.3, 140.0, 9.4),
        ] {
            let jitter = Jitter::new(Duration::from_millis(10), how.parse().unwrap());
            let mut random = Stream::new(1).rng();
            let draws: Vec<f64> = (0..100_000)
                .map(|_| jitter.vary(Duration::from_millis(100), &mut random).as_secs_f64() * 1e3)
                .collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>();
            let found = (variance / draws.len() as f64).sqrt();
            assert!((mean - 100.0).abs() < 0.5, "{how}: mean {mean}");
            assert!((found - deviation).abs() < 0.2 * deviation, "{how}: deviation {found}");
            assert!(draws.iter().all(|d| (low..=high).contains(d)), "{how}");
        }
        // Even a jitter above the delay never makes a message arrive before it was sent.
        let mut pipe = pipe("delay=1ms jitter=50ms distribution=normal", 1);
        for i in 0..1_000 {
            assert!(pipe.send(ms(i), 1) >= ms(i));
        }
    }

    #[test]
    fn a_new_connection_begins_with_a_small_window() {
        let mut pipe = pipe("delay=50ms down.delay=50ms slow-start=on", 1);
        let bytes = 20 * 1448;
        assert_eq!(pipe.send(ms(0), bytes), ms(150));
        assert_eq!(pipe.send(ms(200), bytes), ms(250));
        pipe.reconnect();
        assert_eq!(pipe.send(ms(300), bytes), ms(450));
    }

    proptest! {
        #[test]
        fn order_is_kept_and_nothing_is_early(
            seed: u64,
            which in 0_usize..5,
            steps in prop::collection::vec((0_u64..200_000_000, 1_u64..200_000), 1..60),
        ) {
            let text = [
                "delay=10ms",
                "delay=10ms rate=10mbit",
                "delay=10ms rate=10mbit slow-start=on down.delay=10ms",
                "delay=10ms loss=5% outage=200ms+100ms",
                "delay=20ms jitter=10ms rate=100mbit loss=1% slow-start=on outage=1s+1s",
            ][which];
            let mut pipe = pipe(text, seed);
            let (mut now, mut last) = (Time::ZERO, Time::ZERO);
            for (pause, bytes) in steps {
                now = now + Duration::from_nanos(pause);
                let arrival = pipe.send(now, bytes);
                prop_assert!(arrival >= now + Duration::from_millis(10), "early");
                prop_assert!(arrival >= last, "overtaken");
                last = arrival;
            }
        }

        #[test]
        fn a_busy_link_carries_exactly_its_rate(
            bits in 1_000_u64..10_000_000_000,
            sizes in prop::collection::vec(1_u64..100_000, 1..200),
        ) {
            let mut link = Bottleneck::new(Rate::new(bits).unwrap());
            let mut out = Time::ZERO;
            for &bytes in &sizes {
                out = link.pass(Time::ZERO, bytes);
            }
            let all: u64 = sizes.iter().sum();
            let exactly = (u128::from(all) * 8_000_000_000).div_ceil(u128::from(bits));
            prop_assert_eq!(u128::from(out.as_nanos()), exactly);
        }
    }
}
