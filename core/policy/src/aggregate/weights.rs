//! What the gradients of an update count for.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Gradient;
use super::shares::Shares;
use crate::rules::{Aggregation, StalenessSpec};
use pstrain_compute::id::WorkerId;

/// What a gradient counts for against others of its worker in the same update, but for staleness.
pub(super) fn unit(aggregation: Aggregation, gradient: &Gradient<'_>) -> f64 {
    match (aggregation, gradient.size) {
        (Aggregation::Sum, 0) => 1.0,
        (Aggregation::Sum, size) => size.into(),
        _ => gradient.samples.into(),
    }
}

/// What a gradient is multiplied with when the update is a sum of its gradients.
#[derive(Debug)]
pub(super) enum Weights {
    /// All count by their examples.
    Mean { samples: u64 },
    /// Each counts in full, or by its size in mean size: the sum is `count` times the mean.
    Sum { count: u64, all: u64 },
    /// The workers count by their rows, the gradients of each by their examples; all of it so many
    /// times.
    ByWorker { samples: BTreeMap<WorkerId, u64>, rows: u64, times: u64 },
}

impl Weights {
    /// Those of gradients that are combined as the aggregation says.
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

    /// Those of gradients of which each worker has the mean, by its rows.
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

    /// What `gradient` is multiplied with, if its worker has so many rows.
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

/// The factors of a staleness rule, each worked out once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Factors(Vec<f64>);

/// Factors that are kept: a staleness above is as rare as it is large.
const MOST_FACTORS: usize = 256;

impl Factors {
    /// The factor of `rule`, which is always the same one, for this staleness.
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
