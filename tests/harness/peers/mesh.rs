//! The checker of the lab for gossip: the parameters of each worker at each version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::gossip::JobGraph;
use pstrain_policy::job::Job;
use pstrain_roles::node::Compute;
use pstrain_wire::peers::Ranks;

use super::checker::{Checker, is_close};
use crate::bits;

/// The models of all workers.
#[derive(Debug)]
pub(super) struct Mesh {
    graph: JobGraph,
    rate: f64,
    momentum: f64,
    initial: Arc<Vec<f32>>,
    /// The models by worker and version.
    known: BTreeMap<(u32, u64), Model>,
    /// Models of workers before they left the group, which a checkpoint may have.
    departed: BTreeMap<(u32, u64), Model>,
    /// Gradients by worker and version.
    gradients: BTreeMap<(u32, u64), Vec<f32>>,
    /// The mini-batches that each worker has computed since it has had the state of training.
    batches: BTreeMap<u32, BTreeMap<u64, BatchId>>,
    groups: Vec<Group>,
    /// Models that workers have sent for the end of a run that is stopped.
    last: Vec<Arc<Vec<f32>>>,
    /// The last parameters that the meeting point evaluated.
    evaluated: Option<(Version, Vec<f32>)>,
    updates: Vec<Time>,
    /// True from a restart of the meeting point to the first group after it.
    is_resumed: bool,
    /// The version of the last checkpoint that was gone back to.
    resumed: Option<u64>,
}

#[derive(Clone, Debug)]
struct Model {
    parameters: Arc<Vec<f32>>,
    /// False if the checker derived the parameters, since the worker sent them to no other.
    is_seen: bool,
    /// The optimizer's state.
    velocity: Vec<f64>,
}

#[derive(Debug)]
struct Group {
    generation: u64,
    /// The version from which its members average.
    version: u64,
    members: Vec<u32>,
}

impl Mesh {
    pub(super) fn new(job: &Job, initial: Vec<f32>) -> Self {
        let momentum = match job.update.optimizer {
            OptimizerSpec::Sgd => 0.0,
            OptimizerSpec::Momentum { momentum } => f64::from(momentum),
            other => panic!("the checker has no formula for {other:?}"),
        };
        assert_eq!((job.update.weight_decay, job.update.clip_norm), (0.0, None), "no formula");
        Self {
            graph: JobGraph::new(job.graph, Stream::new(job.seed), &job.edges),
            rate: job.update.learning_rate.into(),
            momentum,
            initial: Arc::new(initial),
            known: BTreeMap::new(),
            departed: BTreeMap::new(),
            gradients: BTreeMap::new(),
            batches: BTreeMap::new(),
            groups: Vec::new(),
            last: Vec::new(),
            evaluated: None,
            updates: Vec::from([Time::ZERO]),
            is_resumed: false,
            resumed: None,
        }
    }

    fn is_member(&self, worker: u32) -> bool {
        self.groups.last().is_some_and(|group| group.members.contains(&worker))
    }

    /// The average of a member and its neighbors at a version, by the definition.
    fn averaged(&self, members: &[u32], worker: u32, version: u64) -> Option<Vec<f64>> {
        let rank = members.iter().position(|member| *member == worker)? as u32;
        let mut degrees = vec![0_u32; members.len()];
        let workers: Vec<WorkerId> = members.iter().copied().map(WorkerId).collect();
        let edges = self.graph.edges(&workers);
        for (one, other) in &edges {
            degrees[*one as usize] += 1;
            degrees[*other as usize] += 1;
        }
        let own = self.known.get(&(worker, version))?;
        let mut average: Vec<f64> = own.parameters.iter().map(|it| f64::from(*it)).collect();
        for (one, other) in edges.into_iter().filter(|(one, other)| [*one, *other].contains(&rank))
        {
            let other = if one == rank { other } else { one };
            let weight = 1.0 / f64::from(1 + degrees[rank as usize].max(degrees[other as usize]));
            let model = self.known.get(&(members[other as usize], version))?;
            let both = model.parameters.iter().zip(&*own.parameters);
            for (sum, (theirs, own)) in average.iter_mut().zip(both) {
                *sum += weight * (f64::from(*theirs) - f64::from(*own));
            }
        }
        Some(average)
    }

    /// The steps that a worker makes from a version: to the optimizer's state, times the rate.
    fn velocity(&self, worker: u32, version: u64) -> Option<Vec<f64>> {
        let before = &self.known.get(&(worker, version))?.velocity;
        let Some(gradient) = self.gradients.get(&(worker, version)) else {
            return Some(before.clone());
        };
        let both = before.iter().zip(gradient);
        Some(both.map(|(before, it)| before * self.momentum + f64::from(*it)).collect())
    }

    /// The optimizer's state of a worker that comes to `parameters` with its next update, alone or
    /// in one of its groups.
    fn explains(&self, worker: u32, version: u64, parameters: &[f32]) -> Option<Vec<f64>> {
        let before = self.known.get(&(worker, version))?;
        let velocity = self.velocity(worker, version)?;
        let steps = self.gradients.contains_key(&(worker, version));
        let goes_to = |from: Vec<f64>| {
            let to = from.iter().zip(&velocity);
            let to = to.map(|(from, it)| if steps { from - self.rate * it } else { *from });
            is_close(&to.collect::<Vec<_>>(), parameters)
        };
        let latest = self.groups.last()?;
        let is_alone = version < latest.version
            && goes_to(before.parameters.iter().map(|it| f64::from(*it)).collect());
        let groups = self.groups.iter().rev().filter(|group| group.version <= version);
        let mut groups = groups.filter_map(|it| self.averaged(&it.members, worker, version));
        (is_alone || groups.any(goes_to)).then_some(velocity)
    }

    /// No other worker sees the updates that a worker makes alone: up to the version of its group,
    /// and once it has no mini-batch left. Updates without a gradient change nothing.
    fn steps_alone(&mut self, worker: u32, until: u64) {
        let mut known = self.known.range((worker, 0)..(worker, until));
        let Some((&(_, last), _)) = known.next_back() else { return };
        for version in last..until - 1 {
            let Some(velocity) = self.velocity(worker, version) else { return };
            let mut parameters = Arc::clone(&self.known[&(worker, version)].parameters);
            if self.gradients.contains_key(&(worker, version)) {
                for (value, step) in Arc::make_mut(&mut parameters).iter_mut().zip(&velocity) {
                    *value = (f64::from(*value) - self.rate * step) as f32;
                }
            }
            self.known
                .insert((worker, version + 1), Model { parameters, is_seen: false, velocity });
        }
    }

    /// The model of another worker that has these parameters: one that joins has its state, too.
    fn of_another(&self, version: u64, parameters: &[f32]) -> Option<&Model> {
        let mut same = self.known.iter().filter(|((_, known), _)| *known == version);
        same.find_map(|(_, it)| (bits(&it.parameters) == bits(parameters)).then_some(it))
    }
}

impl Checker for Mesh {
    fn begins_with(&mut self, initial: Vec<f32>) {
        self.evaluated = Some((Version(0), initial.clone()));
        self.initial = Arc::new(initial);
        // After a restart of the meeting point all begins again.
        self.groups.clear();
        self.known.clear();
        self.gradients.clear();
        self.batches.clear();
    }

    fn forms(&mut self, ranks: &Ranks) {
        let Ranks { generation, version, members, .. } = ranks;
        let is_resumed = std::mem::take(&mut self.is_resumed);
        if is_resumed {
            self.resumed = Some(version.0);
            for worker in members.iter().map(|member| (member.worker.0, version.0)) {
                if let Some(model) = self.departed.get(&worker) {
                    self.known.entry(worker).or_insert_with(|| model.clone());
                }
            }
            self.groups.retain(|group| group.version <= version.0);
            // The numbers of the groups begin again after those of the checkpoint.
            self.groups.iter_mut().for_each(|group| group.generation = 0);
        }
        if let Some(last) = self.groups.last() {
            assert!(*generation >= last.generation, "{generation} after {}", last.generation);
            if *generation == last.generation {
                assert_eq!(version.0, last.version, "two groups of generation {generation}");
                return;
            }
        }
        if is_resumed || version.0 == 0 {
            // If the meeting point has heard of no update and its workers are new, the run begins
            // again.
            self.known.retain(|(_, known), _| *known <= version.0);
        }
        if is_resumed {
            self.gradients.retain(|(_, known), _| *known < version.0);
            self.batches.values_mut().for_each(|it| it.retain(|known, _| *known < version.0));
        }
        for member in members {
            let worker = member.worker.0;
            if version.0 == 0 {
                if member.joins {
                    self.gradients.retain(|(known, _), _| *known != worker);
                    self.batches.remove(&worker);
                }
                let velocity = vec![0.0; self.initial.len()];
                let parameters = Arc::clone(&self.initial);
                let model = Model { parameters, is_seen: true, velocity };
                self.known.insert((worker, 0), model);
            }
            // A worker that was not in the group of the checkpoint has the model of another.
            let is_new = is_resumed && !self.known.contains_key(&(worker, version.0));
            if (member.joins || is_new) && version.0 > 0 {
                let mut own = self.known.split_off(&(worker, 0));
                self.known.extend(own.split_off(&(worker + 1, 0)));
                self.departed.extend(own);
                self.gradients.retain(|(known, _), _| *known != worker);
                self.batches.remove(&worker);
            } else {
                let version = member.version.0;
                if self.groups.last().is_some_and(|group| version <= group.version) {
                    self.steps_alone(worker, version + 1);
                }
                assert!(
                    self.known.contains_key(&(worker, version)),
                    "worker {worker} is said to have version {version}"
                );
            }
        }
        let members = members.iter().map(|member| member.worker.0).collect();
        self.groups.push(Group { generation: *generation, version: version.0, members });
    }

    fn restarts(&mut self, evaluated: (Version, Vec<f32>)) {
        self.evaluated = Some(evaluated);
        self.is_resumed = true;
    }

    fn computes(&mut self, worker: usize, order: &Compute, gradient: &[f32], _samples: u32) {
        let (worker, version) = (worker as u32, order.ticket.base.0);
        if !self.is_member(worker) {
            return;
        }
        let batch = order.task.batch;
        assert_eq!(order.task, Task::own(WorkerId(worker), batch), "a mini-batch of its own");
        let batches = self.batches.entry(worker).or_default();
        let again = batches.insert(version, batch);
        assert!(again.is_none_or(|again| again == batch), "another mini-batch for one update");
        let all: BTreeSet<BatchId> = batches.values().copied().collect();
        assert_eq!(all.len(), batches.len(), "each mini-batch counts once");
        self.gradients.insert((worker, version), gradient.to_vec());
    }

    fn sees(
        &mut self,
        now: Time,
        worker: usize,
        version: Version,
        parameters: &Arc<Vec<f32>>,
    ) -> bool {
        let (worker, version) = (worker as u32, version.0);
        // A worker that is out of the group goes on until it hears of it.
        if !self.is_member(worker) {
            return false;
        }
        if let Some(known) = self.known.get(&(worker, version)) {
            let wanted = || known.parameters.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
            let is_same = match known.is_seen {
                true => bits(&known.parameters) == bits(parameters),
                false => is_close(&wanted(), parameters),
            };
            let velocity = if is_same {
                known.velocity.clone()
            } else {
                // A worker that was not in the group of a checkpoint has the state of a member.
                assert_eq!(self.resumed, Some(version), "a version of worker {worker} differs");
                let other = self.of_another(version, parameters);
                let other = other.unwrap_or_else(|| panic!("version {version} of no worker"));
                let velocity = other.velocity.clone();
                self.batches.remove(&worker);
                velocity
            };
            let model = Model { parameters: Arc::clone(parameters), is_seen: true, velocity };
            self.known.insert((worker, version), model);
            return false;
        }
        self.steps_alone(worker, version);
        let before = version.checked_sub(1).filter(|it| self.known.contains_key(&(worker, *it)));
        let velocity = match before {
            Some(before) => self.explains(worker, before, parameters).unwrap_or_else(|| {
                panic!(
                    "version {version} of worker {worker} is no update from the one before: {:?}",
                    self.groups
                )
            }),
            None => match self.of_another(version, parameters) {
                Some(other) => other.velocity.clone(),
                None => panic!(
                    "worker {worker} joins with a version {version} that no other worker has"
                ),
            },
        };
        let is_first = !self.known.keys().any(|(_, known)| *known == version);
        if is_first {
            self.updates.push(now);
        }
        let parameters = Arc::clone(parameters);
        self.known.insert((worker, version), Model { parameters, is_seen: true, velocity });
        is_first
    }

    fn ends(&mut self, version: Version, parameters: &[f32]) {
        let last = self.evaluated.as_ref().map(|(version, mean)| (*version, mean.as_slice()));
        assert_eq!(last.unwrap_or((Version(0), &self.initial)), (version, parameters));
    }

    fn shows_last(&mut self, worker: usize, parameters: &Arc<Vec<f32>>) {
        let own = self.known.range((worker as u32, 0)..=(worker as u32, u64::MAX));
        let (_, latest) = own.last().expect("a model of the worker");
        let wanted: Vec<f64> = latest.parameters.iter().map(|it| f64::from(*it)).collect();
        assert!(is_close(&wanted, parameters), "the last model of worker {worker} differs");
        self.last.push(Arc::clone(parameters));
    }

    fn evaluates(&mut self, version: Version, parameters: &[f32]) {
        let evaluated = (version, parameters.to_vec());
        if self.evaluated.as_ref() == Some(&evaluated) {
            return; // repeated after a restart, maybe without some of the members
        }
        self.evaluated = Some(evaluated);
        let Some(group) = self.groups.last() else { return };
        let members = group.members.iter();
        let models = members.filter_map(|worker| self.known.get(&(*worker, version.0)));
        let models: Vec<_> = match self.last.is_empty() {
            true => models.map(|model| &model.parameters).collect(),
            false => self.last.iter().collect(),
        };
        // Members may have gone since they have made the version.
        let is_mean = (1_u32..1 << models.len()).rev().any(|some| {
            let of = models.iter().enumerate().filter(|(place, _)| some & (1 << place) != 0);
            let of: Vec<_> = of.map(|(_, model)| model).collect();
            let mean = |key: usize| {
                of.iter().map(|model| f64::from(model[key])).sum::<f64>() / of.len() as f64
            };
            is_close(&(0..parameters.len()).map(mean).collect::<Vec<_>>(), parameters)
        });
        assert!(is_mean || version.0 == 0, "version {version} is not the mean of models");
    }

    fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    fn longest(&self) -> Duration {
        self.updates.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default()
    }
}
