//! Model of TCP's effect on arrival times: slow start and retransmission.
//!
//! Slow start: the window begins with ten segments (RFC 6928) and grows by the bytes acknowledged,
//! so that it doubles each round trip (RFC 5681, section 3.1). It is halved for each retransmission
//! timeout that the connection is idle (RFC 2861, section 3.1), down to ten segments. The unused
//! part of the window is dropped then: Linux lets a window grow to about twice the bytes sent in a
//! round trip. Not modelled: that a loss shrinks the window, and the receiver's limits.
//!
//! Loss: if three segments of the same message follow a lost one, their acknowledgements reveal the
//! loss, and the segment is sent again after a round trip (RFC 5681, section 3.2). Otherwise, and
//! whenever it is lost again, it is sent again after a timeout that doubles each time (RFC 6298,
//! section 5.5).

use std::time::Duration;

use pstrain_compute::rng::Random;
use pstrain_compute::time::Time;

use super::link_model::Queue;
use super::quantity::Loss;

/// Bytes of a full segment over Ethernet, with TCP timestamps.
const SEGMENT: u64 = 1448;
const INITIAL_WINDOW: u64 = 10 * SEGMENT;
/// The least excess of the timeout over the round trip, as in Linux.
const LEAST_VARIATION: Duration = Duration::from_millis(200);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Segments after a lost one that reveal the loss.
const DUPLICATES: u64 = 3;
/// Maximum number of consecutive losses that are drawn for one segment.
const MOST_LOSSES: u32 = 30;

/// Returns the retransmission timeout of a connection (RFC 6298: smoothed round trip plus four
/// times its variation), with the minimum that Linux sets for the variation term.
pub(super) fn timeout(round_trip: Duration, jitter: Duration) -> Duration {
    round_trip.saturating_add(LEAST_VARIATION.max(jitter.saturating_mul(4))).min(LONGEST_TIMEOUT)
}

/// The sender's congestion window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    round_trip: Duration,
    timeout: Duration,
    size: u64,
    /// Bytes that may still be sent in this round.
    left: u64,
    /// The most bytes sent in one round since the connection was last idle.
    flight: u64,
    /// When the first acknowledgements of this round arrive.
    round_ends: Time,
    last_sent: Time,
}

impl Window {
    pub(super) const fn new(round_trip: Duration, timeout: Duration) -> Self {
        Self {
            round_trip,
            timeout,
            size: INITIAL_WINDOW,
            left: INITIAL_WINDOW,
            flight: 0,
            round_ends: Time::ZERO,
            last_sent: Time::ZERO,
        }
    }

    /// Resets the window for a new connection.
    pub(super) const fn reset(&mut self) {
        *self = Self::new(self.round_trip, self.timeout);
    }

    /// Returns when a message given to the connection at `now` has completely left through `queue`.
    pub(super) fn pass(&mut self, now: Time, bytes: u64, queue: &mut Queue) -> Time {
        let mut at = now.max(self.last_sent);
        let idle = at - self.last_sent;
        if idle >= self.timeout {
            self.begin_round(at);
            self.restart(idle);
        }
        let mut rest = bytes;
        loop {
            if at >= self.round_ends {
                self.begin_round(at);
            }
            let part = rest.min(self.left);
            self.left -= part;
            rest -= part;
            at = queue.pass(at, part);
            if rest == 0 {
                self.last_sent = at;
                return at;
            }
            at = at.max(self.round_ends);
        }
    }

    /// Begins a round: the bytes sent in the previous one are acknowledged.
    fn begin_round(&mut self, at: Time) {
        let sent = self.size - self.left;
        self.flight = self.flight.max(sent);
        self.size = self.size.saturating_add(sent);
        self.left = self.size;
        self.round_ends = at + self.round_trip;
    }

    /// Shrinks the window after idle time.
    fn restart(&mut self, idle: Duration) {
        let used = self.size.min(self.flight.saturating_mul(2));
        let timeouts = idle.as_nanos() / self.timeout.as_nanos().max(1);
        let halved = u32::try_from(timeouts).ok().and_then(|timeouts| used.checked_shr(timeouts));
        self.size = halved.unwrap_or(0).max(INITIAL_WINDOW);
        self.left = self.size;
        self.flight = 0;
    }
}

/// Losses of one direction.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    share: f64,
    round_trip: Duration,
    timeout: Duration,
}

impl Losses {
    /// Returns `None` if there is no loss.
    pub(super) fn new(loss: Loss, round_trip: Duration, timeout: Duration) -> Option<Self> {
        (loss != Loss::default()).then(|| Self { share: loss.share(), round_trip, timeout })
    }

    /// Returns the delay of a message because of its lost segments.
    pub(super) fn delay(&self, bytes: u64, random: &mut Random) -> Duration {
        let segments = bytes.div_ceil(SEGMENT).max(1);
        let last = segments.min(DUPLICATES);
        let noticed = match self.draw(segments - last, random) {
            0 => Duration::ZERO,
            losses => self.round_trip.saturating_add(self.timeouts(losses - 1)),
        };
        noticed.max(self.timeouts(self.draw(last, random)))
    }

    /// Draws the largest number of consecutive losses of any of `segments` segments.
    fn draw(&self, segments: u64, random: &mut Random) -> u32 {
        let luck = random.unit();
        let mut again = self.share;
        let mut losses = 0;
        // The probability that each is lost at most `losses` times is (1 - share^(losses +
        // 1))^segments.
        while losses < MOST_LOSSES && luck >= libm::pow(1.0 - again, segments as f64) {
            again *= self.share;
            losses += 1;
        }
        losses
    }

    /// Returns the sum of `count` timeouts, each twice as long as the one before.
    fn timeouts(&self, count: u32) -> Duration {
        let mut timeout = self.timeout;
        let mut sum = Duration::ZERO;
        for _ in 0..count {
            sum += timeout;
            timeout = (timeout * 2).min(LONGEST_TIMEOUT);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use pstrain_compute::rng::Stream;

    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const RTO: Duration = Duration::from_millis(300);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_large_message_takes_a_round_trip_for_each_doubling() {
        for (segments, rounds) in [(1, 0), (10, 0), (11, 1), (30, 1), (31, 2), (70, 2), (71, 3)] {
            let mut window = Window::new(RTT, RTO);
            let left = window.pass(ms(0), segments * SEGMENT, &mut Queue::new(None));
            assert_eq!(left, ms(100 * rounds), "{segments} segments");
        }
    }

    #[test]
    fn the_window_stays_while_in_use_and_is_halved_for_each_timeout_of_idle_time() {
        // From 80 segments: after one timeout 40, after two 20, after three or more 10.
        for (timeouts, rounds) in [(1, 0), (2, 1), (3, 2), (4, 2), (1_000_000, 2)] {
            let mut window = Window::new(RTT, RTO);
            let mut queue = Queue::new(None);
            assert_eq!(window.pass(ms(0), 30 * SEGMENT, &mut queue), ms(100));
            assert_eq!(window.pass(ms(250), 40 * SEGMENT, &mut queue), ms(250));
            let again = 250 + 300 * timeouts;
            let left = window.pass(ms(again), 40 * SEGMENT, &mut queue);
            assert_eq!(left, ms(again + 100 * rounds), "{timeouts} timeouts");
        }
    }

    #[test]
    fn one_hiccup_does_not_make_a_large_message_start_over() {
        // At the start 274 segments take five rounds. After an idle timeout half of the window
        // still suffices, also for the next message, which is on time.
        let mut window = Window::new(RTT, RTO);
        let mut queue = Queue::new(None);
        let mut send = |at: u64, rounds: u64| {
            let left = window.pass(ms(at), 274 * SEGMENT, &mut queue);
            assert_eq!(left, ms(at + 100 * rounds), "at {at} ms");
            at + 100 * rounds
        };
        let sent = send(0, 4);
        let sent = send(sent + 150, 0);
        let sent = send(sent + 300, 0);
        send(sent + 150, 0);
    }

    #[test]
    fn what_was_never_used_of_the_window_does_not_outlast_idle_time() {
        let mut window = Window::new(RTT, RTO);
        let mut queue = Queue::new(None);
        // Each of many messages of ten segments grows the window, though none needs it.
        for message in 0..100 {
            assert_eq!(window.pass(ms(150 * message), 10 * SEGMENT, &mut queue), ms(150 * message));
        }
        let again = 150 * 99 + 300;
        assert_eq!(window.pass(ms(again), 20 * SEGMENT, &mut queue), ms(again + 100));
    }

    #[test]
    fn a_full_pipe_does_not_wait_for_acknowledgements() {
        let mut window = Window::new(Duration::from_millis(10), RTO);
        let mut queue = Queue::new("8mbit".parse().ok());
        // Ten segments take longer than a round trip.
        assert_eq!(window.pass(ms(0), 1_000_000, &mut queue), ms(1_000));
    }

    #[test]
    fn losses_cost_timeouts_that_double() {
        let losses = Losses::new("50%".parse().unwrap(), RTT, RTO).unwrap();
        assert_eq!(losses.timeouts(3), Duration::from_millis(300 + 600 + 1_200));
        let mut random = Stream::new(1).rng();
        let draws = 100_000;
        let mut count = [0_u32; 4];
        for _ in 0..draws {
            let lost = losses.draw(1, &mut random) as usize;
            count[lost.min(3)] += 1;
        }
        for (lost, share) in [(0, 0.5), (1, 0.25), (2, 0.125), (3, 0.125)] {
            let found = f64::from(count[lost]) / f64::from(draws);
            assert!((found - share).abs() < 0.01, "{lost}: {found}");
        }
        // No segment follows a single one: only its timeout reveals the loss.
        let delay = losses.delay(100, &mut random);
        assert!(delay.is_zero() || delay >= RTO, "{delay:?}");
        assert!(Losses::new(Loss::default(), RTT, RTO).is_none());
    }
}
