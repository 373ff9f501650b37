//! The training of a peer at its own pace: it averages with one neighbor at each update.
//!
//! An update has an exchange and a gradient, both from the parameters before it, and both at once.
//! The gradient is applied once both are here. A peer that only answers makes a few updates between
//! two exchanges. Between two updates of its own, and while its gradient is computed, the peer
//! answers neighbors.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::opening::Opening;
use super::training::Own;
use super::{Joined, Peer, joined};
use crate::node::{Effect, Event, Outbox, Ticket};
use pstrain_compute::id::{Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::Scheme;
use pstrain_policy::gossip::{Exchange, JobGraph, Pairwise, Parcel};
use pstrain_policy::job::BudgetKind;
use pstrain_wire::peers::{Allow, Piece, PieceHeader, RankOf, Rest, Rested, Show};
use pstrain_wire::{MemberMessage, Message};

/// Most updates between two exchanges of a peer that only answers: without a limit its model would
/// be its own alone where exchanges are slow.
const MOST_APART: u64 = 8;

/// The exchanges of a peer with single neighbors, and the update under way.
#[derive(Debug)]
pub(super) struct Pairs {
    graph: JobGraph,
    exchanges: Pairwise,
    /// Values for neighbors to which there is no connection yet.
    unsent: VecDeque<Parcel>,
    /// Values that came before the state of training of a worker that joins.
    early: Vec<(Rank, Piece)>,
    update: Option<Update>,
    /// The request to begin no update, and whether it is answered: it is once none is under way.
    rest: Option<(Rest, bool)>,
    /// The request of the meeting point for the parameters.
    shows: Option<Show>,
    /// Updates of this worker, as the meeting point has counted them.
    counted: Version,
    /// The version up to which it may make updates.
    allowed: Version,
    /// The exchanges that were made before its last update, and its updates since the last of them.
    apart: (u64, u64),
}

/// An update under way.
#[derive(Debug, Default)]
struct Update {
    /// The gradient; none while it is computed.
    own: Option<(Vec<f32>, Own)>,
    /// Bytes of values that were sent for the exchange.
    bytes: u64,
    opening: Opening,
}

impl Pairs {
    /// The exchanges of a worker; none unless it trains at its own pace.
    pub(super) fn of(scheme: &Scheme, worker: WorkerId, parameters: usize) -> Option<Self> {
        let Scheme::Pairwise(graph) = scheme else { return None };
        let random = graph.seed().fork("exchanges", worker.0.into());
        Some(Self {
            graph: graph.clone(),
            exchanges: Pairwise::new(parameters, random),
            unsent: VecDeque::new(),
            early: Vec::new(),
            update: None,
            rest: None,
            shows: None,
            counted: Version(0),
            allowed: Version(0),
            apart: (0, 0),
        })
    }

    /// The worker whose answer is awaited.
    pub(super) const fn awaits(&self) -> Option<WorkerId> {
        self.exchanges.awaits()
    }

    /// The group has ended: values on their way are lost.
    pub(super) fn halt(&mut self) {
        self.unsent.clear();
        self.early.clear();
        (self.rest, self.shows) = (None, None);
    }

    /// The workers with which an exchange of an earlier group is not over.
    pub(super) fn partners(members: &[RankOf], own: Rank) -> impl Iterator<Item = Rank> {
        let worker = members.get(own as usize).map(|member| member.worker);
        let awaits = members.get(own as usize).and_then(|member| member.awaits);
        let is_partner = move |member: &RankOf| {
            Some(member.worker) == awaits || member.awaits.is_some() && member.awaits == worker
        };
        (0..).zip(members).filter(move |(_, it)| is_partner(it)).map(|(rank, _)| rank)
    }

    /// Goes on in the next group.
    pub(super) fn regroup(&mut self, members: &[RankOf], own: Rank, parameters: &[f32]) {
        let member = &members[own as usize];
        self.counted = member.version;
        let workers: Vec<WorkerId> = members.iter().map(|member| member.worker).collect();
        let (asks, askers) = self.graph.directions(own, &workers);
        let of = |ranks: Vec<Rank>| {
            let members = ranks.into_iter().filter_map(|rank| members.get(rank as usize));
            members.map(|member| member.worker).collect()
        };
        // A worker that joins knows nothing of exchanges in earlier groups.
        let stay = |worker: WorkerId| {
            !member.joins && members.iter().any(|it| it.worker == worker && !it.joins)
        };
        let waits = members.iter().filter(|it| it.awaits == Some(member.worker));
        let waits = waits.map(|it| it.worker).filter(|worker| stay(*worker)).collect();
        let mut parcels = Vec::new();
        let directions = (of(asks), of(askers));
        self.exchanges.regroup(directions, waits, stay, parameters, &mut parcels);
        self.unsent.extend(parcels);
    }

    /// The worker has made an update.
    fn updated(&mut self) {
        let (made, updates) = self.apart;
        let is_apart = made == self.exchanges.made();
        self.apart = (self.exchanges.made(), if is_apart { updates + 1 } else { 1 });
    }

    /// True if the worker waits for a neighbor to ask it. Where each has a budget of its own,
    /// neighbors may have used theirs up, and ask no more.
    fn is_too_far_apart(&self, budget: BudgetKind) -> bool {
        let (made, updates) = self.apart;
        budget == BudgetKind::Global
            && self.exchanges.only_answers()
            && made == self.exchanges.made()
            && updates >= MOST_APART
    }

    /// The last answer to a request to rest.
    pub(super) fn rested(&self) -> Option<Message> {
        let (rest, _) = self.rest.filter(|(_, is_answered)| *is_answered)?;
        Some(Message::Rested(Rested { number: rest.number }))
    }
}

/// The exchanges of a worker that trains at its own pace.
fn alone(pairs: &mut Option<Pairs>) -> &mut Pairs {
    pairs.as_mut().unwrap_or_else(|| unreachable!("a worker at its own pace has exchanges"))
}

impl Peer {
    /// Begins the next update, if none is under way.
    pub(super) fn begin_alone(&mut self, now: Time, out: &mut Outbox) {
        // The meeting point knows the exchange that is open when a group halts: none begins later.
        let has_group = self.links.group().is_some();
        let Joined { run, incarnation, job, training } = joined(&mut self.member);
        let (version, is_over) = (training.version(), training.lockstep.is_over());
        let share = training.lockstep.share(training.worker);
        let is_behind = training.is_behind();
        let pairs = alone(&mut training.pairs);
        let is_idle = pairs.update.is_none() && pairs.rest.is_none();
        let is_apart = pairs.is_too_far_apart(job.budget.kind);
        let is_allowed = version < pairs.allowed && !is_over && !is_apart;
        let may_begin = has_group && is_idle && is_allowed && !is_behind;
        if let Some(share) = share.filter(|_| may_begin && pairs.exchanges.is_over()) {
            let mut parcels = Vec::new();
            pairs.exchanges.begin(&training.parameters, &mut parcels);
            pairs.unsent.extend(parcels);
            pairs.update = Some(Update::default());
            let order = (Sequence(version.0 + 1), share.task);
            training.compute(order, (run, incarnation), job, out);
        }
        self.go_on_alone(now, out);
    }

    /// The own gradient is here.
    pub(super) fn computed_alone(
        &mut self,
        now: Time,
        (ticket, gradient): (Ticket, Vec<f32>),
        (samples, own): (u32, Own),
        out: &mut Outbox,
    ) {
        let Joined { training, .. } = joined(&mut self.member);
        let is_next = ticket.base == training.version();
        let update = alone(&mut training.pairs).update.as_mut().filter(|_| is_next);
        let Some(update) = update else {
            return; // the worker rests, or gave the update up to rest
        };
        update.own = Some((gradient, own));
        let (sequence, base, loss) = (ticket.sequence, ticket.base, own.loss);
        out.push(Effect::Report(Event::Sent { sequence, base, samples, loss }));
        self.go_on_alone(now, out);
    }

    /// Values of an exchange have come.
    pub(super) fn on_exchange(&mut self, now: Time, from: Rank, piece: Piece, out: &mut Outbox) {
        let Some(group) = self.links.group() else {
            return; // an earlier piece of those that waited was not valid
        };
        let worker = group.members[from as usize].worker;
        let Joined { training, .. } = joined(&mut self.member);
        let is_behind = training.is_behind();
        let pairs = alone(&mut training.pairs);
        if is_behind {
            let is_repeated = |(of, early): &(Rank, Piece)| {
                (*of, early.header.piece) == (from, piece.header.piece)
            };
            if pairs.early.iter().any(is_repeated) {
                return self.give_up_on(now, from, "it sent a piece twice", out);
            }
            return pairs.early.push((from, piece));
        }
        let Piece { header: PieceHeader { version, piece, answers }, values } = piece;
        let exchange = Exchange { number: version.0, answers };
        let (parameters, mut parcels) = (&mut training.parameters, Vec::new());
        let values = (piece, values);
        let received = pairs.exchanges.receive(worker, exchange, values, parameters, &mut parcels);
        pairs.unsent.extend(parcels);
        match received {
            Ok(()) => {
                // The answer goes out before the next update begins.
                self.go_on_alone(now, out);
                self.begin_alone(now, out);
            }
            Err(error) => self.give_up_on(now, from, &error.to_string(), out),
        }
    }

    /// This worker, which joins, has the state of training.
    pub(super) fn catches_up_alone(&mut self, now: Time, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        let pairs = alone(&mut training.pairs);
        training.lockstep.resume_alone(training.worker, pairs.counted);
        let early = core::mem::take(&mut pairs.early);
        // The meeting point learns that this worker has the state.
        let reduced = training.report(None);
        self.tell(now, reduced, out);
        self.show_if_wanted(now, out);
        for (from, piece) in early {
            self.on_exchange(now, from, piece, out);
        }
        self.begin_alone(now, out);
    }

    /// Sends what can be sent, and ends the update once its gradient and its exchange are there.
    pub(super) fn go_on_alone(&mut self, now: Time, out: &mut Outbox) {
        let meeting = self.meeting();
        let Joined { job, training, .. } = joined(&mut self.member);
        let links = &mut self.links;
        let (worker, is_behind) = (training.worker, training.is_behind());
        let pairs = alone(&mut training.pairs);
        pairs.unsent.retain(|Parcel { to, exchange, piece, values }| {
            let Some(way) = links.rank_of(*to).and_then(|rank| links.sends(now, rank, meeting))
            else {
                return true;
            };
            if let Some(update) = &mut pairs.update {
                update.bytes += (values.len() * size_of::<f32>()) as u64;
            }
            let Exchange { number, answers } = *exchange;
            let header = PieceHeader { version: Version(number), piece: *piece, answers };
            let values = Arc::clone(values);
            out.push(way.send(MemberMessage::Piece(Piece { header, values })));
            false
        });
        if let Some(update) = &mut pairs.update {
            update.opening.note(now, !pairs.unsent.is_empty());
        }
        if pairs.rest.is_some() {
            return self.rest(now, out);
        }
        let is_over = pairs.exchanges.is_over() && links.group().is_some() && !is_behind;
        let Some(Update { own: Some((gradient, own)), bytes, opening }) =
            pairs.update.take_if(|update| is_over && update.own.is_some())
        else {
            return;
        };
        pairs.updated();
        if own.not_finite.is_none() {
            training.apply(gradient);
        }
        training.lockstep.advance_alone(worker, &job.stopping);
        let exchanged = (bytes, training.take_received());
        let part = own.contributed((now, own.since), exchanged, opening);
        let reduced = training.report(Some(part));
        self.damage.progressed();
        self.tell(now, reduced, out);
        self.begin_alone(now, out);
    }

    /// The meeting point has counted updates, and allows more.
    pub(super) fn on_allow(&mut self, now: Time, allow: Allow, out: &mut Outbox) {
        let Some(training) = self.training() else { return };
        let Some(pairs) = &mut training.pairs else {
            return; // a request that is not of this architecture
        };
        pairs.allowed = pairs.allowed.max(allow.version);
        self.begin_alone(now, out);
    }

    /// The meeting point wants the worker to begin no update, or to go on.
    pub(super) fn on_rest(&mut self, now: Time, rest: Rest, out: &mut Outbox) {
        let Some(training) = self.training() else { return };
        let Some(pairs) = &mut training.pairs else {
            return; // a request that is not of this architecture
        };
        pairs.rest = rest.rests.then_some((rest, false));
        self.begin_alone(now, out);
    }

    /// Gives the update under way up, once its exchange is over, and says so.
    fn rest(&mut self, now: Time, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        let is_behind = training.is_behind();
        let pairs = alone(&mut training.pairs);
        pairs.exchanges.withdraw();
        if is_behind || !pairs.exchanges.is_over() {
            return;
        }
        pairs.update = None;
        let Some((_, is_answered)) = &mut pairs.rest else { unreachable!("rest is asked for") };
        if !core::mem::replace(is_answered, true) {
            let rested = pairs.rested();
            rested.into_iter().for_each(|rested| self.tell(now, rested, out));
        }
    }

    /// The meeting point wants the parameters.
    pub(super) fn on_show(&mut self, now: Time, show: Show, out: &mut Outbox) {
        let Some(training) = self.training() else { return };
        let is_repeated = training.has_shown(Version(show.number));
        let Some(pairs) = &mut training.pairs else {
            // The run is stopped, and the group has halted.
            let snapshot = training.snapshot(Version(show.number));
            return self.tell(now, snapshot, out);
        };
        pairs.shows = Some(show).filter(|_| !is_repeated);
        self.show_if_wanted(now, out);
    }

    /// Sends the meeting point the parameters, once they are those of the group.
    fn show_if_wanted(&mut self, now: Time, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        let is_behind = training.is_behind();
        let pairs = alone(&mut training.pairs);
        if let Some(Show { number }) = pairs.shows.take_if(|_| !is_behind) {
            let snapshot = training.snapshot(Version(number));
            self.tell(now, snapshot, out);
        }
    }
}
