//! Snapshots of the parameters that a server keeps for the controller's trajectory.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::trajectory::LOOKS;
use pstrain_compute::id::Version;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;

/// Parameters that can be restored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Their version.
    pub version: Version,
    /// The values.
    #[serde(skip)]
    pub parameters: Arc<Vec<f32>>,
}

/// A measurement of the current parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Their version.
    pub version: Version,
    /// True if it is the first of a trajectory: earlier snapshots are dropped.
    pub anew: bool,
    /// True if the parameters of two looks ago can be restored.
    pub approved: bool,
}

/// Snapshots of a server's keys of the parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Snapshots {
    /// The latest snapshots, oldest first.
    last: VecDeque<Kept>,
    /// The snapshot to restore.
    good: Option<Kept>,
}

impl Snapshots {
    /// Saves or restores the parameters, after serde has processed the other fields.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not hold this state.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut all = self.last.iter_mut().chain(&mut self.good);
        all.try_for_each(|kept| archive.shared("kept", &mut kept.parameters))
    }

    /// Records a snapshot of `parameters`. With three snapshots, returns sums over the first
    /// `trained` of the local keys: the product of the last two moves, and the square of each.
    pub fn look(
        &mut self,
        look: Look,
        parameters: &Arc<Vec<f32>>,
        trained: usize,
    ) -> Option<Vec<ExactSum>> {
        let Look { version, anew, approved } = look;
        if anew {
            self.last.clear();
        }
        let current = Kept { version, parameters: Arc::clone(parameters) };
        self.good.get_or_insert_with(|| current.clone());
        if self.last.len() == LOOKS {
            self.last.pop_front();
        }
        self.last.push_back(current);
        if approved && self.last.len() == LOOKS {
            self.good = self.last.front().cloned();
        }
        let [first, second, third] = &*self.last.make_contiguous() else { return None };
        let [one, other] = [(first, second), (second, third)].map(|(from, to)| {
            let keys = from.parameters.iter().zip(to.parameters.iter()).take(trained);
            keys.map(|(from, to)| to - from)
        });
        let mut sums = [(); LOOKS].map(|()| ExactSum::default());
        let [product, ones, others] = &mut sums;
        product.add_products(one.clone().zip(other.clone()));
        ones.add_products(one.clone().zip(one));
        others.add_products(other.clone().zip(other));
        Some(sums.into())
    }

    /// Returns the snapshot to restore.
    #[must_use]
    pub const fn good(&self) -> Option<&Kept> {
        self.good.as_ref()
    }

    /// Drops all snapshots.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}
