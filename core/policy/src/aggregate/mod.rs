//! From the gradients of an update to the next version of the parameters: what the server does when
//! a round closes, and what a replay of the run does again.
//!
//! Knows gradients and the update rule; whose they are only as far as it decides what they count
//! for, and why they belong together not at all. What comes out depends on nothing but the calls,
//! in their order.

mod blocks;
mod correction;
mod given;
mod iterations;
mod measure;
mod merging;
mod plan;
mod robust;
mod scattered;
mod shares;
mod table;
mod weights;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use serde::{Deserialize, Serialize};

pub use iterations::MOST_OPEN_ITERATIONS;
pub use measure::Found;
pub use merging::Merging;

use self::blocks::{add, blocks, scale};
use self::correction::Correction;
use self::iterations::Iterations;
use self::merging::kept;
use self::plan::Plan;
use self::scattered::Scattered;
use self::shares::Shares;
use self::table::Table;
use self::weights::Factors;
use crate::consistency::ConsistencySpec;
use crate::mode::Mode;
use crate::rules::{Aggregation, Closing, ParticipationSpec, StalenessSpec};
use pstrain_compute::id::{Clock, PartId, Version, WorkerId};
use pstrain_compute::optim::{BLOCK, OptimError, Step, UpdateSpec, Updater};
use pstrain_compute::params::{Cut, KeyList, emptied};
use pstrain_compute::saved::{Archive, SavedError};

/// A gradient with what decides how much it counts.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// Whose it is.
    pub worker: WorkerId,
    /// The part of the data it was computed from.
    pub part: PartId,
    /// The iteration of that worker.
    pub clock: Clock,
    /// Examples it is the mean of.
    pub samples: u32,
    /// What its mini-batch counts among those of its update where sizes differ: the examples it has
    /// unless a pass ends in it. 0 if all count the same.
    pub size: u32,
    /// Updates since the version it was computed on.
    pub staleness: u64,
    /// The parameters it was computed on, if [`Aggregator::needs_base`].
    pub base: Option<&'a [f32]>,
    /// The keys that it has values for, where these are not all. All gradients of an update have
    /// such a list, or none has.
    pub keys: Option<&'a KeyList>,
    /// The values; none if they are in those of one before it of the same worker and part: see
    /// [`Aggregator::merge`].
    pub values: &'a [f32],
}

/// Combines gradients and updates parameters with the result, with all that has to be remembered
/// from update to update.
///
/// A gradient is corrected by the staleness rule, weighted by the staleness rule and by its
/// worker's participation, and then combined with the others. Those of a worker that become part of
/// the same update are merged first: see [`Merging`]; they count the same by participation. Where
/// an update is made of one gradient (asynchronous parallel), or of a table with a gradient of each
/// worker (incremental, ringleader), it moves the parameters by about as much as one mean gradient
/// does, whatever [`Aggregation`] says: that speaks of rounds.
pub struct Aggregator {
    aggregation: Aggregation,
    updater: Updater,
    mode: Mode,
    shares: Shares,
    factors: Factors,
    correction: Correction,
    combination: Combination,
    /// The update that is being made; kept between updates for its memory.
    plan: Plan,
    scratch: Scratch,
    /// Parameters that somebody still read when the next ones were made; kept for its memory.
    retired: Arc<Vec<f32>>,
    /// The combined gradient, where it is wanted as a whole; kept for its memory.
    combined: Vec<f32>,
    scattered: Scattered,
    workers: u32,
    parameters: usize,
}

impl fmt::Debug for Aggregator {
    /// All that the next update depends on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aggregation, updater, mode, shares, factors, correction, combination, .. } =
            self;
        f.debug_struct("Aggregator")
            .field("aggregation", aggregation)
            .field("updater", updater)
            .field("mode", mode)
            .field("shares", shares)
            .field("factors", factors)
            .field("correction", correction)
            .field("combination", combination)
            .finish_non_exhaustive()
    }
}

/// Whether gradients have values for some keys only.
fn is_scattered<'a>(mut gradients: impl Iterator<Item = Gradient<'a>>) -> bool {
    gradients.next().is_some_and(|gradient| gradient.keys.is_some())
}

/// How the gradients of an update become one.
#[derive(Debug, Serialize, Deserialize)]
enum Combination {
    /// As the aggregation says.
    Round,
    /// Each worker by its share of the data, with the mean of its gradients.
    ByWorker,
    /// The latest gradients of all workers, by their shares of the data.
    Incremental(Table),
    /// The means of the workers' gradients since the last whole round, by their shares of the data.
    Ringleader(Table),
    /// The means of the workers' iterations.
    Iterations(Iterations),
}

impl Combination {
    fn of(mode: &Mode, workers: u32) -> Self {
        match (mode.consistency, mode.participation, mode.staleness) {
            (ConsistencySpec::Malenia { .. }, ..) => Self::ByWorker,
            (ConsistencySpec::Ringleader, ..) => Self::Ringleader(Table::default()),
            (_, ParticipationSpec::Incremental, _) => Self::Incremental(Table::default()),
            (.., StalenessSpec::DynSgd) => Self::Iterations(Iterations::new(workers)),
            _ => Self::Round,
        }
    }

    const fn has_table(&self) -> bool {
        matches!(self, Self::Incremental(_) | Self::Ringleader(_))
    }

    /// Takes note that an update is complete.
    fn finish(&mut self) {
        match self {
            Self::Round | Self::ByWorker => {}
            Self::Incremental(table) => table.finish(false),
            Self::Ringleader(table) => table.finish(true),
            Self::Iterations(iterations) => iterations.finish(),
        }
    }
}

impl Aggregator {
    /// An aggregator for `parameters` values and a job with so many workers, before its first
    /// update.
    ///
    /// # Errors
    /// [`OptimError`] if `update` is not valid.
    pub fn new(
        aggregation: Aggregation,
        update: &UpdateSpec,
        mode: &Mode,
        workers: u32,
        parameters: usize,
    ) -> Result<Self, OptimError> {
        Ok(Self {
            aggregation,
            updater: Updater::new(update, parameters)?,
            mode: *mode,
            shares: Shares::default(),
            factors: Factors::default(),
            correction: Correction::new(&mode.staleness, parameters),
            combination: Combination::of(mode, workers),
            plan: Plan::default(),
            scratch: Scratch::new(parameters),
            retired: Arc::default(),
            combined: Vec::new(),
            scattered: Scattered::new(parameters),
            workers,
            parameters,
        })
    }

    /// The same with updates that are of one block of the keys each, if there is a `cut`.
    #[must_use]
    pub fn with_blocks(mut self, cut: Option<Cut>) -> Self {
        cut.into_iter().for_each(|cut| self.scattered.cut(cut));
        self
    }

    /// Takes note that what is combined next becomes the update of `version`, and so of which block
    /// it is.
    pub fn begin(&mut self, version: Version) {
        self.scattered.begin(version, &mut self.combined);
    }

    /// Goes on under another mode. What was remembered for the one before is forgotten, unless
    /// gradients count the same under both; the workers' shares are kept, and so is the state of
    /// the optimiser, scaled if updates are sums of another number of gradients now.
    pub fn set_mode(&mut self, mode: &Mode) {
        let before = core::mem::replace(&mut self.mode, *mode);
        if mode.counts_like(&before) {
            return;
        }
        let summed = |mode| summed(self.aggregation, mode, self.workers);
        self.updater.rescale(summed(mode) / summed(&before));
        self.forget();
    }

    /// Forgets what was remembered from update to update, the state of the optimiser with it, since
    /// the parameters are other ones now. The workers' shares are kept.
    pub fn restart(&mut self) {
        self.updater.restart();
        self.forget();
    }

    fn forget(&mut self) {
        self.correction = Correction::new(&self.mode.staleness, self.parameters);
        self.factors = Factors::default();
        self.combination = Combination::of(&self.mode, self.workers);
    }

    /// Saves or restores all that the next update depends on. What the job says is not saved.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let Self { updater, mode, shares, factors, correction, combination, .. } = self;
        updater.archive(archive)?;
        archive.small(mode)?;
        archive.small(shares)?;
        archive.small(factors)?;
        archive.small(correction)?;
        correction.archive(archive)?;
        archive.small(combination)?;
        match combination {
            Combination::Round | Combination::ByWorker => Ok(()),
            Combination::Incremental(table) | Combination::Ringleader(table) => {
                table.archive(archive)
            }
            Combination::Iterations(iterations) => iterations.archive(archive),
        }
    }

    /// Notes that the partition of `worker` has `rows` examples. Until then it counts as one row.
    pub fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        self.shares.set_rows(worker, rows);
    }

    /// Whether the parameters that a gradient was computed on are needed with it. One that comes
    /// without them is not corrected.
    #[must_use]
    pub const fn needs_base(&self) -> bool {
        self.correction.needs_base()
    }

    /// Bytes kept from update to update for staleness and participation, beside the optimiser's:
    /// with d parameters, `4 d` for dc-adaptive and for gap-aware, at most
    /// `4 d` [`MOST_OPEN_ITERATIONS`] and once more for dynsgd, and `4 N d + 8 d` for the table of
    /// N workers of incremental participation and of ringleader.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let combination = match &self.combination {
            Combination::Round | Combination::ByWorker => 0,
            Combination::Incremental(table) | Combination::Ringleader(table) => {
                table.memory_bytes()
            }
            Combination::Iterations(iterations) => iterations.memory_bytes(),
        };
        self.correction.memory_bytes() + combination
    }

    /// Combines gradients, which `closing` chose, in the order given: sums of floating-point
    /// numbers depend on it. `parameters` are the current ones.
    ///
    /// # Panics
    /// If the parameters or a gradient are not as many values as the aggregator was made for.
    pub fn combine<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        if self.is_robust() {
            let nearest = self.nearest(&self.distances(gradients.clone()));
            return self.combine_nearest(gradients, &nearest);
        }
        match self.merged(gradients.clone(), parameters, closing) {
            None => self.combine_merged(gradients, parameters, closing),
            Some(merged) => self.combine_merged(kept(&merged), parameters, closing),
        }
    }

    /// Whether gradients are looked at side by side. A job whose mode has other updates is refused.
    fn is_robust(&self) -> bool {
        self.aggregation.is_robust() && matches!(self.combination, Combination::Round)
    }

    fn combine_merged<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        self.plan(gradients.clone(), closing);
        self.combined.resize(self.parameters, 0.0);
        let Self { correction, combination, plan, scratch, combined, scattered, .. } = self;
        if is_scattered(gradients.clone()) {
            if self.updater.bends() {
                scattered.bend(plan, gradients.clone());
            }
            return scattered.add(plan, gradients, combined);
        }
        for keys in blocks(self.parameters) {
            let (first, len) = (keys.start, keys.len());
            let block = (first, &parameters[keys.clone()]);
            let room = (&mut scratch.sum[..len], &mut scratch.corrected[..len]);
            let gradients = gradients.clone();
            let (values, factor) =
                blocks::combine((correction, combination), plan, gradients, block, room);
            scale(&mut combined[keys], factor, values);
        }
        self.combination.finish();
    }

    /// Combines gradients with a factor given for each, whatever the mode says, in the order given.
    pub fn combine_with<'a>(&mut self, gradients: impl Iterator<Item = (f32, &'a [f32])>) {
        self.combined.resize(self.parameters, 0.0);
        for (place, (factor, values)) in gradients.enumerate() {
            if place == 0 {
                scale(&mut self.combined, factor, values);
            } else {
                add(&mut self.combined, factor, values);
            }
        }
    }

    /// The L2 norm of the combined gradient, before it is clipped.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.squares().root()
    }

    /// Makes version `version` of `parameters` the next one with the combined gradient, which is
    /// all there is.
    ///
    /// # Panics
    /// If the parameters, or the gradients combined before, are not as many values as the
    /// aggregator was made for.
    pub fn apply(&mut self, parameters: &mut [f32], version: Version) {
        let factor = if self.updater.clips() { self.scale(&self.squares()) } else { 1.0 };
        self.apply_scaled(parameters, version, factor);
    }

    /// Makes version `version` of `parameters` the next one with `factor` times the combined
    /// gradient.
    ///
    /// # Panics
    /// If the parameters, or the gradients combined before, are not as many values as the
    /// aggregator was made for.
    pub fn apply_scaled(&mut self, parameters: &mut [f32], version: Version, factor: f32) {
        assert_eq!(parameters.len(), self.parameters, "length of the parameters");
        assert_eq!(self.combined.len(), self.parameters, "length of the gradient");
        let learning_rate = self.updater.begin(version);
        let Self { correction, updater, scratch, combined, scattered, .. } = self;
        let Range { start, end } = scattered.range;
        for keys in blocks(end - start) {
            let keys = start + keys.start..start + keys.end;
            let step = Step {
                first: keys.start,
                gradient: &combined[keys.clone()],
                curvature: scattered.curvature.get(keys.clone()).unwrap_or_default(),
                scale: factor,
                learning_rate,
            };
            change((updater, correction), &mut parameters[keys], step, &mut scratch.before);
        }
        self.correction.updated(learning_rate);
    }

    /// Combines gradients as [`Aggregator::combine`] does and makes version `version` of
    /// `parameters` the next one with them as [`Aggregator::apply`] does, with the same result to
    /// the bit, but block by block of the keys: each value comes from memory once. Parameters that
    /// others hold too are copied on the way.
    ///
    /// # Panics
    /// If the parameters or a gradient are not as many values as the aggregator was made for.
    pub fn update<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &mut Arc<Vec<f32>>,
        closing: Closing,
        version: Version,
    ) {
        assert_eq!(parameters.len(), self.parameters, "length of the parameters");
        if self.updater.clips() || self.is_robust() || is_scattered(gradients.clone()) {
            // The whole gradient is needed before the first step.
            self.combine(gradients, parameters, closing);
            let parameters: &mut Vec<f32> = Arc::make_mut(parameters);
            return self.apply(parameters, version);
        }
        match self.merged(gradients.clone(), parameters, closing) {
            None => self.update_merged(gradients, parameters, closing, version),
            Some(merged) => self.update_merged(kept(&merged), parameters, closing, version),
        }
    }

    fn update_merged<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &mut Arc<Vec<f32>>,
        closing: Closing,
        version: Version,
    ) {
        self.plan(gradients.clone(), closing);
        let learning_rate = self.updater.begin(version);
        let Self { correction, combination, updater, plan, scratch, retired, .. } = self;
        let mut update = |first: usize, params: &mut [f32]| {
            let len = params.len();
            let room = (&mut scratch.sum[..len], &mut scratch.corrected[..len]);
            let (block, gradients) = ((first, &*params), gradients.clone());
            let (gradient, scale) =
                blocks::combine((correction, combination), plan, gradients, block, room);
            let step = Step { first, gradient, curvature: &[], scale, learning_rate };
            change((updater, correction), params, step, &mut scratch.before);
        };
        if let Some(parameters) = Arc::get_mut(parameters) {
            for keys in blocks(self.parameters) {
                update(keys.start, &mut parameters[keys]);
            }
        } else {
            let next = emptied(retired);
            next.reserve_exact(self.parameters);
            for keys in blocks(self.parameters) {
                next.extend_from_slice(&parameters[keys.clone()]);
                update(keys.start, &mut next[keys]);
            }
            core::mem::swap(parameters, retired);
        }
        self.combination.finish();
        self.correction.updated(learning_rate);
    }
}

/// The gradients that an update of a job of so many workers adds up under `mode`, each counting as
/// it is: 1 where it takes a mean of them.
fn summed(aggregation: Aggregation, mode: &Mode, workers: u32) -> f32 {
    use ConsistencySpec as C;
    let has_table = mode.participation == ParticipationSpec::Incremental;
    if aggregation != Aggregation::Sum || has_table || mode.staleness == StalenessSpec::DynSgd {
        return 1.0;
    }
    let gradients = match mode.consistency {
        C::Bsp | C::Delay { .. } | C::Malenia { .. } => workers,
        C::Ssp { slack: 0 } | C::Dssp { low: 0, high: 0 } => workers,
        C::KSync { workers: wanted } | C::KAsync { workers: wanted } => wanted.min(workers),
        C::Backup { workers: spare } => workers.saturating_sub(spare),
        C::KBatchSync { gradients } | C::Rennala { gradients } | C::Buffered { gradients } => {
            gradients
        }
        _ => 1,
    };
    gradients.max(1) as f32
}

/// Takes a part of a step, with whoever wants to see what it changes.
fn change(
    (updater, correction): (&mut Updater, &mut Correction),
    params: &mut [f32],
    step: Step<'_>,
    before: &mut [f32],
) {
    if !correction.watches() {
        return updater.step(params, step);
    }
    let before = &mut before[..params.len()];
    before.copy_from_slice(params);
    updater.step(params, step);
    correction.changed(step.first, [before, params], step.learning_rate);
}

/// Room for a block of values of each kind; kept between updates for its memory.
#[derive(Debug)]
struct Scratch {
    sum: Vec<f32>,
    corrected: Vec<f32>,
    before: Vec<f32>,
}

impl Scratch {
    fn new(parameters: usize) -> Self {
        let [sum, corrected, before] = [(); 3].map(|()| vec![0.0; parameters.min(BLOCK)]);
        Self { sum, corrected, before }
    }
}

#[cfg(test)]
mod tests;
