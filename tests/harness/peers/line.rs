//! The checker of the lab: the parameters of each version, and the gradients of each update.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_policy::rules::Aggregation;
use pstrain_roles::node::Compute;
use pstrain_wire::peers::Ranks;

use super::checker::{Checker, is_close};

/// The line of versions that the group is on.
#[derive(Debug)]
pub(super) struct Line {
    rate: f64,
    momentum: f64,
    sums: bool,
    /// The parameters of each version, and how they came about.
    known: BTreeMap<u64, Known>,
    /// Gradients and their numbers of examples, by version and worker.
    gradients: BTreeMap<(u64, u32), (Vec<f32>, u32)>,
    /// The groups: generation, version, members.
    groups: Vec<(u64, u64, Vec<u32>)>,
    /// The latest version that each worker has had.
    latest: BTreeMap<u32, u64>,
    missed: u64,
    dropped: u64,
    /// True from a restart of the meeting point to the first group after it.
    is_resumed: bool,
}

#[derive(Clone, Debug)]
struct Known {
    at: Time,
    parameters: Arc<Vec<f32>>,
    /// The optimizer's state, by the checker's own formula.
    velocity: Vec<f64>,
    /// The workers whose gradients are in the update to this version.
    of: Vec<u32>,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
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
        let first = Known { at: Time::ZERO, parameters, velocity, of };
        Self {
            rate: job.update.learning_rate.into(),
            momentum,
            sums: job.aggregation == Aggregation::Sum,
            known: BTreeMap::from([(0, first)]),
            gradients: BTreeMap::new(),
            groups: Vec::new(),
            latest: BTreeMap::new(),
            missed: 0,
            dropped: 0,
            is_resumed: false,
        }
    }

    fn is_member(&self, worker: usize) -> bool {
        self.groups.last().is_some_and(|(.., members)| members.contains(&(worker as u32)))
    }

    /// The optimizer's state after an update with one gradient of each member.
    fn updated(&self, before: &Known, version: u64, members: &[u32]) -> Option<Vec<f64>> {
        let gradients = members.iter().map(|worker| self.gradients.get(&(version, *worker)));
        let gradients: Vec<_> = gradients.collect::<Option<_>>()?;
        let all: u32 = gradients.iter().map(|(_, samples)| samples).sum();
        let mut velocity: Vec<f64> = before.velocity.iter().map(|it| it * self.momentum).collect();
        for (gradient, samples) in gradients {
            let factor = if self.sums { 1.0 } else { f64::from(*samples) / f64::from(all) };
            for (sum, value) in velocity.iter_mut().zip(gradient) {
                *sum += factor * f64::from(*value);
            }
        }
        Some(velocity)
    }
}

impl Line {
    /// The version from which the last update was made, if no gradient was computed from it: those
    /// of the last update were computed ahead.
    fn last_but_one(&self, now: Time, version: u64) -> Option<Known> {
        let before = self.known.get(&version.checked_sub(1)?)?;
        let (.., members) = self.groups.iter().rev().find(|(_, from, _)| *from < version)?;
        let velocity = self.updated(before, version - 1, members)?;
        let steps = before.parameters.iter().zip(&velocity);
        let values = steps.map(|(value, step)| (f64::from(*value) - self.rate * step) as f32);
        let (parameters, of) = (Arc::new(values.collect()), members.clone());
        Some(Known { at: now, parameters, velocity, of })
    }
}

impl Checker for Line {
    fn begins_with(&mut self, initial: Vec<f32>) {
        let (parameters, of) = (Arc::new(initial), Vec::new());
        let velocity = vec![0.0; parameters.len()];
        let first = Known { at: Time::ZERO, parameters, velocity, of };
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
        self.gradients.retain(|(known, _), _| *known <= version.0);
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
        let done = self.known.range(..=base).filter(|(_, known)| known.of.contains(&id.0));
        let batch = BatchId(done.count() as u64 + update - base);
        assert_eq!(order.task, Task::own(id, batch), "each mini-batch counts once");
        self.gradients.insert((update, id.0), (gradient.to_vec(), samples));
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
            let is_same = bits(&known.parameters) == bits(parameters);
            assert!(is_same, "version {version} of worker {worker} differs");
            return false;
        }
        let before = version.0.checked_sub(1).and_then(|before| self.known.get(&before).cloned());
        let before = before.or_else(|| self.last_but_one(now, version.0 - 1));
        let before = before.unwrap_or_else(|| panic!("{version} follows no known version"));
        let groups = self.groups.iter().rev().filter(|(_, from, _)| *from < version.0);
        let made = groups.take(2).find_map(|(.., members)| {
            let velocity = self.updated(&before, version.0 - 1, members)?;
            let is_it = velocity.iter().zip(before.parameters.iter().zip(&**parameters));
            let close = is_it.into_iter().all(|(step, (before, after))| {
                let wanted = f64::from(*before) - self.rate * step;
                (wanted - f64::from(*after)).abs() <= 1e-5 * (1.0 + wanted.abs())
            });
            close.then(|| (velocity, members.clone()))
        });
        let (velocity, of) = made.unwrap_or_else(|| {
            let groups = &self.groups;
            panic!("version {version} is no update with the gradients of a group: {groups:?}")
        });
        let parameters = Arc::clone(parameters);
        self.known.insert(version.0, Known { at: now, parameters, velocity, of });
        true
    }

    /// They are of a version that is known, or of the last one, whose gradients no worker computes.
    fn shows_last(&mut self, worker: usize, parameters: &Arc<Vec<f32>>) {
        if self.known.values().all(|known| bits(&known.parameters) != bits(parameters)) {
            let (latest, known) = self.known.last_key_value().expect("the initial parameters");
            let (mut next, at) = (Version(latest + 1), known.at);
            // The gradients of the last two updates may be of one version.
            if let Some(known) = self.last_but_one(at, next.0)
                && !is_close(&known.parameters, parameters)
            {
                self.known.insert(next.0, known);
                next = next.next();
            }
            self.sees(at, worker, next, parameters);
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

    fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The longest time between two updates.
    fn longest(&self) -> Duration {
        let times: Vec<Time> = self.known.values().skip(1).map(|known| known.at).collect();
        times.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default()
    }
}
