//! Validation of virtual time: the same jobs by closed form, in virtual time, in shaped real time
//! and, if the kernel supports it, over netem. Compares the total times and the ranking of the
//! jobs.

mod closed_form;
mod netem;
mod predict;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use pstrain_policy::job::Job;
use serde::Serialize;

use crate::experiment::{
    Cell, Execute, Mode, RealTime, Record, Run, Spec, VirtualTime, check_settings,
};
use crate::statistics::{rank_agreement, total_variation, wasserstein};
use closed_form::Prediction;
use netem::OverNetem;

/// Total times that differ by more than this share disagree.
pub(crate) const TOLERANCE: f64 = 0.05;

/// Total times in real time below this many seconds are too short to be judged by [`TOLERANCE`]:
/// the machine's own overhead is too large a part of them.
pub(crate) const SHORTEST_S: f64 = 1.0;

/// If a stalled machine cost at least this share of the workers' time, it is too busy to judge a
/// time by [`TOLERANCE`].
pub(crate) const BUSY: f64 = 0.01;

/// The results of one job in every backend.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) job: String,
    /// Total training time by closed form, in seconds.
    pub(crate) closed_form_s: Option<f64>,
    /// The reason why there is no closed form.
    pub(crate) closed_form_missing: Option<String>,
    /// Mean staleness by closed form.
    pub(crate) closed_form_staleness: Option<f64>,
    #[serde(rename = "virtual")]
    pub(crate) simulated: Measurement,
    pub(crate) shaped: Measurement,
    pub(crate) netem: Option<Measurement>,
    /// The reason why there is no result over netem.
    pub(crate) netem_missing: Option<String>,
}

/// The result of a job in one backend.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    /// Total training time, in seconds.
    pub(crate) time_s: f64,
    pub(crate) staleness_mean: f64,
    pub(crate) accuracy: Option<f64>,
    /// The total time in virtual time divided by the one in this backend, minus 1.
    pub(crate) error: f64,
    /// True if the time is too short to judge the error.
    pub(crate) too_short: bool,
    /// Distances between the staleness distributions of this backend and of virtual time: total
    /// variation (0 to 1), and Wasserstein distance in updates.
    pub(crate) staleness_variation: Option<f64>,
    pub(crate) staleness_distance: Option<f64>,
    /// Median lateness of messages against the model, in milliseconds.
    pub(crate) lateness_ms: Option<f64>,
    /// The share of the workers' time lost to stalls, in which the machine was late by
    /// milliseconds.
    pub(crate) stalled: Option<f64>,
}

/// All jobs, and their overall agreement.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) jobs: Vec<Row>,
    pub(crate) shaped: Agreement,
    /// Over the jobs that were measured; None if no job was.
    pub(crate) netem: Option<Agreement>,
}

/// The agreement of virtual time with another backend.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Agreement {
    /// The largest relative error of a total time, over jobs for which the machine was not too
    /// busy.
    pub(crate) largest_error: f64,
    /// Kendall's tau of the total times: 1 if both rank all jobs alike. None for a single job.
    pub(crate) ranks: Option<f64>,
    /// Number of jobs that are long enough to judge, and for which the machine was not too busy.
    pub(crate) judged: usize,
    /// Number of jobs for which the machine was too busy.
    pub(crate) busy: usize,
    /// True if `busy` is 0, and the judged jobs have times within [`TOLERANCE`] and the same
    /// ranking.
    pub(crate) good: bool,
}

impl Agreement {
    fn of(pairs: &[(&Measurement, &Measurement)]) -> Self {
        let mut told = pairs.to_vec();
        told.retain(|(_, backend)| !backend.is_busy());
        let busy = pairs.len() - told.len();
        let (largest_error, ranks) = largest_and_ranks(&told);
        told.retain(|(_, backend)| !backend.too_short);
        let (error, alike) = largest_and_ranks(&told);
        let alike = alike.is_none_or(|ranks| ranks > 1.0 - 1e-9);
        let good = busy == 0 && error <= TOLERANCE && alike;
        Self { largest_error, ranks, judged: told.len(), busy, good }
    }
}

/// Returns the largest error of the total times against virtual time, and the agreement of the two
/// rankings of the jobs.
fn largest_and_ranks(pairs: &[(&Measurement, &Measurement)]) -> (f64, Option<f64>) {
    let simulated: Vec<f64> = pairs.iter().map(|(simulated, _)| simulated.time_s).collect();
    let other: Vec<f64> = pairs.iter().map(|(_, backend)| backend.time_s).collect();
    let largest =
        pairs.iter().fold(0.0_f64, |largest, (_, backend)| largest.max(backend.error.abs()));
    (largest, rank_agreement(&simulated, &other))
}

impl Measurement {
    fn of(record: &Record, simulated: &Record) -> Self {
        let metric = |record: &Record, path: &str| record.metrics.get(path).copied();
        let time_s = metric(record, "time_s").unwrap_or(f64::NAN);
        let reference = metric(simulated, "time_s").unwrap_or(f64::NAN);
        let workers = record.workers().count().max(1) as f64;
        Self {
            time_s,
            staleness_mean: metric(record, "staleness.mean").unwrap_or(f64::NAN),
            accuracy: metric(record, "accuracy"),
            error: reference / time_s - 1.0,
            too_short: time_s < SHORTEST_S,
            staleness_variation: total_variation(&record.staleness, &simulated.staleness),
            staleness_distance: wasserstein(&record.staleness, &simulated.staleness),
            lateness_ms: metric(record, "shaping.messages.late_median_ms"),
            stalled: metric(record, "shaping.stalled_s").map(|lost| lost / (workers * time_s)),
        }
    }

    /// True if the machine was too busy for the time to be meaningful.
    pub(crate) fn is_busy(&self) -> bool {
        self.stalled.is_some_and(|share| share >= BUSY)
    }
}

/// Returns the closed form of a run of `job`; `simulated` supplies the number of gradients.
fn closed_form(
    job: &Job,
    run: &Run<'_>,
    simulated: &Record,
) -> anyhow::Result<Result<Prediction, String>> {
    let parameters = job.build_model()?.parameters() as u64;
    let gradients = simulated.metrics.get("batches.applied").map_or(0, |&applied| applied as u64);
    Ok(predict::of_job(job, &run.layers()?.scenario()?, parameters, gradients))
}

/// Runs every job of `spec` in every backend, one after another, because real time needs the
/// machine for itself. Calls `progress` before each job. Returns `None` if `stop` was raised.
pub(crate) fn compare(
    spec: &Spec,
    cells: &[Cell],
    stop: &AtomicBool,
    mut progress: impl FnMut(usize, &str),
) -> anyhow::Result<Option<Comparison>> {
    for cell in cells {
        check_settings(&Run::new(spec, cell, 0)?)?;
    }
    let (virtual_time, real_time) = (VirtualTime::default(), RealTime::new(None)?);
    for mode in [Mode::VirtualTime, Mode::RealTime] {
        virtual_time.check(spec, cells, mode)?;
    }
    let mut jobs = Vec::new();
    for cell in cells {
        let run = Run::new(spec, cell, 0)?;
        progress(cell.index, &run.place);
        let Some(simulated) = virtual_time.execute(&run, stop)? else { return Ok(None) };
        let Some(shaped) = real_time.in_one_process(&run, stop)? else { return Ok(None) };
        let (netem, netem_missing) = match netem::execute(&run, stop)? {
            OverNetem::Done(record) => (Some(Measurement::of(&record, &simulated)), None),
            OverNetem::NotMeasured(why) => (None, Some(why)),
            OverNetem::Stopped => return Ok(None),
        };
        let closed = closed_form(&virtual_time.job(&run)?, &run, &simulated)?;
        jobs.push(Row {
            job: cell.describe(spec),
            closed_form_staleness: closed
                .as_ref()
                .ok()
                .and_then(|form| Some(form.staleness.as_ref()?.mean)),
            closed_form_s: closed.as_ref().ok().map(|form| form.total.as_secs_f64()),
            closed_form_missing: closed.err(),
            simulated: Measurement::of(&simulated, &simulated),
            shaped: Measurement::of(&shaped, &simulated),
            netem,
            netem_missing,
        });
    }
    let shaped: Vec<_> = jobs.iter().map(|row| (&row.simulated, &row.shaped)).collect();
    let shaped = Agreement::of(&shaped);
    let over_netem: Vec<_> =
        jobs.iter().filter_map(|row| Some((&row.simulated, row.netem.as_ref()?))).collect();
    let netem = (!over_netem.is_empty()).then(|| Agreement::of(&over_netem));
    Ok(Some(Comparison { jobs, shaped, netem }))
}
