//! The results folder: curve.csv, events.jsonl, summary.json, job.toml, model.safetensors.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pstrain_core::node::Event;
use pstrain_core::time::Time;

use super::summary::Report;
use crate::messages;

/// A results folder that is being written.
///
/// A disk that fills up costs the results from then on, never the training: the first error is
/// told at once and again at the end.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    events: BufWriter<File>,
    curve: csv::Writer<File>,
    trouble: Option<(&'static str, io::Error)>,
}

const EVENTS: &str = "events.jsonl";
const CURVE: &str = "curve.csv";
const SUMMARY: &str = "summary.json";

const JOB: &str = "job.toml";
const MODEL: &str = "model.safetensors";
const FILES: [&str; 5] = [SUMMARY, EVENTS, CURVE, JOB, MODEL];

#[derive(serde::Serialize)]
struct Line<'a> {
    at_s: f64,
    #[serde(flatten)]
    event: &'a Event,
}

impl Folder {
    /// Opens the folder, makes it if needed, and writes the job.
    pub(crate) fn create(path: &Path, overwrite: bool, job: &str) -> anyhow::Result<Self> {
        if let Some(name) = FILES.iter().find(|name| path.join(name).exists())
            && !overwrite
        {
            bail!(
                "{} holds a run already, or a file called {name}; choose another folder or \
                 --overwrite",
                path.display()
            );
        }
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let create = |name: &str| {
            let path = path.join(name);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        // The summary is what says that a run is complete.
        if overwrite {
            std::fs::remove_file(path.join(SUMMARY)).unwrap_or_default();
        }
        create(JOB)?
            .write_all(job.as_bytes())
            .with_context(|| format!("cannot write {}", path.join(JOB).display()))?;
        let mut curve = csv::Writer::from_writer(create(CURVE)?);
        curve
            .write_record(["version", "samples", "epoch", "time_s", "accuracy", "loss"])
            .with_context(|| format!("cannot write {}", path.join(CURVE).display()))?;
        let events = BufWriter::with_capacity(256 * 1024, create(EVENTS)?);
        Ok(Self { path: path.to_owned(), events, curve, trouble: None })
    }

    /// Where the model belongs.
    pub(crate) fn model(&self) -> PathBuf {
        self.file(MODEL)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes an event.
    pub(crate) fn note(&mut self, now: Time, event: &Event) {
        if self.trouble.is_some() {
            return;
        }
        let written = self.write(now, event);
        if let Err((file, error)) = written {
            messages::warn(&format!(
                "cannot write {}: {error}; training goes on, its record does not",
                self.file(file).display()
            ));
            self.trouble = Some((file, error));
        }
    }

    fn write(&mut self, now: Time, event: &Event) -> Result<(), (&'static str, io::Error)> {
        let events_error = |error: io::Error| (EVENTS, error);
        let line = Line { at_s: now.as_secs_f64(), event };
        serde_json::to_writer(&mut self.events, &line).map_err(|e| events_error(e.into()))?;
        self.events.write_all(b"\n").map_err(events_error)?;
        if let Event::Evaluated { point, evaluation } = event {
            let row = [
                point.version.to_string(),
                point.samples.to_string(),
                format!("{:.4}", point.epoch),
                format!("{:.6}", point.time.as_secs_f64()),
                evaluation.accuracy().to_string(),
                evaluation.loss.to_string(),
            ];
            let curve_error = |error: io::Error| (CURVE, error);
            self.curve.write_record(row).map_err(|error| curve_error(error.into()))?;
            self.curve.flush().map_err(curve_error)?;
        }
        Ok(())
    }

    /// Writes the summary and makes sure that everything is on disk.
    pub(crate) fn finish(mut self, report: &Report) -> anyhow::Result<()> {
        if self.trouble.is_none()
            && let Err(error) = self.events.flush().and_then(|()| self.events.get_ref().sync_all())
        {
            self.trouble = Some((EVENTS, error));
        }
        if let Some((file, error)) = &self.trouble {
            bail!(
                "the results in {} are incomplete: cannot write {file}: {error}; free some space \
                 and run again",
                self.path.display()
            );
        }
        let summary = serde_json::to_string_pretty(report).context("cannot write the summary")?;
        let path = self.file(SUMMARY);
        std::fs::write(&path, summary + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
