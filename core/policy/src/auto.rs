//! `auto`: a mode chosen while training, from what the server sees.
//!
//! # Why these choices
//! With N workers of which worker i has the share `f_i` of the data and delivers `r_i` gradients a
//! second, an update by `f_i / share_i` times each gradient (participation `share`) follows the
//! gradient of all data, whatever the speeds, at the price of a variance that is
//! `V = sum f_i^2 / share_i` times as large. What that leaves of `R = sum r_i` gradients a second
//! is `R / V = 1 / sum(f_i^2 / r_i)`: with equal shares N times the harmonic mean of the rates,
//! never less than the N times their minimum that whole rounds or iterations deliver. So
//! asynchronous updates with share weights are the mode to be in, as long as staleness does no
//! harm.
//!
//! Workers count by their shares from the first gradient. Their windows differ while they grow, and
//! under label skew the gradients of workers with large windows would raise the loss of all data.
//!
//! A worker that waits for an answer delivers nothing. It is given as many mini-batches ahead as it
//! needs to compute without a pause: a share `u` of its time spent computing with a window of `w`
//! means that `w / u` would do, if it is only the answer that it waits for. Whether it was, the
//! next measurement shows; if more under way did not help (a link that is full, a server that is
//! busy), the window goes back to what did.
//!
//! The first gradient of a worker says how large its window has to be, and the window grows to that
//! at once: growing step by step costs several round trips, which is more than going back costs
//! where it was too large. A window that is larger than the link needs makes no gradient staler: a
//! worker computes on the latest parameters that it has.
//!
//! # When staleness does harm
//! Before it does, the parameters begin to swing (`course`). Windows grow only while they move on
//! where they went before, and are halved when they swing. Should the loss climb all the same, the
//! last parameters under which it was low are restored, and the windows halved, again and again
//! down to one mini-batch. The same happens, a few times at most, when a version has diverged: most
//! of the workers find no finite gradient on it. Then gradients count alike, if they did not, for a
//! worker that counts for more than it sends takes larger steps; and then the workers go in step
//! (BSP). After each cut the windows rest, longer each time, before they may grow again.
//!
//! Knows the times and losses of pushes, and how parameters moved; gradients, messages and clocks
//! it does not.

mod course;
mod looks;
mod pace;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use self::course::Course;
pub use self::looks::{Kept, Look, Looks};
use self::pace::{Measured, Pace};
use crate::consistency::ConsistencySpec;
use crate::mode::Mode;
use crate::rules::ParticipationSpec;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;

/// The loss climbs when it is above its minimum by this factor ...
const CLIMB: f64 = 2.0;
/// ... and by this share of the first loss.
const CLIMB_OF_FIRST: f64 = 0.2;
/// A window does not grow while the loss is above its minimum by half as much ...
const UNEASY: f64 = 0.5;
/// Windows that were cut may grow again after this power of two of patience.
const REST: u32 = 2;
/// ... and parameters are worth being kept while it is not by a quarter.
const EASY: f64 = 0.25;
/// Bytes of gradients that a worker may have under way. Half of the 64 MiB that transports queue
/// for one peer: a worker that comes back after a cut sends all that is under way once more.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// How often a version may diverge before the run ends.
const DIVERGENCES: u32 = 8;

/// The controller.
#[derive(Debug, Serialize, Deserialize)]
pub struct Auto {
    paces: BTreeMap<WorkerId, Pace>,
    /// Mini-batches that may be under way, of all workers.
    under_way: u64,
    /// The largest window that gradients of this length allow.
    most: u32,
    /// The largest window that a worker may have now.
    ceiling: u32,
    climb: Climb,
    course: Course,
    /// Pushes since a window grew.
    settled: u64,
    /// How often a version has diverged.
    divergences: u32,
    /// Whether windows may grow: until they are cut, and again once the effect of that is known.
    grows: bool,
    /// The look that is being taken.
    looking: Option<Looking>,
}

/// A push at which the parameters are looked at, until what is seen of them is known.
#[derive(Debug, Serialize, Deserialize)]
struct Looking {
    worker: WorkerId,
    /// What came out of a measurement that it ended.
    measured: Option<Measured>,
    /// Updates between two looks.
    spacing: u64,
    /// Whether the loss was up.
    is_up: bool,
}

/// A push, as far as the controller wants to know it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Whose.
    pub worker: WorkerId,
    /// When it came.
    pub now: Time,
    /// When its parameters were given out.
    pub given: Time,
    /// What its computation took.
    pub compute: Duration,
    /// Mean loss of its mini-batch.
    pub loss: f32,
    /// Examples in the worker's partition.
    pub rows: u64,
    /// The current version, without it.
    pub version: Version,
}

/// What the controller has chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// To look at the current parameters: what is seen of them goes to [`Auto::looked`], before any
    /// other push.
    Look(Look),
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
        /// The version of the parameters that it begins with, if not the current one: that which
        /// can be gone back to.
        restore: Option<Version>,
        /// Why, in words.
        why: String,
    },
}

/// The course of the loss.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Climb {
    first: Option<f64>,
    /// Since somebody came or went.
    lowest: Option<f64>,
    /// Pushes since the windows were last cut, or may be cut again.
    calm: u64,
    /// How often it was climbed after windows had grown.
    times: u32,
    /// Whether a window has grown since.
    has_grown: bool,
}

impl Auto {
    /// A controller before the first push, under the mode [`Auto::first`], of gradients with so
    /// many `parameters`.
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
            course: Course::default(),
            settled: 0,
            divergences: 0,
            grows: true,
            looking: None,
        }
    }

    /// Saves or restores all that it has seen.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)
    }

    /// The mode it begins with: workers that have data of their own count by their shares.
    #[must_use]
    pub fn first(has_shares: bool) -> Mode {
        let participation =
            if has_shares { ParticipationSpec::Share } else { ParticipationSpec::Plain };
        Mode { in_flight: Some(1), participation, ..Mode::of(ConsistencySpec::Asp) }
    }

    /// Mini-batches of `worker` that may be under way.
    #[must_use]
    pub fn window(&self, worker: WorkerId) -> u32 {
        self.paces.get(&worker).map_or(1, |pace| pace.window)
    }

    /// Takes note that `worker` does not count any more.
    pub fn left(&mut self, worker: WorkerId) {
        if let Some(pace) = self.paces.remove(&worker) {
            self.under_way -= u64::from(pace.window);
            self.climb.lowest = None; // of other data
        }
    }

    /// Takes note of an accepted push under `mode`; says what is to change, if anything.
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

    /// Takes note that `version` has diverged under `mode`; says how to go back, if that may help.
    pub fn diverged(&mut self, mode: &Mode, version: Version) -> Option<Choice> {
        let restore = self.course.good().filter(|good| *good < version)?;
        if mode.consistency == ConsistencySpec::Bsp || self.divergences == DIVERGENCES {
            return None;
        }
        self.divergences += 1;
        let story = format!("most workers find no finite gradient on version {version}");
        Some(self.cut(mode, Some(restore), &story))
    }

    /// Gives a worker the window that would do, by what came out of a measurement, if one ended.
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

    /// The loss of all data: of each worker by its share.
    fn loss(&self) -> Option<f64> {
        let (mut sum, mut rows) = (0.0, 0.0);
        for pace in self.paces.values() {
            sum += pace.rows as f64 * pace.loss?;
            rows += pace.rows as f64;
        }
        (rows > 0.0).then(|| sum / rows)
    }

    /// Whether the parameters move on and the loss is not up.
    fn is_well(&self) -> bool {
        self.course.goes_on() && !self.climb.climbs(self.loss(), UNEASY)
    }

    /// Examples of all workers.
    fn rows(&self) -> u64 {
        self.paces.values().map(|pace| pace.rows).sum()
    }

    /// Pushes that have to come before the effect of a change can be seen.
    fn patience(&self) -> u64 {
        self.under_way + 8 * self.paces.len() as u64
    }

    /// Goes back and cuts the windows when the loss climbs.
    fn watch_loss(&mut self, mode: &Mode) -> Option<Choice> {
        // Looking at everybody for each push would cost with their number.
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

    /// Looks at the parameters, if that is due.
    fn look(&mut self, seen: &Seen, measured: Option<Measured>) -> Option<Choice> {
        if !self.course.is_due() {
            return None;
        }
        let spacing = Course::spacing(self.under_way, self.settled > 16 * self.patience());
        let loss = self.loss();
        let is_up = self.climb.climbs(loss, EASY);
        let Seen { worker, version, .. } = *seen;
        let approved = loss.is_some() && !is_up;
        let anew = self.course.look(version, spacing, approved);
        self.looking = Some(Looking { worker, measured, spacing, is_up });
        Some(Choice::Look(Look { version, anew, approved }))
    }

    /// Takes note of what was seen of the parameters: what [`Looks::look`] says, added up over all
    /// keys, or nothing where it says nothing. Says what is to change, if anything.
    pub fn looked(&mut self, mode: &Mode, sums: &[ExactSum]) -> Option<Choice> {
        let Looking { worker, measured, spacing, is_up } = self.looking.take()?;
        self.course.looked(sums);
        self.watch_course(mode, spacing, is_up).or_else(|| self.resize(worker, measured))
    }

    /// Cuts the windows when the parameters swing, and lets them grow when they have long not.
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

    fn widest(&self) -> u32 {
        self.paces.values().map(|pace| pace.window).max().unwrap_or(1)
    }

    /// Goes on with windows half as large, or, where they cannot be, with less of what else can
    /// do harm.
    fn cut(&mut self, mode: &Mode, restore: Option<Version>, story: &str) -> Choice {
        self.climb.calm = 0;
        self.grows = false;
        if restore.is_some() {
            self.climb.times += u32::from(self.climb.has_grown);
            self.climb.has_grown = false;
            // Losses of the parameters before say nothing of the ones that are restored.
            self.climb.lowest = None;
            self.paces.values_mut().for_each(|pace| pace.loss = None);
        }
        self.course.begin_anew(2 * self.under_way);
        let again = match &restore {
            Some(version) => format!("{story}; again from version {version}"),
            None => String::from(story),
        };
        let widest = self.widest();
        let (mode, what) = if widest > 1 {
            self.ceiling = widest / 2;
            for pace in self.paces.values_mut() {
                pace.set_window(pace.window.min(self.ceiling));
            }
            self.under_way = self.paces.values().map(|pace| u64::from(pace.window)).sum();
            let what = format!("at most {} mini-batches of a worker under way", self.ceiling);
            (Mode { in_flight: Some(self.ceiling), ..*mode }, what)
        } else if mode.participation == ParticipationSpec::Share {
            let what = "all gradients count alike".into();
            (Mode { participation: ParticipationSpec::Plain, ..*mode }, what)
        } else {
            let what = "even with one mini-batch of each worker under way: in step now".into();
            (Mode { consistency: ConsistencySpec::Bsp, in_flight: None, ..*mode }, what)
        };
        Choice::Mode { mode, restore, why: format!("{again}: {what}") }
    }
}

impl Climb {
    /// Takes note of the first push of a worker, when the others have `rows` examples. Its loss
    /// joins the least one so far, which the others may have left behind by now.
    fn joined(&mut self, rows: u64, seen: &Seen) {
        let (own, others) = (seen.rows as f64, rows as f64);
        let mixed =
            |before: f64| (others * before + own * f64::from(seen.loss)) / (others + own).max(1.0);
        self.first = self.first.map(mixed);
        self.lowest = self.lowest.map(mixed);
    }

    /// Whether `loss` is above the minimum by `part` of what counts as a climb.
    fn climbs(&self, loss: Option<f64>, part: f64) -> bool {
        let (Some(loss), Some(first), Some(lowest)) = (loss, self.first, self.lowest) else {
            return false;
        };
        let relative = 1.0 + part * (CLIMB - 1.0);
        let within = loss <= relative * lowest || loss <= lowest + part * CLIMB_OF_FIRST * first;
        !within // a loss that is no number is not within anything
    }
}

#[cfg(test)]
mod tests;
