//! From the gradients of an update to the next version of the parameters: what the server does when
//! a round closes, and what a replay of the run does again.
//!
//! Knows gradients and the update rule; whose they are only as far as it decides what they count
//! for, and why they belong together not at all. What comes out depends on nothing but the calls,
//! in their order.

mod correction;
mod iterations;
mod shares;
mod spec;
mod table;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use iterations::MOST_OPEN_ITERATIONS;
pub use spec::{GREATEST_POWER, ParticipationSpec, StalenessSpec, UnknownRule};

use self::correction::Correction;
use self::iterations::Iterations;
use self::shares::Shares;
use self::table::Table;
use crate::consistency::{Closing, ConsistencySpec};
use crate::id::{Clock, Version, WorkerId};
use crate::job::Aggregation;
use crate::mode::Mode;
use crate::optim::{OptimError, UpdateSpec, Updater, norm};

/// A gradient with what decides how much it counts.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// Whose it is.
    pub worker: WorkerId,
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
    /// The values.
    pub values: &'a [f32],
}

/// Combines gradients and updates parameters with the result, with all that has to be remembered
/// from update to update.
///
/// A gradient is corrected by the staleness rule, weighted by the staleness rule and by its
/// worker's participation, and then combined with the others. Where an update is made of one
/// gradient (asynchronous parallel), or of a table with a gradient of each worker (incremental,
/// ringleader), it moves the parameters by about as much as one mean gradient does, whatever
/// [`Aggregation`] says: that speaks of rounds.
#[derive(Debug)]
pub struct Aggregator {
    aggregation: Aggregation,
    update: UpdateSpec,
    updater: Updater,
    mode: Mode,
    shares: Shares,
    correction: Correction,
    combination: Combination,
    /// A corrected gradient; kept between updates for its memory.
    corrected: Vec<f32>,
    /// The combined gradient; kept between updates for its memory.
    combined: Vec<f32>,
    workers: u32,
    parameters: usize,
}

/// How the gradients of an update become one.
#[derive(Debug)]
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
            update: *update,
            updater: Updater::new(update, parameters)?,
            mode: *mode,
            shares: Shares::default(),
            correction: Correction::new(&mode.staleness, update, parameters),
            combination: Combination::of(mode, workers),
            corrected: Vec::new(),
            combined: Vec::new(),
            workers,
            parameters,
        })
    }

    /// Goes on under another mode. What was remembered for the one before is forgotten, unless
    /// gradients count the same under both; the state of the optimiser and the workers' shares are
    /// kept.
    pub fn set_mode(&mut self, mode: &Mode) {
        let is_same = mode.counts_like(&self.mode);
        self.mode = *mode;
        if is_same {
            return;
        }
        self.forget();
    }

    /// Forgets what was remembered from update to update, the state of the optimiser with it, since
    /// the parameters are other ones now. The workers' shares are kept.
    pub fn restart(&mut self) {
        self.updater.restart();
        self.forget();
    }

    fn forget(&mut self) {
        self.correction = Correction::new(&self.mode.staleness, &self.update, self.parameters);
        self.combination = Combination::of(&self.mode, self.workers);
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
    /// with d parameters, `4 d` for dc-adaptive, `8 d` for gap-aware, at most
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
    pub fn combine<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        parameters: &[f32],
        closing: Closing,
    ) {
        self.combined.clear();
        if let Combination::Ringleader(table) = &mut self.combination
            && closing == Closing::Everything
        {
            table.clear();
        }
        let weights = self.weights(gradients.clone());
        for gradient in gradients {
            let Gradient { worker, clock, samples, size, .. } = gradient;
            let participation = self.shares.contribute(worker);
            let rows = self.shares.rows(worker);
            let mut scale = self.mode.staleness.factor(gradient.staleness);
            if self.mode.participation == ParticipationSpec::Share {
                scale *= participation;
            }
            let values = self.correction.correct(&gradient, parameters, &mut self.corrected);
            match &mut self.combination {
                Combination::Round | Combination::ByWorker => {
                    let factor = (weights.of(worker, (samples, size), rows) * scale) as f32;
                    add(&mut self.combined, factor, values);
                }
                Combination::Incremental(table) => {
                    table.replace(worker, rows, scale as f32, values);
                }
                Combination::Ringleader(table) => {
                    table.average(worker, rows, (samples, scale as f32), values);
                }
                Combination::Iterations(iterations) => {
                    let weight = (samples, scale as f32);
                    iterations.add((worker, clock), weight, values, &mut self.combined);
                }
            }
            if let Some(gone) = self.shares.silent() {
                match &mut self.combination {
                    Combination::Incremental(table) => table.forget(gone),
                    Combination::Iterations(iterations) => iterations.left(gone),
                    Combination::Round | Combination::ByWorker | Combination::Ringleader(_) => {}
                }
            }
        }
        if let Combination::Incremental(table) | Combination::Ringleader(table) = &self.combination
        {
            table.mean(&mut self.combined);
        }
    }

    /// What the gradients of an update are weighted with.
    fn weights<'a>(&self, gradients: impl Iterator<Item = Gradient<'a>>) -> Weights {
        match (&self.combination, self.aggregation) {
            (Combination::ByWorker, aggregation) => {
                let mut samples: BTreeMap<WorkerId, u64> = BTreeMap::new();
                for gradient in gradients {
                    *samples.entry(gradient.worker).or_default() += u64::from(gradient.samples);
                }
                let rows: u64 = samples.keys().map(|worker| self.shares.rows(*worker)).sum();
                let times = match aggregation {
                    Aggregation::Mean => 1,
                    Aggregation::Sum => samples.len() as u64,
                };
                Weights::ByWorker { samples, rows, times }
            }
            (_, Aggregation::Mean) => {
                Weights::Mean { samples: gradients.map(|g| u64::from(g.samples)).sum() }
            }
            (_, Aggregation::Sum) => {
                let sizes = gradients.map(|g| u64::from(g.size));
                let (count, all) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
                Weights::Sum { count, all }
            }
        }
    }

    /// Combines gradients with a factor given for each, whatever the mode says, in the order given.
    pub fn combine_with<'a>(&mut self, gradients: impl Iterator<Item = (f32, &'a [f32])>) {
        self.combined.clear();
        for (factor, values) in gradients {
            add(&mut self.combined, factor, values);
        }
    }

    /// The L2 norm of the combined gradient, before it is clipped.
    #[must_use]
    pub fn norm(&self) -> f64 {
        norm(&self.combined)
    }

    /// Makes version `version` of `parameters` the next one with the combined gradient, which is
    /// used up.
    ///
    /// # Panics
    /// If the parameters, or the gradients combined before, are not as many values as the
    /// aggregator was made for.
    pub fn apply(&mut self, parameters: &mut [f32], version: Version) {
        self.correction.before(parameters);
        self.updater.apply(parameters, &mut self.combined, version);
        self.correction.after(parameters, version);
    }
}

/// What a gradient is multiplied with when the update is a sum of its gradients.
#[derive(Debug)]
enum Weights {
    /// All count by their examples.
    Mean { samples: u64 },
    /// Each counts in full, or by its size in mean size: the sum is `count` times the mean.
    Sum { count: u64, all: u64 },
    /// The workers count by their rows, the gradients of each by their examples; all of it so many
    /// times.
    ByWorker { samples: BTreeMap<WorkerId, u64>, rows: u64, times: u64 },
}

impl Weights {
    fn of(&self, worker: WorkerId, (samples, size): (u32, u32), rows: u64) -> f64 {
        let own = f64::from(samples);
        match self {
            Self::Mean { samples } => own / *samples as f64,
            Self::Sum { .. } if size == 0 => 1.0,
            Self::Sum { count, all } => *count as f64 * f64::from(size) / *all as f64,
            Self::ByWorker { samples, rows: all_rows, times } => {
                let all = samples.get(&worker).map_or(own, |samples| *samples as f64);
                (rows as f64 * own * *times as f64) / (*all_rows as f64 * all)
            }
        }
    }
}

/// Adds `factor * values` to `sum`, which is empty at first.
fn add(sum: &mut Vec<f32>, factor: f32, values: &[f32]) {
    if sum.is_empty() {
        sum.extend(values.iter().map(|value| factor * value));
        return;
    }
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

#[cfg(test)]
mod tests;
