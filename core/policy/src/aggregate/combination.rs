//! How the gradients of an update become one, and what they leave for the next update.

use serde::{Deserialize, Serialize};

use super::iterations::Iterations;
use super::table::{Change, Table};
use crate::consistency::ConsistencySpec;
use crate::mode::Mode;
use crate::rules::{ParticipationSpec, StalenessSpec};
use pstrain_compute::id::WorkerId;
use pstrain_compute::saved::{Archive, SavedError};

/// How the gradients of an update are combined into one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Combination {
    /// Combines as the [`Aggregation`](crate::rules::Aggregation) says.
    Round,
    /// Weighs each worker by its share of the data, with the mean of its gradients.
    ByWorker,
    /// Weighs the latest gradients of all workers by their shares of the data.
    Incremental(Table),
    /// Weighs each worker's mean gradient since the last whole round by its share of the data.
    Ringleader(Table),
    /// Averages the workers' gradients of each iteration.
    Iterations(Iterations),
}

impl Combination {
    pub(super) fn of(mode: &Mode, workers: u32) -> Self {
        match (mode.consistency, mode.participation, mode.staleness) {
            (ConsistencySpec::Malenia { .. }, ..) => Self::ByWorker,
            (ConsistencySpec::Ringleader, ..) => Self::Ringleader(Table::default()),
            (_, ParticipationSpec::Incremental, _) => Self::Incremental(Table::default()),
            (.., StalenessSpec::DynSgd) => Self::Iterations(Iterations::new(workers)),
            _ => Self::Round,
        }
    }

    /// True if an update takes the gradients of a table, not only the new ones.
    pub(super) const fn has_table(&self) -> bool {
        matches!(self, Self::Incremental(_) | Self::Ringleader(_))
    }

    /// True if an update is a sum of its gradients, and leaves nothing for the next.
    pub(super) const fn is_sum(&self) -> bool {
        matches!(self, Self::Round | Self::ByWorker)
    }

    /// Plans that a worker which seems to have left no longer counts. Returns the change of the
    /// table, if it has an entry of the worker.
    pub(super) fn forget(&mut self, worker: WorkerId) -> Option<Change> {
        match self {
            Self::Incremental(table) => return table.forget(worker),
            Self::Iterations(iterations) => iterations.left(worker),
            Self::Round | Self::ByWorker | Self::Ringleader(_) => {}
        }
        None
    }

    /// Completes an update.
    pub(super) fn finish(&mut self) {
        match self {
            Self::Round | Self::ByWorker => {}
            Self::Incremental(table) => table.finish(false),
            Self::Ringleader(table) => table.finish(true),
            Self::Iterations(iterations) => iterations.finish(),
        }
    }

    /// Bytes kept from update to update.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Round | Self::ByWorker => 0,
            Self::Incremental(table) | Self::Ringleader(table) => table.memory_bytes(),
            Self::Iterations(iterations) => iterations.memory_bytes(),
        }
    }

    /// Saves or restores the whole state.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.small(self)?;
        match self {
            Self::Round | Self::ByWorker => Ok(()),
            Self::Incremental(table) | Self::Ringleader(table) => table.archive(archive),
            Self::Iterations(iterations) => iterations.archive(archive),
        }
    }
}
