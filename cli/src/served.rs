//! The data of a server: what it evaluates with, and the rows that it sends to workers.

use std::sync::Arc;

use pstrain_compute::examples::Examples;
use pstrain_compute::id::PartId;
use pstrain_data::{DataError, Outline, Prepared, Settings, Source};
use pstrain_policy::job::DataFrom;

/// Data of a server. The rows to train on take far more memory than all else: they are there only
/// where workers may ask for them.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) outline: Outline,
    rows: Option<Arc<Prepared>>,
}

impl From<Arc<Prepared>> for Served {
    fn from(data: Arc<Prepared>) -> Self {
        Self { outline: data.outline(), rows: Some(data) }
    }
}

impl Served {
    /// Reads what a server needs.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, or is not as `settings` want it.
    pub(crate) fn load(
        source: &Source,
        settings: &Settings,
        from: DataFrom,
    ) -> Result<Self, DataError> {
        match from {
            DataFrom::Own if source.is_plain() => {
                Ok(Self { outline: Outline::read(source, settings)?, rows: None })
            }
            // What cannot be read several times for little is there as a whole for a moment.
            DataFrom::Own => {
                Ok(Self { outline: Prepared::load(source, settings)?.outline(), rows: None })
            }
            DataFrom::Worker | DataFrom::Server => {
                Ok(Arc::new(Prepared::load(source, settings)?).into())
            }
        }
    }

    /// The partition of a worker that asks for it, if rows are there.
    pub(crate) fn partition(&self, part: PartId) -> Option<Examples> {
        Some(self.rows.as_ref()?.partition(part))
    }
}
