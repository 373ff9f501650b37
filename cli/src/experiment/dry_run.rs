//! Puts jobs together before the first run, to refuse settings that contradict each other.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pstrain_data::{DataError, Dataset, Outline, Settings};
use pstrain_policy::job::Job;
use pstrain_roles::node::Server;

use super::store::Mode;
use crate::job::Layers;
use crate::simulate::{DataCache, fitted};

/// Checks jobs. Makes the outline of each data set once.
#[derive(Debug)]
pub(super) struct DryRuns<'a> {
    data: &'a DataCache,
    outlines: RefCell<BTreeMap<String, Outline>>,
}

impl<'a> DryRuns<'a> {
    /// Data that must be read for the checks are kept in `data`.
    pub(super) fn new(data: &'a DataCache) -> Self {
        Self { data, outlines: RefCell::default() }
    }

    /// Puts together the job that is to run in `mode`, and drops it.
    ///
    /// # Errors
    /// If the settings contradict each other, the data or the mode.
    pub(super) fn check(&self, layers: &Layers, mode: Mode) -> anyhow::Result<()> {
        if mode == Mode::RealTime {
            layers.real_time()?;
        }
        let load = |source: &dyn Dataset, settings: &Settings| self.outline(source, settings);
        let mut job: Job = layers.resolve_as(load, Outline::clone)?.job;
        if mode == Mode::VirtualTime {
            fitted(&mut job, &layers.scenario()?)?;
            layers.check_virtual_energy()?;
        }
        let seed = job.seed;
        Server::new(job, seed)?;
        Ok(())
    }

    /// The outline of the data that these settings describe.
    fn outline(&self, source: &dyn Dataset, settings: &Settings) -> Result<Outline, DataError> {
        let key = format!("{source:?} {settings:?}");
        if let Some(outline) = self.outlines.borrow().get(&key) {
            return Ok(outline.clone());
        }
        let outline = self.data.prepare(source, settings)?.outline();
        self.outlines.borrow_mut().insert(key, outline.clone());
        Ok(outline)
    }
}
