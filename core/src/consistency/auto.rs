//! `auto`: a mode chosen while training, from what the server sees.
//!
//! # Why these choices
//! With N workers of which worker i has the share `f_i` of the data and delivers `r_i` gradients a
//! second, an update by `f_i / share_i` times each gradient (participation `share`) follows the
//! gradient of all data, whatever the speeds, at the price of a variance that is
//! `V = sum f_i^2 / share_i` times as large. What that leaves of `R = sum r_i` gradients a second is
//! `R / V = 1 / sum(f_i^2 / r_i)`: with equal shares N times the harmonic mean of the rates, never
//! less than the N times their minimum that whole rounds or iterations deliver. So asynchronous
//! updates with share weights are the mode to be in, as long as staleness does no harm.
//!
//! A worker that waits for an answer delivers nothing. It is given as many mini-batches ahead as it
//! needs to compute without a pause: a share `u` of its time spent computing with a window of `w`
//! means that `w / u` would do, if it is only the answer that it waits for. Whether it was, the
//! next measurement shows; if more under way did not help (a link that is full, a server that is
//! busy), the window goes back to what did.
//!
//! As long as the windows grow, gradients count alike: the weights of workers that are still slow
//! would be large, and so would their steps.
//!
//! Windows at most double at a time, and only once the gradients of the last growth have come and
//! the loss has not risen: what is not stable is noticed while it grows slowly.
//!
//! Staleness does harm when the loss climbs. Then the windows are halved, again and again down to
//! one mini-batch, and below that the workers go in step (BSP). Once the loss has found new lows for
//! long enough, the windows may grow again.
//!
//! Knows the times and losses of pushes; gradients, messages and clocks it does not.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use super::ConsistencySpec;
use crate::aggregate::ParticipationSpec;
use crate::id::WorkerId;
use crate::mode::{MOST_IN_FLIGHT, Mode};
use crate::time::Time;

/// Share of its time that a worker should spend computing: more than that is not worth more
/// staleness.
const BUSY: f64 = 0.9;
/// Measurements for which a window rests after a larger one did not help.
const REST: u32 = 32;
/// Share of a push in the running mean of a worker's loss.
const LOSS_SHARE: f64 = 0.1;
/// The loss climbs when it is above its minimum by this factor ...
const CLIMB: f64 = 1.5;
/// ... and by this share of the first loss.
const CLIMB_OF_FIRST: f64 = 0.1;
/// A window does not grow while the loss is above its minimum by half as much.
const UNEASY: f64 = 0.5;

/// The controller.
#[derive(Debug)]
pub struct Auto {
    paces: BTreeMap<WorkerId, Pace>,
    /// The largest window that a worker may have.
    ceiling: u32,
    climb: Climb,
    /// Pushes since a window grew.
    settled: u64,
    /// Whether workers have data of their own, which may be counted by their shares.
    has_shares: bool,
}

/// A push, as far as the controller wants to know it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Whose.
    pub worker: WorkerId,
    /// When it came.
    pub now: Time,
    /// What its computation took.
    pub compute: Duration,
    /// Mean loss of its mini-batch.
    pub loss: f32,
    /// Examples in the worker's partition.
    pub rows: u64,
}

/// What the controller has chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Another window for a worker.
    Window {
        /// Whose.
        worker: WorkerId,
        /// Mini-batches that it may have under way.
        in_flight: u32,
        /// Why, in words.
        why: String,
    },
    /// Another mode.
    Mode {
        /// The mode.
        mode: Mode,
        /// Why, in words.
        why: String,
    },
}

/// What one worker delivers with its window.
#[derive(Debug)]
struct Pace {
    window: u32,
    /// Pushes to let pass before the next measurement: they were given out under another window.
    skip: u32,
    /// Pushes that a measurement takes.
    wanted: u32,
    since: Option<Time>,
    pushes: u32,
    computing: Duration,
    /// The window and the pushes a second before the one that is being tried.
    before: Option<(u32, f64)>,
    rest: u32,
    /// Whether the last measurement asked for no other window.
    is_settled: bool,
    loss: Option<f64>,
    rows: u64,
}

/// The course of the loss.
#[derive(Debug, Default)]
struct Climb {
    first: Option<f64>,
    lowest: f64,
    /// Pushes since the windows were last cut, or may be cut again.
    calm: u64,
    /// The lowest before the windows were last cut.
    to_beat: Option<f64>,
}

impl Auto {
    /// A controller before the first push, under the mode [`Auto::first`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            paces: BTreeMap::new(),
            ceiling: MOST_IN_FLIGHT,
            climb: Climb::default(),
            settled: 0,
            has_shares: true,
        }
    }

    /// The same for workers that all have the same data, which are counted once whoever computes.
    #[must_use]
    pub const fn without_shares(mut self) -> Self {
        self.has_shares = false;
        self
    }

    /// The mode it begins with.
    #[must_use]
    pub fn first() -> Mode {
        Mode { in_flight: Some(1), ..Mode::of(ConsistencySpec::Asp) }
    }

    /// Mini-batches of `worker` that may be under way.
    #[must_use]
    pub fn window(&self, worker: WorkerId) -> u32 {
        self.paces.get(&worker).map_or(1, |pace| pace.window)
    }

    /// Takes note that `worker` does not count any more.
    pub fn left(&mut self, worker: WorkerId) {
        self.paces.remove(&worker);
    }

    /// Takes note of an accepted push under `mode`; says what is to change, if anything.
    pub fn pushed(&mut self, mode: &Mode, seen: Seen) -> Option<Choice> {
        let pace = self.paces.entry(seen.worker).or_insert_with(Pace::new);
        pace.lose(&seen);
        self.climb.calm += 1;
        self.settled += 1;
        if mode.consistency == ConsistencySpec::Bsp {
            return None;
        }
        self.watch_loss(mode).or_else(|| {
            let ceiling = if self.may_grow() { self.ceiling } else { 0 };
            let pace = self.paces.get_mut(&seen.worker)?;
            let before = pace.window;
            let Some(why) = pace.measure(&seen, ceiling) else { return self.share(mode) };
            if pace.window > before {
                self.settled = 0;
            }
            Some(Choice::Window { worker: seen.worker, in_flight: pace.window, why })
        })
    }

    /// Counts workers by their shares once no window grows any more.
    fn share(&self, mode: &Mode) -> Option<Choice> {
        let is_settled = |pace: &Pace| pace.is_settled;
        // Asked at every push, and mostly answered by the first part.
        let counts = mode.participation == ParticipationSpec::Share || !self.has_shares;
        if counts || !self.paces.values().all(is_settled) {
            return None;
        }
        let in_flight = self.paces.values().map(|pace| pace.window).max();
        let mode = Mode { participation: ParticipationSpec::Share, in_flight, ..*mode };
        let why = "all workers compute as much of their time as they will".into();
        Some(Choice::Mode { mode, why })
    }

    /// The loss of all data: of each worker by its share.
    fn loss(&self) -> Option<f64> {
        let (mut sum, mut rows) = (0.0, 0.0);
        for pace in self.paces.values() {
            sum += pace.rows as f64 * pace.loss?;
            rows += pace.rows as f64;
        }
        (rows > 0.0).then(|| sum / rows)
    }

    /// Whether the gradients of the last growth have come, and did no harm.
    fn may_grow(&self) -> bool {
        let under_way: u64 = self.paces.values().map(|pace| u64::from(pace.window)).sum();
        self.settled > 2 * under_way && !self.climb.climbs(self.loss(), UNEASY)
    }

    /// Pushes that have to come before the effect of a change can be seen.
    fn patience(&self) -> u64 {
        let under_way: u64 = self.paces.values().map(|pace| u64::from(pace.window)).sum();
        under_way + 8 * self.paces.len() as u64
    }

    /// Cuts the windows when the loss climbs, and lets them grow when it has long not.
    fn watch_loss(&mut self, mode: &Mode) -> Option<Choice> {
        // Looking at everybody for each push would cost with their number.
        if !self.climb.calm.is_multiple_of(1 + self.paces.len() as u64) {
            return None;
        }
        let (loss, patience) = (self.loss()?, self.patience());
        let first = *self.climb.first.get_or_insert(loss);
        if first == loss {
            self.climb.lowest = loss;
        }
        let lowest = self.climb.lowest;
        if self.climb.climbs(Some(loss), 1.0) && self.climb.calm >= patience {
            return self.cut(mode, loss);
        }
        self.climb.lowest = lowest.min(loss);
        if self.climb.to_beat.is_some_and(|beat| loss < beat) && self.climb.calm > 16 * patience {
            self.climb.to_beat = None;
            self.ceiling = (2 * self.ceiling).min(MOST_IN_FLIGHT);
        }
        None
    }

    fn cut(&mut self, mode: &Mode, loss: f64) -> Option<Choice> {
        let lowest = core::mem::replace(&mut self.climb.lowest, loss);
        let story = format!("the loss climbed from {lowest:.3} to {loss:.3}");
        self.climb.calm = 0;
        self.climb.to_beat.get_or_insert(lowest);
        let widest = self.paces.values().map(|pace| pace.window).max()?;
        if widest == 1 {
            let mode = Mode { consistency: ConsistencySpec::Bsp, in_flight: None, ..*mode };
            let why = format!("{story} with one mini-batch of each worker under way: in step now");
            return Some(Choice::Mode { mode, why });
        }
        self.ceiling = widest / 2;
        for pace in self.paces.values_mut() {
            pace.set_window(pace.window.min(self.ceiling));
        }
        let mode = Mode { in_flight: Some(self.ceiling), ..*mode };
        let why = format!("{story}: at most {} mini-batches of a worker under way", self.ceiling);
        Some(Choice::Mode { mode, why })
    }
}

impl Climb {
    /// Whether `loss` is above the minimum by `part` of what counts as a climb.
    fn climbs(&self, loss: Option<f64>, part: f64) -> bool {
        let (Some(loss), Some(first)) = (loss, self.first) else { return false };
        let relative = 1.0 + part * (CLIMB - 1.0);
        let within =
            loss <= relative * self.lowest || loss <= self.lowest + part * CLIMB_OF_FIRST * first;
        !within // a loss that is no number is not within anything
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    const fn new() -> Self {
        Self {
            window: 1,
            skip: 0,
            // Two cycles show the order of magnitude, and a slow link is slow to show more.
            wanted: 2,
            since: None,
            pushes: 0,
            computing: Duration::ZERO,
            before: None,
            rest: 0,
            is_settled: false,
            loss: None,
            rows: 0,
        }
    }

    fn lose(&mut self, seen: &Seen) {
        let loss = f64::from(seen.loss);
        self.rows = seen.rows;
        self.loss = Some(self.loss.map_or(loss, |mean| mean + LOSS_SHARE * (loss - mean)));
    }

    fn set_window(&mut self, window: u32) {
        self.skip = self.window.max(window) + 1;
        self.window = window;
        self.is_settled = false;
        self.wanted = (2 * window).max(4);
        self.since = None;
    }

    /// Notes a push; another window and why, if the measurement it ends says so.
    fn measure(&mut self, seen: &Seen, ceiling: u32) -> Option<String> {
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
        if let Some((window, before)) = self.before.take() {
            let (growth, hoped) = (rate / before, f64::from(self.window) / f64::from(window));
            if busy < BUSY && growth < 1.0 + (hoped - 1.0) / 2.0 {
                return self.go_back(window, growth);
            }
        }
        if self.rest > 0 {
            self.rest -= 1;
            self.is_settled = true;
            return None;
        }
        self.is_settled = busy >= BUSY;
        let wanted = libm::ceil(f64::from(self.window) / busy.max(1e-3)) as u32;
        let wanted = wanted.min(2 * self.window).min(ceiling);
        if busy >= BUSY || wanted <= self.window {
            self.is_settled |= ceiling > 0;
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

    /// A larger window than `window` made it only `growth` times as fast.
    fn go_back(&mut self, window: u32, growth: f64) -> Option<String> {
        let enough = libm::ceil(f64::from(window) * growth.max(1.0)) as u32;
        self.rest = REST;
        let (tried, enough) = (self.window, enough.min(self.window));
        if enough == tried {
            return None;
        }
        self.set_window(enough);
        Some(format!("{tried} under way made it {growth:.2} times as fast as {window}"))
    }
}

#[cfg(test)]
mod tests;
