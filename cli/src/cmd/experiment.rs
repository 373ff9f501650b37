//! `pstrain experiment`: published experiments and a user's own sweeps.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::args::{ExperimentArgs, ExperimentCommand, ExperimentRunArgs, Form, quoted};
use crate::calibration;
use crate::exit::{Ending, Failed};
use crate::experiment::{
    About, Cell, Environment, Execute, Finding, Mode, RealTime, Report, Run, Runner, Spec, Store,
    Verdict, VirtualTime, cells, check_settings, report, resolve, with,
};
use crate::figures::{count, counted};
use crate::{messages, signals, table};

pub(crate) fn run(args: &ExperimentArgs) -> anyhow::Result<Ending> {
    let form = args.form;
    match &args.command {
        ExperimentCommand::List => list(form),
        ExperimentCommand::Show { name } => {
            let text = Spec::text(name)?;
            match form.json {
                true => {
                    form.print(&text.parse::<toml::Table>().context("it is no TOML")?, || text)?
                }
                false => messages::result(&text)?,
            }
            Ok(Ending::Done)
        }
        ExperimentCommand::Run(args) => make(args, form),
        ExperimentCommand::Report { folder, check, quiet } => {
            let (store, spec) = Store::open(folder)?;
            let report = report(&store, &spec)?;
            tell(&report, &store, form, *quiet)?;
            verdict(&report, *check)
        }
    }
}

/// The shipped experiments.
#[derive(Serialize)]
struct List {
    experiments: Vec<Shipped>,
}

#[derive(Serialize)]
struct Shipped {
    experiment: String,
    title: String,
    cells: usize,
    repetitions: u32,
    runs: usize,
}

fn list(form: Form) -> anyhow::Result<Ending> {
    let shipped = pstrain_data::experiments().iter().map(|shipped| {
        let spec = Spec::parse(shipped.name, shipped.text)?;
        let (cells, repetitions) = (cells(&spec).len(), spec.reps);
        let runs = cells * repetitions as usize;
        Ok(Shipped { experiment: spec.name, title: spec.title, cells, repetitions, runs })
    });
    let list = List { experiments: shipped.collect::<anyhow::Result<_>>()? };
    let row = |it: &Shipped| {
        let numbers = [it.cells, it.repetitions as usize, it.runs].map(|it| count(it as u64));
        [it.experiment.clone(), it.title.clone()].into_iter().chain(numbers).collect()
    };
    let header = ["experiment", "title", "cells", "repetitions", "runs"];
    let rows = list.experiments.iter().map(row).collect();
    form.print(&list, || table::table(&header, 2, rows, messages::width()))?;
    Ok(Ending::Done)
}

fn make(args: &ExperimentRunArgs, form: Form) -> anyhow::Result<Ending> {
    let mut spec = Spec::find(&args.experiment)?;
    if let Some(reps) = args.reps {
        spec.reps = reps;
    }
    resolve(&mut spec, &args.base.settings())?;
    let cells = cells(&spec);
    let out = args.out.clone().unwrap_or_else(|| Path::new("results").join(&spec.name));
    let mode = if args.real_time { Mode::RealTime } else { Mode::VirtualTime };
    let environment = Environment::here(again(args, &out));
    let mut about = About { mode, environment, calibration: None };

    let mut runs = Vec::new();
    // Repetition by repetition, so that an interrupted experiment has runs of every cell.
    for rep in 0..spec.reps {
        for cell in &cells {
            runs.push(Run::new(&spec, cell, rep)?);
        }
    }
    for run in runs.iter().filter(|run| run.rep == 0) {
        check_settings(run)?;
    }
    let virtual_time = VirtualTime::default();
    virtual_time.check(&spec, &cells, mode)?;
    let store = Store::create(&out, &spec, &about, args.overwrite)?;
    let there = store.records(cells.len(), spec.reps)?;
    let all = runs.len();
    runs.retain(|run| !there.contains_key(&(run.cell.index, run.rep)));

    let quiet = args.quiet || form.json;
    let jobs = if args.real_time { 1 } else { args.jobs.unwrap_or(about.environment.cores) };
    if !quiet {
        announce(&spec, &cells, runs.len(), jobs);
    }
    let stop = signals::flag_on_signal(if args.real_time {
        "stopping: giving up the run under way; what is done is kept"
    } else {
        "stopping: letting the runs under way finish (again to give them up; what is done is kept)"
    })?;
    let execute: Box<dyn Execute> = if args.real_time {
        if !runs.is_empty() {
            about.calibration = Some(calibration::measure()?);
            store.tell(&about)?;
        }
        Box::new(RealTime::new(about.calibration)?)
    } else {
        Box::new(virtual_time)
    };
    let stop: &AtomicBool = &stop;
    let runner = Runner { spec: &spec, cells: &cells, store: &store, jobs, quiet, stop };
    let missing = runner.make(&runs, all, execute.as_ref())?;
    if missing > 0 {
        messages::say(&format!(
            "stopped: {} of {all} runs are done; continue with\n  {}",
            all - missing,
            about.environment.command
        ));
        return Ok(Ending::Stopped);
    }
    let report = report(&store, &spec)?;
    tell(&report, &store, form, args.quiet)?;
    verdict(&report, args.check)
}

fn announce(spec: &Spec, cells: &[Cell], missing: usize, jobs: usize) {
    let all = cells.len() * spec.reps as usize;
    let there = match all - missing {
        0 => String::new(),
        there => format!("; {there} are there already"),
    };
    messages::say(&format!(
        "{}: {} ({} x {}), {jobs} at a time{there}",
        spec.name,
        counted(all as u64, "run"),
        counted(cells.len() as u64, "cell"),
        counted(spec.reps.into(), "repetition")
    ));
}

/// The command that makes the same results and continues an interrupted experiment.
fn again(args: &ExperimentRunArgs, out: &Path) -> String {
    let mut words = vec!["pstrain".to_owned(), "experiment".into(), "run".into()];
    words.push(args.experiment.clone());
    let mut option = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    if let Some(data) = &args.base.data {
        option("--data", data);
    }
    if let Some(data) = &args.base.evaluation_data {
        option("--evaluation-data", data);
    }
    if let Some(reps) = args.reps {
        option("--reps", &reps.to_string());
    }
    for (key, value) in &args.base.set {
        option("--set", &format!("{key}={value}"));
    }
    option("--out", &out.display().to_string());
    if args.real_time {
        words.push("--real-time".into());
    }
    let quoted = words.iter().map(|word| quoted(word));
    quoted.collect::<Vec<_>>().join(" ")
}

fn tell(report: &Report, store: &Store, form: Form, quiet: bool) -> anyhow::Result<()> {
    if let Some(warning) = &report.warning {
        messages::warn(warning);
    }
    if quiet && !form.json {
        return Ok(());
    }
    let page: PathBuf = store.path().join("report.html");
    form.print(&report.json, || format!("{}report    {}", show(&report.findings), page.display()))
}

/// How many claims hold, then each of them, as text.
fn show(findings: &[Finding]) -> String {
    let mut text = String::new();
    for (name, self_check) in [("claims", false), ("checks", true)] {
        let some = || findings.iter().filter(|finding| finding.self_check == self_check);
        let count = |verdict| some().filter(|finding| finding.verdict == verdict).count();
        if some().next().is_some() {
            let _infallible = writeln!(
                text,
                "{name}    {} hold, {} do not hold, {} cannot be told",
                count(Verdict::Holds),
                count(Verdict::DoesNotHold),
                count(Verdict::CannotBeTold)
            );
        }
    }
    if !findings.is_empty() {
        text.push('\n');
    }
    for (number, finding) in (1..).zip(findings) {
        let mut line = |name: &str, value: &str| {
            if !value.is_empty() {
                let value = table::sentence(value, 12);
                let _infallible = writeln!(text, "  {name:<10}{}", value.trim_start());
            }
        };
        let kind = if finding.self_check { "self-check" } else { "" };
        line(&format!("{number}."), &finding.claim);
        line("verdict", &with(finding.verdict.text(), &[kind]));
        line("reported", &finding.reported);
        line("measured", &with(&finding.measured, &[&finding.confidence()]));
        line("expected", &finding.expected);
        line("holds if", &finding.condition);
        line("because", &finding.why);
        line("note", &finding.note);
        text.push('\n');
    }
    text
}

fn verdict(report: &Report, check: bool) -> anyhow::Result<Ending> {
    let claims = report.findings.len();
    let [wrong, unknown] = [Verdict::DoesNotHold, Verdict::CannotBeTold]
        .map(|verdict| report.findings.iter().filter(|f| f.verdict == verdict).count());
    if check && wrong + unknown > 0 {
        bail!(Failed(format!("of {claims} claims {wrong} do not hold, {unknown} cannot be told")));
    }
    Ok(Ending::Done)
}
