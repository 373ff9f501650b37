//! The form in which ranks send what they add up.

use super::{Algorithm, Collective, Precision};
use pstrain_compute::filter::Filters;

/// The form in which the ranks of an all-reduce send what they add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Values of this precision.
    Values(Precision),
    /// Each its own gradient, filtered ([`Gathering`](super::Gathering)).
    Filtered,
}

impl Encoding {
    /// The encoding that filters stand for; none if the algorithm adds up gradients on their way,
    /// and they cannot be added in this form.
    #[must_use]
    pub fn of(algorithm: Algorithm, filters: &Filters) -> Option<Self> {
        let gathers = match algorithm {
            Algorithm::One(Collective::AllGather) => !filters.is_none(),
            Algorithm::BySize => Precision::of(filters).is_none(),
            Algorithm::One(_) => false,
        };
        match gathers {
            true => Some(Self::Filtered),
            false => Precision::of(filters).map(Self::Values),
        }
    }
}
