//! Runs with real processes: a server and its workers, each its own `pstrain` process, over TCP on
//! the loopback address. The workers themselves shape the links and compute times of the job.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::id::WorkerId;
use serde::Deserialize;

use super::execute::{Execute, Run};
use super::record::{CurvePoint, Record};
use crate::calibration::Calibration;
use crate::job::{ENVIRONMENT, Layers};

/// Runs in real time.
#[derive(Debug)]
pub(crate) struct RealTime {
    program: PathBuf,
    /// Speed of this machine, if times are also wanted in reference steps.
    calibration: Option<Calibration>,
}

/// Period at which processes are checked.
const GLANCE: Duration = Duration::from_millis(20);

/// Child processes, which are killed when this value is dropped.
#[derive(Debug, Default)]
struct Processes(Vec<Process>);

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    said: Option<JoinHandle<String>>,
}

impl RealTime {
    /// Executes runs with the program of this process.
    pub(crate) fn new(calibration: Option<Calibration>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the program of this process")?;
        Ok(Self { program, calibration })
    }

    /// Executes a run with server and workers in one process, over TCP. Such a run records how late
    /// its messages were against their links.
    pub(crate) fn in_one_process(
        &self,
        run: &Run<'_>,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Record>> {
        let Prepared { _folder, job, out, .. } = Prepared::new(run)?;
        let args = ["run", "--transport", "tcp", "--job", &job, "--out", &out, "--quiet"];
        let mut processes = Processes::default();
        let child = self.command(&args).spawn().context("cannot start a cluster")?;
        processes.add("the cluster".into(), child);
        if !processes.wait(stop)? {
            return Ok(None);
        }
        record_of(run, Path::new(&out)).map(Some)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        without_settings(&mut command);
        // In a separate process group: Ctrl-C must reach this process only, which decides what to
        // do.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }
}

/// Removes the environment variables of settings from `command`: the job file has every setting.
pub(crate) fn without_settings(command: &mut Command) {
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|variable| variable.starts_with(ENVIRONMENT)) {
            command.env_remove(variable);
        }
    }
}

/// Temporary folder of a run, for its job and its results.
struct Prepared {
    _folder: tempfile::TempDir,
    job: String,
    out: String,
    layers: Layers,
}

impl Prepared {
    fn new(run: &Run<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the run")?;
        let layers = run.layers()?;
        let job = folder.path().join("job.toml");
        std::fs::write(&job, layers.to_toml())
            .with_context(|| format!("cannot write {}", job.display()))?;
        let text = |path: &Path| path.to_str().map(str::to_owned).context("use a plain TMPDIR");
        let (job, out) = (text(&job)?, text(&folder.path().join("out"))?);
        Ok(Self { _folder: folder, job, out, layers })
    }
}

impl Execute for RealTime {
    fn execute(&self, run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Record>> {
        let Prepared { _folder, job, out, layers } = Prepared::new(run)?;
        let mut processes = Processes::default();
        let server = ["server", "--listen", "127.0.0.1:0", "--job", &job, "--out", &out, "--quiet"];
        let mut server = self.command(&server).spawn().context("cannot start a server")?;
        let said = server.stderr.take().context("the server cannot be heard")?;
        let address = processes.listen(server, said)?;
        let workers: u32 = layers.number("workers")?;
        for id in (0..workers).map(WorkerId) {
            let source = layers.of_worker(id);
            let id = id.to_string();
            let mut args = vec!["worker", "--server", &address, "--id", &id, "--quiet"];
            args.extend(source.iter().map(String::as_str));
            let child = self.command(&args).spawn().context("cannot start a worker")?;
            processes.add(format!("worker {id}"), child);
        }
        if !processes.wait(stop)? {
            return Ok(None);
        }
        let mut record = record_of(run, Path::new(&out))?;
        if let Some(calibration) = &self.calibration
            && let Some(&time) = record.metrics.get("time_s")
        {
            let step = ("reference_step_s".to_owned(), calibration.reference_step_s);
            record.metrics.extend([("time_steps".to_owned(), calibration.in_steps(time)), step]);
        }
        Ok(Some(record))
    }
}

impl Processes {
    /// Adds a server, and waits for its address.
    fn listen(
        &mut self,
        server: Child,
        said: impl Read + Send + 'static,
    ) -> anyhow::Result<String> {
        let mut lines = BufReader::new(said);
        let mut all = String::new();
        let address = loop {
            let before = all.len();
            let read = lines.read_line(&mut all).context("the server cannot be heard")?;
            let line = all.get(before..).unwrap_or_default();
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split_whitespace().next().map(str::to_owned);
            }
            if read == 0 {
                break None;
            }
        };
        // Keeps reading: a full pipe would block the server.
        let said = std::thread::spawn(move || {
            let _as_far_as_it_goes = lines.read_to_string(&mut all);
            all
        });
        self.0.push(Process { name: "the server".into(), child: server, said: Some(said) });
        match address {
            Some(address) => Ok(address),
            None => {
                self.wait(&AtomicBool::new(false))?;
                bail!("the server does not say where it listens")
            }
        }
    }

    fn add(&mut self, name: String, mut child: Child) {
        let said = child.stderr.take().map(|mut stream| {
            std::thread::spawn(move || {
                let mut all = String::new();
                let _as_far_as_it_goes = stream.read_to_string(&mut all);
                all
            })
        });
        self.0.push(Process { name, child, said });
    }

    /// Waits until all processes have ended well. False if `stop` was raised before.
    fn wait(&mut self, stop: &AtomicBool) -> anyhow::Result<bool> {
        let mut running = self.0.len();
        while running > 0 {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            running = 0;
            for process in &mut self.0 {
                match process.child.try_wait().context("cannot wait for a process")? {
                    None => running += 1,
                    Some(status) if !good(status) => {
                        let said = process.said.take().and_then(|said| said.join().ok());
                        let said = said.unwrap_or_default();
                        bail!("{} ended with {status}:\n{}", process.name, said.trim_end());
                    }
                    Some(_) => {}
                }
            }
            std::thread::sleep(GLANCE);
        }
        Ok(true)
    }
}

/// True if the process left results: a diverged run (code 1) has some, too.
fn good(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 1))
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Both fail only if the process has already ended.
            let _gone = process.child.kill();
            let _gone = process.child.wait();
        }
    }
}

/// A row of `curve.csv`.
#[derive(Deserialize)]
struct Line {
    version: u64,
    samples: u64,
    epoch: f64,
    time_s: f64,
    /// `None` if it was not a number.
    loss: Option<f64>,
    objective: Option<f64>,
}

/// The names of the fields of [`Line`]; all other columns are metrics.
const COLUMNS: [&str; 6] = ["version", "samples", "epoch", "time_s", "loss", "objective"];

/// Reads the record of a run from its results folder.
pub(crate) fn record_of(run: &Run<'_>, out: &Path) -> anyhow::Result<Record> {
    let open = |name: &str| {
        let path = out.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut record = run.record();
    record.keep(&serde_json::from_str(&open("summary.json")?)?, false);
    let curve = open("curve.csv")?;
    let mut curve = csv::Reader::from_reader(curve.as_bytes());
    let names = curve.headers().context("curve.csv does not read")?.clone();
    for row in curve.records() {
        let row = row.context("curve.csv does not read")?;
        let line: Line = row.deserialize(Some(&names)).context("curve.csv does not read")?;
        let fields = names.iter().zip(&row);
        let metrics = fields.filter(|(name, _)| !COLUMNS.contains(name));
        record.curve.push(CurvePoint {
            version: line.version,
            samples: line.samples,
            epoch: line.epoch,
            time_s: line.time_s,
            loss: line.loss,
            objective: line.objective,
            metrics: metrics.map(|(name, value)| (name.to_owned(), value.parse().ok())).collect(),
        });
    }
    record.staleness = staleness(&open("staleness.csv")?)?;
    Ok(record)
}

/// A row of `staleness.csv`.
#[derive(Deserialize)]
struct Bin {
    measure: String,
    worker: String,
    from: f64,
    amount: f64,
}

/// Number of gradients that were applied with each staleness, over all workers.
fn staleness(table: &str) -> anyhow::Result<BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::new();
    for bin in csv::Reader::from_reader(table.as_bytes()).deserialize() {
        let bin: Bin = bin.context("staleness.csv does not read")?;
        if bin.measure == "staleness_updates" && bin.worker == "all" {
            counts.insert(bin.from as u64, bin.amount as u64);
        }
    }
    Ok(counts)
}
