//! One worker's exchanges with its neighbors, without messages and time.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::pieces::Pieces;
use crate::collective::ReductionError;
use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;

/// The averages that a worker makes with its neighbors, one with each at a time.
///
/// In an exchange a worker sends its parameters to a neighbor. The neighbor averages both models at
/// once, and answers with the average. Until the answer is here the worker that asked neither
/// changes its parameters nor answers others, so that both models become their mean in one step.
/// [`JobGraph::directions`](super::JobGraph::directions) says who asks whom: workers that wait for
/// each other form no cycle.
///
/// A neighbor keeps its last answer to each worker. If a connection breaks, the worker asks again
/// in the next group, and an exchange that the neighbor has made is answered again, and not made
/// again.
#[derive(Debug)]
pub struct Pairwise {
    len: usize,
    random: Stream,
    /// The neighbors that this worker asks.
    asks: Vec<WorkerId>,
    /// True if others ask it, and it asks none.
    only_answers: bool,
    /// Exchanges that it has asked for.
    asked: u64,
    /// Exchanges that it has made, asked for or answered.
    made: u64,
    own: Own,
    callers: BTreeMap<WorkerId, Caller>,
    /// Workers whose requests are here, and wait for the end of the own exchange.
    waiting: VecDeque<WorkerId>,
    /// Workers that wait for an answer since an earlier group. They come before the own exchange:
    /// the directions of that group were others.
    first: BTreeSet<WorkerId>,
}

/// An exchange, and the direction of values in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its number, as the worker that asks counts them.
    pub number: u64,
    /// True for the answer: two workers may ask each other, with the same number.
    pub answers: bool,
}

/// Values to send to a neighbor.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// The receiver.
    pub to: WorkerId,
    /// The exchange.
    pub exchange: Exchange,
    /// The index of the piece.
    pub piece: u32,
    /// The values, one for each key of the piece.
    pub values: Arc<Vec<f32>>,
}

/// The exchange that the worker asks for.
#[derive(Debug)]
enum Own {
    None,
    /// It begins once the exchanges that come before it are over.
    Due,
    /// The neighbor was sent the parameters.
    Asked(u64, WorkerId, Pieces),
}

/// A worker that asks this one.
#[derive(Debug, Default)]
struct Caller {
    /// The last exchange, and its answer.
    answered: Option<(u64, Arc<Vec<f32>>)>,
    /// The next one, as far as it is here.
    request: Option<(u64, Pieces)>,
}

impl Pieces {
    /// Parcels of `values` for `to`.
    fn parcels(
        &self,
        to: WorkerId,
        exchange: Exchange,
        values: &[f32],
    ) -> impl Iterator<Item = Parcel> {
        let pieces = (0..).zip(self.cut(values));
        pieces.map(move |(piece, values)| Parcel { to, exchange, piece, values })
    }
}

impl Pairwise {
    /// A worker with `len` parameters that has no neighbors yet. `random` draws the neighbors that
    /// it asks.
    #[must_use]
    pub fn new(len: usize, random: Stream) -> Self {
        Self {
            len,
            random,
            asks: Vec::new(),
            only_answers: false,
            asked: 0,
            made: 0,
            own: Own::None,
            callers: BTreeMap::new(),
            waiting: VecDeque::new(),
            first: BTreeSet::new(),
        }
    }

    /// The worker whose answer is awaited.
    #[must_use]
    pub const fn awaits(&self) -> Option<WorkerId> {
        match &self.own {
            Own::Asked(_, of, _) => Some(*of),
            Own::None | Own::Due => None,
        }
    }

    /// Exchanges so far, asked for or answered.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// True if others ask this worker, and it asks none.
    #[must_use]
    pub const fn only_answers(&self) -> bool {
        self.only_answers
    }

    /// True if the exchange of the last update is over.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.own, Own::None)
    }

    /// Exchanges with a neighbor. That is over at once if this worker asks none.
    ///
    /// # Panics
    /// If the last exchange is not over.
    pub fn begin(&mut self, parameters: &[f32], out: &mut Vec<Parcel>) {
        assert!(self.is_over(), "the last exchange is not over");
        self.own = Own::Due;
        self.ask(parameters, out);
    }

    /// Gives an exchange up that has not begun.
    pub fn withdraw(&mut self) {
        if let Own::Due = self.own {
            self.own = Own::None;
        }
    }

    /// Asks a neighbor, if an exchange is due and none comes before it.
    fn ask(&mut self, parameters: &[f32], out: &mut Vec<Parcel>) {
        if !matches!(self.own, Own::Due) || !self.first.is_empty() {
            return;
        }
        let neighbors = self.asks.len() as u64;
        if neighbors == 0 {
            self.own = Own::None;
            return;
        }
        self.asked += 1;
        let drawn = self.random.fork("neighbor", self.asked).rng().below(neighbors);
        let (of, answer) = (self.asks[drawn as usize], Pieces::new(self.len));
        out.extend(answer.parcels(of, Exchange { number: self.asked, answers: false }, parameters));
        self.own = Own::Asked(self.asked, of, answer);
    }

    /// Receives values of a neighbor. `parameters` become the average when an exchange is made.
    ///
    /// # Errors
    /// [`ReductionError`] if the sender had not to send them.
    pub fn receive(
        &mut self,
        from: WorkerId,
        Exchange { number, answers }: Exchange,
        (piece, values): (u32, Arc<Vec<f32>>),
        parameters: &mut Arc<Vec<f32>>,
        out: &mut Vec<Parcel>,
    ) -> Result<(), ReductionError> {
        match &mut self.own {
            Own::Asked(asked, of, answer) if answers && *of == from && *asked == number => {
                answer.take(piece, values)?;
                if answer.is_whole() {
                    *parameters = Arc::new(answer.values().collect());
                    self.made += 1;
                    self.own = Own::None;
                    self.answer_waiting(parameters, out);
                }
            }
            _ if answers => return Err(ReductionError::Unexpected { piece }),
            _ => self.called(from, number, (piece, values), parameters, out)?,
        }
        Ok(())
    }

    /// A part of a request is here.
    fn called(
        &mut self,
        from: WorkerId,
        exchange: u64,
        (piece, values): (u32, Arc<Vec<f32>>),
        parameters: &mut Arc<Vec<f32>>,
        out: &mut Vec<Parcel>,
    ) -> Result<(), ReductionError> {
        let unexpected = ReductionError::Unexpected { piece };
        let caller = self.callers.get_mut(&from).ok_or(unexpected)?;
        if caller.answered.as_ref().is_some_and(|(last, _)| exchange < *last) {
            return Err(unexpected);
        }
        let new = || (exchange, Pieces::new(self.len));
        let (of, pieces) = caller.request.get_or_insert_with(new);
        if *of != exchange {
            return Err(unexpected);
        }
        pieces.take(piece, values)?;
        if !pieces.is_whole() {
            return Ok(());
        }
        // An exchange that was made is answered again at once: it changes nothing here, and the
        // worker may be one that all others wait for.
        let is_made = caller.answered.as_ref().is_some_and(|(last, _)| exchange == *last);
        if !is_made && self.awaits().is_some() {
            self.waiting.push_back(from);
            return Ok(());
        }
        self.answer(from, parameters, out);
        self.ask(parameters, out);
        Ok(())
    }

    /// Makes the exchange that a worker has asked for, unless it was made already, and answers.
    fn answer(&mut self, to: WorkerId, parameters: &mut Arc<Vec<f32>>, out: &mut Vec<Parcel>) {
        let Some(caller) = self.callers.get_mut(&to) else {
            return; // it has left the group while it waited
        };
        let Some((exchange, request)) = caller.request.take() else {
            return; // it joins the group again, and begins with a new request
        };
        let again = caller.answered.as_ref().filter(|(last, _)| *last == exchange);
        if again.is_none() {
            let both = parameters.iter().zip(request.values());
            *parameters = Arc::new(both.map(|(own, other)| (own + other) * 0.5).collect());
            self.made += 1;
        }
        let average = again.map_or(&*parameters, |(_, average)| average);
        let answer = Exchange { number: exchange, answers: true };
        out.extend(request.parcels(to, answer, average));
        caller.answered = Some((exchange, Arc::clone(average)));
        self.first.remove(&to);
    }

    /// The own exchange is over: makes the exchanges that waited for it.
    fn answer_waiting(&mut self, parameters: &mut Arc<Vec<f32>>, out: &mut Vec<Parcel>) {
        while let Some(next) = self.waiting.pop_front() {
            self.answer(next, parameters, out);
        }
    }

    /// Goes on in the next group, in which this worker asks the neighbors `asks`, and `askers` ask
    /// it. `waits` are the workers that wait for its answer since an earlier group, and `stay`
    /// tells which workers were in that group, too. Values on their way are lost: an exchange with
    /// a worker that stays is asked for again, and one with a worker that has left is over.
    pub fn regroup(
        &mut self,
        (asks, askers): (Vec<WorkerId>, Vec<WorkerId>),
        waits: BTreeSet<WorkerId>,
        stay: impl Fn(WorkerId) -> bool,
        parameters: &[f32],
        out: &mut Vec<Parcel>,
    ) {
        self.only_answers = asks.is_empty() && !askers.is_empty();
        self.asks = asks;
        self.waiting.clear();
        self.callers.retain(|caller, _| stay(*caller));
        self.callers.values_mut().for_each(|caller| caller.request = None);
        for caller in askers.into_iter().chain(waits.iter().copied()) {
            self.callers.entry(caller).or_default();
        }
        self.first = waits;
        match &mut self.own {
            Own::Asked(number, of, answer) if stay(*of) => {
                *answer = Pieces::new(self.len);
                let exchange = Exchange { number: *number, answers: false };
                out.extend(answer.parcels(*of, exchange, parameters));
            }
            Own::Asked(..) => self.own = Own::None,
            Own::Due => self.ask(parameters, out),
            Own::None => {}
        }
    }
}
