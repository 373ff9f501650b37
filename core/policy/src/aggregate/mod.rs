//! Computation of the next version of the parameters from the gradients of an update.
//!
//! The server runs it when a round closes, and a replay of the run repeats it. The module knows
//! gradients and the update rule. It uses the worker of a gradient only to decide its weight, and
//! does not know why the gradients belong to one update. The result depends only on the calls and
//! their order.
//!
//! An update weighs its gradients (`plan`, with `weights` and `shares`; the factor for staleness is
//! in [`rules`](crate::rules)), corrects them (`correction`: DC-ASGD, gap-aware), and adds them up
//! (`weighted_sum`), unless the rule is robust (`robust`: Krum, median, trimmed mean) or keeps
//! gradients from update to update (`combination`, with `table` and `iterations`). The changes of
//! state that come with gradients are averaged and added (`state`).

mod combination;
mod combined;
mod correction;
mod foreseen;
mod iterations;
mod measure;
mod merging;
mod plan;
mod preaggregated;
mod robust;
mod settings;
mod shares;
mod state;
mod table;
mod weighted_sum;
mod weights;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

pub use iterations::MOST_OPEN_ITERATIONS;
pub use measure::Found;
pub use merging::Merging;

use self::combination::Combination;
use self::combined::Combined;
use self::correction::Correction;
use self::foreseen::Foreseen;
use self::merging::kept;
use self::plan::Weighting;
use self::settings::Settings;
use self::state::StateKeys;
use self::weighted_sum::{add, blocks, scale};
use self::weights::Factors;
use crate::mode::Mode;
use crate::rules::{Aggregation, Closing};
use pstrain_compute::id::{Clock, PartId, Version, WorkerId};
use pstrain_compute::optim::{BLOCK, GroupSpec, OptimError, Step, UpdateSpec, Updater};
use pstrain_compute::params::{Cut, KeyList, KeyRange, Layout, cleared};
use pstrain_compute::saved::{Archive, SavedError};

/// A gradient with the data that determines its weight.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// The worker that computed it.
    pub worker: WorkerId,
    /// The part of the data it was computed from.
    pub part: PartId,
    /// The iteration of that worker.
    pub clock: Clock,
    /// Number of examples that it averages.
    pub samples: u32,
    /// Weight of its mini-batch relative to the others of its update if sizes differ: its number of
    /// examples. 0 if all mini-batches count equally.
    pub size: u32,
    /// Number of updates since the version it was computed on.
    pub staleness: u64,
    /// The parameters it was computed on, if [`Aggregator::needs_base`].
    pub base: Option<&'a [f32]>,
    /// The keys that it has values for; `None` means all keys. Either all gradients of an update
    /// have such a list, or none has.
    pub keys: Option<&'a KeyList>,
    /// The values; empty if they were merged into an earlier gradient of the same worker and part:
    /// see [`Aggregator::merge`].
    pub values: &'a [f32],
}

/// Combines gradients and updates parameters with the result. Holds all state that persists from
/// update to update.
///
/// The staleness rule corrects a gradient. The staleness rule and the worker's participation
/// determine its weight. It is then combined with the others. Gradients of one worker in the same
/// update are merged first (see [`Merging`]) and share one participation weight. If an update is
/// made of one gradient (asynchronous parallel), or of a table with one gradient per worker
/// (incremental, ringleader), it moves the parameters by about as much as one mean gradient does,
/// independent of [`Aggregation`], which applies to rounds only.
pub struct Aggregator {
    settings: Settings,
    weighting: Weighting,
    correction: Correction,
    combination: Combination,
    combined: Combined,
    updater: Updater,
    state: StateKeys,
    memory: Memory,
    /// The next update, while some of its values are known and it is not made.
    foreseen: Option<Box<Foreseen>>,
    parameters: usize,
}

impl fmt::Debug for Aggregator {
    /// Formats all state that the next update depends on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, updater, weighting, correction, combination, .. } = self;
        let Settings { aggregation, mode, .. } = settings;
        let Weighting { shares, factors, .. } = weighting;
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

/// Returns true if the gradients have values for some keys only.
fn is_scattered<'a>(mut gradients: impl Iterator<Item = Gradient<'a>>) -> bool {
    gradients.next().is_some_and(|gradient| gradient.keys.is_some())
}

impl Aggregator {
    /// Creates an aggregator for `parameters` values and a job with `workers` workers, before its
    /// first update.
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
            settings: Settings { aggregation, mode: *mode, workers },
            weighting: Weighting::default(),
            correction: Correction::new(&mode.staleness, parameters),
            combination: Combination::of(mode, workers),
            combined: Combined::new(parameters),
            updater: Updater::new(update, parameters)?,
            state: StateKeys::none(parameters),
            memory: Memory::new(parameters),
            foreseen: None,
            parameters,
        })
    }

    /// Restricts each update to one block of the keys if there is a `cut`.
    #[must_use]
    pub fn with_blocks(mut self, cut: Option<Cut>) -> Self {
        cut.into_iter().for_each(|cut| self.combined.cut(cut));
        self
    }

    /// Updates the tensors of `groups` with their own settings; `own` are the aggregator's keys in
    /// a model of this layout.
    #[must_use]
    pub fn with_groups(mut self, groups: &[GroupSpec], layout: &Layout, own: KeyRange) -> Self {
        self.updater = self.updater.with_groups(groups, layout, own);
        self
    }

    /// Starts the update of `version`, which determines the block of keys it covers.
    pub fn begin(&mut self, version: Version) {
        self.foreseen = None;
        self.combined.begin(version);
    }

    /// Switches to another mode. Drops the state of the previous mode, unless gradients count the
    /// same under both modes. Keeps the workers' shares and the optimizer state; the latter is
    /// scaled if updates now sum a different number of gradients.
    pub fn set_mode(&mut self, mode: &Mode) {
        self.foreseen = None;
        let before = self.settings;
        self.settings.mode = *mode;
        if mode.counts_like(&before.mode) {
            return;
        }
        self.updater.rescale(self.settings.summed() / before.summed());
        self.forget();
    }

    /// Drops all state that persists between updates, including the optimizer state, because the
    /// parameters were replaced. Keeps the workers' shares.
    pub fn restart(&mut self) {
        self.foreseen = None;
        self.updater.restart();
        self.forget();
    }

    fn forget(&mut self) {
        let Settings { mode, workers, .. } = &self.settings;
        self.correction = Correction::new(&mode.staleness, self.parameters);
        self.weighting.factors = Factors::default();
        self.combination = Combination::of(mode, *workers);
    }

    /// Saves or restores all state that the next update depends on, except the job's settings.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not hold this state.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.updater.archive(archive)?;
        archive.small(&mut self.settings.mode)?;
        archive.small(&mut self.weighting.shares)?;
        archive.small(&mut self.weighting.factors)?;
        archive.small(&mut self.correction)?;
        self.correction.archive(archive)?;
        self.combination.archive(archive)
    }

    /// Sets the number of examples in the partition of `worker` to `rows`. The default is one row.
    pub fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        self.foreseen = None;
        self.weighting.shares.set_rows(worker, rows);
    }

    /// Returns true if gradients need the parameters they were computed on. A gradient without them
    /// is not corrected.
    #[must_use]
    pub const fn needs_base(&self) -> bool {
        self.correction.needs_base()
    }

    /// Bytes kept from update to update for staleness and participation, not counting the
    /// optimizer's: with d parameters, `4 d` for dc-adaptive and for gap-aware, at most `4 d`
    /// ([`MOST_OPEN_ITERATIONS`] + 1) for dynsgd, and `4 N d + 8 d` for the table of N workers of
    /// incremental participation and of ringleader.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.correction.memory_bytes() + self.combination.memory_bytes()
    }

    /// Combines the gradients that `closing` selected. Their order matters, because floating-point
    /// sums depend on it. `parameters` are the current parameters.
    ///
    /// # Panics
    /// If the parameters or a gradient have a length other than the aggregator's.
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

    const fn is_robust(&self) -> bool {
        self.settings.is_robust(&self.combination)
    }

    fn plan<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        closing: Closing,
    ) {
        let Self { settings, weighting, combination, parameters, .. } = self;
        weighting.plan((settings, *parameters), combination, gradients, closing);
    }

    fn combine_merged<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        self.plan(gradients.clone(), closing);
        let Self { correction, combination, weighting, memory, combined, .. } = self;
        let plan = &weighting.plan;
        if is_scattered(gradients.clone()) {
            if self.updater.uses_curvature() {
                combined.bend(plan, gradients.clone());
            }
            return combined.add(plan, gradients);
        }
        let combined = combined.room();
        for keys in blocks(self.state.trained) {
            let (first, len) = (keys.start, keys.len());
            let block = (first, &parameters[keys.clone()]);
            let room = (&mut memory.sum[..len], &mut memory.corrected[..len]);
            let gradients = gradients.clone();
            let (values, factor) =
                weighted_sum::combine((correction, combination), plan, gradients, block, room);
            scale(&mut combined[keys], factor, values);
        }
        self.combination.finish();
        self.combine_state(gradients);
    }

    /// Combines gradients with an explicit factor for each, independent of the mode, in iteration
    /// order.
    pub fn combine_with<'a>(&mut self, gradients: impl Iterator<Item = (f32, &'a [f32])>) {
        let combined = self.combined.room();
        for (place, (factor, values)) in gradients.enumerate() {
            if place == 0 {
                scale(combined, factor, values);
            } else {
                add(combined, factor, values);
            }
        }
    }

    /// The L2 norm of the combined gradient before clipping.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.squares().root()
    }

    /// Applies the whole combined gradient to `parameters`, which are at version `version`, and
    /// clips it if configured.
    ///
    /// # Panics
    /// If the parameters or the gradients combined before have a length other than the
    /// aggregator's.
    pub fn apply(&mut self, parameters: &mut [f32], version: Version) {
        let factor = if self.updater.clips() { self.scale(&self.squares()) } else { 1.0 };
        self.apply_scaled(parameters, version, factor);
    }

    /// Applies `factor` times the combined gradient to `parameters`, which are at version
    /// `version`.
    ///
    /// # Panics
    /// If the parameters or the gradients combined before have a length other than the
    /// aggregator's.
    pub fn apply_scaled(&mut self, parameters: &mut [f32], version: Version, factor: f32) {
        assert_eq!(parameters.len(), self.parameters, "length of the parameters");
        assert_eq!(self.combined.values.len(), self.parameters, "length of the gradient");
        let learning_rate = self.updater.begin(version);
        let Self { correction, updater, memory, combined, .. } = self;
        let Range { start, end } = combined.range;
        for keys in blocks(end.min(self.state.trained) - start) {
            let keys = start + keys.start..start + keys.end;
            let step = Step {
                first: keys.start,
                gradient: &combined.values[keys.clone()],
                curvature: combined.curvature.get(keys.clone()).unwrap_or_default(),
                scale: factor,
                learning_rate,
            };
            change((updater, correction), &mut parameters[keys], step, &mut memory.before);
        }
        self.correction.updated(learning_rate);
        self.add_combined_state(parameters);
    }

    /// Combines gradients as [`Aggregator::combine`] does and applies them to version `version` of
    /// `parameters` as [`Aggregator::apply`] does. The result is the same to the bit, but the work
    /// proceeds block by block of the keys, so that each value is loaded from memory once. Shared
    /// parameters are copied on the way.
    ///
    /// # Panics
    /// If the parameters or a gradient have a length other than the aggregator's.
    pub fn update<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &mut Arc<Vec<f32>>,
        closing: Closing,
        version: Version,
    ) {
        assert_eq!(parameters.len(), self.parameters, "length of the parameters");
        if self.updater.clips() || self.is_robust() || is_scattered(gradients.clone()) {
            // The first step needs the whole gradient: its norm, the robust rule, or the sum over
            // keys.
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
        let Self { correction, combination, updater, weighting, memory, .. } = self;
        let Memory { sum, corrected, before, retired } = memory;
        let mut update = |first: usize, params: &mut [f32]| {
            let len = params.len();
            let room = (&mut sum[..len], &mut corrected[..len]);
            let (block, gradients) = ((first, &*params), gradients.clone());
            let (gradient, scale) = weighted_sum::combine(
                (correction, combination),
                &weighting.plan,
                gradients,
                block,
                room,
            );
            let step = Step { first, gradient, curvature: &[], scale, learning_rate };
            change((updater, correction), params, step, before);
        };
        let trained = self.state.trained;
        let parameters = match Arc::get_mut(parameters) {
            Some(own) => {
                blocks(trained).for_each(|keys| update(keys.start, &mut own[keys]));
                own
            }
            None => {
                let next = cleared(retired);
                next.reserve_exact(self.parameters);
                for keys in blocks(trained) {
                    next.extend_from_slice(&parameters[keys.clone()]);
                    update(keys.start, &mut next[keys]);
                }
                next.extend_from_slice(&parameters[trained..]);
                // The next update reuses the old buffer if its other holders have dropped it by
                // then.
                core::mem::swap(parameters, retired);
                Arc::make_mut(parameters)
            }
        };
        self.combination.finish();
        self.correction.updated(learning_rate);
        self.add_state(gradients, parameters);
    }
}

/// Applies a part of a step and reports the change to the correction if it watches.
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

/// Buffers that are kept between updates to reuse their memory.
#[derive(Debug)]
struct Memory {
    /// Of the size of a block.
    sum: Vec<f32>,
    /// Of the size of a block.
    corrected: Vec<f32>,
    /// Of the size of a block.
    before: Vec<f32>,
    /// Previous parameters that another holder still read when the next version was made.
    retired: Arc<Vec<f32>>,
}

impl Memory {
    fn new(parameters: usize) -> Self {
        let [sum, corrected, before] = [(); 3].map(|()| vec![0.0; parameters.min(BLOCK)]);
        Self { sum, corrected, before, retired: Arc::default() }
    }
}

#[cfg(test)]
mod tests;
