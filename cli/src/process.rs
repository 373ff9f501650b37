//! The compute process of a job: what it says of itself, and the gradients of each worker.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::WorkerId;
use pstrain_compute::model::{Answers, ModelSpec};
use pstrain_compute::params::{Combine, Role};
use pstrain_compute::source::{GradientSource, Local, Rows, SourceError};
use pstrain_data::DataSpec;
use pstrain_data::formats::Numbered;
use pstrain_policy::job::Job;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::Prepare;
use pstrain_transports::process::protocol::{Description, Hello};
use pstrain_transports::process::{ProcessAddress, ProcessConfig, ProcessSource};
use pstrain_transports::{Loaded, Parts};

use crate::messages;

/// How long a compute process may take for an answer before its worker's log says so.
const SILENCE: Duration = Duration::from_secs(10);

/// Where a compute process is, and how it is watched.
#[derive(Clone, Debug)]
pub(crate) struct ComputeProcess(ProcessConfig);

/// The source of a job's gradients and evaluations: a model of this program, or a compute process.
#[derive(Clone, Debug)]
pub(crate) enum Arithmetic {
    Program,
    Process(ComputeProcess),
}

impl Arithmetic {
    /// The data that a worker computes on, given its parts and the fingerprint of their split.
    pub(crate) fn load(
        &self,
        order: &Prepare,
        loaded: (Vec<Examples>, Fingerprint),
    ) -> Result<Loaded, String> {
        match self {
            Self::Program => Ok(loaded.into()),
            Self::Process(process) => {
                process.load(order, loaded).map_err(|error| format!("{error:#}"))
            }
        }
    }

    /// The same, where a compute process has so many threads; `None`: as it chooses.
    pub(crate) const fn with_threads(mut self, threads: Option<usize>) -> Self {
        if let Self::Process(ComputeProcess(config)) = &mut self {
            config.threads = threads;
        }
        self
    }

    /// The trainer of a worker with these parts.
    pub(crate) fn trainer(
        &self,
        job: &Job,
        worker: WorkerId,
        parts: Vec<Examples>,
    ) -> anyhow::Result<Trainer> {
        Ok(match self {
            Self::Program => Trainer::of_job(job, job.build_model()?, worker, parts)?,
            Self::Process(process) => {
                let source = process.worker(job, worker, &parts)?;
                Trainer::of_job_source(job, Box::new(source), worker)?
            }
        })
    }

    /// The evaluations of a job on `examples`. A compute process evaluates on rows of its own if
    /// there are none; with a description of one, the workers' processes do.
    pub(crate) fn evaluation(
        &self,
        job: &Job,
        examples: &Arc<Examples>,
    ) -> anyhow::Result<Box<dyn GradientSource>> {
        Ok(match self {
            Self::Process(process) if process.is_absent() => {
                Box::new(Elsewhere(job.build_model()?.parameters()))
            }
            Self::Process(process) => Box::new(process.evaluation(job, examples)?),
            Self::Program => Box::new(Local::new(job.build_model()?, [Arc::clone(examples)])),
        })
    }
}

impl ComputeProcess {
    pub(crate) fn new(address: ProcessAddress, restarts: u32, timeout: Option<Duration>) -> Self {
        let tell = messages::warn;
        Self(ProcessConfig { address, restarts, silence: SILENCE, timeout, threads: None, tell })
    }

    /// Starts the process to ask for its description, or reads that.
    pub(crate) fn describe(&self) -> anyhow::Result<Description> {
        if let ProcessAddress::Described(json) = &self.0.address {
            return serde_json::from_str(json)
                .context("process: the text in braces is no description of a compute process");
        }
        if let ProcessAddress::Description(path) = &self.0.address {
            let place = path.display();
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the description {place}"))?;
            return serde_json::from_str(&text)
                .with_context(|| format!("{place} is no description of a compute process"));
        }
        Ok(self.start(Hello::default())?.into_description())
    }

    /// True if there is only a description of the process: it runs where the workers are.
    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self.0.address, ProcessAddress::Description(_) | ProcessAddress::Described(_))
    }

    /// True if the process started this program.
    pub(crate) fn is_parent(&self) -> bool {
        self.0.address == ProcessAddress::Parent
    }

    fn start(&self, hello: Hello) -> anyhow::Result<ProcessSource> {
        Ok(ProcessSource::start(self.0.clone(), hello)?)
    }

    fn load(
        &self,
        order: &Prepare,
        (parts, train): (Vec<Examples>, Fingerprint),
    ) -> anyhow::Result<Loaded> {
        let source = self.worker(&order.job, order.worker, &parts)?;
        Ok(Loaded { parts: Parts::Source(Box::new(source)), train: Some(train) })
    }

    /// The gradients of a worker, whose parts of the data are `parts`.
    fn worker(
        &self,
        job: &Job,
        worker: WorkerId,
        parts: &[Examples],
    ) -> anyhow::Result<ProcessSource> {
        let source = self.start(hello(job, Some(worker.0)))?;
        let rows = rows_of(job, source.description(), parts)?;
        let held_out = held_out_rows(job, source.description())?;
        Ok(source.with_parts(rows).with_held_out(held_out))
    }

    /// The evaluations of a job: on `held_out`, or on the process's own rows if that is empty.
    fn evaluation(&self, job: &Job, held_out: &Examples) -> anyhow::Result<ProcessSource> {
        let source = self.start(hello(job, None))?;
        let rows = match held_out.is_empty() {
            true => vec![Vec::new()],
            false => rows_of(job, source.description(), std::slice::from_ref(held_out))?,
        };
        Ok(source.with_parts(rows))
    }
}

/// The evaluations of a server without a compute process: there are none.
#[derive(Debug)]
struct Elsewhere(usize);

impl GradientSource for Elsewhere {
    fn parameters(&self) -> usize {
        self.0
    }

    fn parts(&self) -> usize {
        0
    }

    fn examples(&self, _: usize) -> usize {
        0
    }

    fn gradient(&mut self, _: Rows<'_>, _: &[f32], _: &mut [f32]) -> Result<f32, SourceError> {
        Err(Self::error())
    }

    fn evaluate(&mut self, _: usize, _: &[f32]) -> Result<Evaluation, SourceError> {
        Err(Self::error())
    }
}

impl Elsewhere {
    fn error() -> SourceError {
        SourceError("there is a description of the compute process, which cannot compute".into())
    }
}

/// The job, as the process of `worker` or of evaluations learns it.
fn hello(job: &Job, worker: Option<u32>) -> Hello {
    let (workers, seed) = (Some(job.membership.workers), Some(job.seed));
    Hello { protocol: 0, worker, workers, seed }
}

/// The numbers by which the process knows the rows of each part. A process with as many examples as
/// the job has rows knows all of them; one with as many as its only part has numbers of its own.
fn rows_of(job: &Job, found: &Description, parts: &[Examples]) -> anyhow::Result<Vec<Vec<u32>>> {
    check(job, found)?;
    let all = job.data.shape.inputs;
    let number = |part: &Examples, row: usize| part.row(row).columns.first().copied();
    if found.examples == all {
        let rows = |part: &Examples| (0..part.len()).filter_map(|row| number(part, row)).collect();
        return Ok(parts.iter().map(rows).collect());
    }
    match parts {
        [own] if own.len() == found.examples as usize => Ok(vec![(0..found.examples).collect()]),
        _ => {
            let own: Vec<String> = parts.iter().map(|part| part.len().to_string()).collect();
            bail!(
                "the compute process has {} examples: it needs all {all} of the job, or, if it has \
                 its own part alone, as many as that ({})",
                found.examples,
                own.join(", ")
            )
        }
    }
}

/// The numbers by which a worker's process knows the rows that the job holds out, if it has them;
/// none if the job holds out no rows.
fn held_out_rows(job: &Job, found: &Description) -> anyhow::Result<Result<Vec<u32>, SourceError>> {
    let all = job.data.shape.inputs;
    let rows = data_of(job)?.held_out(all);
    if rows.is_empty() || found.examples == all {
        return Ok(Ok(rows));
    }
    let why = "its compute process has its own part of the rows alone, not those held out";
    Ok(Err(SourceError(why.into())))
}

fn data_of(job: &Job) -> anyhow::Result<DataSpec> {
    serde_json::from_str(&job.data.recipe).context("the job's recipe does not read")
}

/// Checks that the process has the model and the data of the job.
fn check(job: &Job, found: &Description) -> anyhow::Result<()> {
    let spec = data_of(job)?;
    check_kind(&spec.schema.kind, &spec.source)?;
    if let (Some(found), Some(wanted)) = (&found.digest, Numbered::digest_in(&spec.schema))
        && found != wanted
    {
        bail!("the compute process has other data (digest {found}) than the job ({wanted})");
    }
    let (
        ModelSpec::External { tensors, answers: wanted },
        ModelSpec::External { tensors: external, answers },
    ) = (&job.model, &found.model())
    else {
        bail!("model is not external: a compute process has a model of its own; leave model out");
    };
    if answers != wanted {
        let [has, needs] = [answers, wanted].map(|answers| match answers {
            Answers::Gradient => "gradients",
            Answers::Difference => "differences",
        });
        bail!("the compute process answers with {has}, the job is of {needs}");
    }
    if tensors == external {
        return Ok(());
    }
    let differs = tensors.iter().zip(external).find(|(wanted, found)| wanted != found);
    match differs {
        Some((wanted, found)) => bail!(
            "the compute process has {} {} {:?} where the job has {} {} {:?}",
            kind(found.role),
            found.name,
            found.shape,
            kind(wanted.role),
            wanted.name,
            wanted.shape
        ),
        None => bail!(
            "the compute process has {} tensors, the job has {}",
            external.len(),
            tensors.len()
        ),
    }
}

/// The kind of a tensor, in words.
const fn kind(role: Role) -> &'static str {
    match role {
        Role::Parameter => "tensor",
        Role::State { whole: true, .. } => "counter",
        Role::State { combine: Combine::Mean, .. } => "state (mean)",
        Role::State { combine: Combine::First, .. } => "state (first)",
    }
}

/// Checks that rows of this kind, which `source` describes, are a compute process's.
pub(crate) fn check_kind(kind: &str, source: &str) -> anyhow::Result<()> {
    if kind == Numbered::KIND {
        return Ok(());
    }
    bail!(
        "the rows of the job ({source}) are not those of a compute process: leave data out, or use \
         data = rows:COUNT"
    )
}

/// The data of a job whose rows only its process knows.
pub(crate) fn rows_format(found: &Description) -> String {
    let digest = found.digest.as_ref().map(|digest| format!(",{digest}")).unwrap_or_default();
    format!("rows:{}{digest}", found.examples)
}
