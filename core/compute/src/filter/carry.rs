//! The filters of one worker, and what they carry from one gradient to the next.
//!
//! With error feedback (Seide et al. 2014; Karimireddy et al., ICML 2019) the filters are given a
//! gradient `g` together with the residual `e` of those before it: `p = g + e` goes in, the server
//! reads `d`, and `p - d` is the new residual. The sum of all that was read and the residual is the
//! sum of the gradients.
//!
//! Karimireddy et al. carry the error of the step, `rate * g`. So once a schedule has changed the
//! learning rate, `e` counts as `e * (rate then / rate now)`: it makes the step that it would have
//! made when it was computed. The sums above are then sums of `rate * g`.
//!
//! A push that the server did not take has no part in that. Its mini-batch is computed again, by
//! whoever it is given to, so the gradient goes; but what it brought of earlier ones is due still:
//! the residual becomes `e + d - g`, with `e` the residual now. If nothing was filtered since, that
//! is the residual before the push, to the bit. A filter that takes nothing away then leaves
//! nothing behind, whatever is dropped.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::coded::{Coded, Encoded, Values};
use super::low_rank::PowerSgd;
use super::{At, Choose, Code, Filters, Memory, choice_of, code_of};
use crate::decided::Decided;
use crate::filter::FilterSpec;
use crate::id::{Sequence, Version, WorkerId};
use crate::optim::{Schedule, UpdateSpec, norm};
use crate::params::{Blocks, KeyRange, Layout};
use crate::rng::Stream;
use crate::task::Task;

/// The filters of one incarnation of a worker.
#[derive(Debug)]
pub struct Carrier {
    choices: Vec<Box<dyn Choose>>,
    code: Option<Box<dyn Code>>,
    feeds_back: bool,
    remembers: bool,
    /// The penalty on magnitudes that updates follow.
    lambda: f32,
    /// The blocks that gradients are of, if they are.
    blocks: Option<Blocks>,
    stream: Stream,
    learning_rate: f32,
    schedule: Schedule,
    /// The learning rate of the gradients that come now.
    rate: f32,
    state: State,
    /// Pushes that are not known to be decided, the oldest first.
    under_way: VecDeque<UnderWay>,
}

/// What is carried from one gradient to the next.
#[derive(Clone, Debug, Default)]
struct State {
    /// What has not been sent yet; empty while there is nothing.
    residual: Vec<f32>,
    /// The learning rate of that.
    rate: f32,
    memory: Memory,
}

/// What it takes to send a push, once more if need be, and to undo it.
#[derive(Debug)]
struct UnderWay {
    sequence: Sequence,
    filtered: Filtered,
    /// The learning rate of its gradient.
    rate: f32,
    /// The gradient, and what was carried before; only if something is.
    gradient: Vec<f32>,
    before: State,
}

/// A gradient as the filters left it.
#[derive(Clone, Debug)]
pub struct Filtered {
    /// What the server reads.
    pub gradient: Arc<Vec<f32>>,
    /// None if it travels as it is.
    coded: Option<Arc<Coded>>,
}

impl Filtered {
    /// The form in which the part of it for `keys` travels, counted from the first of them; none if
    /// that would not be shorter than the values.
    #[must_use]
    pub fn encode(&self, keys: KeyRange) -> Option<Encoded> {
        let encoded = self.coded.as_ref()?.encode(keys.indices());
        let plain = keys.len() * size_of::<f32>() as u64;
        ((encoded.bytes.len() as u64) < plain).then_some(encoded)
    }
}

impl Carrier {
    /// The filters of `worker` before its first gradient, for a model of this layout, in a run with
    /// this root stream and these updates; none where gradients travel as they are and are of all
    /// keys.
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
        let carrier = Self::of(filters, seed, worker, layout)?;
        let UpdateSpec { learning_rate, schedule, .. } = *update;
        let (lambda, rate) = (update.l1(), learning_rate);
        Some(Self { lambda, blocks, learning_rate, schedule, rate, ..carrier })
    }

    /// The same by its filters and the root stream of the run.
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
        for filter in filters.chain.iter().filter(|filter| filter.is_coding()) {
            code = Some(match *filter {
                FilterSpec::PowerSgd { rank } => {
                    let power = PowerSgd::new(rank, layout);
                    memory = power.begin(stream);
                    Box::new(power)
                }
                filter => code_of(filter)?,
            });
        }
        Some(Self {
            choices: filters
                .chain
                .iter()
                .filter_map(|filter| choice_of(*filter, !feeds_back))
                .collect(),
            code,
            feeds_back,
            remembers: filters.remember(),
            lambda: 0.0,
            blocks: None,
            stream,
            learning_rate: 1.0,
            schedule: Schedule::Constant,
            rate: 1.0,
            state: State { residual: Vec::new(), rate: 1.0, memory },
            under_way: VecDeque::new(),
        })
    }

    /// The gradients that come now were computed on `version`: an update of it has their learning
    /// rate.
    pub fn turn_to(&mut self, version: Version) {
        self.rate = self.schedule.rate(self.learning_rate, version);
    }

    /// Filters the gradient of `task`, which is push `sequence`. What is random about it depends on
    /// the worker and the task alone.
    ///
    /// A gradient that is not finite travels as it is, for the server to see, and changes nothing.
    ///
    /// `parameters` are those that it was computed on; they matter to the KKT filter alone. If it
    /// has values for a `block` of the keys alone, nothing else travels.
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

    /// The form in which the part for `keys` of a push travels that is not known to be decided;
    /// none if that would not be shorter than its values.
    #[must_use]
    pub fn encode(&self, sequence: Sequence, keys: KeyRange) -> Option<Encoded> {
        let push = self.under_way.iter().rfind(|push| push.sequence == sequence)?;
        push.filtered.encode(keys)
    }

    /// What the chain leaves of `given`, and what is read of that; none if that is not finite.
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
        let place = block.clone().unwrap_or(0..given.len());
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
        let coded = Coded { keys, values };
        // The server's own way of reading it, so that both have the same bits.
        let decoded = coded.encode(0..given.len()).decode(given.len()).ok()?;
        decoded.iter().all(|value| value.is_finite()).then_some((coded, decoded))
    }

    /// Takes note of what became of pushes: of `decided` and all before it.
    pub fn decided(&mut self, decided: &Decided) {
        let known = self.under_way.partition_point(|push| push.sequence <= decided.sequence);
        // The last of them, with nothing after it, as if they had never been.
        let mut left = known;
        if known == self.under_way.len() {
            while self.under_way.back().is_some_and(|push| decided.drops(push.sequence)) {
                let last = self.under_way.pop_back();
                self.state = last.map(|push| push.before).unwrap_or_default();
                left -= 1;
            }
        }
        for _ in 0..left {
            let Some(push) = self.under_way.pop_front() else { break };
            if self.feeds_back && decided.drops(push.sequence) {
                self.take_back(&push);
            }
        }
    }

    /// Adds what a push that was dropped had brought of earlier gradients to what is carried, now
    /// and before each push since.
    fn take_back(&mut self, push: &UnderWay) {
        if push.filtered.coded.is_none() {
            return; // it is not finite, and nothing was added to it
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

    /// What has not been sent yet; empty if there is nothing.
    #[must_use]
    pub fn residual(&self) -> &[f32] {
        &self.state.residual
    }

    /// The same at this learning rate and schedule.
    #[cfg(test)]
    pub(super) const fn at(mut self, learning_rate: f32, schedule: Schedule) -> Self {
        (self.learning_rate, self.rate, self.schedule) = (learning_rate, learning_rate, schedule);
        self.state.rate = learning_rate;
        self
    }

    /// The learning rate of what has not been sent yet.
    #[cfg(test)]
    pub(super) const fn residual_rate(&self) -> f32 {
        self.state.rate
    }

    /// The L2 norm of what has not been sent yet.
    #[must_use]
    pub fn carried(&self) -> f64 {
        norm(&self.state.residual)
    }
}

/// The factor that lets a gradient of learning rate `then` make the same step at the rate `now`. A
/// schedule that has come down to 0 makes no step.
fn ratio(then: f32, now: f32) -> f32 {
    if then > 0.0 && now > 0.0 { then / now } else { 1.0 }
}
