//! Execution of one run: the only module that knows both virtual time and real processes.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};

use super::dry_run::DryRuns;
use super::grid::Cell;
use super::record::{CurvePoint, LinkUse, Record};
use super::spec::Spec;
use super::store::Mode;
use pstrain_data::{DataError, Dataset, Settings};
use pstrain_policy::job::Job;
use pstrain_roles::node::Event;
use pstrain_transports::simulation::Origin;

use crate::job::Layers;
use crate::record::{Summary, metric_values};
use crate::simulate::{DataCache, Virtual, VirtualReport};

/// One run to execute.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) rep: u32,
    pub(crate) seed: u64,
    /// Cell and repetition, for messages.
    pub(crate) place: String,
}

impl<'a> Run<'a> {
    /// The run of repetition `rep` (from 0) of a cell; its seed is the cell's seed plus `rep`.
    pub(crate) fn new(spec: &Spec, cell: &'a Cell, rep: u32) -> anyhow::Result<Self> {
        let place = format!("{}, repetition {}", cell.describe(spec), rep + 1);
        let base: u64 = Layers::of(&place, &cell.job)?.number("seed")?;
        Ok(Self { cell, rep, seed: base.wrapping_add(u64::from(rep)), place })
    }

    /// Its settings.
    pub(crate) fn layers(&self) -> anyhow::Result<Layers> {
        let mut job: BTreeMap<String, String> = self.cell.job.clone();
        job.insert("seed".into(), self.seed.to_string());
        Layers::of(&self.place, &job)
    }

    /// An empty record of the run.
    pub(crate) fn record(&self) -> Record {
        let (cell, rep, seed) = (self.cell.index, self.rep, self.seed);
        Record { cell, rep, seed, ..Record::default() }
    }
}

/// A way to execute runs.
pub(crate) trait Execute: Sync {
    /// Executes a run. Returns `None` if it was given up because `stop` was raised.
    fn execute(&self, run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Record>>;
}

/// Executes runs in virtual time, in this process.
#[derive(Debug, Default)]
pub(crate) struct VirtualTime {
    data: DataCache,
}

impl VirtualTime {
    /// The job of a run. Data that were read before are taken from the cache.
    pub(crate) fn job(&self, run: &Run<'_>) -> anyhow::Result<Job> {
        let load = |source: &dyn Dataset, settings: &Settings| self.data.prepare(source, settings);
        Ok(run.layers()?.resolve_with(load)?.job)
    }

    /// Puts together the job of each cell, in the mode in which it is to run, so that settings that
    /// contradict each other or the data are refused before the first run. The data that this reads
    /// are kept for the runs.
    ///
    /// # Errors
    /// Names cells that cannot be run, with the reason for each.
    pub(crate) fn check(&self, spec: &Spec, cells: &[Cell], mode: Mode) -> anyhow::Result<()> {
        let (checks, mut refused) = (DryRuns::new(&self.data), Vec::new());
        for cell in cells {
            let layers = Run::new(spec, cell, 0)?.layers()?;
            if let Err(why) = checks.check(&layers, mode) {
                refused.push(format!("  {}: {why:#}", cell.describe(spec)));
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let count = refused.len();
        if count > NAMED {
            refused.truncate(NAMED);
            refused.push(format!("  and {} more", count - NAMED));
        }
        bail!(
            "{count} of {} cells cannot be run; change their settings, or leave them out with \
             [[exclude]]:\n{}",
            cells.len(),
            refused.join("\n")
        )
    }
}

/// Most cells that the error names.
const NAMED: usize = 5;

impl Execute for VirtualTime {
    fn execute(&self, run: &Run<'_>, _stop: &AtomicBool) -> anyhow::Result<Option<Record>> {
        let layers = run.layers()?;
        let energy = layers.energy()?;
        let ready = Virtual::resolve(&layers, &self.data)?;
        let mut summary = Summary::new(&ready.job);
        let lambda = ready.job.update.l1();
        let mut record = run.record();
        // `stop` is not passed on: a run is stored as a whole, and those in progress are short.
        let outcome = ready.run(&AtomicBool::new(false), |now, from, event| match from {
            Origin::Server => {
                summary.note(now, &event);
                if let Event::Evaluated { point, evaluation } = &event {
                    record.curve.push(CurvePoint {
                        version: point.version.0,
                        samples: point.samples,
                        epoch: point.epoch,
                        time_s: point.time.as_secs_f64(),
                        loss: Some(evaluation.loss).filter(|value| value.is_finite()),
                        objective: Some(evaluation.objective(lambda))
                            .filter(|value| value.is_finite()),
                        metrics: metric_values(ready.job.data.shape.target, evaluation),
                    });
                }
            }
            Origin::Worker(worker) => summary.note_worker(now, worker, &event),
        })?;
        let outline = ready.data.outline();
        let mut report = summary.report(&ready.job, &outcome.trained, &outline, "virtual");
        report.was_virtual(VirtualReport::of(&outcome, &ready));
        report.energy = summary.energy(&energy, &ready.job, &report, None);
        record.keep(&serde_json::to_value(&report).context("cannot keep a report")?, true);
        record.staleness = summary.staleness_histogram().clone();
        record.link_use = LinkUse::of(&outcome);
        Ok(Some(record))
    }
}

/// Reads every setting of a run without reading its data, so that a typing error costs no wait.
pub(crate) fn check_settings(run: &Run<'_>) -> anyhow::Result<()> {
    let layers = run.layers()?;
    layers.scenario().with_context(|| run.place.clone())?;
    let mut read = false;
    let done = layers.resolve_with(|source, _| {
        read = true;
        // Any error will do: it only ends the reading of the settings.
        Err(DataError::Changed { data: source.describe() })
    });
    match done {
        Err(error) if !read => Err(error.context(run.place.clone())),
        _ => Ok(()),
    }
}
