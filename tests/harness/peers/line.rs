//! The checker of the lab: the parameters of each version, and the gradients of each update.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::filter::FilterChain;
use pstrain_compute::id::{BatchId, Incarnation, Sequence, Version, WorkerId};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::collective::Encoding;
use pstrain_policy::job::Job;
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::Compute;
use pstrain_wire::peers::Ranks;

use super::checker::{Checker, is_close};
use crate::bits;

/// The line of versions that the group is on.
#[derive(Debug)]
pub(super) struct Line {
    rate: f64,
    momentum: f64,
    sums: bool,
    /// True if updates may be without late gradients.
    is_partial: bool,
    /// The parameters of each version, and how they came about.
    known: BTreeMap<u64, Known>,
    job: Job,
    /// The filters of each worker, if there are any.
    filters: BTreeMap<u32, Filters>,
    /// Gradients as the others decode them, and their numbers of examples, by worker and
    /// mini-batch.
    gradients: BTreeMap<(u32, u64), (Vec<f32>, u32)>,
    /// The groups: generation, version, members.
    groups: Vec<(u64, u64, Vec<u32>)>,
    /// The latest version that each worker has had.
    latest: BTreeMap<u32, u64>,
    missed: u64,
    partial: u64,
    dropped: u64,
    /// True from a restart of the meeting point to the first group after it.
    is_resumed: bool,
}

/// The filters of a worker during one membership.
#[derive(Debug)]
struct Filters {
    /// The run and the incarnation.
    of: (u64, Incarnation),
    chain: FilterChain,
    /// The last gradient, and its mini-batch; none before the first.
    last: Option<(Sequence, u64)>,
}

impl Filters {
    /// The gradient of a mini-batch as others decode it. The mini-batch before it is in an update;
    /// if it is the same one, the update was given up.
    fn filter(&mut self, batch: u64, order: &Compute, gradient: &[f32]) -> Vec<f32> {
        let mut number = Sequence(1);
        if let Some((last, of)) = self.last {
            let dropped = (of == batch).then_some(DropReason::Stale);
            self.chain.decided(&Decided::after(None, last, dropped));
            number = Sequence(last.0 + 1);
        }
        self.last = Some((number, batch));
        self.chain.turn_to(order.ticket.base);
        let (gradient, parameters) = (gradient.to_vec(), &order.parameters);
        let filtered = self.chain.filter(gradient, number, order.task, None, parameters);
        filtered.gradient.to_vec()
    }
}

#[derive(Clone, Debug)]
struct Known {
    at: Time,
    parameters: Arc<Vec<f32>>,
    /// False if the checker derived the parameters, since no worker computed a gradient from them.
    is_seen: bool,
    /// The optimizer's state, by the checker's own formula.
    velocity: Vec<f64>,
    /// The workers whose gradients are in the update to this version.
    of: Vec<u32>,
}

impl Line {
    pub(super) fn new(job: &Job, initial: Vec<f32>) -> Self {
        let momentum = match job.update.optimizer {
            OptimizerSpec::Sgd => 0.0,
            OptimizerSpec::Momentum { momentum } => f64::from(momentum),
            other => panic!("the checker has no formula for {other:?}"),
        };
        assert_eq!((job.update.weight_decay, job.update.clip_norm), (0.0, None), "no formula");
        let velocity = vec![0.0; initial.len()];
        let (parameters, of) = (Arc::new(initial), Vec::new());
        let first = Known { at: Time::ZERO, parameters, is_seen: true, velocity, of };
        Self {
            rate: job.update.learning_rate.into(),
            momentum,
            sums: job.aggregation == Aggregation::Sum,
            is_partial: job.membership.partial_after.is_some(),
            known: BTreeMap::from([(0, first)]),
            job: job.clone(),
            filters: BTreeMap::new(),
            gradients: BTreeMap::new(),
            groups: Vec::new(),
            latest: BTreeMap::new(),
            missed: 0,
            partial: 0,
            dropped: 0,
            is_resumed: false,
        }
    }

    fn is_member(&self, worker: usize) -> bool {
        self.groups.last().is_some_and(|(.., members)| members.contains(&(worker as u32)))
    }

    /// The mini-batches of a worker in the updates up to a version, and in `path` after it.
    fn done(&self, worker: u32, version: u64, path: &[Known]) -> u64 {
        let known = self.known.range(..=version).map(|(_, known)| known);
        known.chain(path).filter(|known| known.of.contains(&worker)).count() as u64
    }

    /// The update after `version` and `path` with the next gradients of some workers; none if there
    /// are none of them.
    fn updated(&self, version: u64, path: &[Known], of: &[u32]) -> Option<Known> {
        let before = path.last().unwrap_or_else(|| &self.known[&version]);
        let next = |worker: &u32| self.gradients.get(&(*worker, self.done(*worker, version, path)));
        let gradients: Vec<_> = of.iter().map(next).collect::<Option<_>>()?;
        let all: u32 = gradients.iter().map(|(_, samples)| samples).sum();
        let mut velocity: Vec<f64> = before.velocity.iter().map(|it| it * self.momentum).collect();
        for (gradient, samples) in gradients {
            let factor = if self.sums { 1.0 } else { f64::from(*samples) / f64::from(all) };
            for (sum, value) in velocity.iter_mut().zip(gradient) {
                *sum += factor * f64::from(*value);
            }
        }
        let steps = before.parameters.iter().zip(&velocity);
        let values = steps.map(|(value, step)| (f64::from(*value) - self.rate * step) as f32);
        let (parameters, of) = (Arc::new(values.collect()), of.to_vec());
        Some(Known { at: before.at, parameters, is_seen: false, velocity, of })
    }

    /// The updates that may follow `version` and `path`, of one of the last two groups.
    fn candidates<'a>(
        &'a self,
        version: u64,
        path: &'a [Known],
    ) -> impl Iterator<Item = Known> + 'a {
        let made = version + path.len() as u64;
        let groups = self.groups.iter().rev().filter(move |(_, from, _)| *from <= made).take(2);
        let sets = groups.flat_map(|(.., members)| {
            let all = (1_u32 << members.len()) - 1;
            let least = if self.is_partial { 1 } else { all };
            (least..=all).rev().map(move |set| {
                let members = members.iter().enumerate();
                let of = members.filter(move |(place, _)| set & (1 << place) != 0);
                of.map(|(_, worker)| *worker).collect::<Vec<_>>()
            })
        });
        sets.filter_map(move |of| self.updated(version, path, &of))
    }

    /// The updates from the latest known version to these parameters, two at most: the gradients of
    /// an update may be of versions before.
    fn path_to(&self, version: u64, parameters: &[f32]) -> Option<Vec<Known>> {
        let (&from, _) = self.known.range(..version).next_back()?;
        let is_it = |last: &Known| is_close(&last.parameters, parameters);
        match version - from {
            1 => self.candidates(from, &[]).find(is_it).map(|last| Vec::from([last])),
            2 => self.candidates(from, &[]).find_map(|first| {
                let path = [first];
                let last = self.candidates(from, &path).find(is_it)?;
                Some(path.into_iter().chain([last]).collect())
            }),
            _ => None,
        }
    }
}

impl Line {
    /// The filters of a worker, which has none of an earlier membership, if it sends its gradients
    /// filtered.
    fn filters_of(
        &mut self,
        worker: WorkerId,
        membership: (u64, Incarnation),
    ) -> Option<&mut Filters> {
        if self.job.encoding() != Some(Encoding::Filtered) {
            return None;
        }
        let filters = &mut self.filters;
        filters.retain(|of, it| *of != worker.0 || it.of == membership);
        let new = || {
            let model = self.job.build_model().expect("the model of the job");
            let chain = self.job.filter_chain(worker, model.layout()).expect("it has filters");
            Filters { of: membership, chain, last: None }
        };
        Some(filters.entry(worker.0).or_insert_with(new))
    }

    /// The updates to these parameters. Equal gradients of two workers lead to the same parameters:
    /// the checker may have taken one of them for the other in the last known update.
    fn explains(&mut self, version: u64, parameters: &[f32]) -> Option<Vec<Known>> {
        let path = self.path_to(version, parameters);
        let (&latest, last) = self.known.range(..version).next_back()?;
        if path.is_some() || !self.known.contains_key(&latest.checked_sub(1)?) {
            return path;
        }
        let last = last.clone();
        let is_it = |made: &Known| is_close(&made.parameters, &last.parameters);
        let same: Vec<Known> = self.candidates(latest - 1, &[]).filter(is_it).collect();
        let paths = same.into_iter().filter(|made| made.of != last.of).find_map(|made| {
            let Known { at, parameters: seen, is_seen, .. } = last.clone();
            self.known.insert(latest, Known { at, parameters: seen, is_seen, ..made });
            self.path_to(version, parameters)
        });
        if paths.is_none() {
            self.known.insert(latest, last);
        }
        paths
    }

    /// Of two updates without a gradient from the parameters between them, the checker may have
    /// taken one for the other. Returns true if an update leads to these parameters.
    fn corrects(&mut self, version: u64, parameters: &[f32]) -> bool {
        let derived = self.known[&version].clone();
        if is_close(&derived.parameters, parameters) {
            return true;
        }
        let is_it = |made: &Known| is_close(&made.parameters, parameters);
        let Some(made) = self.candidates(version - 1, &[]).find(is_it) else { return false };
        if let Some(next) = self.known.get_mut(&(version + 1)) {
            let both = derived.of.iter().chain(&next.of).copied();
            next.of = both.filter(|worker| !made.of.contains(worker)).collect();
        }
        self.known.insert(version, Known { at: derived.at, ..made });
        true
    }
}

impl Checker for Line {
    fn begins_with(&mut self, initial: Vec<f32>) {
        let (parameters, of) = (Arc::new(initial), Vec::new());
        let velocity = vec![0.0; parameters.len()];
        let first = Known { at: Time::ZERO, parameters, is_seen: true, velocity, of };
        // After a restart of the meeting point all begins again.
        self.known = BTreeMap::from([(0, first)]);
        self.groups.clear();
        self.latest.clear();
    }

    /// A group is formed: members that are not in it are on the line no more.
    fn forms(&mut self, ranks: &Ranks) {
        let Ranks { generation, version, members, .. } = ranks;
        if std::mem::take(&mut self.is_resumed) {
            self.latest.clear();
            self.groups.retain(|(_, at, _)| *at <= version.0);
            // The numbers of the groups begin again after those of the checkpoint.
            self.groups.iter_mut().for_each(|(generation, ..)| *generation = 0);
        }
        // A worker that comes back has made none of the updates itself.
        let back = members.iter().filter(|member| member.version == Version(0));
        back.for_each(|member| _ = self.latest.remove(&member.worker.0));
        let members: Vec<u32> = members.iter().map(|member| member.worker.0).collect();
        if let Some((last, at, of)) = self.groups.last() {
            assert!(generation >= last, "generation {generation} after {last}");
            if generation == last {
                assert_eq!((at, of), (&version.0, &members), "two groups of generation {last}");
                return;
            }
            // A member that alone had made an update may be lost before it sends it to the others.
            assert!(*at <= version.0 + 1, "a group goes back to version {version} from {at}");
        }
        for worker in &members {
            let latest = self.latest.get(worker).copied().unwrap_or_default();
            assert!(latest <= version.0, "worker {worker} goes back from {latest} to {version}");
        }
        let before = self.known.len();
        self.known.retain(|known, _| *known <= version.0);
        let members_done = |worker| self.done(worker, version.0, &[]);
        let is_due = |(worker, batch): &(u32, u64)| *batch <= members_done(*worker) + 1;
        let due = self.gradients.iter().filter(|(key, _)| is_due(key));
        self.gradients = due.map(|(key, gradient)| (*key, gradient.clone())).collect();
        self.dropped += (before - self.known.len()) as u64;
        self.groups.push((*generation, version.0, members));
    }

    fn restarts(&mut self, (version, parameters): (Version, Vec<f32>)) {
        self.evaluates(version, &parameters);
        self.is_resumed = true;
    }

    /// A member is sent an update that it has missed.
    fn missed(&mut self) {
        self.missed += 1;
    }

    /// A worker computes a gradient.
    fn computes(&mut self, worker: usize, order: &Compute, gradient: &[f32], samples: u32) {
        if !self.is_member(worker) {
            return;
        }
        let base = order.ticket.base.0;
        // The gradient of the update after the one in progress may be computed already.
        let update = order.ticket.sequence.0 - 1;
        assert!(update == base || update == base + 1, "update {update} from version {base}");
        let id = WorkerId(worker as u32);
        // A worker that was away goes on after its last mini-batch.
        let batch = self.done(id.0, base, &[]) + update - base;
        assert_eq!(order.task, Task::own(id, BatchId(batch)), "each mini-batch counts once");
        let membership = (order.ticket.run, order.ticket.incarnation);
        let gradient = match self.filters_of(id, membership) {
            Some(filters) => filters.filter(batch, order, gradient),
            None => gradient.to_vec(),
        };
        self.gradients.insert((id.0, batch), (gradient, samples));
    }

    /// A worker has parameters of a version. Returns true if it is the first that has.
    fn sees(
        &mut self,
        now: Time,
        worker: usize,
        version: Version,
        parameters: &Arc<Vec<f32>>,
    ) -> bool {
        if !self.is_member(worker) {
            return false;
        }
        self.latest.insert(worker as u32, version.0);
        if let Some(known) = self.known.get(&version.0) {
            let is_same = match known.is_seen {
                true => bits(&known.parameters) == bits(parameters),
                false => self.corrects(version.0, parameters),
            };
            assert!(is_same, "version {version} of worker {worker} differs");
            let known = self.known.get_mut(&version.0).expect("it is known");
            (known.parameters, known.is_seen) = (Arc::clone(parameters), true);
            return false;
        }
        let path = self.explains(version.0, parameters).unwrap_or_else(|| {
            let groups = &self.groups;
            panic!("version {version} is no update with the gradients of a group: {groups:?}")
        });
        let members = self.groups.last().map_or(0, |(.., members)| members.len());
        self.partial += path.iter().filter(|made| made.of.len() < members).count() as u64;
        let from = version.0 - path.len() as u64;
        let known = (from + 1..).zip(path);
        self.known.extend(known.map(|(version, known)| (version, Known { at: now, ..known })));
        let last = self.known.entry(version.0);
        last.and_modify(|it| (it.parameters, it.is_seen) = (Arc::clone(parameters), true));
        true
    }

    /// They are of a version that is known, or of the last one, whose gradients no worker computes.
    fn shows_last(&mut self, worker: usize, parameters: &Arc<Vec<f32>>) {
        if self.known.values().all(|known| bits(&known.parameters) != bits(parameters)) {
            let (latest, known) = self.known.last_key_value().expect("the initial parameters");
            let (latest, at) = (*latest, known.at);
            let is_path = |version: &u64| self.explains(*version, parameters).is_some();
            // The gradients of the last two updates may be of one version.
            let next = [latest, latest + 1, latest + 2].into_iter().find(is_path);
            let next = next.expect("the last parameters follow from no update");
            self.sees(at, worker, Version(next), parameters);
        }
    }

    /// The meeting point evaluates parameters.
    fn evaluates(&mut self, version: Version, parameters: &[f32]) {
        let known = self.known.get(&version.0);
        let known = known.unwrap_or_else(|| panic!("nobody has version {version}"));
        let is_same = bits(&known.parameters) == bits(parameters);
        assert!(is_same, "the meeting point has other parameters of version {version}");
    }

    fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    fn missed_updates(&self) -> u64 {
        self.missed
    }

    fn partial(&self) -> u64 {
        self.partial
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The longest time between two updates.
    fn longest(&self) -> Duration {
        let times: Vec<Time> = self.known.values().skip(1).map(|known| known.at).collect();
        times.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default()
    }
}
