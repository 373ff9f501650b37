//! Weights of the gradients of an update: by examples, by share of the data, and by staleness,
//! whose factors (1/tau and others) `StalenessSpec::factor` gives.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Gradient;
use super::shares::Shares;
use crate::rules::{Aggregation, StalenessSpec};
use pstrain_compute::id::WorkerId;

/// Weight of a gradient relative to others of its worker in the same update, without staleness.
pub(super) fn unit(aggregation: Aggregation, gradient: &Gradient<'_>) -> f64 {
    match (aggregation, gradient.size) {
        (Aggregation::Sum, 0) => 1.0,
        (Aggregation::Sum, size) => size.into(),
        _ => gradient.samples.into(),
    }
}

/// Rule that weighs gradients when the update is a sum of its gradients.
#[derive(Debug)]
pub(super) enum Weights {
    /// By number of examples.
    Mean { samples: u64 },
    /// Each counts in full, or by its size over the mean size: the sum is `count` times the mean.
    Sum { count: u64, all: u64 },
    /// The workers count by their rows, and the gradients of one worker by their examples; the
    /// whole is multiplied by `times`.
    ByWorker { samples: BTreeMap<WorkerId, u64>, rows: u64, times: u64 },
}

impl Weights {
    /// Weights of gradients that are combined as the aggregation says.
    pub(super) fn of_round<'a>(
        aggregation: Aggregation,
        gradients: impl Iterator<Item = Gradient<'a>>,
    ) -> Self {
        match aggregation {
            Aggregation::Sum => {
                let sizes = gradients.map(|g| u64::from(g.size));
                let (count, all) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
                Self::Sum { count, all }
            }
            _ => Self::Mean { samples: gradients.map(|g| u64::from(g.samples)).sum() },
        }
    }

    /// Weights of gradients that are averaged per worker, and by rows over the workers.
    pub(super) fn by_worker<'a>(
        aggregation: Aggregation,
        gradients: impl Iterator<Item = Gradient<'a>>,
        shares: &Shares,
    ) -> Self {
        let mut samples: BTreeMap<WorkerId, u64> = BTreeMap::new();
        for gradient in gradients {
            *samples.entry(gradient.worker).or_default() += u64::from(gradient.samples);
        }
        let rows = samples.keys().map(|worker| shares.rows(*worker)).sum();
        let times = match aggregation {
            Aggregation::Sum => samples.len() as u64,
            _ => 1,
        };
        Self::ByWorker { samples, rows, times }
    }

    /// Returns the factor of `gradient`, whose worker has `rows` rows.
    pub(super) fn of(&self, gradient: &Gradient<'_>, rows: u64) -> f64 {
        let Gradient { worker, size, .. } = *gradient;
        let own = f64::from(gradient.samples);
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

/// Cached factors of a staleness rule by staleness.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Factors(Vec<f64>);

/// Largest number of cached factors: a staleness above is rare.
const MOST_FACTORS: usize = 256;

impl Factors {
    /// Returns the factor of `rule` for this staleness. `rule` must be the same in all calls.
    pub(super) fn of(&mut self, rule: &StalenessSpec, staleness: u64) -> f64 {
        if *rule == StalenessSpec::Plain {
            return 1.0;
        }
        let place = usize::try_from(staleness).unwrap_or(usize::MAX);
        if place >= MOST_FACTORS {
            return rule.factor(staleness);
        }
        while self.0.len() <= place {
            self.0.push(rule.factor(self.0.len() as u64));
        }
        self.0.get(place).copied().unwrap_or(1.0)
    }
}
