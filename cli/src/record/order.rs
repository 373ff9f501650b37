//! Writes order.log: the gradients of each update, in the order in which they were combined.
//!
//! The first line is a JSON object that identifies the run. Each line after it is one of these.
//! Words are separated by one space; workers and partitions are counted from 1.
//!
//! | line | meaning |
//! |---|---|
//! | `VERSION GRADIENT ...` | An update: the version that it made, and its gradients in the order in which they were combined. |
//! | `VERSION GRADIENT ... oldest` | The same, made from all gradients of the oldest iteration; the server kept the others. |
//! | `VERSION GRADIENT ... latest` | The same, made from the gradient that arrived last; the server kept the others. |
//! | `mode OBJECT` | A mode as a JSON object. It holds for the updates that follow; the job's mode holds for those before the first such line. |
//! | `restore VERSION FROM` | The version is a copy of an earlier one, made without gradients and with the optimiser's state reset. |
//! | `initial [KEY,VALUE ...]` | The initial parameters, where they do not come from the seed. Keys that are missing have value 0. It comes before the first update. |
//! | `missing FIRST LAST` | The updates from the first to the last version are not in the record: they were made before the server that wrote it was a standby, or while it could not follow. |
//! | `end VERSION` | The last line, with the last version. |
//! | `full` | The last line of a file that reached its size limit, or whose disk had little space, while the run continued. |
//!
//! Without either of the last two, the run or its record broke off. A `GRADIENT` has these numbers,
//! with commas between them:
//!
//! | number | meaning |
//! |---|---|
//! | `worker` | The worker. |
//! | `incarnation` | The incarnation of the worker. |
//! | `sequence` | The number of the push within that incarnation. |
//! | `batch` | The number of the mini-batch in its partition. |
//! | `clock` | The iteration of the worker. |
//! | `base` | The version of the parameters that the gradient was computed on. |
//! | `samples` | The examples that it was computed from. |
//! | `partition` | The partition of the data. It is left out if it is the worker's own and `examples` is left out. |
//! | `examples` | The size of the mini-batch. It is left out if the job's `batch-size` determines it. |
//!
//! The output of filters is not written: it is a function of the gradient, the number of the
//! mini-batch and the worker's earlier gradients.

use std::fs::File;
use std::io;
use std::path::Path;

use pstrain_compute::id::{PartId, Version};
use pstrain_compute::model::ModelError;
use pstrain_data::DataSpec;
use pstrain_policy::job::Job;
use pstrain_policy::rules::Closing;
use pstrain_roles::node::Event;
use pstrain_wire::job_digest;
use serde::{Deserialize, Serialize};

use super::initial;
use super::lines::{Full, Lines, Written};
use crate::digest::{hexadecimal, sha256};

pub(super) const FORMAT: &str = "pstrain order of updates";
/// The only version that is read. Since version 11 a line of its own has the initial parameters.
pub(super) const FORMAT_VERSION: u32 = 11;

/// The form of a gradient.
pub(super) const GRADIENT: &str =
    "worker,incarnation,sequence,batch,clock,base,samples[,partition[,examples]]";

/// The last line of a full file.
pub(super) const FULL_LINE: &str = "full\n";

/// Identifies the run that an order of updates belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// What the file is: `pstrain order of updates`.
    pub(super) format: String,
    /// The version of this format.
    pub(super) format_version: u32,
    /// The digest of the job: every setting and the data.
    pub(crate) job_sha256: String,
    /// The digest of the training data.
    pub(crate) data_sha256: String,
    /// The digest of the parameters before the first update.
    pub(crate) parameters_sha256: String,
    /// The name of the data source.
    pub(crate) source: String,
}

impl Header {
    /// The header for a run of `job`. Which nodes train it makes no difference.
    pub(crate) fn of(job: &Job) -> Result<Self, ModelError> {
        let data = &job.data;
        let spec = serde_json::from_str::<DataSpec>(&data.recipe);
        let model = job.build_model()?;
        Ok(Self {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            job_sha256: hexadecimal(&job_digest(job)),
            data_sha256: hexadecimal(&data.train.digest),
            parameters_sha256: sha256(&job.initial(&model)),
            source: spec.map(|spec| spec.source).unwrap_or_default(),
        })
    }
}

/// An order of updates that is being written.
#[derive(Debug)]
pub(super) struct OrderLog {
    lines: Lines,
    version: Version,
    /// True if the line of the next update has begun.
    begun: bool,
    /// True if the line `full` has been written.
    closed: bool,
}

impl OrderLog {
    /// Creates the record of a run before its first update.
    pub(super) fn create(path: &Path, header: &Header, most: Option<u64>) -> io::Result<Self> {
        let mut lines = Lines::create(path, most)?;
        serde_json::to_writer(lines.writer(), header)?;
        lines.end()?;
        Ok(Self { lines, version: Version(0), begun: false, closed: false })
    }

    /// Reopens a file that was written up to `version`.
    pub(super) fn go_on(
        path: &Path,
        (written, version): (Written, Version),
        most: Option<u64>,
    ) -> io::Result<Self> {
        let lines = Lines::go_on(path, written, most)?;
        let closed = lines.full().is_some();
        Ok(Self { lines, version, begun: false, closed })
    }

    /// Returns why the file takes no more updates, or None.
    pub(super) const fn full(&self) -> Option<Full> {
        self.lines.full()
    }

    /// Returns the state for [`Self::go_on`], and the file. The caller is between two inputs of the
    /// server, when no line is begun.
    pub(super) fn so_far(&mut self) -> io::Result<((Written, Version), File)> {
        self.flush()?;
        let (written, file) = self.lines.so_far()?;
        Ok(((written, self.version), file))
    }

    pub(super) fn note(&mut self, event: &Event) -> io::Result<()> {
        self.write(event)?;
        self.close_if_full()
    }

    /// Writes the last line if the file is full.
    fn close_if_full(&mut self) -> io::Result<()> {
        if self.closed || self.lines.full().is_none() {
            return Ok(());
        }
        self.closed = true;
        self.lines.last_words(FULL_LINE)
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Applied {
                worker,
                incarnation,
                sequence,
                part,
                batch,
                examples,
                clock,
                base,
                samples,
                ..
            } => {
                if !self.begun {
                    self.lines.number(self.version.next().0);
                    self.begun = true;
                }
                self.lines.text(b" ");
                self.lines.number(worker.number());
                let samples = u64::from(*samples);
                for number in [incarnation.0, sequence.0, batch.0, clock.0, base.0, samples] {
                    self.lines.text(b",");
                    self.lines.number(number);
                }
                if *part != PartId::from(*worker) || *examples > 0 {
                    self.lines.text(b",");
                    self.lines.number(u64::from(part.0) + 1);
                }
                if *examples > 0 {
                    self.lines.text(b",");
                    self.lines.number(u64::from(*examples));
                }
                Ok(())
            }
            Event::Updated { point, closing } => {
                self.version = point.version;
                self.begun = false;
                match closing {
                    Closing::Oldest => self.lines.text(b" oldest"),
                    Closing::Latest => self.lines.text(b" latest"),
                    Closing::Everything | Closing::NotYet => {}
                }
                self.lines.end()
            }
            Event::Switched { mode, .. } => {
                self.lines.text(b"mode ");
                serde_json::to_writer(self.lines.writer(), mode)?;
                self.lines.end()
            }
            Event::Following { version: Some(version) } if *version > self.version => {
                self.lines.text(b"missing ");
                self.lines.number(self.version.next().0);
                self.lines.text(b" ");
                self.lines.number(version.0);
                self.version = *version;
                self.lines.end()
            }
            Event::Restored { point, from } => {
                self.version = point.version;
                self.lines.text(b"restore ");
                self.lines.number(self.version.0);
                self.lines.text(b" ");
                self.lines.number(from.0);
                self.lines.end()
            }
            Event::Initialised { values, .. } => initial::write(&mut self.lines, values),
            _ => Ok(()),
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()?;
        self.close_if_full()
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if !self.closed {
            self.lines.last_words(&format!("end {}\n", self.version.0))?;
        }
        self.lines.finish()
    }
}
