//! Replay of a recorded run: each gradient is a function of a version of the parameters, a worker
//! and the number of a mini-batch, and the order of updates names all three.
//!
//! A version is kept as long as a later gradient is based on it. In the run, such gradients were
//! under way at workers, so there are never more versions than gradients under way, plus the
//! current one.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use pstrain_compute::filter::PullFilter;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::params::KeyRange;
use pstrain_compute::task::Task;
use pstrain_data::Prepared;
use pstrain_policy::aggregate::{Aggregator, Gradient};
use pstrain_policy::job::Job;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use pstrain_policy::trainer::Trainer;
use pstrain_policy::work::{Assigner, Share, Weights};

use super::filtering::ReplayFilters;
use super::initial::Initial;
use super::order_reader::Contribution;
use crate::process::Arithmetic;

/// A run that is being replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    trainers: Vec<Trainer>,
    aggregator: Aggregator,
    update: UpdateSpec,
    filtering: Option<ReplayFilters>,
    /// The scheduler of mini-batches, if the job has one: it may give gradients other weights.
    assigner: Option<Box<dyn Assigner>>,
    version: Version,
    /// The current version, and earlier ones that are still needed.
    kept: BTreeMap<Version, Vec<f32>>,
    /// Number of later gradients that are based on each version.
    uses: Vec<u32>,
    /// One buffer per contribution of an update, reused.
    gradients: Vec<Vec<f32>>,
    most_kept: usize,
}

/// Number of gradients based on each version.
#[derive(Debug, Default)]
pub(crate) struct Uses(Vec<u32>);

impl Uses {
    /// Counts the gradients of one update.
    pub(crate) fn count(&mut self, contributions: &[Contribution]) -> anyhow::Result<()> {
        contributions.iter().try_for_each(|contribution| self.count_one(contribution.base))
    }

    /// Counts one use of a version.
    pub(crate) fn count_one(&mut self, version: Version) -> anyhow::Result<()> {
        let place = usize::try_from(version.0)?;
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] += 1;
        Ok(())
    }
}

impl Replay {
    /// Creates the replay of `job` on `data` before its first update, starting from `parameters`.
    pub(crate) fn new(
        job: &Job,
        data: &Prepared,
        arithmetic: &Arithmetic,
        parameters: &[f32],
        uses: Uses,
    ) -> anyhow::Result<Self> {
        let model = job.build_model()?;
        if let PullFilter::Changed { delta } = job.filters.pull
            && delta > 0.0
        {
            bail!(
                "this run cannot be computed again: its workers computed on parameters that \
                 differed by up to {delta} from any version (pull-filter = {}; changed alone \
                 leaves no such gap)",
                job.filters.pull
            );
        }
        let mut assigner = job.assigner()?;
        let keys = parameters.len() as u64;
        let mut aggregator = Aggregator::new(
            job.aggregation,
            &job.update,
            &job.at_start(job.mode),
            job.membership.workers,
            parameters.len(),
        )?
        .with_blocks(KeyRange::new(0, keys).ok().and_then(|all| job.cut(keys, all)));
        if let Ok(all) = KeyRange::new(0, model.parameters() as u64) {
            let layout = model.layout();
            aggregator =
                aggregator.with_groups(&job.groups, layout, all).with_state(layout.state_at(all));
        }
        let mut trainer = |worker: WorkerId| {
            let parts = data.partitions(&job.parts_of(worker));
            let rows: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
            aggregator.set_rows(worker, job.own_rows(&rows));
            if let Some(assigner) = &mut assigner {
                assigner.set_rows(worker, &rows).map_err(anyhow::Error::msg)?;
            }
            arithmetic.trainer(job, worker, parts)
        };
        let workers = (0..job.membership.workers).map(WorkerId);
        let trainers = workers.map(&mut trainer).collect::<Result<_, _>>()?;
        Ok(Self {
            trainers,
            aggregator,
            update: job.update,
            filtering: ReplayFilters::new(job, &model),
            assigner,
            version: Version(0),
            kept: BTreeMap::from([(Version(0), parameters.to_vec())]),
            uses: uses.0,
            gradients: Vec::new(),
            most_kept: 1,
        })
    }

    /// Computes and combines the gradients of the next update.
    pub(crate) fn combine(
        &mut self,
        contributions: &[Contribution],
        closing: Closing,
    ) -> anyhow::Result<()> {
        self.compute(contributions)?;
        self.aggregator.begin(self.version);
        let (kept, version) = (&self.kept, self.version);
        let gradients = contributions.iter().zip(&self.gradients).map(|(contribution, values)| {
            let Contribution { worker, part, examples: size, clock, base, samples, .. } =
                *contribution;
            let staleness = version.since(base);
            let base = kept.get(&base).map(Vec::as_slice);
            let trainer = self.trainers.get(worker.0 as usize);
            let keys = trainer.and_then(Trainer::keys);
            Gradient { worker, part, clock, samples, size, staleness, base, keys, values }
        });
        let parameters = kept.get(&version).map_or(&[][..], Vec::as_slice);
        let share =
            |&Contribution { worker, part, batch, examples, samples, .. }: &Contribution| Share {
                worker,
                task: Task { part, batch, examples },
                samples,
            };
        let weights = self.assigner.as_ref().and_then(|assigner| {
            assigner.weights(&contributions.iter().map(share).collect::<Vec<_>>())
        });
        match weights {
            None => self.aggregator.combine(gradients, parameters, closing),
            Some(Weights { factors, .. }) => {
                let values = gradients.map(|gradient| gradient.values);
                self.aggregator.combine_with(factors.into_iter().zip(values));
            }
        }
        contributions.iter().for_each(|contribution| self.used(contribution.base));
        Ok(())
    }

    /// Computes gradients, each worker's in the order in which it sent them.
    fn compute(&mut self, contributions: &[Contribution]) -> anyhow::Result<()> {
        self.gradients.resize_with(self.gradients.len().max(contributions.len()), Vec::new);
        let mut gradients: Vec<_> = contributions.iter().zip(&mut self.gradients).collect();
        gradients.sort_by_key(|(it, _)| (it.worker, it.incarnation, it.sequence));
        for (contribution, gradient) in gradients {
            let Contribution { worker, part, batch, examples, base, samples, .. } = *contribution;
            let Some(trainer) = self.trainers.get_mut(worker.0 as usize) else {
                bail!("worker {worker} took part, but the job has {} workers", self.trainers.len());
            };
            let parameters = self.kept.get(&base).with_context(|| {
                format!("a gradient was computed on version {base}, which nothing announced")
            })?;
            let task = Task { part, batch, examples };
            if !trainer.has(task) {
                bail!("worker {worker} does not have partition {part} in this job");
            }
            let own = trainer.keys().map(|keys| keys.gather(parameters));
            let parameters = own.as_ref().unwrap_or(parameters);
            let computed = trainer.compute(task, parameters, gradient)?;
            if computed.samples != samples {
                bail!(
                    "mini-batch {batch} of worker {worker} has {} examples, but had {samples} in \
                     the run",
                    computed.samples
                );
            }
            if let Some(filtering) = &mut self.filtering {
                filtering.filter(contribution, gradient, trainer.block(task), parameters)?;
            }
            let own = self.aggregator.parameters_of(gradient);
            let squares = self.update.squares(own);
            if let Some(factor) = squares.and_then(|squares| self.update.clip_factor(&squares)) {
                own.iter_mut().for_each(|value| *value *= factor);
            }
        }
        Ok(())
    }

    /// Notes one use of a version; frees the version after its last use.
    fn used(&mut self, version: Version) {
        let left = &mut self.uses[version.0 as usize];
        *left -= 1;
        if *left == 0 && version != self.version {
            self.kept.remove(&version);
        }
    }

    /// Makes the next version a copy of an earlier one, as the server did: without gradients, and
    /// with all state of the aggregation and the optimiser reset.
    pub(crate) fn restore(&mut self, from: Version) -> anyhow::Result<()> {
        let parameters = self.kept.get(&from).cloned();
        let parameters = parameters
            .with_context(|| format!("version {from} was restored, which nothing announced"))?;
        self.aggregator.restart();
        let before = self.version;
        self.version = self.version.next();
        self.kept.insert(self.version, parameters);
        self.most_kept = self.most_kept.max(self.kept.len());
        if self.uses.get(before.0 as usize).is_none_or(|left| *left == 0) {
            self.kept.remove(&before);
        }
        self.used(from);
        Ok(())
    }

    /// Begins with initial parameters that do not come from the seed.
    pub(crate) fn begin_with(&mut self, initial: &Initial) -> anyhow::Result<()> {
        let parameters = self.kept.get_mut(&Version(0));
        if !parameters.is_some_and(|parameters| initial.set(parameters)) {
            bail!("initial parameters were recorded for keys that the model does not have");
        }
        Ok(())
    }

    /// Continues in another mode.
    pub(crate) fn set_mode(&mut self, mode: &Mode) {
        self.aggregator.set_mode(mode);
        if let Some(filtering) = &mut self.filtering {
            filtering.set_window(mode.window());
        }
    }

    /// The L2 norm of the combined gradient, before it is clipped.
    pub(crate) fn norm(&self) -> f64 {
        self.aggregator.norm()
    }

    /// Makes the next version from the combined gradient.
    pub(crate) fn apply(&mut self) {
        let mut parameters = self.take_current();
        self.aggregator.apply(&mut parameters, self.version);
        self.keep_next(parameters);
    }

    /// Takes the current parameters, to turn them into the next version; copies them if later
    /// gradients need them.
    fn take_current(&mut self) -> Vec<f32> {
        let needed = self.uses.get(self.version.0 as usize).is_some_and(|left| *left > 0);
        let current = if needed {
            self.kept.get(&self.version).cloned()
        } else {
            self.kept.remove(&self.version)
        };
        // The current version is always kept.
        current.unwrap_or_default()
    }

    fn keep_next(&mut self, parameters: Vec<f32>) {
        self.version = self.version.next();
        self.kept.insert(self.version, parameters);
        self.most_kept = self.most_kept.max(self.kept.len());
    }

    /// The current version.
    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    /// The current parameters.
    pub(crate) fn parameters(&self) -> &[f32] {
        self.kept.get(&self.version).map_or(&[], Vec::as_slice)
    }

    /// The most versions that had to be kept at once.
    pub(crate) const fn most_kept(&self) -> usize {
        self.most_kept
    }
}
