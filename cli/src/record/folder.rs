//! The results folder.
//!
//! Rare events go to events.jsonl, one JSON object a line. Events of every gradient go to
//! timeline.csv and order.log, which are much cheaper to write.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::Event;
use pstrain_transports::LogLimit;
use serde::{Deserialize, Serialize};

use super::curve::{Curve, KeptCurve};
use super::histograms::Histograms;
use super::lines::{Full, Lines, Written};
use super::order::{Header, OrderLog};
use super::report::Report;
use super::timeline::{Open, Timeline};
use super::workers::PushTimes;
use crate::links::refuse_link;
use crate::messages;

/// A results folder that is being written.
///
/// A full disk costs the results from then on, but never the training: the first error is printed
/// at once and again at the end.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    events: Lines,
    curve: Curve,
    timeline: Timeline,
    order: OrderLog,
    histograms: Histograms,
    strangers: LogLimit,
    /// Refused workers and servers have a limit of their own, so that a flood of other connections
    /// does not suppress them. The count starts again when a run is resumed.
    claimants: LogLimit,
    trouble: Option<(&'static str, io::Error)>,
    /// Size limit of a file that grows with each gradient, or whenever a worker joins or leaves.
    most: Option<u64>,
    /// The state of each of [`Self::full`] that was reported.
    told: [Option<Full>; 3],
}

const EVENTS: &str = "events.jsonl";
const CURVE: &str = "curve.csv";
const TIMELINE: &str = "timeline.csv";
const STALENESS: &str = "staleness.csv";
pub(crate) const ORDER: &str = "order.log";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const JOB: &str = "job.toml";
pub(crate) const MODEL: &str = "model.safetensors";

/// Returns the file `name` that `path` refers to: `path` itself, or that file in it if it is a
/// results folder.
pub(crate) fn file_of(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() { path.join(name) } else { path.to_owned() }
}

/// The files that grow without bound during a run.
const GROWING: [&str; 3] = [EVENTS, TIMELINE, ORDER];

const FILES: [&str; 8] = [SUMMARY, EVENTS, CURVE, TIMELINE, STALENESS, ORDER, JOB, MODEL];

/// Rate limit of lines about refused connections without a worker slot, for each of the two kinds.
/// Any program that reaches the server can cause such lines, and they must not fill the disk.
const STRANGERS: LogLimit = LogLimit::new(100, Duration::from_secs(10));

#[derive(serde::Serialize)]
struct Line<'a> {
    /// Time since the server started, by its clock.
    at_s: f64,
    /// Refused connections before the event that have no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_before: Option<NonZeroU64>,
    #[serde(flatten)]
    event: &'a Event,
}

/// The length of each file, and the state that is not written yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptFolder {
    events: Written,
    curve: KeptCurve,
    timeline: (Written, Open),
    order: (Written, Version),
    histograms: Histograms,
    strangers: LogLimit,
}

impl Folder {
    /// Reopens the records of a resumed run at the lengths that were `kept`. Anything written later
    /// is cut off: replay records it again, or it has no effect.
    pub(super) fn go_on(path: &Path, kept: KeptFolder, most: Option<u64>) -> anyhow::Result<Self> {
        let place = |name: &str| path.join(name);
        let cannot = |name: &str| {
            format!(
                "cannot continue with {}: --out must be the folder that the run was recorded in",
                path.join(name).display()
            )
        };
        let KeptFolder { events, curve, timeline, order, histograms, strangers } = kept;
        // A summary marks a complete run; this one continues.
        std::fs::remove_file(place(SUMMARY)).unwrap_or_default();
        let events = Lines::go_on(&place(EVENTS), events, most).with_context(|| cannot(EVENTS))?;
        let mut folder = Self {
            path: path.to_owned(),
            events,
            curve: Curve::go_on(&place(CURVE), curve).with_context(|| cannot(CURVE))?,
            timeline: Timeline::go_on(&place(TIMELINE), timeline, most)
                .with_context(|| cannot(TIMELINE))?,
            order: OrderLog::go_on(&place(ORDER), order, most).with_context(|| cannot(ORDER))?,
            histograms,
            strangers,
            claimants: STRANGERS,
            trouble: None,
            most,
            told: [None; 3],
        };
        folder.told = folder.full();
        Ok(folder)
    }

    /// Returns the state for [`Self::go_on`], and the files that must be synced for it to hold.
    /// None once the record has broken off.
    pub(super) fn keep(&mut self) -> Option<(KeptFolder, Vec<File>)> {
        if self.trouble.is_some() {
            return None;
        }
        let kept = self.so_far();
        kept.map_err(|(file, error)| self.broke_off(file, error)).ok()
    }

    fn so_far(&mut self) -> Result<(KeptFolder, Vec<File>), (&'static str, io::Error)> {
        let (events, events_file) = self.events.so_far().map_err(|error| (EVENTS, error))?;
        let (timeline, timeline_file) =
            self.timeline.so_far().map_err(|error| (TIMELINE, error))?;
        let (order, order_file) = self.order.so_far().map_err(|error| (ORDER, error))?;
        let (curve, curve_file) = self.curve.so_far().map_err(|error| (CURVE, error))?;
        let (histograms, strangers) = (self.histograms.clone(), self.strangers);
        let kept = KeptFolder { events, curve, timeline, order, histograms, strangers };
        Ok((kept, vec![events_file, timeline_file, order_file, curve_file]))
    }

    fn broke_off(&mut self, file: &'static str, error: io::Error) {
        messages::warn(&format!(
            "cannot write {}: {error}; training continues, its record does not",
            self.file(file).display()
        ));
        self.trouble = Some((file, error));
    }

    /// Creates or opens the folder for a run of `job`, which has not begun yet, and writes the text
    /// of its job file.
    pub(crate) fn create(
        path: &Path,
        overwrite: bool,
        job: &Job,
        job_file: &str,
        most: Option<u64>,
    ) -> anyhow::Result<Self> {
        let header = Header::of(job)?;
        if let Some(name) = FILES.iter().find(|name| path.join(name).exists())
            && !overwrite
        {
            bail!(
                "{} holds a run already, or a file called {name}; choose another folder or \
                 --overwrite",
                path.display()
            );
        }
        for file in FILES.map(|name| path.join(name)) {
            refuse_link(&file)?;
            // Opening a pipe waits for its reader.
            if std::fs::metadata(&file).is_ok_and(|there| there.file_type().is_fifo()) {
                bail!("{} is a pipe; remove it, or choose another folder", file.display());
            }
        }
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        // Remove the summary first: its presence marks a complete run.
        if overwrite {
            std::fs::remove_file(path.join(SUMMARY)).unwrap_or_default();
        }
        let place = |name: &str| path.join(name);
        let cannot = |name: &str| format!("cannot write {}", path.join(name).display());
        let workers = job.membership.workers as usize;
        std::fs::write(place(JOB), job_file).with_context(|| cannot(JOB))?;
        let curve = Curve::create(&place(CURVE), job).with_context(|| cannot(CURVE))?;
        let timeline =
            Timeline::create(&place(TIMELINE), job, most).with_context(|| cannot(TIMELINE))?;
        let order =
            OrderLog::create(&place(ORDER), &header, most).with_context(|| cannot(ORDER))?;
        // Written at the end; emptied now, so that it holds nothing of an earlier run.
        File::create(place(STALENESS)).with_context(|| cannot(STALENESS))?;
        Ok(Self {
            path: path.to_owned(),
            events: Lines::create(&place(EVENTS), most).with_context(|| cannot(EVENTS))?,
            curve,
            timeline,
            order,
            histograms: Histograms::new(workers),
            strangers: STRANGERS,
            claimants: STRANGERS,
            trouble: None,
            most,
            told: [None; 3],
        })
    }

    /// Returns why each of [`GROWING`] is full, or None.
    const fn full(&self) -> [Option<Full>; 3] {
        [self.events.full(), self.timeline.full(), self.order.full()]
    }

    /// Returns the files that end before the run does.
    pub(crate) fn full_files(&self) -> Vec<&'static str> {
        let full = GROWING.into_iter().zip(self.full());
        full.filter_map(|(name, full)| full.map(|_| name)).collect()
    }

    /// Warns of files that have become full.
    fn tell_full(&mut self) {
        let full = self.full();
        let news = GROWING.into_iter().zip(full).zip(self.told);
        for (name, full) in
            news.filter_map(|((name, now), told)| (now != told).then_some((name, now)))
        {
            let why = match full {
                Some(Full::Disk) => String::from("little of its disk is free"),
                _ => format!("--out-limit lets it have {} bytes", self.most.unwrap_or_default()),
            };
            messages::warn(&format!(
                "{} ends here: {why}; training continues, and nothing after this is in the file",
                self.file(name).display()
            ));
        }
        self.told = full;
    }

    /// Returns the path for the model.
    pub(crate) fn model(&self) -> PathBuf {
        self.file(MODEL)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes an event of the server, with the times of a push.
    pub(super) fn note(&mut self, now: Time, event: &Event, times: Option<PushTimes>) {
        if self.trouble.is_some() {
            return;
        }
        if let Err((file, error)) = self.write(now, event, times) {
            self.broke_off(file, error);
        } else if self.full() != self.told {
            self.tell_full();
        }
    }

    fn write(
        &mut self,
        now: Time,
        event: &Event,
        times: Option<PushTimes>,
    ) -> Result<(), (&'static str, io::Error)> {
        self.timeline.note(now, event, times).map_err(|error| (TIMELINE, error))?;
        self.order.note(event).map_err(|error| (ORDER, error))?;
        self.histograms.note(now, event);
        if is_told_elsewhere(event) {
            return Ok(());
        }
        let refused_before = match event {
            Event::Refused { worker: None, who, .. } => {
                let of_kind = if who.is_some() { &mut self.claimants } else { &mut self.strangers };
                match of_kind.admit(now) {
                    Some(before) => before,
                    None => return Ok(()),
                }
            }
            _ => self.strangers.suppressed() + self.claimants.suppressed(),
        };
        let refused_before = NonZeroU64::new(refused_before);
        let line = Line { at_s: now.as_secs_f64(), refused_before, event };
        serde_json::to_writer(self.events.writer(), &line)
            .map_err(|error| (EVENTS, error.into()))?;
        self.events.end().map_err(|error| (EVENTS, error))?;
        if let Event::Evaluated { point, evaluation } = event {
            self.curve.note(point, evaluation).map_err(|error| (CURVE, error))?;
            // Flush all files together with the curve, so that after a crash they reach at least as
            // far.
            self.events.flush().map_err(|error| (EVENTS, error))?;
            self.timeline.flush().map_err(|error| (TIMELINE, error))?;
            self.order.flush().map_err(|error| (ORDER, error))?;
        }
        Ok(())
    }

    /// Completes and syncs the files that grow, writes staleness.csv, and last the summary.
    pub(crate) fn finish(self, report: &Report) -> anyhow::Result<()> {
        let Self { path, events, timeline, order, histograms, trouble, .. } = self;
        let finish = || -> Result<(), (&'static str, io::Error)> {
            trouble.map_or(Ok(()), Err)?;
            events.finish().map_err(|error| (EVENTS, error))?;
            timeline.finish().map_err(|error| (TIMELINE, error))?;
            order.finish().map_err(|error| (ORDER, error))?;
            histograms.write(&path.join(STALENESS)).map_err(|error| (STALENESS, error.into()))
        };
        if let Err((file, error)) = finish() {
            bail!(
                "the results in {} are incomplete: cannot write {file}: {error}; free some space \
                 and run again",
                path.display()
            );
        }
        let summary = serde_json::to_string_pretty(report).context("cannot write the summary")?;
        let path = path.join(SUMMARY);
        std::fs::write(&path, summary + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// True if a file with a line per gradient or update has this event, or sums of the summary.
const fn is_told_elsewhere(event: &Event) -> bool {
    matches!(
        event,
        Event::Keyed { .. }
            | Event::Given { .. }
            | Event::Relayed { .. }
            | Event::Granted { .. }
            | Event::Pushed { .. }
            | Event::Applied { .. }
            | Event::Updated { .. }
    )
}
