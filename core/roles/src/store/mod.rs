//! The parameters of a key range, and all arithmetic that changes them.
//!
//! A store executes decisions in order; the coordinator decides which gradients become an update,
//! and when. Nearly all arithmetic is elementwise, so that several stores that follow the same
//! decisions reach, bit for bit, the parameters of a single store of all keys. A store knows the
//! worker of each gradient, and nothing of connections, time and policies.

mod contributions;
mod foreseen;
mod lists;
mod rebalance;
mod relay;
mod update;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use contributions::{Contributions, HeldGradient};
use lists::Lists;
pub use rebalance::{IncomingKeys, Part, PartError};
use relay::Relay;
use update::PendingUpdate;

use pstrain_compute::filter::{Encoded, PullFilter};
use pstrain_compute::id::{Clock, Version, WorkerId};
use pstrain_compute::model::Model;
use pstrain_compute::optim::{OptimError, UpdateSpec};
use pstrain_compute::params::{KeyList, KeyRange, first_not_finite};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_policy::aggregate::{Aggregator, Merging};
use pstrain_policy::auto::{Kept, Look, Snapshots};
use pstrain_policy::job::Job;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use pstrain_wire::decision::{Contribution, Decision};
use pstrain_wire::keys::{Keys, KeysHeader};
use pstrain_wire::range::RangePart;
use pstrain_wire::worker::{Parameters, ParametersHeader, Push};

/// Parameter snapshots that were sent to a worker, oldest first.
type SentSnapshots = VecDeque<Kept>;

/// The parameters that a worker has under a pull filter.
#[derive(Debug, Default)]
struct Pulled {
    had: Vec<f32>,
    /// True if the connection on which it was sent has been replaced.
    may_be_lost: bool,
}

/// The parameters of a key range, and the gradients that wait to change them.
#[derive(Debug)]
pub struct Store {
    keys: KeyRange,
    parameters: Arc<Vec<f32>>,
    aggregator: Aggregator,
    /// Gradients of the open round.
    contributions: Contributions,
    /// An update in its measuring phase.
    making: Option<PendingUpdate>,
    /// Combined gradients exchanged between primary and standby.
    relay: Relay,
    /// Measurements of `auto`.
    looks: Snapshots,
    /// Recent parameter snapshots per worker, for delay compensation.
    bases: BTreeMap<WorkerId, SentSnapshots>,
    /// The working sets of workers, if the model is sparse.
    lists: Option<Lists>,
    pull: PullFilter,
    /// The parameters that each worker has, if the pull filter sends differences to them.
    pulled: BTreeMap<WorkerId, Pulled>,
    /// Buffer pool: gradients that have become part of the parameters.
    spares: Vec<Arc<Vec<f32>>>,
}

/// Parameters to send to a worker, for the keys of this store.
#[derive(Debug)]
pub struct Answer {
    /// The keys of the values, counted in the worker's own vectors.
    pub place: KeyRange,
    /// The values.
    pub values: Arc<Vec<f32>>,
    /// The encoded changes that are sent instead of the values, if the pull filter encodes any.
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

/// The contributions that become an update, until they are removed.
#[derive(Debug)]
pub struct Chosen(Range<usize>);

impl Store {
    /// A store to restore the saved state of a server of `job` with `keys` into.
    pub(crate) fn for_saved(job: &Job, keys: KeyRange) -> Result<Self, SavedError> {
        let model = job.build_model();
        let model = model.map_err(|_error| SavedError::OtherJob)?;
        if keys.end() > model.parameters() as u64 {
            return Err(SavedError::OtherJob);
        }
        Self::new(job, &model, keys).map_err(|_error| SavedError::OtherJob)
    }

    /// A store with the initial parameters of `model` at `keys`.
    ///
    /// # Errors
    /// [`OptimError`] if the job's optimiser is not valid.
    pub fn new(job: &Job, model: &Model, keys: KeyRange) -> Result<Self, OptimError> {
        let mode = job.at_start(job.mode);
        let values = keys.len() as usize;
        let workers = job.membership.workers;
        let aggregator = Aggregator::new(job.aggregation, &job.update, &mode, workers, values)?
            .with_blocks(job.cut(model.parameters() as u64, keys))
            .with_groups(&job.groups, model.layout(), keys)
            .with_state(model.layout().state_at(keys));
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
            looks: Snapshots::default(),
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

    /// Drains the pool of gradient buffers that are no longer needed.
    pub(crate) fn spares(&mut self) -> impl Iterator<Item = Arc<Vec<f32>>> {
        self.spares.drain(..)
    }

    /// Number of gradient vectors of the open round in memory.
    #[must_use]
    pub fn vectors(&self) -> usize {
        self.contributions.vectors()
    }

    /// Number of gradients of the open round.
    #[must_use]
    pub fn gathered(&self) -> usize {
        self.contributions.len()
    }

    /// Records that the partition of `worker` has `rows` examples.
    pub fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        self.aggregator.set_rows(worker, rows);
    }

    /// Changes the mode.
    pub fn set_mode(&mut self, mode: &Mode) {
        self.aggregator.set_mode(mode);
    }

    /// Measures the current parameters for `auto`; returns this store's part of the requested sums.
    pub fn look(&mut self, look: Look) -> Option<Vec<ExactSum>> {
        self.looks.look(look, &self.parameters, self.aggregator.trained())
    }

    /// Discards the measurements of `auto`.
    pub fn forget_looks(&mut self) {
        self.looks.forget();
    }

    /// Replaces the parameters by the snapshot that `auto` keeps to go back to; resets the
    /// optimiser.
    pub fn go_back(&mut self) {
        if let Some(good) = self.looks.good() {
            self.parameters = good.parameters.clone();
            self.aggregator.restart();
        }
    }

    /// Sets the initial parameters that are here to those of `part`.
    pub fn begin_with(&mut self, part: &RangePart) {
        // Copy on write even if none of the keys is here: saved state records which vectors
        // are shared, and the parts of rebalanced keys must agree on it.
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut self.parameters);
        let Some(keys) = self.keys.overlap(part.keys) else {
            return; // other servers have these keys
        };
        let (Some(from), Some(to)) = (keys.within(part.keys), keys.within(self.keys)) else {
            unreachable!("an overlap is within both ranges")
        };
        // The coordinator has checked the values.
        let values = part.values().unwrap_or_default();
        if let (Some(parameters), Some(values)) = (parameters.get_mut(to), values.get(from)) {
            parameters.copy_from_slice(values);
        }
    }

    /// Keeps the current parameters, which are at `version`, as sent to `worker`, if needed later.
    pub fn gave(&mut self, worker: WorkerId, version: Version) {
        if !self.aggregator.needs_base() {
            return;
        }
        let bases = self.bases.entry(worker).or_default();
        if bases.back().is_none_or(|newest| newest.version < version) {
            bases.push_back(Kept { version, parameters: self.parameters.clone() });
        }
    }

    /// Discards what was sent to `worker`: no gradient computed from it will arrive.
    pub fn forget(&mut self, worker: WorkerId) {
        self.bases.remove(&worker);
        self.pulled.remove(&worker);
    }

    /// Sends `worker` its copy whole the next time: changes sent over an earlier connection may be
    /// lost. The copy stays, so that a reconnect changes no bit of what the worker computes on.
    pub fn reconnected(&mut self, worker: WorkerId) {
        self.pulled.entry(worker).and_modify(|pulled| pulled.may_be_lost = true);
    }

    /// The keys of a worker's vectors that are here; none if the worker has not sent its working
    /// set.
    #[must_use]
    pub fn place_of(&self, worker: WorkerId) -> Option<KeyRange> {
        match &self.lists {
            None => Some(self.keys),
            Some(lists) => lists.of(worker).map(|listed| listed.header.place),
        }
    }

    /// All keys of a worker's vectors, in a model with the keys `all`; none if the worker has not
    /// sent its working set.
    #[must_use]
    pub fn all_of(&self, worker: WorkerId, all: KeyRange) -> Option<KeyRange> {
        match &self.lists {
            None => Some(all),
            Some(lists) => {
                lists.of(worker).and_then(|listed| KeyRange::new(0, listed.header.total).ok())
            }
        }
    }

    /// The current parameters to send to `worker`; none if it has not sent its working set.
    #[must_use]
    pub fn answer(&mut self, worker: WorkerId) -> Option<Answer> {
        let (place, mut values) = match &self.lists {
            None => (self.keys, self.parameters.clone()),
            Some(lists) => {
                let listed = lists.of(worker)?;
                (listed.header.place, Arc::new(listed.list.gather(&self.parameters)))
            }
        };
        let mut changes = None;
        if !self.pull.is_none() {
            let Pulled { had, may_be_lost } = self.pulled.entry(worker).or_default();
            changes = self.pull.changes(&values, had).filter(|_| !*may_be_lost).map(Arc::new);
            *may_be_lost = false;
            if changes.is_none() && self.pull.is_lossy() {
                values = Arc::new(had.clone()); // not the parameters: see `PullFilter::changes`
            }
        }
        Some(Answer { place, values, changes })
    }

    /// True if `header` describes the list stored for `worker`.
    #[must_use]
    pub fn knows(&self, worker: WorkerId, header: &KeysHeader) -> bool {
        let listed = self.lists.as_ref().and_then(|lists| lists.of(worker));
        listed.is_some_and(|listed| listed.header == *header)
    }

    /// Stores the working set of `worker` in place of its previous one.
    ///
    /// # Errors
    /// The reason in words, if the working set is refused. The store is unchanged then.
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
        if keys.header.curved != self.aggregator.uses_curvature() {
            return Err(String::from(
                "its working set says how much the loss can bend where the optimizer does not go \
                 by that, or says nothing of it where the optimizer does",
            ));
        }
        let Some(list) = keys.list() else {
            return Err(String::from("its working set is not what its digest says"));
        };
        lists.learn(worker, keys.header, list, self.keys)?;
        self.pulled.remove(&worker); // those of other keys
        Ok(())
    }

    /// Returns this store's part of the sum of squares of a worker's gradient; `None` if the clip
    /// factor of `update` does not depend on it.
    #[must_use]
    pub fn squares(&self, update: &UpdateSpec, gradient: &[f32]) -> Option<ExactSum> {
        let parameters = gradient.len().min(self.aggregator.trained());
        update.squares(&gradient[..parameters])
    }

    /// Adds a gradient, scaled by `factor` if any, to the open round. It has one value for each key
    /// of the worker's vectors here.
    pub fn gather(&mut self, contribution: Contribution, push: Push, factor: Option<f32>) {
        let Push { mut gradient, .. } = push;
        let listed = self.lists.as_ref().map(|lists| lists.of(contribution.worker));
        // A push without a list, or of another length, has been refused before.
        let keys = listed.map(|listed| listed.map_or_else(KeyList::default, |it| it.list.clone()));
        if let Some(factor) = factor {
            let gradient: &mut Vec<f32> = Arc::make_mut(&mut gradient);
            let parameters = self.aggregator.parameters_of(gradient);
            parameters.iter_mut().for_each(|value| *value *= factor);
        }
        let base = self.base(contribution.worker, contribution.base);
        let values = Some(gradient);
        self.contributions.push(HeldGradient { contribution, base, keys, values });
    }

    /// The parameters of `base`, if they were kept. Discards earlier ones: the base versions of a
    /// worker's pushes never decrease.
    fn base(&mut self, worker: WorkerId, base: Version) -> Option<Arc<Vec<f32>>> {
        let bases = self.bases.get_mut(&worker)?;
        while bases.front().is_some_and(|oldest| oldest.version < base) {
            bases.pop_front();
        }
        let oldest = bases.front()?;
        (oldest.version == base).then(|| oldest.parameters.clone())
    }

    /// Merges gradients that wait for the update on `version`, to keep as few vectors as possible.
    /// The update will take all of them.
    pub fn merge(&mut self, version: Version) {
        self.contributions.merge(&mut self.aggregator, version, &self.parameters);
    }

    /// True if [`Self::merge`] would change anything.
    #[must_use]
    pub fn can_merge(&self) -> bool {
        self.aggregator.merging() != Merging::Apart && self.contributions.has_unsettled()
    }

    /// Chooses the gradients for the update of `version`, as `closing` says; `oldest` is the oldest
    /// iteration.
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

    /// The chosen contributions, in the order in which they are combined.
    pub fn chosen(&self, Chosen(taken): &Chosen) -> impl Iterator<Item = &Contribution> {
        self.contributions.at(taken.clone()).iter().map(|gathered| &gathered.contribution)
    }

    /// Applies a decision to the parameters, except decisions about gradients that arrive and
    /// decisions about nothing in this store. Returns this store's part of the sums that the
    /// coordinator needs over all keys before the update continues.
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
            Decision::Initial(part) => self.begin_with(part),
            Decision::Admit { .. }
            | Decision::Give { .. }
            | Decision::Gather { .. }
            | Decision::Drop { .. }
            | Decision::Show { .. }
            | Decision::Seen { .. }
            | Decision::Cut { .. }
            | Decision::Stay
            | Decision::Map(_)
            | Decision::Checkpoint { .. }
            | Decision::Pause => {}
        }
        None
    }

    /// Saves or restores the whole state.
    ///
    /// # Errors
    /// [`SavedError`] if the archive is not a saved state for the same keys.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let Self {
            parameters, aggregator, contributions, making, looks, bases, lists, pulled, ..
        } = self;
        archive.shared("parameters", parameters)?;
        aggregator.archive(archive)?;
        // Before the contributions, whose lengths depend on the lists.
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
        let mut sizes: BTreeMap<WorkerId, (usize, bool)> = pulled
            .iter()
            .map(|(worker, Pulled { had, may_be_lost })| (*worker, (had.len(), *may_be_lost)))
            .collect();
        archive.small(&mut sizes)?;
        for (worker, (size, may_be_lost)) in sizes {
            let pulled = pulled.entry(worker).or_default();
            pulled.may_be_lost = may_be_lost;
            archive.own_of("pulled", &mut pulled.had, size)?;
        }
        Ok(())
    }

    /// Discards the gradients of the open round.
    pub fn discard(&mut self) {
        self.contributions.clear();
    }
}
