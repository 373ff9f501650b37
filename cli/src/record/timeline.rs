//! timeline.csv: one row per assigned mini-batch, written when its outcome is known. Without a
//! server workers report a mini-batch once it is part of an update: no other has a row.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use pstrain_compute::id::{BatchId, Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::Event;
use serde::{Deserialize, Serialize};

use super::lines::{Full, Lines, Written};
use super::workers::{PushTimes, Seen};

/// The columns and their meaning. Times are nanoseconds since the run began; unknown fields are
/// empty.
pub(crate) const COLUMNS: [(&str, &str); 14] = [
    ("worker", "The worker, counted from 1"),
    ("incarnation", "Its incarnation: one process, from its welcome to its loss"),
    ("sequence", "Number of the push"),
    ("batch", "The mini-batch"),
    ("base", "Version of the parameters that the gradient was computed on"),
    (
        "waited_ns",
        "Time from the worker's request for parameters to their being sent; empty without a server",
    ),
    (
        "granted_ns",
        "When the server sent the parameters; without a server, when the gradient was begun",
    ),
    ("received_ns", "When the worker received them, if both have one clock"),
    ("sent_ns", "When the worker sent the gradient, if both have one clock"),
    (
        "pushed_ns",
        "When the gradient came to the server; without a server, when the update was reported",
    ),
    ("compute_ns", "How long the worker computed, until the gradient was ready or called off"),
    (
        "outcome",
        "`applied`, `dropped`, `called-off` (while it was computed), `lost` (with its worker), \
         `discarded` (at the end of the run) or `unknown`",
    ),
    ("version", "The version that the update made, if it was applied"),
    ("staleness", "Updates between `base` and that update, if it was applied"),
];

#[derive(Debug)]
pub(super) struct Timeline {
    lines: Lines,
    open: Open,
}

/// Mini-batches without a row in the file yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    lanes: Vec<Lane>,
    ended: bool,
    /// A server gives mini-batches out.
    has_server: bool,
}

/// Open mini-batches of a worker: granted ones, and pushed ones that wait for an update.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Lane {
    incarnation: Incarnation,
    granted: VecDeque<Row>,
    /// Superseded pushes, until one of them, or of later ones, arrives or is known to be called
    /// off.
    superseded: VecDeque<Row>,
    pushed: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Row {
    incarnation: Incarnation,
    sequence: Sequence,
    batch: BatchId,
    base: Version,
    waited: Option<Duration>,
    granted: Time,
    seen: Option<Seen>,
    pushed: Option<Time>,
    compute: Option<Duration>,
}

/// The outcome of a mini-batch.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Applied {
        version: Version,
        staleness: u64,
    },
    Dropped,
    CalledOff,
    /// Lost with its worker.
    Lost,
    /// The run ended before an update included it.
    Discarded,
    /// The server that writes this was not there to see the outcome.
    Unknown,
}

impl Lane {
    /// Sets the incarnation of a worker, if it is unknown since the server resumed its observation.
    fn is_of(&mut self, incarnation: Incarnation) {
        if self.incarnation == UNKNOWN {
            self.incarnation = incarnation;
            let rows = self.granted.iter_mut().chain(&mut self.pushed);
            rows.for_each(|row| row.incarnation = incarnation);
        }
    }

    /// Supersedes the pushes that have not arrived, by ones on `base` from number `first` on.
    fn supersede(&mut self, now: Time, first: Sequence, base: Version) {
        let mut sequence = first;
        for row in &mut self.granted {
            let new = Row { sequence, base, waited: Some(Duration::ZERO), granted: now, ..*row };
            self.superseded.push_back(std::mem::replace(row, new));
            sequence = sequence.next();
        }
        let surplus = self.superseded.len().saturating_sub(MOST_IN_FLIGHT as usize);
        self.superseded.drain(..surplus);
    }

    /// Takes the row of a superseded push, and forgets those before.
    fn take_superseded(&mut self, sequence: Sequence) -> Option<Row> {
        let earlier = self.superseded.iter().take_while(|row| row.sequence < sequence).count();
        self.superseded.drain(..earlier);
        let is_next = self.superseded.front().is_some_and(|row| row.sequence == sequence);
        if is_next { self.superseded.pop_front() } else { None }
    }

    /// Takes the row of a gradient that its worker has stopped computing.
    fn stopped(&mut self, sequence: Sequence) -> Option<Row> {
        self.take_superseded(sequence).or_else(|| {
            let place = self.granted.iter().position(|row| row.sequence == sequence)?;
            self.granted.remove(place)
        })
    }

    /// Returns the row of a gradient that a worker without a server has reported.
    fn reported(&self, sequence: Sequence, batch: BatchId, base: Version) -> Row {
        let (incarnation, granted) = (self.incarnation, Time::ZERO);
        Row {
            incarnation,
            sequence,
            batch,
            base,
            waited: None,
            granted,
            seen: None,
            pushed: None,
            compute: None,
        }
    }

    /// Returns the row of a push that has arrived.
    fn came(&mut self, sequence: Sequence) -> Option<Row> {
        if self.granted.front().is_some_and(|first| first.sequence <= sequence) {
            return self.granted.pop_front();
        }
        // A superseded push arrives before its replacement. Any other earlier push was granted
        // before this server was a standby.
        self.take_superseded(sequence)
    }
}

/// Marks an unknown incarnation: real ones are counted from 1.
const UNKNOWN: Incarnation = Incarnation(0);

impl Timeline {
    pub(super) fn create(path: &Path, job: &Job, most: Option<u64>) -> io::Result<Self> {
        let workers = job.membership.workers;
        let mut lines = Lines::create(path, most)?;
        lines.text(COLUMNS.map(|(name, _)| name).join(",").as_bytes());
        lines.end()?;
        let lanes = (0..workers).map(|_| Lane::default()).collect();
        let has_server = job.architecture.has_server();
        Ok(Self { lines, open: Open { lanes, ended: false, has_server } })
    }

    /// Reopens a file that was written so far, with the mini-batches that had no row in it yet.
    pub(super) fn go_on(
        path: &Path,
        (written, open): (Written, Open),
        most: Option<u64>,
    ) -> io::Result<Self> {
        Ok(Self { lines: Lines::go_on(path, written, most)?, open })
    }

    /// Returns why the file takes no more rows, or None.
    pub(super) const fn full(&self) -> Option<Full> {
        self.lines.full()
    }

    /// Returns the state for [`Self::go_on`], and the file.
    pub(super) fn so_far(&mut self) -> io::Result<((Written, Open), File)> {
        let (written, file) = self.lines.so_far()?;
        Ok(((written, self.open.clone()), file))
    }

    pub(super) fn note(
        &mut self,
        now: Time,
        event: &Event,
        times: Option<PushTimes>,
    ) -> io::Result<()> {
        match *event {
            Event::Following { .. } => return self.forget(),
            Event::Joined { worker, incarnation, resumed, .. } => {
                if let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) {
                    match resumed {
                        true => lane.is_of(incarnation),
                        false => lane.superseded.clear(),
                    }
                    lane.incarnation = incarnation;
                }
            }
            Event::Granted { worker, sequence, version, batch, waited, .. } => {
                let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) else { return Ok(()) };
                lane.granted.push_back(Row {
                    incarnation: lane.incarnation,
                    sequence,
                    batch,
                    base: version,
                    waited: Some(waited),
                    granted: now,
                    seen: None,
                    pushed: None,
                    compute: None,
                });
            }
            Event::Superseded { worker, sequence, version } => {
                if let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) {
                    lane.supersede(now, sequence, version);
                }
            }
            Event::CalledOff { worker, sequence, base, compute, .. } => {
                let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) else { return Ok(()) };
                let Some(row) = lane.stopped(sequence) else { return Ok(()) };
                let row = Row { base, compute: Some(compute), ..row };
                return write(&mut self.lines, worker, &row, Outcome::CalledOff);
            }
            Event::Pushed { worker, sequence, base, batch, compute, .. } => {
                let has_server = self.open.has_server;
                let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) else { return Ok(()) };
                let row = match has_server {
                    true => lane.came(sequence),
                    false => Some(lane.reported(sequence, batch, base)),
                };
                let (Some(row), Some(times)) = (row, times) else { return Ok(()) };
                let PushTimes { granted, came, seen } = times;
                let (pushed, compute) = (Some(came), Some(compute));
                // Use the push's own times: after a reconnect the parameters may have been sent
                // once more, and, with a new version, for another mini-batch.
                lane.pushed.push(Row { base, batch, granted, seen, pushed, compute, ..row });
            }
            Event::Applied { worker, incarnation, sequence, base, staleness, .. } => {
                let version = Version(base.0 + staleness).next();
                let outcome = Outcome::Applied { version, staleness };
                if let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) {
                    lane.is_of(incarnation);
                }
                return self.close(worker, incarnation, sequence, outcome);
            }
            Event::Dropped { worker, sequence, .. } => {
                let incarnation =
                    self.open.lanes.get(worker.0 as usize).map(|lane| lane.incarnation);
                let incarnation = incarnation.unwrap_or_default();
                return self.close(worker, incarnation, sequence, Outcome::Dropped);
            }
            Event::Departed { worker, .. } => {
                let outcome = if self.open.ended { Outcome::Discarded } else { Outcome::Lost };
                let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) else { return Ok(()) };
                for row in lane.granted.drain(..) {
                    write(&mut self.lines, worker, &row, outcome)?;
                }
            }
            Event::Ended { .. } => self.open.ended = true,
            _ => {}
        }
        Ok(())
    }

    /// Closes all open rows: the server missed, or will miss, their outcome.
    fn forget(&mut self) -> io::Result<()> {
        for (worker, lane) in (0..).map(WorkerId).zip(&mut self.open.lanes) {
            for row in lane.pushed.drain(..).chain(lane.granted.drain(..)) {
                write(&mut self.lines, worker, &row, Outcome::Unknown)?;
            }
            lane.superseded.clear();
            lane.incarnation = UNKNOWN;
        }
        Ok(())
    }

    fn close(
        &mut self,
        worker: WorkerId,
        incarnation: Incarnation,
        sequence: Sequence,
        outcome: Outcome,
    ) -> io::Result<()> {
        let Some(lane) = self.open.lanes.get_mut(worker.0 as usize) else { return Ok(()) };
        let same = |row: &Row| (row.incarnation, row.sequence) == (incarnation, sequence);
        let Some(place) = lane.pushed.iter().position(same) else { return Ok(()) };
        let row = lane.pushed.remove(place);
        write(&mut self.lines, worker, &row, outcome)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()
    }

    /// Writes the mini-batches that were still open at the end of the run.
    pub(super) fn finish(mut self) -> io::Result<()> {
        for (worker, lane) in (0..).map(WorkerId).zip(&self.open.lanes) {
            for row in lane.pushed.iter().chain(&lane.granted) {
                write(&mut self.lines, worker, row, Outcome::Discarded)?;
            }
        }
        self.lines.finish()
    }
}

fn write(lines: &mut Lines, worker: WorkerId, row: &Row, outcome: Outcome) -> io::Result<()> {
    // Written output counts workers from 1.
    lines.number(u64::from(worker.0) + 1);
    known(lines, Some(row.incarnation.0).filter(|_| row.incarnation != UNKNOWN));
    for number in [row.sequence.0, row.batch.0, row.base.0] {
        field(lines, number);
    }
    known(lines, row.waited.map(nanos));
    field(lines, row.granted.as_nanos());
    for time in [row.seen.map(|seen| seen.received), row.seen.map(|seen| seen.sent), row.pushed] {
        known(lines, time.map(Time::as_nanos));
    }
    known(lines, row.compute.map(nanos));
    match outcome {
        Outcome::Applied { version, staleness } => {
            lines.text(b",applied");
            field(lines, version.0);
            field(lines, staleness);
        }
        Outcome::Dropped => lines.text(b",dropped,,"),
        Outcome::CalledOff => lines.text(b",called-off,,"),
        Outcome::Lost => lines.text(b",lost,,"),
        Outcome::Discarded => lines.text(b",discarded,,"),
        Outcome::Unknown => lines.text(b",unknown,,"),
    }
    lines.end()
}

fn field(lines: &mut Lines, number: u64) {
    lines.text(b",");
    lines.number(number);
}

/// Writes a field that is empty if it is unknown.
fn known(lines: &mut Lines, number: Option<u64>) {
    match number {
        Some(number) => field(lines, number),
        None => lines.text(b","),
    }
}

/// Returns a span in nanoseconds; spans within a run fit.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
