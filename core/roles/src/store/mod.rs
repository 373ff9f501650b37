//! The parameters of a key range, and all arithmetic that changes them.
//!
//! Does what it is told, in that order: which gradients become an update, and when, is decided by
//! the server that coordinates. Nearly everything here goes value by value, so that several stores
//! that are told the same come to the same parameters as one that holds all keys, bit for bit.
//! Knows of workers only whose a gradient is; of connections, time and policies nothing.

mod contributions;
mod lists;
mod making;
mod moving;
mod relay;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use contributions::{Contributions, Gathered};
use lists::Lists;
use making::Making;
pub use moving::{Coming, Part, PartError};
use relay::Relay;

use pstrain_compute::filter::{Encoded, PullFilter};
use pstrain_compute::id::{Clock, Version, WorkerId};
use pstrain_compute::model::Model;
use pstrain_compute::optim::OptimError;
use pstrain_compute::params::{KeyList, KeyRange, first_not_finite};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_policy::aggregate::{Aggregator, Merging};
use pstrain_policy::auto::{Kept, Look, Looks};
use pstrain_policy::job::Job;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use pstrain_wire::decision::{Contribution, Decision};
use pstrain_wire::keys::{Keys, KeysHeader};
use pstrain_wire::range::{How, RangePart};
use pstrain_wire::worker::{Parameters, ParametersHeader, Push};

/// Parameters that were given to a worker, the oldest first.
type Given = VecDeque<Kept>;

/// The parameters of a key range, and the gradients that wait to change them.
#[derive(Debug)]
pub struct Store {
    keys: KeyRange,
    parameters: Arc<Vec<f32>>,
    aggregator: Aggregator,
    /// Those of the open round.
    contributions: Contributions,
    /// The update that is being made of some of them.
    making: Option<Making>,
    /// What another that keeps the same stream is told of updates, or tells.
    relay: Relay,
    /// What `auto` has looked at.
    looks: Looks,
    /// What workers were given of late, where that is needed once their gradients come.
    bases: BTreeMap<WorkerId, Given>,
    /// The working sets of workers, if the model is sparse.
    lists: Option<Lists>,
    pull: PullFilter,
    /// What workers have of the parameters, where that decides what they are given.
    pulled: BTreeMap<WorkerId, Vec<f32>>,
    /// Gradients that have become part of the parameters.
    spares: Vec<Arc<Vec<f32>>>,
}

/// What a worker is given of the parameters here.
#[derive(Debug)]
pub struct Answer {
    /// The keys of the values, in the worker's own vectors.
    pub place: KeyRange,
    /// The values.
    pub values: Arc<Vec<f32>>,
    /// What travels instead of them, if something does.
    pub changes: Option<Arc<Encoded>>,
}

impl Answer {
    /// The message with this header.
    #[must_use]
    pub fn message(&self, header: ParametersHeader) -> Parameters {
        let Self { place, values, changes } = self;
        let values = if changes.is_some() { Arc::default() } else { values.clone() };
        Parameters {
            header: ParametersHeader { keys: *place, ..header },
            values,
            changes: changes.clone(),
        }
    }
}

/// The contributions that become an update, until they have.
#[derive(Debug)]
pub struct Chosen(Range<usize>);

impl Store {
    /// One for what was saved of a server of `job` with `keys`.
    pub(crate) fn for_saved(job: &Job, keys: KeyRange) -> Result<Self, SavedError> {
        let model = Model::new(&job.model, job.data.shape);
        let model = model.map_err(|_error| SavedError::OtherJob)?;
        if keys.end() > model.parameters() as u64 {
            return Err(SavedError::OtherJob);
        }
        Self::new(job, &model, keys).map_err(|_error| SavedError::OtherJob)
    }

    /// The initial parameters of `model` at `keys`.
    ///
    /// # Errors
    /// [`OptimError`] if the job's optimiser is not valid.
    pub fn new(job: &Job, model: &Model, keys: KeyRange) -> Result<Self, OptimError> {
        let mode = job.at_start(job.mode);
        let values = keys.len() as usize;
        let workers = job.membership.workers;
        let aggregator = Aggregator::new(job.aggregation, &job.update, &mode, workers, values)?
            .with_blocks(job.cut(model.parameters() as u64, keys));
        let mut parameters = job.initial(model);
        if parameters.len() > values {
            parameters = parameters.get(keys.indices()).unwrap_or_default().to_vec();
        }
        Ok(Self {
            keys,
            parameters: Arc::new(parameters),
            aggregator,
            contributions: Contributions::default(),
            making: None,
            relay: Relay::None,
            looks: Looks::default(),
            bases: BTreeMap::new(),
            lists: job.is_sparse().then(Lists::default),
            pull: job.pull_filter(),
            pulled: BTreeMap::new(),
            spares: Vec::new(),
        })
    }

    /// The keys.
    #[must_use]
    pub const fn keys(&self) -> KeyRange {
        self.keys
    }

    /// The current parameters, one for each key.
    #[must_use]
    pub const fn parameters(&self) -> &Arc<Vec<f32>> {
        &self.parameters
    }

    /// The first key whose parameter is NaN or infinite.
    #[must_use]
    pub fn first_not_finite(&self) -> Option<u64> {
        first_not_finite(self.keys, &self.parameters)
    }

    /// The vectors of gradients that are not needed any more.
    pub(crate) fn spares(&mut self) -> impl Iterator<Item = Arc<Vec<f32>>> {
        self.spares.drain(..)
    }

    /// Gradients of the open round that are kept in memory.
    #[must_use]
    pub fn vectors(&self) -> usize {
        self.contributions.vectors()
    }

    /// Gradients of the open round.
    #[must_use]
    pub fn gathered(&self) -> usize {
        self.contributions.len()
    }

    /// Notes that the partition of `worker` has `rows` examples.
    pub fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        self.aggregator.set_rows(worker, rows);
    }

    /// Goes on under another mode.
    pub fn set_mode(&mut self, mode: &Mode) {
        self.aggregator.set_mode(mode);
    }

    /// Looks at the current parameters, as `auto` does; the part here of what it wants to know of
    /// that.
    pub fn look(&mut self, look: Look) -> Option<Vec<ExactSum>> {
        self.looks.look(look, &self.parameters)
    }

    /// Forgets what was looked at.
    pub fn forget_looks(&mut self) {
        self.looks.forget();
    }

    /// Puts the parameters that can be gone back to in the place of the current ones; the optimiser
    /// begins anew.
    pub fn go_back(&mut self) {
        if let Some(good) = self.looks.good() {
            self.parameters = good.parameters.clone();
            self.aggregator.restart();
        }
    }

    /// Does to the parameters here what values that were pushed say. What the optimiser remembers
    /// stays.
    pub fn push(&mut self, how: How, part: &RangePart) {
        // Every server splits a vector that a base shares, also one without keys of the push: saved
        // state says which vectors are shared, and the parts of keys that move must agree on it.
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut self.parameters);
        let Some(keys) = self.keys.overlap(part.keys) else { return };
        let (Some(from), Some(to)) = (keys.within(part.keys), keys.within(self.keys)) else {
            return;
        };
        // Whoever decided on it has looked at it.
        let values = part.values().unwrap_or_default();
        if let (Some(parameters), Some(values)) = (parameters.get_mut(to), values.get(from)) {
            let pairs = parameters.iter_mut().zip(values);
            pairs.for_each(|(parameter, &value)| *parameter = how.of(*parameter, value));
        }
    }

    /// Notes that `worker` is given the current parameters, which are `version`.
    pub fn gave(&mut self, worker: WorkerId, version: Version) {
        if !self.aggregator.needs_base() {
            return;
        }
        let bases = self.bases.entry(worker).or_default();
        if bases.back().is_none_or(|newest| newest.version < version) {
            bases.push_back(Kept { version, parameters: self.parameters.clone() });
        }
    }

    /// Nothing more comes of what `worker` was given so far.
    pub fn forget(&mut self, worker: WorkerId) {
        self.bases.remove(&worker);
        self.pulled.remove(&worker);
    }

    /// Whatever `worker` was given over an earlier connection may not have come.
    pub fn reconnected(&mut self, worker: WorkerId) {
        self.pulled.remove(&worker);
    }

    /// The keys of a worker's vectors that are here; none if it has not said of its working set.
    #[must_use]
    pub fn place_of(&self, worker: WorkerId) -> Option<KeyRange> {
        match &self.lists {
            None => Some(self.keys),
            Some(lists) => lists.of(worker).map(|listed| listed.header.place),
        }
    }

    /// All keys of a worker's vectors, where the model has `all`; none if it has not said of its
    /// working set.
    #[must_use]
    pub fn all_of(&self, worker: WorkerId, all: KeyRange) -> Option<KeyRange> {
        match &self.lists {
            None => Some(all),
            Some(lists) => {
                lists.of(worker).and_then(|listed| KeyRange::new(0, listed.header.total).ok())
            }
        }
    }

    /// What `worker` is given of the current parameters; none if it has not said of its working
    /// set.
    #[must_use]
    pub fn answer(&mut self, worker: WorkerId) -> Option<Answer> {
        let (place, values) = match &self.lists {
            None => (self.keys, self.parameters.clone()),
            Some(lists) => {
                let listed = lists.of(worker)?;
                (listed.header.place, Arc::new(listed.list.gather(&self.parameters)))
            }
        };
        let mut changes = None;
        if !self.pull.is_none() {
            let had = self.pulled.entry(worker).or_default();
            changes = self.pull.changes(&values, had).map(Arc::new);
        }
        Some(Answer { place, values, changes })
    }

    /// Whether `header` is of the list that `worker` has here.
    #[must_use]
    pub fn knows(&self, worker: WorkerId, header: &KeysHeader) -> bool {
        let listed = self.lists.as_ref().and_then(|lists| lists.of(worker));
        listed.is_some_and(|listed| listed.header == *header)
    }

    /// Takes the list of `worker`, from now on in the place of whichever it had.
    ///
    /// # Errors
    /// What is wrong with it, in words. Nothing has changed then.
    pub fn learn(&mut self, worker: WorkerId, keys: &Keys) -> Result<(), String> {
        let Some(lists) = &mut self.lists else {
            return Err(String::from("it sent a working set, but the model is not sparse"));
        };
        if lists.of(worker).is_some_and(|listed| listed.header == keys.header) {
            return Ok(());
        }
        if self.contributions.has_of(worker) {
            return Err(String::from(
                "it sent another working set while gradients of the one before wait; try again",
            ));
        }
        if keys.header.curved != self.aggregator.bends() {
            return Err(String::from(
                "its working set says how much the loss can bend where the optimizer does not go \
                 by that, or says nothing of it where the optimizer does",
            ));
        }
        let Some(list) = keys.list() else {
            return Err(String::from("its working set is not what its digest says"));
        };
        lists.learn(worker, keys.header, list, self.keys)
    }

    /// Adds `factor` times the gradient of a push to the open round, or it as it is: one value for
    /// each key of the worker's vectors here.
    pub fn gather(&mut self, contribution: Contribution, push: Push, factor: Option<f32>) {
        let Push { mut gradient, .. } = push;
        let listed = self.lists.as_ref().map(|lists| lists.of(contribution.worker));
        // One without a list, or of another length, is refused before it comes here.
        let keys = listed.map(|listed| listed.map_or_else(KeyList::default, |it| it.list.clone()));
        if let Some(factor) = factor {
            Arc::make_mut(&mut gradient).iter_mut().for_each(|value| *value *= factor);
        }
        let base = self.base(contribution.worker, contribution.base);
        let values = Some(gradient);
        self.contributions.push(Gathered { contribution, base, keys, values });
    }

    /// The parameters of `base`, if they were kept. Earlier ones are not needed any more: a worker
    /// never goes back.
    fn base(&mut self, worker: WorkerId, base: Version) -> Option<Arc<Vec<f32>>> {
        let bases = self.bases.get_mut(&worker)?;
        while bases.front().is_some_and(|oldest| oldest.version < base) {
            bases.pop_front();
        }
        let oldest = bases.front()?;
        (oldest.version == base).then(|| oldest.parameters.clone())
    }

    /// Keeps what waits for the update on `version` as few vectors as can be. That update will take
    /// all.
    pub fn merge(&mut self, version: Version) {
        self.contributions.merge(&mut self.aggregator, version, &self.parameters);
    }

    /// Whether [`Self::merge`] would change anything.
    #[must_use]
    pub fn can_merge(&self) -> bool {
        self.aggregator.merging() != Merging::Apart && self.contributions.has_unsettled()
    }

    /// Chooses what becomes the update of `version`: as `closing` says, where the oldest iteration
    /// is `oldest`.
    pub fn choose(&mut self, closing: Closing, oldest: Option<Clock>, version: Version) -> Chosen {
        let all = &mut self.contributions;
        let taken = match (closing, oldest) {
            (Closing::NotYet, _) => 0..0,
            (Closing::Oldest, Some(oldest)) => 0..all.sort_by_iteration(oldest),
            (Closing::Latest, _) => all.len().saturating_sub(1)..all.len(),
            _ => {
                all.merge(&mut self.aggregator, version, &self.parameters);
                0..all.len()
            }
        };
        all.in_order(taken.clone());
        Chosen(taken)
    }

    /// What was chosen, in the order in which it counts.
    pub fn chosen(&self, Chosen(taken): &Chosen) -> impl Iterator<Item = &Contribution> {
        self.contributions.at(taken.clone()).iter().map(|gathered| &gathered.contribution)
    }

    /// Does to the parameters what was decided, unless that is about gradients that have come, or
    /// about nothing that is here. Returns the part here of what the coordinator must know of all
    /// keys before this goes on.
    pub fn follow(&mut self, decision: &Decision) -> Option<Vec<ExactSum>> {
        match decision {
            Decision::Forget { worker } => self.forget(*worker),
            Decision::Rows { worker, rows } => self.set_rows(*worker, *rows),
            Decision::Merge { version } => self.merge(*version),
            Decision::Close { closing, oldest, version, weights } => {
                let chosen = self.choose(*closing, *oldest, *version);
                self.update(chosen, *closing, *version, weights.as_deref());
                return self.sums();
            }
            Decision::Found(found) => {
                self.go_on(found);
                return self.sums();
            }
            Decision::Discard => self.discard(),
            Decision::Mode(mode) => self.set_mode(mode),
            Decision::Look(look) => return self.look(*look),
            Decision::ForgetLooks => self.forget_looks(),
            Decision::GoBack => self.go_back(),
            Decision::PushRange { how, part } => self.push(*how, part),
            Decision::Admit { .. }
            | Decision::Give { .. }
            | Decision::Gather { .. }
            | Decision::Drop { .. }
            | Decision::Show { .. }
            | Decision::Seen { .. }
            | Decision::Cut { .. }
            | Decision::Stay
            | Decision::Map(_)
            | Decision::Checkpoint { .. } => {}
        }
        None
    }

    /// Saves or restores everything.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved, for the same keys.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let Self {
            parameters, aggregator, contributions, making, looks, bases, lists, pulled, ..
        } = self;
        archive.shared("parameters", parameters)?;
        aggregator.archive(archive)?;
        lists.iter_mut().try_for_each(|lists| lists.archive(archive))?;
        contributions.archive(archive, lists.as_ref())?;
        archive.small(making)?;
        let mut making = making.iter_mut();
        making.try_for_each(|making| making.archive(archive, aggregator, lists.as_ref()))?;
        archive.small(looks)?;
        looks.archive(archive)?;
        archive.small(bases)?;
        for base in bases.values_mut().flatten() {
            archive.shared("base", &mut base.parameters)?;
        }
        let mut sizes: BTreeMap<WorkerId, usize> =
            pulled.iter().map(|(worker, values)| (*worker, values.len())).collect();
        archive.small(&mut sizes)?;
        for (worker, size) in sizes {
            archive.own_of("pulled", pulled.entry(worker).or_default(), size)?;
        }
        Ok(())
    }

    /// Throws away what is in the open round.
    pub fn discard(&mut self) {
        self.contributions.clear();
    }
}
