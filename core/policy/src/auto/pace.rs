//! Throughput of one worker with its window, and the window that suffices.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auto::Seen;
use pstrain_compute::time::Time;

/// Share of its time that a worker should spend computing: a higher share is not worth more
/// staleness.
const BUSY: f64 = 0.95;
/// A larger window helps if the rate grows by this share of the growth that would be possible
/// without other bottlenecks. Not more, because the link may have changed since the previous
/// measurement began.
const HELPS: f64 = 0.25;
/// Measurements without growth after a larger window did not help.
const REST: u32 = 32;
/// Weight of a push in the running mean of a worker's loss.
const LOSS_SHARE: f64 = 0.1;
/// Measured pace of one worker with its window.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pace {
    pub(super) window: u32,
    /// Pushes to skip before the next measurement, because they were given out under another
    /// window.
    skip: u32,
    /// Number of pushes that a measurement takes.
    wanted: u32,
    since: Option<Time>,
    pushes: u32,
    computing: Duration,
    /// The previous window and its pushes per second, while a larger window is tried.
    before: Option<(u32, f64)>,
    /// Remaining measurements without growth.
    rest: u32,
    /// True if a larger window did not help before; the window then at most doubles.
    is_careful: bool,
    /// Seconds from giving out parameters to the push that they lead to, with one mini-batch under
    /// way.
    pub(super) trip: f64,
    /// Running mean of the losses of its mini-batches.
    pub(super) loss: Option<f64>,
    /// Examples in its partition.
    pub(super) rows: u64,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Share of the time in which the worker computed.
    busy: f64,
    /// Pushes per second.
    rate: f64,
}

impl Pace {
    /// Creates the pace of a worker that has pushed its first gradient, on parameters that were
    /// sent at `given`.
    pub(super) const fn new(given: Time) -> Self {
        Self {
            window: 1,
            skip: 0,
            // One cycle shows the order of magnitude; more cycles take long on a slow link.
            wanted: 1,
            since: Some(given),
            pushes: 0,
            computing: Duration::ZERO,
            before: None,
            rest: 0,
            is_careful: false,
            trip: f64::INFINITY,
            loss: None,
            rows: 0,
        }
    }

    /// Records the loss of a push.
    pub(super) fn lose(&mut self, seen: &Seen) {
        let loss = f64::from(seen.loss);
        self.rows = seen.rows;
        self.loss = Some(self.loss.map_or(loss, |mean| mean + LOSS_SHARE * (loss - mean)));
    }

    /// Changes the window.
    pub(super) fn set_window(&mut self, window: u32) {
        self.skip = self.window;
        self.window = window;
        self.wanted = (2 * window).max(4);
        self.since = None;
    }

    /// Records a push. Returns the result of the measurement that it ends, if any.
    pub(super) fn measure(&mut self, seen: &Seen) -> Option<Measured> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let Some(since) = self.since else {
            (self.since, self.pushes, self.computing) = (Some(seen.now), 0, Duration::ZERO);
            return None;
        };
        self.pushes += 1;
        self.computing += seen.compute;
        let span = seen.now.since(since).as_secs_f64();
        if self.pushes < self.wanted || span <= 0.0 {
            return None;
        }
        let (busy, rate) = (self.computing.as_secs_f64() / span, f64::from(self.pushes) / span);
        (self.since, self.pushes, self.computing) = (Some(seen.now), 0, Duration::ZERO);
        self.wanted = (2 * self.window).max(4);
        if busy < BUSY || self.trip.is_infinite() {
            self.trip = f64::from(self.window) / rate;
        }
        Some(Measured { busy, rate })
    }

    /// Sets the window that suffices, up to `ceiling`, and returns the reason; `None` if unchanged.
    pub(super) fn resize(&mut self, measured: Measured, ceiling: u32) -> Option<String> {
        let Measured { busy, rate } = measured;
        if let Some((window, before)) = self.before.take() {
            let (growth, hoped) = (rate / before, f64::from(self.window) / f64::from(window));
            if busy < BUSY && growth < 1.0 + (hoped - 1.0) * HELPS {
                return self.go_back(window, growth);
            }
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let wanted = libm::ceil(f64::from(self.window) / busy.max(1e-3)) as u32;
        let most = if self.is_careful { (2 * self.window).min(ceiling) } else { ceiling };
        let wanted = wanted.min(most);
        if busy >= BUSY || wanted <= self.window {
            return None;
        }
        self.before = Some((self.window, rate));
        self.set_window(wanted);
        Some(format!(
            "it computes for {:.0} % of its time, {:.1} mini-batches a second",
            100.0 * busy,
            rate
        ))
    }

    /// Shrinks the window after growing it from `window` made the worker only `growth` times as
    /// fast.
    fn go_back(&mut self, window: u32, growth: f64) -> Option<String> {
        let enough = libm::ceil(f64::from(window) * growth.max(1.0)) as u32;
        self.rest = REST;
        self.is_careful = true;
        let (tried, enough) = (self.window, enough.min(self.window));
        if enough == tried {
            return None;
        }
        self.set_window(enough);
        Some(format!("{tried} under way made it {growth:.2} times as fast as {window}"))
    }
}
