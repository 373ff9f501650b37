//! `pstrain validate`: compares virtual time with shaped links and netem.

use std::sync::atomic::Ordering;

use crate::args::ValidateArgs;
use crate::exit::{Ending, Failed};
use crate::experiment::{Spec, cells, resolve};
use crate::table::{self, Column};
use crate::validate::{
    Agreement, BUSY, Comparison, Measurement, Row, SHORTEST_S, TOLERANCE, compare,
};
use crate::{messages, progress, signals};

pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<Ending> {
    let mut spec = Spec::find_or_job(&args.jobs)?;
    resolve(&mut spec, &args.base.settings())?;
    let cells = cells(&spec);
    let stop = signals::flag_on_signal("stopping (again to abort)")?;
    let template = "{bar:30} {human_pos}/{human_len} jobs  {wide_msg}";
    let bar = progress::bar(cells.len() as u64, template, args.quiet || args.form.json);
    let compared = compare(&spec, &cells, &stop, |done, job| {
        bar.set_position(done as u64);
        bar.set_message(job.to_owned());
    });
    bar.finish_and_clear();
    let Some(comparison) = compared? else {
        debug_assert!(stop.load(Ordering::Relaxed));
        return Ok(Ending::Stopped);
    };
    args.form.print(&comparison, || show(&comparison, messages::width()))?;
    let good = comparison.shaped.good && comparison.netem.is_none_or(|netem| netem.good);
    let busy = comparison.shaped.busy;
    if args.check && busy > 0 {
        let why = format!("the machine was too busy for {busy} jobs: run again when it is idle");
        return Err(Failed(why).into());
    }
    if args.check && !good {
        return Err(Failed("virtual time does not agree with real time".into()).into());
    }
    Ok(Ending::Done)
}

fn show(comparison: &Comparison, width: usize) -> String {
    let with_netem = comparison.netem.is_some();
    let row = |row: &Row| vec![row.job.clone()];
    let rows = |of: &dyn Fn(&Row) -> Vec<String>| -> Vec<Vec<String>> {
        comparison.jobs.iter().map(|it| [row(it), of(it)].concat()).collect()
    };
    // The results first, then the tables that they come from.
    let netem = comparison.netem.map(|netem| agreement("netem", netem)).unwrap_or_default();
    let mut text = sentences(&(agreement("shaped", comparison.shaped) + &netem));
    let mut header = vec![Column::name("total time (s)")];
    header.extend(["closed form", "virtual", "shaped", "error"].map(Column::number));
    header.extend(["netem", "error"].into_iter().filter(|_| with_netem).map(Column::number));
    let times = rows(&|row| times_of(row, with_netem));
    text += &format!("\n{}\n", table::fitting(&header, times, width));
    let mut header = vec![Column::name("mean staleness")];
    header.extend(["virtual", "shaped", "distance"].map(Column::number));
    header.extend(["netem", "distance"].into_iter().filter(|_| with_netem).map(Column::number));
    let staleness = rows(&|row| staleness_of(row, with_netem));
    text += &format!("\n{}\n\n", table::fitting(&header, staleness, width));
    let mut notes = String::from(
        "Errors are virtual time against real time; distances are the total variation (0 to \
         1) between the distributions of the staleness.\n",
    );
    let lateness = comparison.jobs.iter().filter_map(|row| row.shaped.lateness_ms);
    if let Some(worst) = lateness.max_by(f64::total_cmp) {
        notes += &format!(
            "shaping: messages were late by {worst:.3} ms at the median of the worst job\n"
        );
    }
    notes += &too_short(&comparison.jobs);
    notes += &too_busy(&comparison.jobs);
    notes += &not_measured(&comparison.jobs);
    for row in &comparison.jobs {
        if let Some(why) = &row.closed_form_missing {
            notes += &format!("no closed form for {}: {why}\n", row.job);
        }
    }
    text + &sentences(&notes)
}

/// Formats lines for stdout, each as [`table::sentence`] does.
fn sentences(lines: &str) -> String {
    lines.lines().map(|line| table::sentence(line, 0) + "\n").collect()
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(
        || "-".into(),
        |value| if value < 1000.0 { format!("{value:.3}") } else { format!("{value:.1}") },
    )
}

/// The total times of a job in its backends, and the errors of virtual time against them.
fn times_of(row: &Row, with_netem: bool) -> Vec<String> {
    let backend = |backend: Option<&Measurement>| match backend {
        None => ["-".to_owned(), "-".to_owned()],
        Some(backend) if backend.is_busy() => [number(Some(backend.time_s)), "too busy".into()],
        Some(backend) => [number(Some(backend.time_s)), format!("{:+.2} %", 100.0 * backend.error)],
    };
    let mut cells = vec![number(row.closed_form_s), number(Some(row.simulated.time_s))];
    cells.extend(backend(Some(&row.shaped)));
    cells.extend(backend(row.netem.as_ref()).into_iter().filter(|_| with_netem));
    cells
}

/// The staleness of a job in its backends, and the distances from virtual time.
fn staleness_of(row: &Row, with_netem: bool) -> Vec<String> {
    let backend = |backend: Option<&Measurement>| {
        let mean = number(backend.map(|backend| backend.staleness_mean));
        [mean, number(backend.and_then(|backend| backend.staleness_variation))]
    };
    let mut cells = vec![number(Some(row.simulated.staleness_mean))];
    cells.extend(backend(Some(&row.shaped)));
    cells.extend(backend(row.netem.as_ref()).into_iter().filter(|_| with_netem));
    cells
}

/// Lists the jobs that are too short to judge virtual time.
fn too_short(jobs: &[Row]) -> String {
    let is_short = |row: &&Row| {
        row.shaped.too_short || row.netem.as_ref().is_some_and(|netem| netem.too_short)
    };
    let names: Vec<&str> = jobs.iter().filter(is_short).map(|row| row.job.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "note: below {SHORTEST_S} s a job is too short to judge by {:.0} %: {}\n",
        100.0 * TOLERANCE,
        names.join(", ")
    )
}

/// Lists the jobs during which the machine was too busy.
fn too_busy(jobs: &[Row]) -> String {
    let lost = |row: &Row| row.shaped.stalled.unwrap_or(0.0);
    let busy: Vec<&Row> = jobs.iter().filter(|row| row.shaped.is_busy()).collect();
    let Some(worst) = busy.iter().map(|row| lost(row)).max_by(f64::total_cmp) else {
        return String::new();
    };
    let names: Vec<&str> = busy.iter().map(|row| row.job.as_str()).collect();
    format!(
        "machine too busy: up to {:.0} % of the workers' time was lost in stalls, and times say \
         nothing from {:.0} % on; run again when nothing else runs, or with fewer workers: {}\n",
        100.0 * worst,
        100.0 * BUSY,
        names.join(", ")
    )
}

/// Explains why jobs were not measured over netem, in one line if the reason is the same for all.
fn not_measured(jobs: &[Row]) -> String {
    let reasons: Vec<_> =
        jobs.iter().filter_map(|row| Some((&row.job, row.netem_missing.as_ref()?))).collect();
    match reasons.first() {
        Some((_, why)) if reasons.len() == jobs.len() && reasons.iter().all(|(_, w)| w == why) => {
            format!("netem: not measured: {why}\n")
        }
        _ => reasons
            .iter()
            .map(|(job, why)| format!("netem: {job} is not measured: {why}\n"))
            .collect(),
    }
}

fn agreement(name: &str, agreement: Agreement) -> String {
    let ranks = match agreement.ranks {
        None => String::new(),
        Some(tau) => format!(", ranks agree to {tau:.3} (Kendall's tau)"),
    };
    let verdict = match agreement {
        Agreement { busy: 1.., .. } => "the machine was too busy",
        Agreement { judged: 0, .. } => "too short to judge",
        Agreement { good: true, .. } => "good",
        Agreement { good: false, .. } => "not good",
    };
    format!(
        "{name}: largest error {:.2} %{ranks}: {verdict} (allowed: {:.0} %, and the same ranks)\n",
        100.0 * agreement.largest_error,
        100.0 * TOLERANCE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_long_jobs_fit_a_narrow_terminal() {
        let backend = || Measurement {
            time_s: 123_456.789,
            staleness_mean: 12_345.678,
            accuracy: None,
            error: -0.1234,
            too_short: false,
            staleness_variation: Some(0.5),
            staleness_distance: None,
            lateness_ms: Some(1.0),
            stalled: None,
        };
        let row = |number: u32| Row {
            job: format!("a job with a long name, all policies, number {number}"),
            closed_form_s: Some(123_456.789),
            closed_form_missing: None,
            closed_form_staleness: None,
            simulated: backend(),
            shaped: backend(),
            netem: Some(backend()),
            netem_missing: None,
        };
        let agreement =
            Agreement { largest_error: 0.1234, ranks: Some(0.9), judged: 16, busy: 0, good: false };
        let jobs = (0..16).map(row).collect();
        let text = show(&Comparison { jobs, shaped: agreement, netem: Some(agreement) }, 80);
        let tables: Vec<&str> = text.split("\n\n").skip(1).take(2).collect();
        for (table, title) in tables.iter().zip(["total time (s)", "mean staleness"]) {
            assert!(table.starts_with(title), "{text}");
            assert!(table.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        assert!(text.starts_with("shaped: largest error 12.34 %"), "{text}");
    }
}
