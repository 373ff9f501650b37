//! Jobs that are put together before the first run, to refuse settings that do not go together.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pstrain_data::{DataError, Outline, Settings, Source};
use pstrain_policy::job::Job;
use pstrain_roles::node::Server;

use super::store::Mode;
use crate::job::Layers;
use crate::simulate::{DataCache, fitted};

/// DryRuns jobs. The outline of each data set is made once.
#[derive(Debug)]
pub(super) struct DryRuns<'a> {
    data: &'a DataCache,
    outlines: RefCell<BTreeMap<String, Outline>>,
}

impl<'a> DryRuns<'a> {
    /// The data that are read on the way stay in `data`.
    pub(super) fn new(data: &'a DataCache) -> Self {
        Self { data, outlines: RefCell::default() }
    }

    /// Puts the job together that is to run in `mode`, and drops it.
    ///
    /// # Errors
    /// If its settings do not go with each other, with the data or with the mode.
    pub(super) fn check(&self, layers: &Layers, mode: Mode) -> anyhow::Result<()> {
        if mode == Mode::RealTime {
            layers.real_time()?;
        }
        let load = |source: &Source, settings: &Settings| self.outline(source, settings);
        let mut job: Job = layers.resolve_as(load, Outline::clone)?.job;
        if mode == Mode::VirtualTime {
            fitted(&mut job, &layers.scenario()?)?;
        }
        let seed = job.seed;
        Server::new(job, seed)?;
        Ok(())
    }

    /// The outline of the data of these settings.
    fn outline(&self, source: &Source, settings: &Settings) -> Result<Outline, DataError> {
        let key = format!("{source:?} {settings:?}");
        if let Some(outline) = self.outlines.borrow().get(&key) {
            return Ok(outline.clone());
        }
        let outline = self.data.prepare(source, settings)?.outline();
        self.outlines.borrow_mut().insert(key, outline.clone());
        Ok(outline)
    }
}
