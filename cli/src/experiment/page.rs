//! The report of an experiment: claims, pictures, tables, parameters and environment.

use std::collections::BTreeMap;

use super::answers::{Answers, Shown};
use super::bounds::readable;
use super::claims::{Finding, Verdict, with};
use super::draw::Drawn;
use super::grid::Cell;
use super::runs::Runs;
use super::spec::Text;
use super::store::{About, Mode};
use crate::document::{Document, Tone};
use crate::figures::{count, counted};
use crate::statistics::{Estimate, estimate};

/// Describes the page, which names each picture by its file.
pub(super) fn page(
    runs: &Runs<'_>,
    about: &About,
    findings: &[Finding],
    (pictures, tables): (&[Drawn], &[Answers]),
) -> anyhow::Result<Document> {
    let spec = runs.spec;
    let mut page = Document::new(&spec.title);
    let (done, all) = (runs.records.len(), runs.cells.len() * spec.reps as usize);
    let progress = match done == all {
        true => "all are done".into(),
        false => format!("{} of them are done", count(done as u64)),
    };
    // First what a reader comes for, also on a narrow screen.
    if !findings.is_empty() {
        page.standing(&standing(findings));
    }
    page.paragraph(&format!(
        "{}: {}, {} each; {progress}.",
        counted(all as u64, "run"),
        counted(runs.cells.len() as u64, "cell"),
        counted(spec.reps.into(), "repetition")
    ));
    if let Some(warning) = runs.warning() {
        page.paragraph(&format!("{warning}. They are part of all numbers below."));
    }
    swept(&mut page, runs);
    if !spec.source.is_empty() {
        page.paragraph(&format!("Source: {}", spec.source));
    }
    for paragraph in spec.description.split("\n\n").filter(|text| !text.trim().is_empty()) {
        page.paragraph(paragraph);
    }
    if !findings.is_empty() {
        page.heading("Claims");
        page.paragraph(
            "In brackets, with 95 % confidence, where a number would be with other repetitions \
             (Student's t, repetitions of one seed as pairs). A claim holds or does not if that is \
             so in 97.5 % of them; otherwise it cannot be told.",
        );
        claims(&mut page, findings);
    }
    if !pictures.is_empty() {
        page.heading("Pictures");
        page.paragraph(
            "Means over the repetitions with their 95 % confidence intervals (Student's t; those \
             of shares end at 0 and 1). Where not every repetition reached what is asked, the \
             picture says never; what was not measured is a dash, or missing.",
        );
        for drawn in pictures {
            page.picture(&drawn.picture, &drawn.path("svg"), &drawn.title)?;
        }
    }
    if !tables.is_empty() {
        page.heading("Tables");
        for Answers { title, shown: Shown { header, places, rows }, .. } in tables {
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            page.table(title, &header, *places, rows);
        }
    }
    page.heading("How it was made");
    let settings: Vec<_> =
        spec.job.iter().map(|(key, Text(value))| vec![key.clone(), value.clone()]).collect();
    page.folded(&format!("The {} settings that all runs share", settings.len()), |page| {
        page.table("", &["setting", "value"], 2, &settings);
    });
    making(&mut page, runs, about);
    Ok(page)
}

/// The claims about training, then the self-checks.
fn claims(page: &mut Document, findings: &[Finding]) {
    let row = |finding: &Finding| {
        let expected = match finding.expected.as_str() {
            "" => String::new(),
            text => format!("expected: {text}"),
        };
        vec![
            with(&finding.claim, &[&finding.note]),
            finding.reported.clone(),
            with(&finding.measured, &[&finding.confidence(), &expected]),
            finding.condition.clone(),
            with(finding.verdict.text(), &[&finding.why]),
        ]
    };
    let header = ["claim", "reported", "measured", "holds if", "verdict"];
    let caption =
        "Self-checks: they follow from the times that are set, and say nothing of training";
    for (self_check, caption) in [(false, ""), (true, caption)] {
        let some = findings.iter().filter(|finding| finding.self_check == self_check);
        let rows: Vec<_> = some.map(row).collect();
        if !rows.is_empty() {
            page.table(caption, &header, header.len(), &rows);
        }
    }
}

/// How many claims have which verdict.
fn standing(findings: &[Finding]) -> Vec<(Tone, String)> {
    let verdicts = [
        (Verdict::Holds, Tone::Good, "hold"),
        (Verdict::DoesNotHold, Tone::Bad, "do not hold"),
        (Verdict::CannotBeTold, Tone::Neutral, "cannot be told"),
    ];
    let mut results = vec![(Tone::Neutral, format!("{} claims:", findings.len()))];
    for (verdict, tone, words) in verdicts {
        let some = findings.iter().filter(|finding| finding.verdict == verdict).count();
        let tone = if some == 0 { Tone::Neutral } else { tone };
        results.push((tone, format!("{some} {words}")));
    }
    results
}

/// The axes, with their values.
fn swept(page: &mut Document, runs: &Runs<'_>) {
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
}

/// Training times of the cells, in seconds and in reference steps.
fn times_in_steps(page: &mut Document, runs: &Runs<'_>) {
    let mean = |cell: &Cell, name: &str| {
        let values = runs.of(cell).filter_map(|record| record.metrics.get(name).copied());
        estimate(&values.collect::<Vec<_>>())
    };
    let row = |cell: &Cell| {
        let steps = mean(cell, "time_steps");
        let shown = |found: Estimate| match found.n {
            0 => "-".into(),
            1 => readable(found.mean),
            _ => format!(
                "{} ({} to {})",
                readable(found.mean),
                readable(found.low),
                readable(found.high)
            ),
        };
        vec![cell.describe(runs.spec), shown(mean(cell, "time_s")), shown(steps)]
    };
    let rows: Vec<_> = runs.cells.iter().filter(|cell| runs.of(cell).next().is_some()).collect();
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    let header = ["cell", "time (s)", "time (steps)"];
    page.table("Training times in reference steps of the machine", &header, 1, &rows);
}

fn making(page: &mut Document, runs: &Runs<'_>, about: &About) {
    let slow_start = runs
        .cells
        .iter()
        .any(|cell| cell.job.get("link").is_some_and(|link| link.contains("slow-start=on")));
    match about.mode {
        Mode::VirtualTime => page.paragraph(&format!(
            "Virtual time: the nodes, their messages and their gradients are real; the time that \
             computations and links take is modelled as the settings compute and link say. What \
             they do not say takes no time: the server's own work, evaluation, system calls. TCP's \
             slow start and its smaller window after idle time are {}.",
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
    let builds = runs.builds();
    let made = match builds.len() {
        0 => about.environment.pstrain.clone(),
        1 => builds.keys().copied().collect(),
        _ => {
            let made = builds.iter().map(|(build, runs)| format!("{build}: {runs} runs"));
            made.collect::<Vec<_>>().join("; ")
        }
    };
    let mut facts = vec![("pstrain", made)];
    facts.extend(about.environment.rows());
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
