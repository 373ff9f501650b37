//! The `auto` controller: chooses the mode during training from the server's measurements.
//!
//! # Why these choices
//! With N workers of which worker i has the share `f_i` of the data and delivers `r_i` gradients a
//! second, an update by `f_i / share_i` times each gradient (participation `share`) follows the
//! gradient of all data at any speeds, at the price of a variance that is `V = sum f_i^2 / share_i`
//! times as large. The effective rate out of `R = sum r_i` gradients a second is `R / V = 1 /
//! sum(f_i^2 / r_i)`: with equal shares N times the harmonic mean of the rates, never less than the
//! N times their minimum that whole rounds or iterations deliver. Asynchronous updates with share
//! weights are therefore the best mode as long as staleness does no harm.
//!
//! Workers count by their shares from the first gradient. Their windows differ while they grow, and
//! under label skew the gradients of workers with large windows would raise the loss of all data.
//!
//! A worker that waits for an answer delivers nothing. It is given as many mini-batches ahead as it
//! needs to compute without a pause: if it computes for a share `u` of its time with a window of
//! `w`, a window of `w / u` suffices, provided that it waits for the answer only. The next
//! measurement verifies this; if a larger window did not help (a full link, a busy server), the
//! window returns to the size that did.
//!
//! The first gradient of a worker shows how large its window has to be, and the window grows to
//! that size at once: growing step by step costs several round trips, which is more than shrinking
//! a window that was too large. A window that is larger than the link needs makes no gradient
//! staler: a worker computes on the latest parameters that it has.
//!
//! # When staleness does harm
//! Before it does, the parameters begin to swing (`course`). Windows grow only while the parameters
//! keep their direction, and are halved when they swing. If the loss climbs nevertheless, the last
//! parameters with a low loss are restored and the windows halved, repeatedly down to one
//! mini-batch. The same happens, a limited number of times, when a version has diverged: most of
//! the workers find no finite gradient on it. A loss that has climbed without having fallen before
//! is far from what its windows allow, and cuts them to a quarter. The last step is BSP. It is the
//! next one at once where it delivers at least half of the gradients that one mini-batch of each
//! worker does, and where the loss has climbed each time that windows of one had grown. After each
//! cut the windows rest, longer each time, before they may grow again.
//!
//! A loss that was never far below the first says nothing about its parameters: a run that is about
//! to climb may have ruined them for good (units that are 0 for all samples), although the mean of
//! the latest losses has fallen by a tenth. Such parameters are kept only if they have lasted.
//!
//! The loss climbs above its minimum since the parameters were last restored, which is never above
//! the loss of the first version: of a run that climbs at once after a restore, the losses are
//! complete only when it has climbed.
//!
//! The controller knows the times and losses of pushes, and how the parameters moved. It knows
//! neither gradients nor messages nor clocks.

mod pace;
mod snapshots;
mod trajectory;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use self::pace::{Measured, Pace};
pub use self::snapshots::{Kept, Look, Snapshots};
use self::trajectory::Trajectory;
use crate::consistency::ConsistencySpec;
use crate::mode::Mode;
use crate::rules::ParticipationSpec;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;

/// The loss climbs if it exceeds its minimum by this factor ...
const CLIMB: f64 = 2.0;
/// ... and by this share of the first loss.
const CLIMB_OF_FIRST: f64 = 0.2;
/// A window does not grow while the loss exceeds its minimum by this part of a climb.
const UNEASY: f64 = 0.5;
/// Windows that were cut may grow again after `patience << REST` pushes, twice as many after
/// each restore.
const REST: u32 = 2;
/// Parameters are kept for a restore only while the loss exceeds its minimum by less than this part
/// of a climb.
const EASY: f64 = 0.25;
/// Bytes of gradients that a worker may have under way. Half of the 64 MiB that transports queue
/// for one peer: a worker that reconnects after a cut resends all that is under way.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// BSP replaces one mini-batch of each worker if it delivers this share of the gradients.
const IN_STEP: f64 = 0.5;
/// Number of times that a version may diverge before the run ends.
const DIVERGENCES: u32 = 8;

/// The controller.
#[derive(Debug, Serialize, Deserialize)]
pub struct Auto {
    paces: BTreeMap<WorkerId, Pace>,
    /// Sum of the windows of all workers.
    under_way: u64,
    /// The largest window that the length of the gradients allows.
    most: u32,
    /// The largest window that a worker may have now.
    ceiling: u32,
    climb: Climb,
    course: Trajectory,
    /// Pushes since a window grew.
    settled: u64,
    /// Number of times that a version has diverged.
    divergences: u32,
    /// True if windows may grow: until they are cut, and again once the effect of the cut is known.
    grows: bool,
    /// The pending measurement of the parameters.
    looking: Option<Looking>,
}

/// A push at which the parameters are measured, until the result is known.
#[derive(Debug, Serialize, Deserialize)]
struct Looking {
    worker: WorkerId,
    /// Result of the pace measurement that the push ended, if any.
    measured: Option<Measured>,
    /// Updates between two measurements.
    spacing: u64,
    /// True if the loss was up.
    is_up: bool,
}

/// Data of a push that the controller uses.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The worker that pushed.
    pub worker: WorkerId,
    /// When the push arrived.
    pub now: Time,
    /// When its parameters were given out.
    pub given: Time,
    /// Duration of its computation.
    pub compute: Duration,
    /// Mean loss of its mini-batch.
    pub loss: f32,
    /// Examples in the worker's partition.
    pub rows: u64,
    /// The current version, which does not include the push.
    pub version: Version,
}

/// A decision of the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Measure the current parameters and pass the result to [`Auto::looked`] before any other
    /// push.
    Look(Look),
    /// Change the window of a worker.
    Window {
        /// The worker.
        worker: WorkerId,
        /// Mini-batches that it may have under way.
        in_flight: u32,
        /// The reason, as text.
        why: String,
    },
    /// Change the mode.
    Mode {
        /// The new mode.
        mode: Mode,
        /// The version of the parameters to start with, if not the current one: the one approved
        /// for a restore.
        restore: Option<Version>,
        /// The reason, as text.
        why: String,
    },
}

/// The trajectory of the loss.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Climb {
    first: Option<f64>,
    /// Lowest loss since a worker last left or parameters were restored, at most the first. A
    /// worker that joins is averaged in.
    lowest: Option<f64>,
    /// Pushes since the windows were last cut or their ceiling was last raised.
    calm: u64,
    /// Number of restores after windows had grown.
    times: u32,
    /// True if a window has grown since the last restore.
    has_grown: bool,
    /// True once a climb has cut all windows to 1.
    was_narrow: bool,
}

impl Auto {
    /// Creates a controller before the first push, in the mode [`Auto::first`], for gradients of
    /// `parameters` values.
    #[must_use]
    pub fn new(parameters: u64) -> Self {
        let bytes = parameters.max(1) * size_of::<f32>() as u64;
        let most = (MOST_BYTES / bytes).clamp(1, u64::from(MOST_IN_FLIGHT)) as u32;
        Self {
            paces: BTreeMap::new(),
            under_way: 0,
            most,
            ceiling: most,
            climb: Climb::default(),
            course: Trajectory::default(),
            settled: 0,
            divergences: 0,
            grows: true,
            looking: None,
        }
    }

    /// Saves or restores the state of the controller.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not hold this state.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }

    /// The initial mode: workers that have data of their own count by their shares.
    #[must_use]
    pub fn first(has_shares: bool) -> Mode {
        let participation =
            if has_shares { ParticipationSpec::Share } else { ParticipationSpec::Plain };
        Mode { in_flight: Some(1), participation, ..Mode::of(ConsistencySpec::Asp) }
    }

    /// The number of mini-batches of `worker` that may be under way.
    #[must_use]
    pub fn window(&self, worker: WorkerId) -> u32 {
        self.paces.get(&worker).map_or(1, |pace| pace.window)
    }

    /// Removes `worker`, which no longer counts.
    pub fn left(&mut self, worker: WorkerId) {
        if let Some(pace) = self.paces.remove(&worker) {
            self.under_way -= u64::from(pace.window);
            self.climb.lowest = self.climb.first; // the lowest loss was of other data
        }
    }

    /// Records an accepted push under `mode`, and returns the change to make, if any.
    pub fn pushed(&mut self, mode: &Mode, seen: Seen) -> Option<Choice> {
        if !self.paces.contains_key(&seen.worker) {
            self.under_way += 1;
            self.climb.joined(self.rows(), &seen);
        }
        let pace = self.paces.entry(seen.worker).or_insert_with(|| Pace::new(seen.given));
        pace.lose(&seen);
        self.climb.calm += 1;
        self.settled += 1;
        if mode.consistency == ConsistencySpec::Bsp {
            return None;
        }
        let measured = pace.measure(&seen);
        self.watch_loss(mode)
            .or_else(|| self.look(&seen, measured))
            .or_else(|| self.resize(seen.worker, measured))
    }

    /// Records that `version` has diverged under `mode`, and returns the restore to make, if it may
    /// help.
    pub fn diverged(&mut self, mode: &Mode, version: Version) -> Option<Choice> {
        let restore = self.course.good().filter(|good| *good < version)?;
        if mode.consistency == ConsistencySpec::Bsp || self.divergences == DIVERGENCES {
            return None;
        }
        self.divergences += 1;
        let story = format!("most workers find no finite gradient on version {version}");
        Some(self.cut(mode, Some(restore), &story))
    }

    /// Resizes the window of a worker if a measurement ended.
    fn resize(&mut self, worker: WorkerId, measured: Option<Measured>) -> Option<Choice> {
        let measured = measured?;
        self.grows |= self.climb.calm > 2 * self.under_way && self.is_well();
        let ceiling = if self.grows { self.ceiling } else { 0 };
        let pace = self.paces.get_mut(&worker)?;
        let before = pace.window;
        let why = pace.resize(measured, ceiling)?;
        let window = pace.window;
        self.under_way = self.under_way - u64::from(before) + u64::from(window);
        if window > before {
            self.settled = 0;
            self.climb.has_grown = true;
        }
        Some(Choice::Window { worker, in_flight: window, why })
    }

    /// The loss of all data: the workers' mean losses weighted by rows.
    fn loss(&self) -> Option<f64> {
        let (mut sum, mut rows) = (0.0, 0.0);
        for pace in self.paces.values() {
            sum += pace.rows as f64 * pace.loss?;
            rows += pace.rows as f64;
        }
        (rows > 0.0).then(|| sum / rows)
    }

    /// Returns true if the parameters keep their direction and the loss is not up.
    fn is_well(&self) -> bool {
        self.course.goes_on() && !self.climb.climbs(self.loss(), UNEASY)
    }

    /// Number of examples of all workers.
    fn rows(&self) -> u64 {
        self.paces.values().map(|pace| pace.rows).sum()
    }

    /// Number of pushes until the effect of a change is visible.
    fn patience(&self) -> u64 {
        self.under_way + 8 * self.paces.len() as u64
    }

    /// Restores parameters and cuts the windows if the loss climbs.
    fn watch_loss(&mut self, mode: &Mode) -> Option<Choice> {
        // The loss of all data takes time linear in the number of workers, so check it every N + 1
        // pushes.
        if self.climb.first.is_some()
            && !self.climb.calm.is_multiple_of(1 + self.paces.len() as u64)
        {
            return None;
        }
        let loss = self.loss()?;
        self.climb.first.get_or_insert(loss);
        let lowest = *self.climb.lowest.get_or_insert(loss);
        if self.climb.climbs(Some(loss), 1.0) && self.climb.calm >= self.patience() {
            let restore = self.course.good();
            let story = format!("the loss climbed from {lowest:.3} to {loss:.3}");
            return Some(self.cut(mode, restore, &story));
        }
        self.climb.lowest = Some(lowest.min(loss));
        None
    }

    /// Orders a measurement of the parameters, if it is due.
    fn look(&mut self, seen: &Seen, measured: Option<Measured>) -> Option<Choice> {
        if !self.course.is_due() {
            return None;
        }
        let rests = self.settled > 16 * self.patience();
        let spacing = Trajectory::spacing(self.under_way, rests);
        let loss = self.loss();
        let is_up = self.climb.climbs(loss, EASY);
        let Seen { worker, version, .. } = *seen;
        let approved = !is_up && (self.climb.has_fallen_to(loss) || rests && loss.is_some());
        let anew = self.course.look(version, spacing, approved);
        self.looking = Some(Looking { worker, measured, spacing, is_up });
        Some(Choice::Look(Look { version, anew, approved }))
    }

    /// Receives the result of a measurement: the sums of [`Snapshots::look`] over all keys, empty
    /// if it returned none. Returns the change to make, if any.
    pub fn looked(&mut self, mode: &Mode, sums: &[ExactSum]) -> Option<Choice> {
        let Looking { worker, measured, spacing, is_up } = self.looking.take()?;
        self.course.looked(sums);
        self.watch_course(mode, spacing, is_up).or_else(|| self.resize(worker, measured))
    }

    /// Cuts the windows if the parameters swing, and raises their ceiling after a long calm.
    fn watch_course(&mut self, mode: &Mode, spacing: u64, is_up: bool) -> Option<Choice> {
        if let Some(swing) = self.course.swing().filter(|_| is_up && self.widest() > 1) {
            let story = format!(
                "the parameters swing: what {spacing} updates change, the next take back (cosine \
                 {swing:.2})"
            );
            return Some(self.cut(mode, None, &story));
        }
        let rest = self.patience() << (REST + self.climb.times.min(16));
        let has_settled = self.settled > 2 * self.under_way;
        if self.ceiling < self.most && self.climb.calm > rest && has_settled && self.is_well() {
            self.climb.calm = 0;
            self.ceiling = (self.ceiling + self.ceiling.div_ceil(2)).min(self.most);
        }
        None
    }

    /// Returns true if BSP delivers about as many gradients as one mini-batch of each worker under
    /// way. A worker's round trip is the last one measured.
    fn is_as_fast_in_step(&self) -> bool {
        let trips = || self.paces.values().map(|pace| pace.trip);
        let (slowest, all) = (trips().fold(0.0, f64::max), trips().map(f64::recip).sum::<f64>());
        self.paces.len() as f64 >= IN_STEP * all * slowest
    }

    fn widest(&self) -> u32 {
        self.paces.values().map(|pace| pace.window).max().unwrap_or(1)
    }

    /// Halves the windows, or more. If they are at 1 already, switches to BSP.
    fn cut(&mut self, mode: &Mode, restore: Option<Version>, story: &str) -> Choice {
        let has_fallen = self.climb.has_fallen_to(self.climb.lowest);
        let narrower = if restore.is_some() && !has_fallen { 4 } else { 2 };
        self.climb.calm = 0;
        self.grows = false;
        if restore.is_some() {
            self.climb.times += u32::from(self.climb.has_grown);
            self.climb.has_grown = false;
            // Losses of the previous parameters do not apply to the restored ones.
            self.climb.lowest = self.climb.first;
            self.paces.values_mut().for_each(|pace| pace.loss = None);
        }
        self.course.restart_cohort(2 * self.under_way);
        let again = match &restore {
            Some(version) => format!("{story}; again from version {version}"),
            None => String::from(story),
        };
        let widest = self.widest();
        let ceiling = (widest / narrower).max(1);
        // A loss that climbs whenever windows have grown from 1 would do so again.
        let was_narrow = self.climb.was_narrow && restore.is_some();
        self.climb.was_narrow |= ceiling == 1 && restore.is_some();
        self.narrow(ceiling);
        let mode = &Mode { in_flight: Some(ceiling), ..*mode };
        let (mode, what) = if ceiling == 1 && self.is_as_fast_in_step() {
            let what = "in step, as fast as one mini-batch of each worker under way".into();
            (Mode::of(ConsistencySpec::Bsp), what)
        } else if widest > 1 && !(was_narrow && ceiling == 1) {
            (*mode, format!("at most {ceiling} mini-batches of a worker under way"))
        } else {
            let what = "even with one mini-batch of each worker under way: in step now".into();
            (Mode::of(ConsistencySpec::Bsp), what)
        };
        Choice::Mode { mode, restore, why: format!("{again}: {what}") }
    }

    /// Limits the windows to `ceiling`.
    fn narrow(&mut self, ceiling: u32) {
        self.ceiling = ceiling;
        for pace in self.paces.values_mut() {
            pace.set_window(pace.window.min(ceiling));
        }
        self.under_way = self.paces.values().map(|pace| u64::from(pace.window)).sum();
    }
}

impl Climb {
    /// Records the first push of a worker, when the other workers have `rows` examples. Averages
    /// its loss into the first and the lowest loss instead of resetting the lowest, which the other
    /// workers' losses may exceed by now.
    fn joined(&mut self, rows: u64, seen: &Seen) {
        let (own, others) = (seen.rows as f64, rows as f64);
        let mixed =
            |before: f64| (others * before + own * f64::from(seen.loss)) / (others + own).max(1.0);
        self.first = self.first.map(mixed);
        self.lowest = self.lowest.map(mixed);
    }

    /// Returns true if `loss` is below the first by at least what counts as a climb.
    fn has_fallen_to(&self, loss: Option<f64>) -> bool {
        let (Some(loss), Some(first)) = (loss, self.first) else { return false };
        loss < (1.0 - CLIMB_OF_FIRST) * first
    }

    /// Returns true if `loss` exceeds the minimum by `part` of what counts as a climb.
    fn climbs(&self, loss: Option<f64>, part: f64) -> bool {
        let (Some(loss), Some(first), Some(lowest)) = (loss, self.first, self.lowest) else {
            return false;
        };
        let relative = 1.0 + part * (CLIMB - 1.0);
        let within = loss <= relative * lowest || loss <= lowest + part * CLIMB_OF_FIRST * first;
        !within // NaN is never within
    }
}

#[cfg(test)]
mod tests;
