//! The parameters that were looked at: what the controller's course is about, at whoever has them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::course::LOOKS;
use pstrain_compute::id::Version;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;

/// Parameters that can be gone back to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Their version.
    pub version: Version,
    /// The values.
    #[serde(skip)]
    pub parameters: Arc<Vec<f32>>,
}

/// A look at the current parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Their version.
    pub version: Version,
    /// Whether it is the first of a course: what was looked at before has no part in it.
    pub anew: bool,
    /// Whether the parameters of the last look but one can be gone back to.
    pub approved: bool,
}

/// Some keys of the parameters that were looked at.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Looks {
    /// Those of the last looks, the oldest first.
    last: VecDeque<Kept>,
    /// Those to go back to.
    good: Option<Kept>,
}

impl Looks {
    /// Saves or restores the parameters, once serde has been over the rest.
    ///
    /// # Errors
    /// [`SavedError`] if what is restored is not there.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut all = self.last.iter_mut().chain(&mut self.good);
        all.try_for_each(|kept| archive.shared("kept", &mut kept.parameters))
    }

    /// Looks at `parameters`. Returns, once there are two moves, the sum over the keys here of
    /// their products, and of the squares of each.
    pub fn look(&mut self, look: Look, parameters: &Arc<Vec<f32>>) -> Option<Vec<ExactSum>> {
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
            let keys = from.parameters.iter().zip(to.parameters.iter());
            keys.map(|(from, to)| to - from)
        });
        let mut sums = [(); LOOKS].map(|()| ExactSum::default());
        let [product, ones, others] = &mut sums;
        product.add_products(one.clone().zip(other.clone()));
        ones.add_products(one.clone().zip(one));
        others.add_products(other.clone().zip(other));
        Some(sums.into())
    }

    /// What to go back to.
    #[must_use]
    pub const fn good(&self) -> Option<&Kept> {
        self.good.as_ref()
    }

    /// Forgets all that was looked at.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}
