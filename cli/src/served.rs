//! The data of a server: rows to evaluate with, and training rows that it sends to workers.

use std::sync::Arc;

use pstrain_compute::examples::Examples;
use pstrain_compute::id::PartId;
use pstrain_data::{DataError, Dataset, Outline, PartitionSpec, Prepared, Settings};
use pstrain_policy::job::DataFrom;

/// Data of a server. Training rows take far more memory than all else, so they are kept only if
/// workers may request them.
#[derive(Debug)]
pub(crate) struct ServerData {
    pub(crate) outline: Outline,
    rows: Option<Arc<Prepared>>,
}

impl From<Arc<Prepared>> for ServerData {
    fn from(data: Arc<Prepared>) -> Self {
        Self { outline: data.outline(), rows: Some(data) }
    }
}

impl ServerData {
    /// Reads the data that a server needs under `from`.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read or does not match `settings`.
    pub(crate) fn load(
        source: &dyn Dataset,
        settings: &Settings,
        from: DataFrom,
    ) -> Result<Self, DataError> {
        match from {
            // Of rows that are each worker's own, the server reads none.
            DataFrom::Own if source.is_plain() || settings.partition == PartitionSpec::Local => {
                Ok(Self { outline: Outline::read(source, settings)?, rows: None })
            }
            // A source that is not plain is expensive to read several times: load it whole, keep
            // the outline.
            DataFrom::Own => {
                Ok(Self { outline: Prepared::load(source, settings)?.outline(), rows: None })
            }
            DataFrom::Worker | DataFrom::Server => {
                Ok(Arc::new(Prepared::load(source, settings)?).into())
            }
        }
    }

    /// Returns the training rows of a partition, if this server keeps rows.
    pub(crate) fn partition(&self, part: PartId) -> Option<Examples> {
        Some(self.rows.as_ref()?.partition(part))
    }
}
