//! Exactly-once checker: traces every gradient from its computation to the update it became part
//! of, keeps a second ledger, and repeats the training.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{
    BatchId, Clock, Incarnation, PartId, Sequence, ServerId, Version, WorkerId,
};
use pstrain_compute::optim::{OptimizerSpec, Updater};
use pstrain_compute::params::{KeyList, KeyRange, Layout};
use pstrain_compute::task::Task;
use pstrain_policy::aggregate::{Aggregator, Gradient, Merging};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{InitialFrom, Job};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::{Aggregation, Closing, ParticipationSpec, StalenessSpec};
use pstrain_roles::node::{Compute, Event, Ledger, Point, Server};
use pstrain_wire::range::{RangeHeader, RangeOf, Statistics};
use pstrain_wire::worker::Push;

use super::account::{Account, reason_of};
use super::deck::Deck;
use super::state;
use super::twin::Twin;
use crate::toy::initial_of;

/// Identity of a push, unique in the run.
pub(super) type Key = (WorkerId, Incarnation, Sequence);

/// The second set of books.
#[derive(Clone, Debug)]
pub(super) struct Books {
    job: Job,
    /// By push and base version: superseded parameters lead to a second gradient for the same push.
    computed: BTreeMap<(Key, Version), Made>,
    sent: BTreeMap<Key, (Version, u32)>,
    /// The key ranges of each push that were sent.
    parts: BTreeSet<(Key, KeyRange)>,
    /// Accepted, but not yet part of an update.
    open: Vec<Key>,
    /// Applied since the last update.
    round: Vec<(Key, Clock)>,
    /// The working set of each worker; empty if every worker has all keys.
    pub(super) keys: Vec<KeyList>,
    /// The parameters of every version.
    history: Vec<Vec<f32>>,
    /// The parameters of a worker have become the initial ones.
    initialised: bool,
    /// The aggregator, run a second time on the gradients that the workers computed.
    aggregator: Twin<Aggregator>,
    /// Arithmetic independent of the aggregator, for updates that are a mean or a sum of their
    /// gradients. Dropped at the first change of mode, since it knows no modes.
    updater: Option<Twin<Updater>>,
    consistency: ConsistencySpec,
    workers: Vec<Account>,
    /// Assigned mini-batches, where a scheduler assigns them.
    pub(super) deck: Option<Deck>,
    /// Mini-batches that became part of an update.
    applied: BTreeSet<(PartId, BatchId)>,
    ledger: Ledger,
    pub(super) samples: u64,
    /// True if the last push had been called off.
    pub(super) came_late: bool,
    /// True if a non-finite gradient was sent.
    pub(super) saw_bad_gradient: bool,
    ended: bool,
    layout: Layout,
}

/// A gradient as its worker computed it.
#[derive(Clone, Debug)]
struct Made {
    task: Task,
    parameters: Arc<Vec<f32>>,
    gradient: Vec<f32>,
    /// The gradient after clipping, once it is part of an update.
    counts: Vec<f32>,
}

impl Books {
    /// The books of a server that has not started, for parts with `rows` examples each.
    pub(super) fn new(server: &Server, rows: &[u64]) -> Self {
        let job = server.job().clone();
        let model = job.build_model().expect("a valid job");
        let (initial, layout) = (job.initial(&model), model.layout().clone());
        Self {
            layout: layout.clone(),
            computed: BTreeMap::new(),
            sent: BTreeMap::new(),
            parts: BTreeSet::new(),
            open: Vec::new(),
            round: Vec::new(),
            keys: Vec::new(),
            aggregator: {
                let (job, keys, layout) = (job.clone(), initial.len(), layout.clone());
                let fresh = move || {
                    let (mode, workers) = (job.at_start(job.mode), job.membership.workers);
                    let all = KeyRange::new(0, keys as u64).expect("a model with keys");
                    Aggregator::new(job.aggregation, &job.update, &mode, workers, keys)
                        .expect("a valid job")
                        .with_blocks(job.cut(keys as u64, all))
                        .with_groups(&job.groups, &layout, all)
                        .with_state(layout.state_at(all))
                };
                Twin::new(fresh, Aggregator::archive, keys)
            },
            // The plain updater knows neither blocks nor curvature nor robust aggregation.
            updater: (!has_a_rule(&job.at_start(job.mode)) && has_plain_steps(&job)).then(|| {
                let (job, keys, layout) = (job.clone(), initial.len(), layout.clone());
                let all = KeyRange::new(0, keys as u64).expect("a model with keys");
                let fresh = move || {
                    let updater = Updater::new(&job.update, keys).expect("a valid job");
                    updater.with_groups(&job.groups, &layout, all)
                };
                Twin::new(fresh, Updater::archive, keys)
            }),
            history: vec![initial],
            initialised: false,
            consistency: job.at_start(job.mode).consistency,
            workers: vec![Account::default(); job.membership.workers as usize],
            deck: Deck::new(&job, rows),
            applied: BTreeSet::new(),
            ledger: Ledger::default(),
            samples: 0,
            came_late: false,
            saw_bad_gradient: false,
            ended: false,
            job,
        }
    }

    /// A worker computed a gradient.
    pub(super) fn computed(&mut self, worker: WorkerId, order: &Compute, gradient: &[f32]) {
        let key = (worker, order.ticket.incarnation, order.ticket.sequence);
        let made = Made {
            task: order.task,
            parameters: Arc::clone(&order.parameters),
            gradient: gradient.to_vec(),
            counts: Vec::new(),
        };
        let before = self.computed.insert((key, order.ticket.base), made);
        assert!(before.is_none(), "{key:?} was computed twice");
    }

    /// A worker sent a gradient, for the first time or as a repetition.
    pub(super) fn sent(&mut self, worker: WorkerId, push: &Push) {
        let header = &push.header;
        let key = (worker, header.incarnation, header.sequence);
        let is_first = self.parts.insert((key, header.keys));
        let made = self.computed.get_mut(&(key, header.base));
        let made = made.unwrap_or_else(|| panic!("{key:?} was never computed"));
        let part = &mut made.gradient[header.keys.indices()];
        if is_first && !self.job.filters.is_none() {
            // Use the decoded gradient, as the server does; the filters' own tests check the
            // filters.
            part.copy_from_slice(&push.gradient);
        }
        assert!(same_bits(part, &push.gradient), "{key:?} is not what was computed");
        assert_eq!(made.task, header.task, "{key:?} names another mini-batch");
        let own = self.deck.is_some() || made.task.part == PartId::from(worker);
        assert!(own, "{key:?} is of another's partition");
        let base = &self.history[header.base.0 as usize];
        let own = self.keys.get(worker.0 as usize).map(|keys| keys.gather(base));
        let base = own.as_ref().unwrap_or(base);
        assert!(same_bits(&made.parameters, base), "{key:?} was not computed on {}", header.base);
        self.saw_bad_gradient |= push.gradient.iter().any(|value| !value.is_finite());
        self.sent.insert(key, (header.base, header.samples));
    }

    /// Handles an event; `next` is the event that the server reported right after it.
    pub(super) fn event(&mut self, event: &Event, next: Option<&Event>) {
        match event {
            Event::Joined { worker, incarnation, resumed, .. } => {
                self.workers[worker.0 as usize].joins(*incarnation, *resumed);
            }
            Event::Granted { worker, sequence, version, part, batch, .. } => {
                let account = &mut self.workers[worker.0 as usize];
                let before = account.granted.back().map_or(account.decided, |last| last.0);
                assert_eq!(*sequence, before.next(), "{worker} skips a push");
                match &mut self.deck {
                    Some(deck) => deck.give(*part, *batch),
                    // `applied` checks that the mini-batch belongs to the right block.
                    None if self.job.blocks.is_some() => {}
                    None => account.is_due(worker, *batch),
                }
                assert_eq!(version.0 as usize, self.history.len() - 1, "not the current version");
                assert!(!self.ended, "{worker} was given work after the end");
                account.granted.push_back((*sequence, *part, *batch));
                self.ledger.assigned += 1;
                self.ledger.outstanding += 1;
            }
            Event::Superseded { worker, sequence, version } => {
                assert_eq!(version.0 as usize, self.history.len() - 1, "not the current version");
                self.workers[worker.0 as usize].call_off(*sequence);
            }
            Event::Pushed { worker, sequence, base, part, batch, .. } => {
                let dropped = reason_of((*worker, *sequence), next);
                self.pushed(*worker, (*sequence, *part, *batch), *base, dropped);
            }
            Event::Dropped { reason, .. } => {
                self.ledger.discarded += 1;
                // The mini-batch of a push that was called off was assigned again.
                let is_left_out = *reason == DropReason::NotFinite && !self.came_late;
                self.ledger.left_out += u64::from(is_left_out);
                self.ledger.outstanding -= 1;
            }
            Event::Applied { worker, incarnation, sequence, clock, staleness, samples, .. } => {
                self.applied((*worker, *incarnation, *sequence), *clock, *staleness, *samples);
            }
            Event::Ready { worker, rows } => {
                self.aggregator.get().set_rows(*worker, *rows);
            }
            Event::Switched { version, mode, .. } => {
                assert_eq!(version.0 as usize, self.history.len() - 1, "not the current version");
                assert!(self.round.is_empty(), "{mode} began in the middle of an update");
                self.aggregator.get().set_mode(mode);
                self.consistency = mode.consistency;
                self.updater = None;
            }
            Event::Restored { point, from } => self.restored(point, *from),
            Event::Initialised { values, .. } => self.initialised(values),
            Event::Updated { point, closing } => {
                self.updated(point.version, point.samples, *closing);
            }
            Event::Departed { worker, lost, .. } => {
                let account = &mut self.workers[worker.0 as usize];
                assert_eq!(account.granted.len() as u64, *lost, "{worker}'s mini-batches");
                let granted: Vec<_> = account.granted.drain(..).collect();
                for (_, part, batch) in granted {
                    self.put_back(*worker, part, batch);
                }
                let end =
                    if self.ended { &mut self.ledger.discarded } else { &mut self.ledger.lost };
                *end += lost;
                self.ledger.outstanding -= lost;
            }
            Event::Ended { .. } => {
                assert!(!self.ended, "it ended twice");
                self.ended = true;
                let given_up = self.open.len() as u64;
                self.open.clear();
                self.ledger.discarded += given_up;
                self.ledger.outstanding -= given_up;
            }
            _ => {}
        }
    }

    /// The parameters of a worker replace the initial ones, once, before all else.
    fn initialised(&mut self, values: &[f32]) {
        assert_ne!(self.job.initial, InitialFrom::Seed, "the job has initial parameters");
        assert!(!self.initialised, "initial parameters came twice");
        self.initialised = true;
        let [initial] = &mut self.history[..] else { panic!("versions before the initial one") };
        initial.copy_from_slice(values);
        let wanted = initial_of(&self.job);
        assert_eq!(Some(&*initial), wanted.as_deref(), "not those of the worker");
    }

    /// Checks that nothing is under way when a version is made without gradients.
    fn check_fence(&self, point: &Point) {
        let version = point.version;
        assert_eq!(version.0 as usize, self.history.len(), "not the next version");
        assert_eq!(point.samples, self.samples, "examples up to {version}");
        assert!(!self.has_open_round(), "{version} was made in the middle of an update");
        let computing = self.workers.iter().any(|account| !account.granted.is_empty());
        assert!(!computing, "{version} was made while gradients were under way");
    }

    fn restored(&mut self, point: &Point, from: Version) {
        self.check_fence(point);
        self.aggregator.get().restart();
        self.history.push(self.history[from.0 as usize].clone());
    }

    fn pushed(
        &mut self,
        worker: WorkerId,
        (sequence, part, batch): (Sequence, PartId, BatchId),
        base: Version,
        dropped: Option<DropReason>,
    ) {
        let account = &mut self.workers[worker.0 as usize];
        let key = (worker, account.incarnation, sequence);
        let called_off = account.called_off.remove(&sequence);
        self.came_late = called_off.is_some();
        if self.came_late {
            assert!(dropped.is_some(), "{key:?} was accepted, but had been called off");
            assert_eq!(called_off, Some((part, batch)), "{key:?} was not asked for");
            assert_eq!(self.sent.get(&key).map(|sent| sent.0), Some(base), "{key:?}");
            // Its mini-batch was assigned again when the push was called off.
            self.ledger.assigned += 1;
            self.ledger.outstanding += 1;
            return;
        }
        let asked = account.granted.pop_front();
        assert_eq!(asked, Some((sequence, part, batch)), "{key:?} was not asked for");
        let sent = self.sent.get(&key).unwrap_or_else(|| panic!("{key:?} was never pushed"));
        assert_eq!(sent.0, base, "{key:?} was computed on another version");
        account.decided = sequence;
        match dropped {
            Some(DropReason::NotFinite) => self.leave_out(worker, part, batch),
            Some(_) => self.put_back(worker, part, batch),
            None => {
                assert!(!self.ended, "{key:?} was accepted after the end");
                account.accepted += 1;
                self.open.push(key);
            }
        }
    }

    /// Counts a mini-batch whose gradient is not finite as computed, unless its update needs it.
    fn leave_out(&mut self, worker: WorkerId, part: PartId, batch: BatchId) {
        if self.job.blocks.is_some() {
            return;
        }
        let account = &mut self.workers[worker.0 as usize];
        account.accepted += 1;
        account.left_out += 1;
        self.deck.iter_mut().for_each(|deck| deck.finish(part, batch));
    }

    /// True if the gradient of a push is finite.
    pub(super) fn is_finite(&self, worker: WorkerId, sequence: Sequence, base: Version) -> bool {
        let key = (worker, self.workers[worker.0 as usize].incarnation, sequence);
        self.computed[&(key, base)].gradient.iter().all(|value| value.is_finite())
    }

    /// Returns a mini-batch, to be computed again.
    fn put_back(&mut self, worker: WorkerId, part: PartId, batch: BatchId) {
        match &mut self.deck {
            Some(deck) => deck.take_back(part, batch),
            None if self.job.blocks.is_some() => {}
            None => assert!(self.workers[worker.0 as usize].again.insert(batch), "twice: {batch}"),
        }
    }

    fn applied(&mut self, key: Key, clock: Clock, staleness: u64, samples: u32) {
        let place = self.open.iter().position(|open| *open == key);
        let place = place.unwrap_or_else(|| panic!("{key:?} was applied, but is not waiting"));
        self.open.remove(place);
        let (base, sent_samples) = self.sent[&key];
        assert_eq!(samples, sent_samples, "samples of {key:?}");
        assert_eq!(staleness, self.history.len() as u64 - 1 - base.0, "staleness of {key:?}");
        self.workers[key.0.0 as usize].applied += 1;
        let Task { part, batch, .. } = self.computed[&(key, base)].task;
        if self.job.blocks.is_some() {
            assert_eq!(batch.0 as usize, self.history.len() - 1, "{key:?} is of another block");
        }
        let is_new = self.applied.insert((part, batch));
        assert!(is_new, "mini-batch {batch} of {key:?} was applied twice");
        self.deck.iter_mut().for_each(|deck| deck.finish(part, batch));
        self.samples += u64::from(samples);
        self.ledger.applied += 1;
        self.ledger.outstanding -= 1;
        self.round.push((key, clock));
    }

    /// Repeats the update on the gradients that the workers computed.
    fn updated(&mut self, version: Version, samples: u64, closing: Closing) {
        assert_eq!(version.0 as usize, self.history.len(), "a version is missing or came twice");
        assert_eq!(samples, self.samples, "examples up to {version}");
        assert!(!self.round.is_empty(), "version {version} was made from nothing");
        let part = |key: Key| part_of(&self.computed, &self.sent, key);
        self.round.sort_unstable_by_key(|&(key, clock)| (part(key), key, clock));
        self.shorten();
        let part = |key: Key| part_of(&self.computed, &self.sent, key);
        let current = self.history.last().expect("the initial ones");
        let gradients = self.round.iter().map(|&(key, clock)| {
            let (base, samples) = self.sent[&key];
            let values = self.computed[&(key, base)].counts.as_slice();
            let staleness = version.0 - 1 - base.0;
            let base = Some(self.history[base.0 as usize].as_slice());
            let (worker, part) = (key.0, part(key));
            let keys = self.keys.get(worker.0 as usize);
            Gradient { worker, part, clock, samples, size: 0, staleness, base, keys, values }
        });
        self.aggregator.get().begin(Version(version.0 - 1));
        self.aggregator.get().combine(gradients, current, closing);
        let mut parameters = current.clone();
        self.aggregator.get().apply(&mut parameters, Version(version.0 - 1));
        if let Some(plain) = self.plain_update(version, closing) {
            assert!(same_bits(&plain, &parameters), "{version} is no plain mean or sum");
        }
        self.history.push(parameters);
        self.round.clear();
    }

    /// Clips the gradients of the round to what counts of them.
    fn shorten(&mut self) {
        let update = self.job.update;
        for (key, _) in &self.round {
            let made = self.computed.get_mut(&(*key, self.sent[key].0)).expect("it was computed");
            made.counts.clone_from(&made.gradient);
            let trained = self.layout.trained().min(made.counts.len());
            let counts = &mut made.counts[..trained];
            let squares = update.squares(counts);
            if let Some(factor) = squares.and_then(|squares| update.clip_factor(&squares)) {
                counts.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }

    /// Computes the update without the aggregator, if it is a plain mean or sum. In an update of
    /// everything, the gradients of one worker and part are first summed, weighted relative to the
    /// first.
    fn plain_update(&mut self, version: Version, closing: Closing) -> Option<Vec<f32>> {
        let updater = self.updater.as_mut()?.get();
        let current = self.history.last().expect("the initial ones");
        let samples = |key: &Key| f64::from(self.sent[key].1);
        let all: f64 = self.round.iter().map(|(key, _)| samples(key)).sum();
        let are_together = |(one, _): &(Key, Clock), (next, _): &(Key, Clock)| {
            let part = |key: &Key| part_of(&self.computed, &self.sent, *key);
            closing == Closing::Everything && one.0 == next.0 && part(one) == part(next)
        };
        let (mean, mut combined) = (self.job.aggregation == Aggregation::Mean, Vec::new());
        let (trained, mut groups) = (self.layout.trained(), Vec::new());
        for group in self.round.chunk_by(are_together) {
            let (first, _) = group[0];
            let mut sum: Vec<f32> = Vec::new();
            for (key, _) in group {
                let factor = if mean { (samples(key) / samples(&first)) as f32 } else { 1.0 };
                let made = &self.computed[&(*key, self.sent[key].0)];
                let state = sum.get(trained..).map(<[f32]>::to_vec).unwrap_or_default();
                add(&mut sum, factor, &made.counts);
                // Changes of the state are added without weights.
                let changes = made.counts.iter().skip(trained).enumerate();
                changes.for_each(|(at, change)| {
                    sum[trained + at] = state.get(at).map_or(*change, |before| before + change);
                });
            }
            let part = part_of(&self.computed, &self.sent, first);
            groups.push(((part, first.0), group.len(), sum.clone()));
            let factor = if mean { (samples(&first) / all) as f32 } else { 1.0 };
            match self.keys.get(first.0.0 as usize) {
                None => add(&mut combined, factor, &sum),
                Some(keys) => {
                    combined.resize(current.len(), 0.0);
                    for (&key, value) in keys.keys().iter().zip(&sum) {
                        combined[key as usize] += factor * value;
                    }
                }
            }
        }
        let mut parameters = current.clone();
        combined.iter_mut().skip(trained).for_each(|value| *value = 0.0);
        updater.apply(&mut parameters, &combined, Version(version.0 - 1));
        state::change(&self.layout, &groups, current, &mut parameters);
        Some(parameters)
    }

    /// True if accepted gradients are not yet part of an update.
    pub(super) const fn has_open_round(&self) -> bool {
        !self.open.is_empty() || !self.round.is_empty()
    }

    /// Mini-batches of `worker` that were accepted.
    pub(super) fn accepted(&self, worker: WorkerId) -> u64 {
        self.workers[worker.0 as usize].accepted
    }

    /// Mini-batches of `worker` that became part of an update, or were left out.
    pub(super) fn batches_finished(&self, worker: WorkerId) -> u64 {
        let account = &self.workers[worker.0 as usize];
        account.applied + account.left_out
    }

    /// Checks the parameters of a key range that a client received.
    pub(super) fn pulled(&self, answer: &RangeOf) {
        let RangeHeader { version, keys, statistics, .. } = &answer.header;
        let values = &self.history[version.0 as usize][keys.indices()];
        let non_zeros = (keys.begin()..).zip(values.iter().copied());
        let is_there = |(_, value): &(u64, f32)| value.to_bits() != 0;
        let non_zeros: Vec<(u64, f32)> = non_zeros.filter(is_there).collect();
        // Compare as text, in which all NaNs are equal.
        let (told, wanted) = (answer.non_zeros(), Some(non_zeros));
        assert_eq!(format!("{told:?}"), format!("{wanted:?}"), "keys {keys} of version {version}");
        let wanted = Statistics::of(values);
        assert_eq!(format!("{statistics:?}"), format!("{wanted:?}"), "keys {keys}");
    }

    /// Compares the server with these books after each step.
    pub(super) fn balance(&self, server: &Server) {
        let ledger = server.ledger();
        let accounted = ledger.applied + ledger.discarded + ledger.lost + ledger.outstanding;
        assert_eq!(ledger.assigned, accounted, "unbalanced: {ledger:?}");
        assert_eq!(ledger, self.ledger, "the ledger is not what the events say");
        assert!(self.round.is_empty(), "applied without a new version");
        self.assert_small(server);
        assert_eq!(server.version().0 as usize, self.history.len() - 1, "an unreported version");
        let replayed = self.history.last().expect("the initial ones");
        let parameters = server.parameters();
        // With several servers the coordinator has the whole vector at times, else its own range,
        // the first.
        let own = server.key_map().keys_of(ServerId::COORDINATOR).expect("it has some");
        let whole = [replayed.len(), own.indices().len()].contains(&parameters.len());
        let replayed = &replayed[..parameters.len()];
        // With several servers the parameters may lag until a measurement of all keys is complete.
        let same = server.is_measuring() || whole && same_bits(parameters, replayed);
        assert!(same, "the replay gives other parameters");
    }

    /// Checks that the server keeps at most one vector per worker and part of its data. Exempt are
    /// gradients of one worker for different updates, and aggregators that cannot merge them.
    fn assert_small(&self, server: &Server) {
        let whole_iterations = matches!(self.consistency, ConsistencySpec::Delay { .. });
        if whole_iterations || self.aggregator.look().merging() == Merging::Apart {
            return;
        }
        let workers = (0..self.job.membership.workers).map(WorkerId);
        let most: usize = workers.map(|worker| self.job.parts_of(worker).len()).sum();
        let held = server.vectors_held();
        assert!(held <= most, "{held} vectors, of {most} at most, under {}", self.consistency);
    }

    /// Final checks once the server has finished.
    pub(super) fn close(&self) {
        assert!(self.ended, "it finished without an end");
        assert_eq!(self.ledger.outstanding, 0, "unsettled: {:?}", self.ledger);
    }
}

/// True if updates follow another rule than the mean or the sum of their gradients.
fn has_a_rule(mode: &Mode) -> bool {
    matches!(mode.consistency, ConsistencySpec::Malenia { .. } | ConsistencySpec::Ringleader)
        || mode.staleness != StalenessSpec::Plain
        || mode.participation != ParticipationSpec::Plain
}

/// True if each update steps by the gradient alone, on all keys.
fn has_plain_steps(job: &Job) -> bool {
    let is_plain = job.update.optimizer != OptimizerSpec::Diagonal;
    is_plain && job.blocks.is_none() && !job.aggregation.is_robust()
}

/// Adds `factor * values` to `sum`, which is empty at first.
fn add(sum: &mut Vec<f32>, factor: f32, values: &[f32]) {
    if sum.is_empty() {
        sum.extend(values.iter().map(|value| factor * value));
    } else {
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
    }
}

fn same_bits(these: &[f32], those: &[f32]) -> bool {
    these.len() == those.len() && these.iter().zip(those).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// The part of the data that a gradient was computed from.
fn part_of(
    computed: &BTreeMap<(Key, Version), Made>,
    sent: &BTreeMap<Key, (Version, u32)>,
    key: Key,
) -> PartId {
    computed[&(key, sent[&key].0)].task.part
}
