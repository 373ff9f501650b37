//! The filter chain of one worker, with its residual (error feedback).
//!
//! With error feedback (Seide et al. 2014; Karimireddy et al., ICML 2019) the input of the filters
//! is `p = g + e`: the gradient `g` plus the residual `e` of earlier gradients. The server decodes
//! `d`, and `p - d` is the new residual. The sum of all decoded gradients plus the residual equals
//! the sum of the gradients.
//!
//! Karimireddy et al. keep the error of the step, `rate * g`. Therefore, once a schedule has
//! changed the learning rate, `e` is scaled to `e * (rate then / rate now)`: it causes the same
//! step as it would have caused when it was computed. The sums above are then sums of `rate * g`.
//!
//! A dropped push is excluded from these sums. Its mini-batch is assigned and computed again, so
//! its gradient is discarded. The part of earlier residuals that the push contained is still due:
//! the residual becomes `e + d - g`, with `e` the current residual. If no gradient was filtered
//! since, this is bit for bit the residual before the push. A lossless filter therefore never
//! leaves a residual, whichever pushes are dropped.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::encoded::{Coded, Encoded, Values};
use super::low_rank::PowerSgd;
use super::{At, Filters, Memory, Sparsifier, ValueEncoder, encoder_of, sparsifier_of};
use crate::decided::Decided;
use crate::filter::FilterSpec;
use crate::id::{Sequence, Version, WorkerId};
use crate::optim::{Schedule, UpdateSpec, norm};
use crate::params::{Blocks, KeyRange, Layout};
use crate::rng::Stream;
use crate::task::Task;

/// The filter chain of one incarnation of a worker.
#[derive(Debug)]
pub struct FilterChain {
    choices: Vec<Box<dyn Sparsifier>>,
    code: Option<Box<dyn ValueEncoder>>,
    feeds_back: bool,
    remembers: bool,
    /// The l1 penalty of the updates; 0 if there is none.
    lambda: f32,
    /// The blocks of keys, if each gradient is of one block.
    blocks: Option<Blocks>,
    /// The number of parameters; the keys after them are state, which is sent as it is.
    trained: usize,
    stream: Stream,
    learning_rate: f32,
    schedule: Schedule,
    /// The learning rate of the current gradients.
    rate: f32,
    state: State,
    /// Pushes without a known verdict, the oldest first.
    under_way: VecDeque<UnderWay>,
}

/// State from one gradient to the next.
#[derive(Clone, Debug, Default)]
struct State {
    /// The residual; empty if there is none.
    residual: Vec<f32>,
    /// The learning rate of the residual.
    rate: f32,
    memory: Memory,
}

/// The record of a push in flight: allows sending it again and undoing it.
#[derive(Debug)]
struct UnderWay {
    sequence: Sequence,
    filtered: Filtered,
    /// The learning rate of the push's gradient.
    rate: f32,
    /// The gradient, and the state before the push; only if the filters have state.
    gradient: Vec<f32>,
    before: State,
}

/// The output of the filters for one gradient.
#[derive(Clone, Debug)]
pub struct Filtered {
    /// The gradient that the server decodes.
    pub gradient: Arc<Vec<f32>>,
    /// `None` if the gradient is sent unencoded.
    coded: Option<Arc<Coded>>,
}

impl Filtered {
    /// Encodes the part for `keys`, with keys relative to the begin of `keys`; `None` if that is
    /// not shorter than the plain values.
    #[must_use]
    pub fn encode(&self, keys: KeyRange) -> Option<Encoded> {
        let encoded = self.coded.as_ref()?.encode(keys.indices());
        let plain = keys.len() * size_of::<f32>() as u64;
        ((encoded.bytes.len() as u64) < plain).then_some(encoded)
    }

    /// Encodes the part for `keys`, as plain values if nothing else is shorter.
    #[must_use]
    pub fn encode_or_plain(&self, keys: KeyRange) -> Encoded {
        self.encode(keys).unwrap_or_else(|| Encoded::of_all(&self.gradient[keys.indices()]))
    }
}

impl FilterChain {
    /// Builds the filters of `worker` before its first gradient, for a model of this layout, in a
    /// run with root stream `seed` and these updates. Returns `None` if gradients are sent
    /// unfiltered and cover all keys.
    #[must_use]
    pub fn new(
        (filters, blocks): (&Filters, Option<Blocks>),
        update: &UpdateSpec,
        seed: Stream,
        worker: WorkerId,
        layout: &Layout,
    ) -> Option<Self> {
        if filters.is_none() && blocks.is_none() {
            return None;
        }
        let filter_chain = Self::of(filters, seed, worker, layout)?;
        let UpdateSpec { learning_rate, schedule, .. } = *update;
        let (lambda, rate) = (update.l1(), learning_rate);
        Some(Self { lambda, blocks, learning_rate, schedule, rate, ..filter_chain })
    }

    /// As [`Self::new`], from the filters and the run's root stream alone.
    pub(super) fn of(
        filters: &Filters,
        seed: Stream,
        worker: WorkerId,
        layout: &Layout,
    ) -> Option<Self> {
        let stream = seed.fork("filter", worker.0.into());
        let feeds_back = filters.feeds_back();
        let mut memory = Memory::new();
        let mut code = None;
        for filter in filters.chain.iter().filter(|filter| filter.encodes_values()) {
            code = Some(match *filter {
                FilterSpec::PowerSgd { rank } => {
                    let power = PowerSgd::new(rank, layout);
                    memory = power.begin(stream);
                    Box::new(power)
                }
                filter => encoder_of(filter)?,
            });
        }
        Some(Self {
            choices: filters
                .chain
                .iter()
                .filter_map(|filter| sparsifier_of(*filter, !feeds_back))
                .collect(),
            code,
            feeds_back,
            remembers: filters.remember(),
            lambda: 0.0,
            blocks: None,
            trained: layout.trained(),
            stream,
            learning_rate: 1.0,
            schedule: Schedule::Constant,
            rate: 1.0,
            state: State { residual: Vec::new(), rate: 1.0, memory },
            under_way: VecDeque::new(),
        })
    }

    /// Sets the version on which the next gradients are computed: they have the learning rate of an
    /// update from this version.
    pub fn turn_to(&mut self, version: Version) {
        self.rate = self.schedule.rate(self.learning_rate, version);
    }

    /// Filters the gradient of `task`, which is push `sequence`. Random choices depend on the
    /// worker and the task only.
    ///
    /// If the gradient plus residual, or its decoded form, is not finite, the plain gradient is
    /// sent, so that the server detects it, and the state does not change.
    ///
    /// `parameters` are those at which the gradient was computed; only the KKT filter uses them. If
    /// the gradient has values for a `block` of the keys only, no other keys are sent.
    pub fn filter(
        &mut self,
        gradient: Vec<f32>,
        sequence: Sequence,
        task: Task,
        block: Option<Range<usize>>,
        parameters: &[f32],
    ) -> Filtered {
        let before = if self.remembers { self.state.clone() } else { State::default() };
        let mut given = gradient.clone();
        if self.feeds_back && !self.state.residual.is_empty() {
            let ratio = ratio(self.state.rate, self.rate);
            let carried = self.state.residual.iter().map(|value| ratio * value);
            given.iter_mut().zip(carried).for_each(|(value, more)| *value += more);
        }
        let mut filtered = Filtered { gradient: Arc::new(Vec::new()), coded: None };
        match self.decoded(&given, task, block, parameters) {
            Some((coded, decoded)) => {
                if self.feeds_back {
                    let residual = given.iter().zip(&decoded).map(|(given, read)| given - read);
                    self.state.residual = residual.collect();
                    self.state.rate = self.rate;
                }
                filtered.gradient = Arc::new(decoded);
                filtered.coded = Some(Arc::new(coded));
            }
            None => {
                if self.remembers {
                    self.state = before.clone();
                }
                filtered.gradient = Arc::new(gradient.clone());
            }
        }
        let gradient = if self.remembers { gradient } else { Vec::new() };
        let (rate, filtered_too) = (self.rate, filtered.clone());
        let under_way = UnderWay { sequence, filtered: filtered_too, rate, gradient, before };
        self.under_way.push_back(under_way);
        filtered
    }

    /// Encodes the part for `keys` of push `sequence`, whose verdict is not known yet; `None` if
    /// that is not shorter than the plain values.
    #[must_use]
    pub fn encode(&self, sequence: Sequence, keys: KeyRange) -> Option<Encoded> {
        let push = self.under_way.iter().rfind(|push| push.sequence == sequence)?;
        push.filtered.encode(keys)
    }

    /// Applies the chain to `given` and decodes the result; `None` if either is not finite.
    fn decoded(
        &mut self,
        given: &[f32],
        task: Task,
        block: Option<Range<usize>>,
        parameters: &[f32],
    ) -> Option<(Coded, Vec<f32>)> {
        if !given.iter().all(|value| value.is_finite()) {
            return None;
        }
        let stream = self.stream.fork("part", task.part.0.into()).fork("batch", task.batch.0);
        // The gradient of a sparse model has values for the worker's keys alone, and no state.
        let trained = self.trained.min(given.len());
        let place = block.clone().unwrap_or(0..trained);
        let parameters = parameters.get(place.clone()).unwrap_or_default();
        let batch = self.blocks.map_or(task.batch.0, |blocks| blocks.pass(Version(task.batch.0)));
        let at = At { parameters, lambda: self.lambda, batch };
        let mut values = given.get(place.clone())?.to_vec();
        let all = || (0..place.len() as u32).collect();
        let mut keys: Option<Vec<u32>> = block.map(|_| all());
        for (number, choice) in (0..).zip(&self.choices) {
            let keys = keys.get_or_insert_with(all);
            choice.choose(&mut values, keys, at, &mut stream.fork("choice", number).rng());
        }
        if let Some(keys) = &keys {
            values = keys.iter().map(|&key| values[key as usize]).collect();
        }
        let values = match &self.code {
            Some(code) => {
                code.code(values, &mut self.state.memory, &mut stream.fork("code", 0).rng())
            }
            None => Values::Single(values),
        };
        if let Some(keys) = &mut keys {
            keys.iter_mut().for_each(|key| *key += place.start as u32);
        }
        let coded = Coded { keys, values, state: given[trained..].to_vec(), trained };
        // Decoded by the server's code, so that both have the same bits.
        let decoded = coded.encode(0..given.len()).decode(given.len()).ok()?;
        decoded.iter().all(|value| value.is_finite()).then_some((coded, decoded))
    }

    /// Processes the verdicts on push `decided` and all earlier pushes.
    pub fn decided(&mut self, decided: &Decided) {
        let known = self.under_way.partition_point(|push| push.sequence <= decided.sequence);
        // Dropped pushes at the end of the queue are undone exactly, by restoring the state before
        // them.
        let mut left = known;
        if known == self.under_way.len() {
            while self.under_way.back().is_some_and(|push| decided.drops(push.sequence)) {
                let last = self.under_way.pop_back();
                self.state = last.map(|push| push.before).unwrap_or_default();
                left -= 1;
            }
        }
        // Older pushes cannot be undone: later gradients were filtered on top of them.
        for _ in 0..left {
            let Some(push) = self.under_way.pop_front() else { break };
            if self.feeds_back && decided.drops(push.sequence) {
                self.take_back(&push);
            }
        }
    }

    /// Returns to the residual the part of earlier residuals that a dropped push contained, both in
    /// the current state and in the saved states of later pushes.
    fn take_back(&mut self, push: &UnderWay) {
        if push.filtered.coded.is_none() {
            return; // not finite: sent unfiltered, without a residual
        }
        let states = self.under_way.iter_mut().map(|later| &mut later.before);
        for state in states.chain([&mut self.state]) {
            if state.residual.is_empty() {
                state.rate = push.rate;
                state.residual.resize(push.gradient.len(), 0.0);
            }
            let ratio = ratio(push.rate, state.rate);
            let brought = push.filtered.gradient.iter().zip(&push.gradient);
            for (value, (read, own)) in state.residual.iter_mut().zip(brought) {
                *value += ratio * (read - own);
            }
        }
    }

    /// The residual; empty if there is none.
    #[must_use]
    pub fn residual(&self) -> &[f32] {
        &self.state.residual
    }

    /// Sets the learning rate and the schedule.
    #[cfg(test)]
    pub(super) const fn at(mut self, learning_rate: f32, schedule: Schedule) -> Self {
        (self.learning_rate, self.rate, self.schedule) = (learning_rate, learning_rate, schedule);
        self.state.rate = learning_rate;
        self
    }

    /// The learning rate of the residual.
    #[cfg(test)]
    pub(super) const fn residual_rate(&self) -> f32 {
        self.state.rate
    }

    /// Returns the L2 norm of the residual.
    #[must_use]
    pub fn carried(&self) -> f64 {
        norm(&self.state.residual)
    }
}

/// Returns the factor that makes a gradient of learning rate `then` cause the same step at the rate
/// `now`. At a rate of 0 there is no step, and the factor is 1.
fn ratio(then: f32, now: f32) -> f32 {
    if then > 0.0 && now > 0.0 { then / now } else { 1.0 }
}
