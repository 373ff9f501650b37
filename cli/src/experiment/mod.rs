//! Experiments: a job swept over a grid, repeated with seeds, with pictures and claims.
//!
//! A [`Spec`] is a TOML file. [`cells`] are its grid; a [`Runner`] executes the runs that a
//! [`Store`] lacks, with an implementation of [`Execute`]: virtual time or real processes. Claims,
//! tables, pictures and the page are computed from the stored [`Record`]s alone, so that a report
//! can be made again at any time.

mod answers;
mod bounds;
mod check;
mod claims;
mod draw;
mod draws;
mod dry_run;
mod environment;
mod execute;
mod expression;
mod grid;
mod metric;
mod page;
mod quantity;
mod real;
mod record;
mod resolve;
mod runner;
mod runs;
mod sampled;
mod spec;
mod store;
mod tables;
#[cfg(test)]
mod tests;

use anyhow::Context;

pub(crate) use claims::{Finding, Verdict, with};
pub(crate) use environment::Environment;
pub(crate) use execute::{Execute, Run, VirtualTime, check_settings};
pub(crate) use grid::{Cell, cells};
pub(crate) use real::{RealTime, record_of, without_settings};
pub(crate) use record::Record;
pub(crate) use resolve::resolve;
pub(crate) use runner::Runner;
pub(crate) use spec::Spec;
pub(crate) use store::{About, Mode, Store};
#[cfg(test)]
pub(crate) use tables::{PARTS, SHARES, STALENESS, WAYS};

use runs::Runs;

/// Folder of the pictures, within a results folder.
const PICTURES: &str = "pictures";
/// Folder of the tables that the specification asks for.
const TABLES: &str = "tables";

/// Result of an experiment.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// A warning that readers of the numbers need.
    pub(crate) warning: Option<String>,
    /// `summary.json`.
    pub(crate) json: serde_json::Value,
}

/// Makes everything of a results folder except the runs: decides the claims, writes tables,
/// pictures and the page.
pub(crate) fn report(store: &Store, spec: &Spec) -> anyhow::Result<Report> {
    let about = store.about()?;
    let cells = cells(spec);
    let records = store.records(cells.len(), spec.reps)?;
    let runs = Runs::new(spec, &cells, records);
    let findings = claims::decide(&runs);
    tables::write(&runs, store)?;
    let drawn = draw::draw(&runs).map_err(|why| anyhow::anyhow!("{}: {why}", spec.name))?;
    // Removed first: an earlier report may have had other pictures.
    store.remove_folder(PICTURES)?;
    for drawn in &drawn {
        let picture = &drawn.picture;
        store.write(&drawn.path("svg"), picture.svg()?.as_bytes())?;
        store.write(&drawn.path("png"), &picture.png()?)?;
        store.write(&drawn.path("pdf"), &picture.pdf()?)?;
    }
    let answers = answers::answers(&runs);
    store.remove_folder(TABLES)?;
    for answers in &answers {
        store.write(&format!("{TABLES}/{}.csv", answers.file), &answers.csv()?)?;
    }
    let page = page::page(&runs, &about, &findings, (&drawn, &answers))?;
    store.write("report.html", page.html().as_bytes())?;
    store.write("report.md", page.markdown().as_bytes())?;
    let summary = tables::summary(&runs, about.mode, &findings, &answers);
    store.write_json("summary.json", &summary)?;
    let json = serde_json::to_value(&summary).context("cannot write the summary")?;
    let warning = runs.warning();
    Ok(Report { findings, warning, json })
}
