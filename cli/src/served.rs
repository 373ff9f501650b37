//! The data of a server: what it evaluates with, and the rows of workers that have none.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use pstrain_core::examples::Examples;
use pstrain_core::id::PartId;
use pstrain_core::job::DataFrom;
use pstrain_data::{DataError, Outline, Prepared, Settings, Source};

use crate::messages;

/// Data of a server, which keeps the rows to train on only if it has to: they take far more memory than
/// all else.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) outline: Outline,
    rows: Rows,
}

/// Where the rows to train on are.
#[derive(Debug)]
enum Rows {
    Here(Arc<Prepared>),
    /// In the source, until the first worker asks.
    There {
        source: Source,
        settings: Settings,
        read: Mutex<Option<Box<Prepared>>>,
    },
}

impl From<Arc<Prepared>> for Served {
    fn from(data: Arc<Prepared>) -> Self {
        Self { outline: data.outline(), rows: Rows::Here(data) }
    }
}

impl Served {
    /// Reads what a server needs. Where workers have copies of their own, and reading once more would
    /// take little, the rows to train on stay where they are.
    ///
    /// # Errors
    /// [`DataError`] if the source cannot be read, or is not as `settings` want it.
    pub(crate) fn load(
        source: &Source,
        settings: &Settings,
        from: DataFrom,
    ) -> Result<Self, DataError> {
        if from == DataFrom::Server || !source.is_plain() {
            return Ok(Arc::new(Prepared::load(source, settings)?).into());
        }
        let outline = Outline::read(source, settings)?;
        let (source, settings) = (source.clone(), settings.clone());
        Ok(Self { outline, rows: Rows::There { source, settings, read: Mutex::default() } })
    }

    /// The partition of a worker that asks for it; none if the source is not what it was, which is said.
    pub(crate) fn partition(&self, part: PartId) -> Option<Examples> {
        let (source, settings, read) = match &self.rows {
            Rows::Here(data) => return Some(data.partition(part)),
            Rows::There { source, settings, read } => (source, settings, read),
        };
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.is_none() {
            match self.again(source, settings) {
                Ok(data) => *read = Some(Box::new(data)),
                Err(why) => messages::warn(&format!(
                    "a worker without data cannot be sent any: {why:#}; put the file back, or give the \
                     worker --data"
                )),
            }
        }
        Some(read.as_ref()?.partition(part))
    }

    fn again(&self, source: &Source, settings: &Settings) -> anyhow::Result<Prepared> {
        let data = Prepared::load(source, settings)?;
        if data.fingerprint != self.outline.fingerprint {
            bail!("{} is not what it was when the server began", source.describe());
        }
        Ok(data)
    }
}
