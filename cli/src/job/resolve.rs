//! Turns settings into a job with its data.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_compute::evaluation::metrics;
use pstrain_compute::examples::Target;
use pstrain_compute::filter::Filters;
#[cfg(feature = "pictures")]
use pstrain_compute::id::WorkerId;
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Answers, Loss, ModelSpec};
use pstrain_compute::optim::{Functions, UpdateSpec};
use pstrain_data::partition::PartitionError;
use pstrain_data::{DataError, Dataset, Features, Outline, PartitionSpec, Prepared, Settings};
use pstrain_policy::job::{
    ALL_EXAMPLES, Budget, DataFrom, Goal, InitialFrom, Job, JobData, Keep, Membership, Stopping,
    WorkError, WorkSpec,
};
use pstrain_policy::mode::{Mode, Switch, read_in_flight, read_max_staleness};
use pstrain_transports::process::ProcessAddress;
use pstrain_transports::process::protocol::Description;
use pstrain_transports::scenario::{Scenario, ScenarioError};

use super::init;
use super::layers::Layers;
#[cfg(feature = "pictures")]
use super::source::WORKER;
use super::source::{evaluation_source_of, warn_of_job};
use super::values;
use crate::process::{self, Arithmetic, ComputeProcess};
use crate::served::ServerData;

/// Share of the rows that is held out if there are no separate evaluation data.
const EVALUATION_SHARE: f64 = 0.25;

/// A resolved job with its data.
#[derive(Debug)]
pub(crate) struct Resolved<D = Prepared> {
    pub(crate) job: Job,
    pub(crate) data: D,
    pub(crate) arithmetic: Arithmetic,
}

/// A job without its data.
struct Draft<J> {
    source: Arc<dyn Dataset>,
    /// How to prepare the data.
    settings: Settings,
    /// The job of prepared data.
    job: J,
}

/// Checks that evaluations have the metric of `target`, and may reach it.
fn check_target(stopping: &Stopping, target: Target) -> anyhow::Result<()> {
    match &stopping.target {
        Some(goal) if !goal.is_among(metrics(target)) => {
            let names: Vec<_> = metrics(target).map(|metric| metric.name).collect();
            bail!("target: this task has no {}; use loss, {}", goal.metric, names.join(", "));
        }
        Some(goal) if goal.is_negative_loss() => {
            bail!("target: {goal}: the loss of this job is never below 0");
        }
        _ => Ok(()),
    }
}

/// The model of a compute process, if there is one.
fn model_of(described: Option<&Description>) -> Option<ModelSpec> {
    described.map(Description::model)
}

impl Layers {
    /// The initial parameters of `job` in the file that the settings name, if they name one.
    pub(crate) fn initial(&self, job: &Job) -> anyhow::Result<Option<Arc<Vec<f32>>>> {
        match self.text("init") {
            "none" => Ok(None),
            file => init::read(Path::new(file), job).map(Arc::new).map(Some),
        }
    }

    /// The flags by which `worker` gets the data or the compute process of the job.
    #[cfg(feature = "pictures")]
    pub(crate) fn of_worker(&self, worker: WorkerId) -> Vec<String> {
        let flag = |name: &str, value: &str| [format!("--{name}"), value.to_owned()];
        let timeout = self.text("process-timeout");
        match (self.text("process"), self.text("data")) {
            ("none", data) if data.starts_with("synthetic") => Vec::new(),
            ("none", data) => flag("data", &data.replace(WORKER, &worker.to_string())).into(),
            (process, _) => [
                Some(flag("process", process)),
                Some(flag("process-restarts", self.text("process-restarts"))),
                (timeout != "none").then(|| flag("process-timeout", timeout)),
            ]
            .into_iter()
            .flatten()
            .flatten()
            .collect(),
        }
    }

    /// Replaces the compute process of a recorded job, which is not started without being given.
    pub(crate) fn give_process(&mut self, given: Option<&ProcessAddress>) -> anyhow::Result<()> {
        match (self.text("process"), given) {
            ("none", None) => Ok(()),
            (recorded, None) => bail!(
                "the gradients of the run came from a compute process ({recorded}): start it \
                 with --process"
            ),
            (_, Some(given)) => {
                self.set("process", given.to_string());
                Ok(())
            }
        }
    }

    /// The compute process of the job, if it has one.
    pub(crate) fn process(&self) -> anyhow::Result<Option<ComputeProcess>> {
        let address = self.parse("process", |text| match text {
            "none" => Ok(None),
            text => text.parse().map(Some),
        })?;
        let Some(address) = address else { return Ok(None) };
        if self.text("model") != "external" {
            bail!(
                "model = {}: the compute process has a model of its own; leave model out",
                self.text("model")
            );
        }
        if self.text("loss") != "auto" {
            bail!(
                "loss = {}: the compute process has a loss of its own; leave loss out",
                self.text("loss")
            );
        }
        if self.is_local()? {
            bail!(
                "partition = local: a compute process has the rows; leave partition out (a process \
                 that has its own part alone says so by its number of examples)"
            );
        }
        let timeout = self.parse("process-timeout", |text| match text {
            "none" => Ok(None),
            text => values::duration(text).map(Some),
        })?;
        Ok(Some(ComputeProcess::new(address, self.number("process-restarts")?, timeout)))
    }

    fn data_from(&self) -> anyhow::Result<DataFrom> {
        let from = match self.text("data") {
            "server" => DataFrom::Server,
            _ => self.get("data-from")?,
        };
        match (self.is_local()?, from) {
            (true, DataFrom::Server) => bail!(
                "partition = local: each worker has rows of its own, and the server none to send; \
                 leave data-from out, and give each worker its rows with --data"
            ),
            (true, DataFrom::Worker | DataFrom::Own) => Ok(DataFrom::Own),
            (false, from) => Ok(from),
        }
    }

    /// The modelled network and machines.
    pub(crate) fn scenario(&self) -> anyhow::Result<Scenario> {
        Ok(Scenario {
            links: self.items("link")?,
            compute: self.items("compute")?,
            faults: self.items("faults")?,
        })
    }

    pub(super) fn items<T: FromStr<Err = ScenarioError>>(
        &self,
        key: &'static str,
    ) -> anyhow::Result<T> {
        self.parse(key, |text| text.parse().map_err(|error: ScenarioError| error.about_item()))
    }

    /// Settings for splitting and partitioning the data.
    pub(crate) fn data_settings(&self) -> anyhow::Result<Settings> {
        let seed: u64 = self.number("seed")?;
        let work: WorkSpec = self.get("work")?;
        let partition: PartitionSpec = self.get("partition")?;
        if matches!(work, WorkSpec::Shards { .. }) && partition != PartitionSpec::Iid {
            bail!(
                "work = {work} needs partition = iid: every worker computes on all data, whatever \
                 is said of who has which (partition = {partition})"
            );
        }
        let is_local = partition == PartitionSpec::Local;
        let evaluation_data = self.parse("evaluation-data", evaluation_source_of)?;
        let share = self.parse("evaluation-share", |text| values::optional(text, "auto"))?;
        // A compute process has rows of its own to evaluate on.
        let has_own = evaluation_data.is_some() || self.text("process") != "none" || is_local;
        if is_local && share.is_some_and(|share| share != 0.0) {
            bail!(
                "partition = local: the server has no rows to hold out; leave evaluation-share \
                 out, and say evaluation-data"
            );
        }
        let usual = if has_own { 0.0 } else { EVALUATION_SHARE };
        let features = Features {
            recipe: self.get("recipe")?,
            hashing: self.parse("hash-features", str::parse)?,
        };
        Ok(Settings {
            features,
            evaluation_share: share.unwrap_or(usual),
            evaluation_data,
            split_seed: self
                .parse("data-seed", |text| values::optional(text, "seed"))?
                .unwrap_or(seed),
            partition,
            workers: work.parts(self.workers()?),
            minimum_rows: self.least_rows()?,
        })
    }

    /// Fewest rows of each worker under a random partition: one mini-batch.
    fn least_rows(&self) -> anyhow::Result<u32> {
        let batch = self.parse("batch-size", values::batch_size)?;
        Ok(if batch == ALL_EXAMPLES { 1 } else { batch })
    }

    pub(super) fn workers(&self) -> anyhow::Result<u32> {
        let workers = self.number("workers")?;
        if workers == 0 {
            bail!("workers = 0: there must be at least one");
        }
        Ok(workers)
    }

    /// When gradients are applied, and with what weight.
    fn mode(&self) -> anyhow::Result<Mode> {
        Ok(Mode {
            consistency: self.get("consistency")?,
            in_flight: self.parse("in-flight", read_in_flight)?,
            staleness: self.get("staleness")?,
            max_staleness: self.parse("max-staleness", read_max_staleness)?,
            participation: self.get("participation")?,
        })
    }

    /// The links and compute times to model in real time.
    pub(crate) fn real_time(&self) -> anyhow::Result<Scenario> {
        let scenario = self.scenario()?;
        if !scenario.faults.is_none() {
            bail!(
                "faults = {:?}: they happen in virtual time only; use `pstrain simulate`, or \
                 --faults none",
                self.text("faults")
            );
        }
        if scenario.links.standby().is_some() {
            bail!(
                "link = {:?}: the link of a standby is modelled in virtual time only; start a \
                 standby with `pstrain server --standby-of`, and leave standby.* out",
                self.text("link")
            );
        }
        if scenario.links.has_sites() {
            bail!(
                "link = {:?}: the links of sites are modelled in virtual time only; use \
                 `pstrain simulate`, or leave site.* out",
                self.text("link")
            );
        }
        Ok(scenario)
    }

    /// The filters that gradients go through.
    fn filters(&self) -> anyhow::Result<Filters> {
        let chain = |text: &str| Filters::read_chain(text).map_err(|error| error.to_string());
        let filters = Filters {
            chain: self.parse("filters", chain)?,
            error_feedback: self.get("error-feedback")?,
            pull: self.get("pull-filter")?,
            key_caching: self.get("key-caching")?,
        };
        filters.validate()?;
        Ok(filters)
    }

    /// Reads the data and puts the job together.
    pub(crate) fn resolve(&self) -> anyhow::Result<Resolved> {
        self.resolve_with(|source, settings| {
            let loaded = Prepared::load(source, settings);
            warn_of_job(source, settings, loaded.as_ref().ok().map(|data| &data.spec));
            loaded
        })
    }

    /// Reads the parts of the data that a server needs, and puts the job together.
    pub(crate) fn resolve_served(&self) -> anyhow::Result<Resolved<ServerData>> {
        let from = self.data_from()?;
        let load = |source: &dyn Dataset, settings: &Settings| {
            let loaded = ServerData::load(source, settings, from);
            warn_of_job(source, settings, loaded.as_ref().ok().map(|data| &data.outline.spec));
            loaded
        };
        self.resolve_as(load, |data| data.outline.clone())
    }

    /// Prepares the data with `load`, and puts the job together.
    pub(crate) fn resolve_with(
        &self,
        load: impl FnOnce(&dyn Dataset, &Settings) -> Result<Prepared, DataError>,
    ) -> anyhow::Result<Resolved> {
        self.resolve_as(load, Prepared::outline)
    }

    /// How long a silent worker counts as alive.
    pub(crate) fn lease(&self) -> anyhow::Result<Duration> {
        self.parse("lease", values::duration)
    }

    fn membership(&self, workers: u32) -> anyhow::Result<Membership> {
        Ok(Membership {
            workers,
            min_workers: self.parse("min-workers", |text| values::optional(text, "auto"))?,
            on_loss: self.get("on-worker-loss")?,
            lease: self.lease()?,
            partial_after: self.parse("partial-after", values::optional_duration)?,
        })
    }

    fn stopping(&self) -> anyhow::Result<Stopping> {
        let target = self
            .parse("target", |text| (text != "none").then(|| text.parse::<Goal>()).transpose())?;
        let patience = self.parse("patience", |text| values::optional(text, "none"))?;
        let keep = self.parse("keep", |text| match text {
            "last" => Ok(Keep::Last),
            "best" => Ok(Keep::Best),
            "auto" => Ok(if patience.is_some() { Keep::Best } else { Keep::Last }),
            _ => Err(String::from("must be last, best or auto")),
        })?;
        Ok(Stopping { evaluate_every: self.number("evaluate-every")?, target, patience, keep })
    }

    fn update(&self, model: &ModelSpec) -> anyhow::Result<UpdateSpec> {
        let optimizer = self.get("optimizer")?;
        let sends = match (model, self.get("local-training")?) {
            (ModelSpec::External { answers, .. }, _) => *answers,
            (_, LocalTraining::None) => Answers::Gradient,
            _ => Answers::Difference,
        };
        let update = UpdateSpec {
            optimizer,
            learning_rate: self
                .parse("learning-rate", |text| values::learning_rate(text, sends, optimizer))?,
            schedule: self.get("schedule")?,
            weight_decay: self.number("weight-decay")?,
            clip_norm: self.parse("clip-norm", |text| values::optional(text, "none"))?,
            clip_contribution: self
                .parse("clip-contribution", |text| values::optional(text, "none"))?,
            proximal: self.get("proximal")?,
            functions: self.parse("server-functions", Functions::read)?,
        };
        update.validate()?;
        Ok(update)
    }

    /// Checks all settings, as far as that needs no data and no compute process.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.process()?.is_none() {
            let _draft = self.draft(None)?;
        }
        Ok(())
    }

    /// Prepares the data with `load`, and puts the job together from their `outline`.
    pub(crate) fn resolve_as<D>(
        &self,
        load: impl FnOnce(&dyn Dataset, &Settings) -> Result<D, DataError>,
        outline: impl FnOnce(&D) -> Outline,
    ) -> anyhow::Result<Resolved<D>> {
        let process = self.process()?;
        let described = process.as_ref().map(ComputeProcess::describe).transpose()?;
        let Draft { source, settings, job } = self.draft(described.as_ref())?;
        let work = self.get("work")?;
        let data = load(&*source, &settings).map_err(|error| match (work, error) {
            (
                WorkSpec::Shards { count },
                DataError::Partition(PartitionError::Workers { rows, .. }),
            ) => WorkError::Shards { count, rows: rows as u64 }.into(),
            (_, error) => anyhow::Error::from(error),
        })?;
        let job = job(outline(&data))?;
        let arithmetic = process.map_or(Arithmetic::Program, Arithmetic::Process);
        Ok(Resolved { job, data, arithmetic })
    }

    /// Reads all settings. Reading data takes long: a typing error is reported before it begins.
    fn draft(
        &self,
        described: Option<&Description>,
    ) -> anyhow::Result<Draft<impl FnOnce(Outline) -> anyhow::Result<Job>>> {
        let (settings, workers) = (self.data_settings()?, self.workers()?);
        let activation = self.get("activation")?;
        let model = self.parse("model", |text| values::model(text, activation))?;
        let (model, initial) = match model_of(described) {
            Some(external) => (external, InitialFrom::Worker),
            None => (model, InitialFrom::Seed),
        };
        let groups = self.parse("groups", values::groups)?;
        let update = self.update(&model)?;
        let membership = self.membership(workers)?;
        let budget = Budget { epochs: self.number("epochs")?, kind: self.get("budget")? };
        let stopping = self.stopping()?;
        let initial = if self.text("init") == "none" { initial } else { InitialFrom::Server };
        let loss = self.parse("loss", values::loss)?;
        let (aggregation, mode) = (self.get("aggregation")?, self.mode()?);
        let switches = self.parse("switch", values::switches)?;
        Switch::check_all(&switches, workers)?;
        let (exchange, batch_size) =
            (self.get("exchange")?, self.parse("batch-size", values::batch_size)?);
        let blocks = self.parse("blocks", values::blocks)?;
        let filters = self.filters()?;
        let (redundancy, work) = (self.get("redundancy")?, self.get("work")?);
        let (from, source) = (self.data_from()?, self.source_by(described)?);
        if described.is_some() {
            process::check_kind(source.kind(), &source.describe())?;
        }
        let scenario = self.scenario()?;
        scenario.check(workers)?;
        self.energy()?;
        let (graph, edges) = self.graph(workers)?;
        let (name, seed) = (self.text("name").to_owned(), self.number("seed")?);
        let (architecture, servers) = (self.get("architecture")?, self.number("servers")?);
        let local_training = self.get("local-training")?;
        let is_described = described.is_some();
        let job = move |Outline { spec, fingerprint, .. }: Outline| {
            if !is_described {
                check_target(&stopping, spec.shape().target)?;
            }
            let mut job = Job {
                name,
                seed,
                model,
                loss: loss.unwrap_or_else(|| Loss::of(spec.shape().target)),
                update,
                groups,
                aggregation,
                mode,
                switches,
                exchange,
                filters,
                blocks,
                stopping,
                local_training,
                batch_size,
                redundancy,
                work,
                budget,
                membership,
                architecture,
                graph,
                edges,
                servers,
                data: JobData {
                    shape: spec.shape(),
                    train: fingerprint,
                    from,
                    recipe: serde_json::to_string(&spec).context("cannot write the recipe")?,
                },
                scenario: scenario.to_text(),
                initial,
            };
            job.update.schedule = job.update.schedule.over(job.expected_updates());
            job.validate()?;
            Ok(job)
        };
        Ok(Draft { source, settings, job })
    }
}
