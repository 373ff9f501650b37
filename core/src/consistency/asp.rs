//! Asynchronous parallel.

use super::{Admission, Closing, Cohort, Consistency};
use crate::id::{Version, WorkerId};

/// ASP: every gradient is an update of its own, applied on arrival; nobody waits.
///
/// Invariant: the version is the number of gradients accepted. With N always-busy workers the
/// mean staleness tends to N - 1, whatever their speeds.
///
/// Recht et al., NIPS 2011 (Hogwild!); Dean et al., NIPS 2012 (Downpour SGD).
#[derive(Clone, Copy, Debug, Default)]
pub struct Asp;

impl Consistency for Asp {
    fn admit(&self, _cohort: &Cohort, _worker: WorkerId, _base: Version) -> Admission {
        Admission::Contribute
    }

    fn closes(&self, _cohort: &Cohort) -> Closing {
        Closing::Everything
    }

    fn may_start(&self, _cohort: &Cohort, _worker: WorkerId, _under_way: u32) -> bool {
        true
    }

    fn gate(&self, _cohort: &Cohort) -> u64 {
        0
    }

    fn in_rounds(&self) -> bool {
        false
    }
}
