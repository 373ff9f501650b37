//! The mode of a run, the controller that may choose it, and changes that are due.

use pstrain_compute::saved::{Archive, SavedError};
use pstrain_policy::auto::Auto;
use pstrain_policy::mode::Mode;

use super::mode_change::Ordered;

/// The mode, and its changes.
#[derive(Debug)]
pub(super) struct Modes {
    pub(super) current: Mode,
    /// The controller that chooses the mode under `consistency = auto`.
    pub(super) auto: Option<Auto>,
    /// The mode change that waits for the run to quiesce, if one was ordered.
    pub(super) ordered: Option<Ordered>,
    /// Scheduled mode changes of the job that have been ordered so far.
    pub(super) switched: usize,
}

impl Modes {
    pub(super) const fn new(current: Mode, auto: Option<Auto>) -> Self {
        Self { current, auto, ordered: None, switched: 0 }
    }

    /// Saves or restores the state, for a model of `keys` parameters.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        keys: u64,
    ) -> Result<(), SavedError> {
        archive.small(&mut self.current)?;
        archive.small(&mut self.switched)?;
        let mut has_auto = self.auto.is_some();
        archive.small(&mut has_auto)?;
        if archive.restores() {
            self.auto = has_auto.then(|| Auto::new(keys));
        }
        if let Some(auto) = &mut self.auto {
            auto.archive(archive)?;
        }
        archive.small(&mut self.ordered)
    }
}
