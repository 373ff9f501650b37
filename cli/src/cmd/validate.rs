//! `pstrain validate`: compares virtual time with shaped links and netem.

use std::sync::atomic::Ordering;

use crate::args::ValidateArgs;
use crate::exit::{Ending, Failed};
use crate::experiment::{Spec, cells, resolve};
use crate::validate::{
    Agreement, BUSY, Comparison, Measurement, Row, SHORTEST_S, TOLERANCE, compare,
};
use crate::{progress, signals, table};

pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<Ending> {
    let mut spec = Spec::find_or_job(&args.jobs)?;
    resolve(&mut spec, &args.base.settings())?;
    let cells = cells(&spec);
    let stop = signals::flag_on_signal("stopping (again to abort)")?;
    let template = "{bar:30} {pos}/{len} jobs  {msg}";
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
    args.form.print(&comparison, || show(&comparison))?;
    let good = comparison.shaped.good && comparison.netem.is_none_or(|netem| netem.good);
    let busy = comparison.shaped.busy;
    if args.check && busy > 0 {
        let why = format!("the machine was too busy for {busy} jobs: run again when it is idle");
        return Err(Failed(why).into());
    }
    if args.check && !good {
        return Err(Failed("virtual time does not agree with the other worlds".into()).into());
    }
    Ok(Ending::Done)
}

fn show(comparison: &Comparison) -> String {
    let with_netem = comparison.netem.is_some();
    let mut header =
        vec!["job", "closed form", "virtual", "shaped", "error", "staleness", "shaped", "distance"];
    if with_netem {
        header.extend(["netem", "error", "staleness", "distance"]);
    }
    let rows = comparison.jobs.iter().map(|row| cells_of(row, with_netem)).collect();
    let mut text = table::table(&header, 1, rows);
    text += "\n\nTotal times are in seconds; errors are virtual time against the other world; \
        distances are the total variation (0 to 1) between the distributions of the staleness.\n";
    text += &agreement("shaped", comparison.shaped);
    let lateness = comparison.jobs.iter().filter_map(|row| row.shaped.lateness_ms);
    if let Some(worst) = lateness.max_by(f64::total_cmp) {
        text += &format!(
            "shaping: messages were late by {:.3} ms at the median of the worst job\n",
            worst
        );
    }
    if let Some(netem) = comparison.netem {
        text += &agreement("netem", netem);
    }
    text += &too_short(&comparison.jobs);
    text += &too_busy(&comparison.jobs);
    text += &not_measured(&comparison.jobs);
    for row in &comparison.jobs {
        if let Some(why) = &row.closed_form_missing {
            text += &format!("no closed form for {}: {why}\n", row.job);
        }
    }
    text
}

fn cells_of(row: &Row, with_netem: bool) -> Vec<String> {
    let seconds = |value: f64| format!("{value:.3}");
    let share = |value: f64| format!("{:+.2} %", 100.0 * value);
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.3}"));
    let world = |world: &Measurement| {
        [
            seconds(world.time_s),
            if world.is_busy() { "too busy".into() } else { share(world.error) },
            number(Some(world.staleness_mean)),
            number(world.staleness_variation),
        ]
    };
    let [time, error, staleness, distance] = world(&row.shaped);
    let mut cells = vec![
        row.job.clone(),
        row.closed_form_s.map_or_else(|| "-".into(), seconds),
        seconds(row.simulated.time_s),
        time,
        error,
        number(Some(row.simulated.staleness_mean)),
        staleness,
        distance,
    ];
    if with_netem {
        match &row.netem {
            Some(netem) => cells.extend(world(netem)),
            None => cells.extend(std::iter::repeat_n("-".to_owned(), 4)),
        }
    }
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
