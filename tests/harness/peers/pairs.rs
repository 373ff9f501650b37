//! The checker of the lab for exchanges in pairs: the parameters of each worker after all that it
//! has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_roles::node::Compute;
use pstrain_wire::Message;
use pstrain_wire::peers::Ranks;

use super::checker::{Checker, is_close};

/// The models of all workers. A worker changes its parameters in three ways: it answers another,
/// it takes an answer, and it applies a gradient. It does the last two before its messages tell.
#[derive(Debug)]
pub(super) struct Pairs {
    rate: f64,
    momentum: f64,
    initial: Vec<f64>,
    workers: BTreeMap<u32, Worker>,
    members: Vec<u32>,
    generation: u64,
    groups: u64,
    seen: BTreeSet<u64>,
    updates: Vec<Time>,
    evaluated: Option<(Version, Vec<f32>)>,
    is_resumed: bool,
    /// True if no group was formed since the last evaluation.
    is_same_group: bool,
}

/// The state of a worker, as far as it is known: not all is after a restart of the meeting point.
#[derive(Clone, Debug, Default)]
struct Worker {
    updates: u64,
    model: Option<Vec<f64>>,
    velocity: Option<Vec<f64>>,
    /// The exchange that it asks for: its number, the neighbor, and the parameters.
    asked: Option<(u64, u32, Option<Vec<f64>>)>,
    /// The number of the last exchange that it has asked for.
    exchange: u64,
    /// Its last answer to each worker: the exchange of that worker, and the average.
    answers: BTreeMap<u32, (u64, Vec<f64>)>,
    /// The gradient of the update under way.
    gradient: Option<(u64, Vec<f64>)>,
    /// Its models so far: one that it shows may wait for a connection.
    models: Vec<Vec<f64>>,
    /// The parameters that it has shown last, and the number of the request.
    shown: Option<(u64, Vec<f64>)>,
    /// True from its answer to a request to rest to its next gradient.
    rests: bool,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn average(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| f64::midpoint(*one, *other)).collect()
}

impl Worker {
    fn has(&mut self, model: Vec<f64>) {
        self.models.push(model.clone());
        self.model = Some(model);
    }
}

impl Pairs {
    pub(super) fn new(job: &Job, initial: &[f32]) -> Self {
        let momentum = match job.update.optimizer {
            OptimizerSpec::Sgd => 0.0,
            OptimizerSpec::Momentum { momentum } => f64::from(momentum),
            other => panic!("the checker has no formula for {other:?}"),
        };
        assert_eq!((job.update.weight_decay, job.update.clip_norm), (0.0, None), "no formula");
        Self {
            rate: job.update.learning_rate.into(),
            momentum,
            initial: wide(initial),
            workers: BTreeMap::new(),
            members: Vec::new(),
            generation: 0,
            groups: 0,
            seen: BTreeSet::new(),
            updates: Vec::from([Time::ZERO]),
            evaluated: None,
            is_resumed: false,
            is_same_group: false,
        }
    }

    /// A worker once it has taken the answer that it awaits; none if there is no answer.
    fn with_answer(&self, worker: u32) -> Option<Worker> {
        let mut state = self.workers[&worker].clone();
        if let Some((exchange, of, _)) = state.asked.take() {
            let answer = self.workers.get(&of)?.answers.get(&worker);
            let (_, average) = answer.filter(|(answered, _)| *answered == exchange)?;
            state.has(average.clone());
        }
        Some(state)
    }

    /// The worker with its next update, once it has taken the answer that it awaits.
    fn with_update(&self, worker: u32) -> Option<Worker> {
        let mut state = self.with_answer(worker)?;
        let (_, gradient) = state.gradient.take_if(|(update, _)| *update == state.updates)?;
        state.updates += 1;
        let velocity = state
            .velocity
            .take()
            .or_else(|| (self.momentum == 0.0).then(|| vec![0.0; gradient.len()]));
        let velocity = velocity.map(|velocity| {
            let both = velocity.iter().zip(&gradient);
            both.map(|(before, it)| before * self.momentum + it).collect::<Vec<_>>()
        });
        state.model = state.model.zip(velocity.as_ref()).map(|(model, velocity)| {
            model.iter().zip(velocity).map(|(value, it)| value - self.rate * it).collect()
        });
        state.velocity = velocity;
        state.models.extend(state.model.clone());
        Some(state)
    }

    /// The states, and those after answers that wait for a connection, in any order.
    fn with_answers(&self, worker: u32, states: Vec<Worker>) -> Vec<Worker> {
        let mut all = states.clone();
        for state in states {
            for (asker, other) in &self.workers {
                let Some((exchange, of, Some(request))) = &other.asked else { continue };
                let is_answered = state.answers.get(asker).is_some_and(|(it, _)| it == exchange);
                if *of == worker
                    && !is_answered
                    && let Some(model) = &state.model
                {
                    let (mut next, average) = (state.clone(), average(model, request));
                    next.has(average.clone());
                    next.answers.insert(*asker, (*exchange, average));
                    all.extend(self.with_answers(worker, Vec::from([next])));
                }
            }
        }
        all
    }

    /// Finds the state of a worker that explains parameters which it has sent, and keeps it.
    fn explain(
        &mut self,
        worker: u32,
        states: impl IntoIterator<Item = Option<Worker>>,
        wanted: impl Fn(&Worker) -> Option<Vec<f64>>,
        found: &[f64],
        what: &str,
    ) {
        let known = self.with_answers(worker, states.into_iter().flatten().collect());
        let explains = |state: &&Worker| wanted(state).is_none_or(|it| is_close(&it, found));
        let state = known.iter().find(explains).cloned();
        let state = state.unwrap_or_else(|| {
            panic!("worker {worker}: {what} {found:?} are not explained by {known:#?}")
        });
        self.workers.insert(worker, state);
    }

    /// A worker answers another.
    fn answers(&mut self, worker: u32, to: u32, exchange: u64, values: Vec<f64>) {
        let answers = &self.workers[&worker].answers;
        if let Some((_, average)) = answers.get(&to).filter(|(it, _)| *it == exchange) {
            // It waited for a connection, or is repeated in the next group.
            assert!(is_close(average, &values), "worker {worker} answers {to} otherwise");
            return;
        }
        let asked = self.workers.get(&to).and_then(|other| other.asked.clone());
        let request = asked.filter(|(number, of, _)| (*number, *of) == (exchange, worker));
        let (_, _, request) = request.expect("a request");
        let states = [self.with_answer(worker), self.with_update(worker)];
        let average = |it: &Worker| Some(average(it.model.as_ref()?, request.as_ref()?));
        self.explain(worker, states, average, &values, "the answers");
        let state = self.workers.get_mut(&worker).expect("a worker");
        state.has(values.clone());
        state.answers.insert(to, (exchange, values));
    }

    fn shows(&mut self, worker: u32, number: u64, values: Vec<f64>) {
        let own = &self.workers[&worker];
        if !own.models.iter().any(|model| is_close(model, &values)) {
            let states = [Some(own.clone()), self.with_answer(worker), self.with_update(worker)];
            self.explain(worker, states, |it| it.model.clone(), &values, "models");
            self.workers.get_mut(&worker).expect("a worker").has(values.clone());
        }
        self.workers.get_mut(&worker).expect("a worker").shown = Some((number, values));
    }

    /// True if the parameters are the mean of some of the models: members may have gone.
    fn is_mean(models: &[&Vec<f64>], parameters: &[f32]) -> bool {
        (1_u32..1 << models.len()).rev().any(|some| {
            let of = models.iter().enumerate().filter(|(place, _)| some & (1 << place) != 0);
            let of: Vec<_> = of.map(|(_, model)| model).collect();
            let mean = |key: usize| of.iter().map(|it| it[key]).sum::<f64>() / of.len() as f64;
            is_close(&(0..parameters.len()).map(mean).collect::<Vec<_>>(), &wide(parameters))
        })
    }

    fn asks(&mut self, worker: u32, to: u32, exchange: u64, values: Vec<f64>) {
        let own = self.workers[&worker].clone();
        let states = match exchange == own.exchange {
            true => [Some(own), None],
            // It has taken the answer to its last request.
            false => [self.with_answer(worker), None],
        };
        self.explain(worker, states, |it| it.model.clone(), &values, "requests");
        let state = self.workers.get_mut(&worker).expect("a worker");
        let again = state.asked.as_ref().map(|(asked, of, _)| (*asked, *of));
        assert!(again.is_none_or(|again| again == (exchange, to)), "{worker} asks {to}: {again:?}");
        assert!(exchange >= state.exchange, "exchange {exchange} after {}", state.exchange);
        state.exchange = exchange;
        state.has(values.clone());
        state.asked = Some((exchange, to, Some(values)));
    }
}

impl Checker for Pairs {
    fn begins_with(&mut self, initial: Vec<f32>) {
        self.initial = wide(&initial);
        self.evaluated = Some((Version(0), initial));
        // After a restart of the meeting point all begins again.
        self.members.clear();
    }

    fn forms(&mut self, ranks: &Ranks) {
        let is_resumed = std::mem::take(&mut self.is_resumed);
        if !is_resumed && self.groups > 0 {
            assert!(ranks.generation >= self.generation, "{ranks:?} after {}", self.generation);
            if ranks.generation == self.generation {
                return;
            }
        }
        self.generation = ranks.generation;
        self.is_same_group = false;
        self.groups += 1;
        let begins = ranks.members.iter().all(|member| member.version.0 == 0);
        let before: BTreeMap<u32, Worker> = ranks
            .members
            .iter()
            .filter(|member| !member.joins && self.workers.contains_key(&member.worker.0))
            .map(|member| {
                let worker = member.worker.0;
                let stays = |of| ranks.members.iter().any(|it| it.worker.0 == of && !it.joins);
                let state = &self.workers[&worker];
                // It has not made the update under way, or it has.
                let mut state = match state.updates == member.version.0 {
                    true if member.awaits.is_some_and(|of| {
                        state.asked.as_ref().is_some_and(|(_, asked, _)| *asked == of.0)
                    }) =>
                    {
                        state.clone()
                    }
                    true => self.with_answer(worker).unwrap_or_default(),
                    false => self.with_update(worker).unwrap_or_default(),
                };
                // A request may wait for a connection.
                let awaits = member.awaits.filter(|_| state.asked.is_none());
                if let Some(of) = awaits {
                    state.exchange += 1;
                    state.asked = Some((state.exchange, of.0, state.model.clone()));
                }
                if !is_resumed {
                    let wanted = (worker, member.version.0, member.awaits.map(|it| it.0));
                    let asked = state.asked.as_ref().map(|(_, of, _)| *of);
                    assert_eq!((worker, state.updates, asked), wanted, "{state:?}");
                }
                state.asked.take_if(|(_, of, _)| !stays(*of));
                state.answers.retain(|of, _| stays(*of));
                (worker, state)
            })
            .collect();
        let source = ranks.members.iter().find(|member| !member.joins);
        let source = source.and_then(|member| before.get(&member.worker.0)).cloned();
        self.workers = before;
        for member in &ranks.members {
            let updates = member.version.0;
            let state = match () {
                () if is_resumed => Worker { updates, ..Worker::default() },
                () if begins && self.groups == 1 => Worker {
                    models: Vec::from([self.initial.clone()]),
                    model: Some(self.initial.clone()),
                    velocity: Some(vec![0.0; self.initial.len()]),
                    ..Worker::default()
                },
                () if member.joins => Worker {
                    updates,
                    models: source.iter().flat_map(|source| source.model.clone()).collect(),
                    model: source.as_ref().and_then(|source| source.model.clone()),
                    velocity: source.as_ref().and_then(|source| source.velocity.clone()),
                    ..Worker::default()
                },
                () => continue,
            };
            self.workers.insert(member.worker.0, state);
        }
        self.members = ranks.members.iter().map(|member| member.worker.0).collect();
    }

    fn restarts(&mut self, evaluated: (Version, Vec<f32>)) {
        self.evaluated = Some(evaluated);
        self.is_resumed = true;
    }

    fn tells(&mut self, worker: usize, to: Option<usize>, message: &Message) {
        let worker = worker as u32;
        // A worker that is out of the group goes on until it hears of it.
        if !self.members.contains(&worker) || self.is_resumed {
            return;
        }
        match (message, to) {
            (Message::Piece(it), Some(to)) if self.members.contains(&(to as u32)) => {
                let (exchange, values) = (it.header.version.0, wide(&it.values));
                match it.header.answers {
                    true => self.answers(worker, to as u32, exchange, values),
                    false => self.asks(worker, to as u32, exchange, values),
                }
            }
            (Message::Reduced(it), _) if it.version.0 == self.workers[&worker].updates + 1 => {
                let state = self.with_update(worker).expect("an update that is possible");
                self.workers.insert(worker, state);
            }
            (Message::Rested(_), _) => {
                self.workers.get_mut(&worker).expect("a worker").rests = true;
            }
            (Message::Snapshot(it), _) => self.shows(worker, it.version.0, wide(&it.values)),
            _ => {}
        }
    }

    fn computes(&mut self, worker: usize, order: &Compute, gradient: &[f32], _samples: u32) {
        let (worker, version) = (worker as u32, order.ticket.base.0);
        if !self.members.contains(&worker) || self.is_resumed {
            return;
        }
        let batch = order.task.batch;
        assert_eq!(order.task, Task::own(WorkerId(worker), batch), "a mini-batch of its own");
        assert_eq!(batch.0, version, "each mini-batch counts once");
        let state = self.workers.get_mut(&worker).expect("a worker");
        state.gradient = Some((version, wide(gradient)));
    }

    fn sees(
        &mut self,
        now: Time,
        worker: usize,
        version: Version,
        parameters: &Arc<Vec<f32>>,
    ) -> bool {
        let (worker, found) = (worker as u32, wide(parameters));
        if !self.members.contains(&worker) || self.is_resumed {
            return false;
        }
        let own = self.workers[&worker].clone();
        let states = match version.0 == own.updates {
            // It has rested, and may have been asked meanwhile.
            true => [Some(own), self.with_answer(worker)],
            false => [self.with_update(worker), None],
        };
        self.explain(worker, states, |it| it.model.clone(), &found, "parameters");
        let state = self.workers.get_mut(&worker).expect("a worker");
        assert_eq!(state.updates, version.0, "updates of worker {worker}");
        state.has(found);
        state.rests = false;
        self.updates.push(now);
        self.seen.insert(version.0)
    }

    fn evaluates(&mut self, version: Version, parameters: &[f32]) {
        self.evaluated = Some((version, parameters.to_vec()));
        self.is_same_group = true;
        let models = self.members.iter().filter_map(|worker| self.workers.get(worker));
        let models: Vec<&Vec<f64>> =
            models.filter_map(|state| Some(&state.shown.as_ref()?.1)).collect();
        let is_mean = Self::is_mean(&models, parameters);
        assert!(is_mean || version.0 == 0, "version {version} is not the mean of models");
    }

    fn ends(&mut self, version: Version, parameters: &[f32]) {
        let last = self.evaluated.clone();
        let initial: Vec<f32> = self.initial.iter().map(|value| *value as f32).collect();
        assert_eq!(last.unwrap_or((Version(0), initial)), (version, parameters.to_vec()));
    }

    fn used_up(&self, parameters: &[f32]) {
        // A member may have died since: the result has its model, too.
        let rest = self.is_same_group && self.members.iter().all(|it| self.workers[it].rests);
        let last = self.members.iter().filter_map(|worker| self.with_answer(*worker)?.model);
        let last: Vec<Vec<f64>> = last.collect();
        if rest && !self.members.is_empty() && last.len() == self.members.len() {
            let is_mean = Self::is_mean(&last.iter().collect::<Vec<_>>(), parameters);
            assert!(is_mean, "the result is not the mean of the models at rest");
        }
    }

    fn groups(&self) -> u64 {
        self.groups
    }

    fn longest(&self) -> Duration {
        self.updates.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default()
    }
}
