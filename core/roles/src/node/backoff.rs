//! Pauses between dials.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::rng::Stream;

/// Capped exponential back-off with jitter, so that workers that were cut off together do not
/// reconnect together.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Backoff {
    /// The random stream of the jitter, and the number of pauses drawn from it.
    rng: (Stream, u64),
    attempt: u32,
}

const FIRST: Duration = Duration::from_millis(50);

impl Backoff {
    pub(super) fn new(stream: Stream) -> Self {
        Self { rng: (stream, 0), attempt: 0 }
    }

    /// Attempts since the last success.
    pub(super) const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the next pause: doubles from 50 ms up to `cap`, then shrinks by up to half at
    /// random.
    pub(super) fn pause(&mut self, cap: Duration) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.attempt.min(16)).min(cap);
        self.attempt += 1;
        let (stream, drawn) = &mut self.rng;
        let jitter = stream.fork("pause", *drawn).rng().unit();
        *drawn += 1;
        doubled.mul_f64(0.5 + 0.5 * jitter)
    }

    /// Starts from the shortest pause again, after a success.
    pub(super) const fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_are_never_longer() {
        let mut backoff = Backoff::new(Stream::new(1));
        let cap = Duration::from_secs(1);
        let mut longest = Duration::ZERO;
        for attempt in 0..40 {
            let pause = backoff.pause(cap);
            assert!(pause <= cap, "{pause:?}");
            if attempt >= 5 {
                assert!(pause >= cap / 2, "{pause:?}");
            }
            longest = longest.max(pause);
        }
        assert!(longest > cap.mul_f64(0.9));
        backoff.reset();
        assert!(backoff.pause(cap) <= FIRST);
    }
}
