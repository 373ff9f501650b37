//! `pstrain compute check`: drives a compute process, and prints what it does right and wrong.

use std::io::{BufReader, BufWriter};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::model::Answers;
use pstrain_compute::source::{GradientSource, Rows, SourceError};
use pstrain_compute::time::Time;
use pstrain_transports::WallClock;
use pstrain_transports::process::protocol::{CombineOf, Description, Hello, TensorOf};
use pstrain_transports::process::{ProcessAddress, ProcessConfig, ProcessSource, Served};
use serde::Serialize;

use super::probes::{Finding, Outcome, Probe};
use crate::args::CheckArgs;
use crate::exit::{Ending, Failed};
use crate::figures::{count, counted, rounded};
use crate::messages;
use crate::table;

/// Mini-batches of a measurement at least, and its time at most.
const STEPS: (u32, Duration) = (3, Duration::from_secs(1));

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    /// True if the process is right; none if the check could not be made.
    right: Option<bool>,
    says: String,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    right: bool,
    checks: Vec<Check>,
    /// Time of a mini-batch, and the part of it that its messages take.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_s: Option<f64>,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<Ending> {
    let clock = WallClock::start();
    let address = args.process.clone();
    let mut report = match start(address, args.timeout.into()) {
        Ok(source) => check(args, source, clock.now().as_secs_f64())?,
        Err(error) => {
            let checks = vec![Check { name: "description", right: Some(false), says: error }];
            Report { right: false, checks, step_s: None, messages_s: None }
        }
    };
    report.right = report.checks.iter().all(|check| check.right != Some(false));
    args.form.print(&report, || shown(&report))?;
    if report.right {
        return Ok(Ending::Done);
    }
    let wrong: Vec<_> = report.checks.iter().filter(|check| check.right == Some(false)).collect();
    let names: Vec<_> = wrong.iter().map(|check| check.name).collect();
    Err(Failed(format!("the compute process is wrong: {}", names.join(", "))).into())
}

fn start(address: ProcessAddress, timeout: Duration) -> Result<ProcessSource, String> {
    let config = ProcessConfig {
        address,
        restarts: 0,
        silence: timeout,
        timeout: Some(timeout),
        threads: None,
        tell: messages::warn,
    };
    ProcessSource::start(config, Hello::default()).map_err(|error| error.to_string())
}

fn check(args: &CheckArgs, source: ProcessSource, started: f64) -> anyhow::Result<Report> {
    let description = source.description().clone();
    let (tensors, parameters) = (description.tensors.len(), source.parameters());
    let trained = source.layout().trained();
    let state = match source.layout().tensors().len() - tensors {
        0 => String::new(),
        state => {
            let values = counted((parameters - trained) as u64, "value");
            format!("{} of state with {values}, ", count(state as u64))
        }
    };
    let says = format!(
        "{}, {}, {state}{}, in {started:.2} s",
        counted(tensors as u64, "tensor"),
        counted(trained as u64, "parameter"),
        counted(description.examples.into(), "example"),
    );
    let mut checks = vec![Check { name: "description", right: Some(true), says }];
    if description.examples == 0 {
        checks[0] =
            Check { name: "description", right: Some(false), says: "it has no examples".into() };
        return Ok(Report { right: false, checks, step_s: None, messages_s: None });
    }
    let mut probe = Probe::new(source, args.batch_size, args.seed);
    type Named = (&'static str, fn(&mut Probe) -> Outcome);
    let probes: [Named; 10] = [
        ("initial parameters", Probe::initial),
        ("gradient", Probe::gradient),
        ("first and last row", Probe::ends),
        ("determinism", Probe::determinism),
        ("derivative", Probe::derivative),
        ("mean over rows", Probe::mean),
        ("repeated rows", Probe::repeated),
        ("difference", Probe::difference),
        ("state", Probe::state),
        ("evaluation", Probe::evaluation),
    ];
    for (name, ask) in probes {
        if let Some(why) = inapplicable(name, &description) {
            checks.push(Check { name, right: None, says: why.into() });
            continue;
        }
        let (right, says) = match ask(&mut probe) {
            Ok(Finding::Right(says)) => (Some(true), says),
            Ok(Finding::Nothing(why)) => (None, why.into()),
            // A process need not evaluate.
            Err(says) if name == "evaluation" => (None, says),
            Err(says) => (Some(false), says),
        };
        checks.push(Check { name, right, says });
    }
    let step = time_of(|| probe.step());
    let messages = time_of_messages(&description, parameters, args)?;
    if let Ok(step) = &step {
        let rate = f64::from(args.batch_size) / step;
        let says = format!(
            "{:.3} ms for {} ({} rows/s), of which messages {:.3} ms",
            step * 1e3,
            counted(args.batch_size.into(), "row"),
            rounded(rate),
            messages * 1e3
        );
        checks.push(Check { name: "speed", right: None, says });
    }
    Ok(Report { right: true, checks, step_s: step.ok(), messages_s: Some(messages) })
}

/// Why a check says nothing about such a process, if it does not.
fn inapplicable(check: &str, description: &Description) -> Option<&'static str> {
    let is_difference = description.answers == Answers::Difference;
    match check {
        "derivative" | "mean over rows" | "repeated rows" if is_difference => {
            Some("it answers with differences after training of its own, not with gradients")
        }
        "difference" if !is_difference => Some("it answers with gradients"),
        "state" if description.state.iter().all(|it| it.combine == CombineOf::Local) => {
            Some("the model has no state to send")
        }
        "mean over rows" | "repeated rows" if !description.state.is_empty() => {
            Some("the model has state: the rows of a batch may depend on each other")
        }
        _ => None,
    }
}

/// The median time of `work`, in seconds.
fn time_of(mut work: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let clock = WallClock::start();
    let mut times = Vec::new();
    while times.len() < STEPS.0 as usize || clock.now() - Time::ZERO < STEPS.1 {
        let begin = clock.now();
        work()?;
        times.push((clock.now() - begin).as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// A source that computes nothing, to measure the messages alone.
#[derive(Debug)]
struct Nothing(usize);

impl GradientSource for Nothing {
    fn parameters(&self) -> usize {
        self.0
    }

    fn parts(&self) -> usize {
        1
    }

    fn examples(&self, _: usize) -> usize {
        u32::MAX as usize
    }

    fn gradient(&mut self, _: Rows<'_>, _: &[f32], _: &mut [f32]) -> Result<f32, SourceError> {
        Ok(0.0)
    }

    fn evaluate(&mut self, _: usize, params: &[f32]) -> Result<Evaluation, SourceError> {
        Ok(Evaluation::absent(params))
    }
}

/// The time of a mini-batch of a process with the same model that computes nothing.
fn time_of_messages(
    description: &Description,
    parameters: usize,
    args: &CheckArgs,
) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir().context("cannot make a folder for a socket")?;
    let path = folder.path().join("socket");
    serve_nothing(&path, description, parameters)?;
    let source = start(ProcessAddress::Socket(path), args.timeout.into());
    let mut probe = Probe::new(source.map_err(anyhow::Error::msg)?, args.batch_size, args.seed);
    time_of(|| probe.step()).map_err(anyhow::Error::msg)
}

fn serve_nothing(path: &Path, of: &Description, parameters: usize) -> anyhow::Result<()> {
    let listener = UnixListener::bind(path).context("cannot listen at a socket")?;
    let tensors = vec![TensorOf { name: "all".into(), shape: vec![u32::try_from(parameters)?] }];
    let mut served = Served {
        description: Description { tensors, examples: of.examples, ..Description::default() },
        initial: vec![0.0; parameters],
        gradients: Box::new(Nothing(parameters)),
        evaluations: Box::new(Nothing(parameters)),
    };
    std::thread::spawn(move || {
        let Ok((stream, _)) = listener.accept() else { return };
        let Ok(from) = stream.try_clone() else { return };
        // The check has its time, or says why there is none.
        let _ended = served.serve(&mut BufReader::new(from), &mut BufWriter::new(stream));
    });
    Ok(())
}

fn shown(report: &Report) -> String {
    let rows = report.checks.iter().map(|check| {
        let right = match check.right {
            Some(true) => "ok",
            Some(false) => "WRONG",
            None => "-",
        };
        vec![check.name.to_owned(), right.to_owned(), check.says.clone()]
    });
    table::table(&["check", "", "found"], 3, rows.collect(), messages::width())
}
