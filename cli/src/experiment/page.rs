//! `report.html`: claims, pictures, parameters, environment, in one file that needs no other.

use std::collections::BTreeMap;

use super::answers::Answers;
use super::bounds::readable;
use super::claims::Finding;
use super::draw::Drawn;
use super::grid::Cell;
use super::runs::Runs;
use super::spec::Text;
use super::store::{About, Mode};
use crate::html::Page;
use crate::statistics::estimate;

/// The page.
pub(super) fn page(
    runs: &Runs<'_>,
    about: &About,
    findings: &[Finding],
    (pictures, tables): (&[Drawn], &[Answers]),
) -> anyhow::Result<String> {
    let spec = runs.spec;
    let mut page = Page::new(&spec.title);
    if !spec.source.is_empty() {
        page.paragraph(&format!("Source: {}", spec.source));
    }
    for paragraph in spec.description.split("\n\n").filter(|text| !text.trim().is_empty()) {
        page.paragraph(paragraph);
    }
    let (done, all) = (runs.records.len(), runs.cells.len() * spec.reps as usize);
    let progress =
        if done == all { "all are done".into() } else { format!("{done} of them are done") };
    page.paragraph(&format!(
        "{all} runs: {} cells, {} repetitions each; {progress}.",
        runs.cells.len(),
        spec.reps
    ));
    if let Some(warning) = runs.warning() {
        page.paragraph(&format!("{warning}. They are part of all numbers below."));
    }
    if !findings.is_empty() {
        page.heading("Claims");
        claims(&mut page, findings);
    }
    if !pictures.is_empty() {
        page.heading("Pictures");
        page.paragraph(
            "Means over the repetitions with their 95 % confidence intervals (Student's t; those of \
             shares end at 0 and 1). Where not every repetition reached what is asked, a map has a \
             dash, and a line or bar is missing.",
        );
        for drawn in pictures {
            page.picture(&drawn.picture, &drawn.title)?;
        }
    }
    if !tables.is_empty() {
        page.heading("Tables");
        for Answers { title, header, places, rows, .. } in tables {
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            page.table(title, &header, *places, rows);
        }
    }
    page.heading("Parameters");
    parameters(&mut page, runs);
    page.heading("How it was made");
    making(&mut page, runs, about);
    Ok(page.render())
}

fn claims(page: &mut Page, findings: &[Finding]) {
    let with = |text: &str, more: &str| match more {
        "" => text.to_owned(),
        more => format!("{text} ({more})"),
    };
    let row = |finding: &Finding| {
        let expected = match finding.expected.as_str() {
            "" => String::new(),
            text => format!("expected: {text}"),
        };
        vec![
            with(&finding.claim, &finding.note),
            finding.reported.clone(),
            with(&finding.measured, &expected),
            finding.condition.clone(),
            with(finding.verdict.text(), &finding.why),
        ]
    };
    let header = ["claim", "reported", "measured", "holds if", "verdict"];
    let rows: Vec<_> = findings.iter().map(row).collect();
    page.table("", &header, header.len(), &rows);
}

fn parameters(page: &mut Page, runs: &Runs<'_>) {
    let spec = runs.spec;
    let axes = spec.axis.iter().map(|axis| {
        let values = axis.values.iter().enumerate().map(|(index, Text(value))| {
            let label = axis.value_label(index);
            if label == *value { label } else { format!("{value} ({label})") }
        });
        let unit = if axis.unit.is_empty() { String::new() } else { format!(" ({})", axis.unit) };
        let pair = |(key, Text(text)): (&String, &Text)| format!("{key} = {text}");
        let of_value = |(value, settings): (&String, &BTreeMap<String, Text>)| {
            format!("{value}: {}", settings.iter().map(pair).collect::<Vec<_>>().join(", "))
        };
        let makes = axis.set.iter().map(pair).chain(axis.settings.iter().map(of_value));
        let makes = makes.collect::<Vec<_>>().join("; ");
        vec![
            format!("{}{unit}", axis.title()),
            values.collect::<Vec<_>>().join(", "),
            if makes.is_empty() { axis.name.clone() } else { makes },
        ]
    });
    let axes: Vec<_> = axes.collect();
    if !axes.is_empty() {
        page.table("What is swept", &["axis", "values", "setting"], 3, &axes);
    }
    let settings: Vec<_> =
        spec.job.iter().map(|(key, Text(value))| vec![key.clone(), value.clone()]).collect();
    page.table("What all runs share", &["setting", "value"], 2, &settings);
}

/// Training times of the cells, in seconds and in reference steps.
fn times_in_steps(page: &mut Page, runs: &Runs<'_>) {
    let mean = |cell: &Cell, name: &str| {
        let values = runs.of(cell).filter_map(|record| record.metrics.get(name).copied());
        estimate(&values.collect::<Vec<_>>())
    };
    let row = |cell: &Cell| {
        let steps = mean(cell, "time_steps");
        let number = |value: f64| if steps.n > 0 { readable(value) } else { "-".into() };
        vec![
            cell.describe(runs.spec),
            readable(mean(cell, "time_s").mean),
            number(steps.mean),
            number(steps.sd),
        ]
    };
    let rows: Vec<_> = runs.cells.iter().filter(|cell| runs.of(cell).next().is_some()).collect();
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    let header = ["cell", "time (s)", "time (steps)", "standard deviation (steps)"];
    page.table("Training times in reference steps of the machine", &header, 1, &rows);
}

fn making(page: &mut Page, runs: &Runs<'_>, about: &About) {
    let slow_start = runs
        .cells
        .iter()
        .any(|cell| cell.job.get("link").is_some_and(|link| link.contains("slow-start=on")));
    match about.mode {
        Mode::VirtualTime => page.paragraph(&format!(
            "Virtual time: the nodes, their messages and their gradients are real; the time that \
             computations and links take is modelled as the settings compute and link say. What \
             they do not say takes no time: the server's own work, evaluation, system calls. TCP's \
             slow start and its restart after idle are {}.",
            if slow_start { "modelled where the settings say so" } else { "not modelled" }
        )),
        Mode::RealTime => page.paragraph(
            "Real time: every node is a process of its own, over TCP on the loopback address; \
             delays, rates and computation times are added as the settings say, and what the \
             machine itself takes comes on top. Times in reference steps of the machine \
             (`time_steps`, see `pstrain calibrate`) compare machines where computation is what \
             takes the time; modelled delays are the same everywhere.",
        ),
    }
    let mut facts = about.environment.rows().to_vec();
    if let Some(calibration) = &about.calibration {
        let step = format!("{} µs", readable(1e6 * calibration.reference_step_s));
        facts.push(("reference step", step));
        let product = &calibration.matrix_product;
        let time = format!("{} ms", readable(1e3 * product.times.best_s));
        facts.push(("matrix product", format!("{} x {}: {time}", product.size, product.size)));
    }
    if about.mode == Mode::RealTime {
        times_in_steps(page, runs);
    }
    let seeds = || runs.records.values().map(|record| record.seed);
    if let (Some(first), Some(last)) = (seeds().min(), seeds().max()) {
        facts.push(("seeds", format!("{first} to {last}, one a repetition")));
    }
    page.facts(&facts);
    page.paragraph("The same again, or with every setting as it was resolved:");
    page.code(&format!("{}\npstrain experiment run spec.toml", about.environment.command));
}
