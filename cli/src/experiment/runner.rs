//! Executes the missing runs, by default as many at a time as there are cores.
//!
//! Each run is stored as soon as it is done, and depends on its cell and its repetition only:
//! neither the number of threads nor an interruption changes a result.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use indicatif::ProgressBar;

use super::draw::unknown_metrics;
use super::execute::{Execute, Run};
use super::grid::Cell;
use super::runs::Runs;
use super::spec::Spec;
use super::store::Store;
use crate::{messages, progress};

/// Executes runs.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) cells: &'a [Cell],
    pub(crate) store: &'a Store,
    pub(crate) jobs: usize,
    pub(crate) quiet: bool,
    /// Raised to stop early.
    pub(crate) stop: &'a AtomicBool,
}

impl Runner<'_> {
    /// Executes `runs`, of the `all` runs of the experiment. Returns the number of runs that were
    /// not executed because of `stop`.
    ///
    /// # Errors
    /// The first error; no further run is started after it.
    pub(crate) fn make(
        &self,
        runs: &[Run<'_>],
        all: usize,
        execute: &dyn Execute,
    ) -> anyhow::Result<usize> {
        let bar = self.bar(runs.len(), all);
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
        let made = AtomicUsize::new(0);
        let looked_at = AtomicBool::new(false);
        let work = || {
            while !self.stop.load(Ordering::Relaxed) && is_none(&failed) {
                let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                match self.one(run, execute) {
                    Ok(true) => {
                        made.fetch_add(1, Ordering::Relaxed);
                        bar.inc(1);
                        if !looked_at.swap(true, Ordering::Relaxed) {
                            bar.suspend(|| self.look_at(run));
                        }
                    }
                    Ok(false) => {}
                    Err(error) => {
                        let mut first = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, runs.len().max(1)) {
                scope.spawn(work);
            }
        });
        bar.finish_and_clear();
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(runs.len() - made.into_inner()),
        }
    }

    fn one(&self, run: &Run<'_>, execute: &dyn Execute) -> anyhow::Result<bool> {
        let place = || format!("the run of {}", run.place);
        let Some(record) = execute.execute(run, self.stop).with_context(place)? else {
            return Ok(false);
        };
        self.store.save(&record)?;
        Ok(true)
    }

    /// Warns of pictures that need a number that the first completed run lacks. Other runs may have
    /// it, but a typing error should be reported now rather than at the end.
    fn look_at(&self, run: &Run<'_>) {
        let all = self.store.records(self.cells.len(), self.spec.reps).unwrap_or_default();
        let records = all.into_iter().filter(|(at, _)| *at == (run.cell.index, run.rep)).collect();
        let runs = Runs::new(self.spec, self.cells, records);
        for why in unknown_metrics(&runs) {
            messages::warn(&format!("{}: {why}", run.place));
        }
    }

    fn bar(&self, missing: usize, all: usize) -> ProgressBar {
        let template = "{wide_bar} {human_pos}/{human_len} runs  {elapsed_precise}, {eta} left";
        let bar = progress::bar(all as u64, template, self.quiet);
        // Stored runs took no time of this process: they must not enter the estimate.
        let there = all.saturating_sub(missing) as u64;
        let bar = bar.with_position(there);
        bar.reset_eta();
        bar
    }
}

fn is_none<T>(slot: &Mutex<Option<T>>) -> bool {
    slot.lock().unwrap_or_else(PoisonError::into_inner).is_none()
}
