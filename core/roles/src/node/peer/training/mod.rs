//! The training of a peer: gradients, their sums, and updates.

mod aggregation;
mod computing;
mod filtering;
mod partial;
mod receiving;
mod state;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use self::computing::Computing;
use self::filtering::Filtering;
use self::partial::Activation;
use super::opening::Opening;
use super::pairs::Pairs;
use super::{Joined, Peer, joined};
use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, Sequence, Version, WorkerId};
use pstrain_compute::model::Model;
use pstrain_compute::optim::OptimError;
use pstrain_compute::params::{KeyRange, first_not_finite};
use pstrain_compute::time::Time;
use pstrain_policy::aggregate::Aggregator;
use pstrain_policy::collective::{Content, Outgoing, Rank};
use pstrain_policy::combining::{Combined, Combining, Part, Place, Scheme};
use pstrain_policy::job::{Exchange, Job};
use pstrain_policy::lockstep::{Lockstep, Member};
use pstrain_wire::peers::{Contributed, Inherit, Piece, PieceHeader, Reduced, Snapshot};
use pstrain_wire::{EncodedPiece, EncodedPieceHeader, MemberMessage, Message};

/// The state of training, which is the same at all members of a group, and the update in progress.
#[derive(Debug)]
pub(super) struct Training {
    scheme: Scheme,
    pub(super) worker: WorkerId,
    pub(super) lockstep: Lockstep,
    /// The version from which the group makes updates together.
    together: Version,
    /// The place in the group; alone before the first.
    place: Place,
    pub(super) parameters: Arc<Vec<f32>>,
    aggregator: Aggregator,
    stage: Stage,
    /// Ranges of a gradient are given to the update as soon as they are computed.
    by_layers: bool,
    /// The exchanges with single neighbors, if the worker trains at its own pace.
    pub(super) pairs: Option<Pairs>,
    /// The gradient that is being computed.
    computing: Option<Computing>,
    /// The gradient of the update after the one in progress.
    next: Option<(Vec<f32>, Own)>,
    /// An update that other members have begun, and this one has not.
    ahead: Option<(Version, Combining)>,
    activation: Activation,
    /// The filters, if gradients are sent filtered.
    filtering: Option<Filtering>,
    /// The report of the last update.
    reduced: Option<Reduced>,
    /// Bytes of values that came and are in no report yet.
    received: u64,
    /// The parameters that the meeting point was sent last.
    shown: Option<Snapshot>,
    /// The state of training at the version of the group, for workers that join.
    handover: Vec<Inherit>,
    /// The version of which the meeting point wants the state.
    saves_at: Option<Version>,
    /// A buffer for a gradient.
    spare: Vec<f32>,
    /// Buffers for values to send.
    spares: Vec<Arc<Vec<f32>>>,
}

#[derive(Debug)]
enum Stage {
    /// There is no group, or the budget is used up.
    Idle,
    /// Updates were made without this member: it waits for the combined gradient of the last, or
    /// for the state of training, which is here as far as it has come.
    Behind(Vec<u8>),
    /// An update is in progress.
    Stepping(Box<Step>),
}

/// An update in progress.
#[derive(Debug)]
struct Step {
    combining: Combining,
    /// True if the own part is given: the own gradient, or none.
    is_given: bool,
    /// Values for ranks to which there is no connection yet.
    unsent: VecDeque<Outgoing>,
    /// The gradient of the own mini-batch.
    own: Option<Own>,
    /// Bytes of values that were sent.
    bytes: u64,
    opening: Opening,
}

/// The gradient of the own mini-batch, but for its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// The version from which it was computed.
    pub(super) base: Version,
    pub(super) loss: f32,
    /// How long it took.
    pub(super) took: Duration,
    /// When it was there.
    pub(super) since: Time,
    /// The first key at which it is not a finite number.
    pub(super) not_finite: Option<u64>,
}

impl Own {
    /// The worker's part in an update that is made `now`, for which it sent so many `bytes` and
    /// received so many. `waits` is the time since which it has nothing else to do.
    pub(super) fn contributed(
        self,
        (now, waits): (Time, Time),
        (bytes, received): (u64, u64),
        opening: Opening,
    ) -> Contributed {
        let Self { base, loss, took: compute, since, not_finite } = self;
        let (reduce, age) = (now.since(waits), compute + now.since(since));
        let opening = opening.took();
        Contributed { base, loss, compute, reduce, age, opening, bytes, received, not_finite }
    }
}

impl Training {
    /// Training of `worker` before the first update.
    ///
    /// # Errors
    /// [`OptimError`] if the job's optimiser is not valid.
    pub(super) fn new(
        job: &Job,
        model: &Model,
        worker: WorkerId,
        scheme: Scheme,
    ) -> Result<Self, OptimError> {
        let (len, workers) = (model.parameters(), job.membership.workers);
        let aggregator = Aggregator::new(job.aggregation, &job.update, &job.mode, workers, len)?;
        let keys = KeyRange::new(0, len as u64);
        let aggregator = match keys {
            Ok(keys) => {
                let state = model.layout().state_at(keys);
                aggregator.with_groups(&job.groups, model.layout(), keys).with_state(state)
            }
            Err(_empty) => aggregator,
        };
        Ok(Self {
            worker,
            lockstep: Lockstep::new(job),
            together: Version(0),
            place: scheme.place(0, &[worker], len),
            parameters: Arc::new(job.initial(model)),
            aggregator,
            stage: Stage::Idle,
            by_layers: job.exchange == Exchange::Layers,
            pairs: Pairs::of(&scheme, worker, len),
            computing: None,
            next: None,
            ahead: None,
            activation: Activation::None,
            filtering: Filtering::of(job, model, worker, &scheme),
            reduced: None,
            received: 0,
            shown: None,
            handover: Vec::new(),
            saves_at: None,
            spare: Vec::new(),
            spares: Vec::new(),
            scheme,
        })
    }

    /// Begins with these parameters, if they are of the model.
    pub(super) fn begin_with(&mut self, initial: Arc<Vec<f32>>) {
        if initial.len() == self.parameters.len() {
            self.parameters = initial;
        }
    }

    pub(super) const fn version(&self) -> Version {
        self.lockstep.version()
    }

    pub(super) const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    pub(super) fn parameters(&self) -> usize {
        self.parameters.len()
    }

    /// The parameters, for the meeting point, as those of `version`.
    pub(super) fn snapshot(&mut self, version: Version) -> Message {
        let snapshot = Snapshot { version, values: Arc::clone(&self.parameters) };
        self.shown = Some(snapshot.clone());
        Message::Snapshot(snapshot)
    }

    /// True if the parameters of `version` were the last that the meeting point was sent. They are
    /// sent again after a reconnect.
    pub(super) fn has_shown(&self, version: Version) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.version == version)
    }

    /// The last reports to the meeting point.
    pub(super) fn reports(&self) -> Vec<Message> {
        // The snapshot is not of a later version than the report.
        let shown = self.shown.clone().map(Message::Snapshot);
        let rested = self.pairs.as_ref().and_then(Pairs::rested);
        let reduced = self.reduced.clone().map(Message::Reduced);
        shown.into_iter().chain(reduced).chain(rested).collect()
    }

    /// Counts bytes of values that another member, or the meeting point, sent.
    pub(super) const fn receives(&mut self, bytes: u64) {
        self.received += bytes;
    }

    /// The L2 norm of the residual of the filters.
    pub(super) fn carried(&self) -> f64 {
        self.filtering.as_ref().map_or(0.0, Filtering::carried)
    }

    /// Bytes of values that came since the last time this was asked.
    pub(super) const fn take_received(&mut self) -> u64 {
        core::mem::replace(&mut self.received, 0)
    }

    /// The report of the last update.
    pub(super) fn report(&mut self, part: Option<Contributed>) -> Message {
        let reduced = Reduced { version: self.version(), part, done: self.done() };
        self.reduced = Some(reduced.clone());
        Message::Reduced(reduced)
    }

    /// Gives the update in progress up.
    pub(super) fn halt(&mut self) {
        (self.ahead, self.next) = (None, None);
        self.activation = Activation::None;
        self.stage = Stage::Idle;
        self.pairs.iter_mut().for_each(Pairs::halt);
    }

    /// Goes on in the next group, whose members make updates together from `version` on.
    pub(super) fn regroup(
        &mut self,
        place: Place,
        members: Vec<Member>,
        version: Version,
        is_behind: bool,
    ) {
        self.halt();
        self.place = place;
        self.handover = Vec::new();
        self.saves_at = None;
        self.together = version;
        self.lockstep.set_members(version, members);
        if is_behind {
            self.stage = Stage::Behind(Vec::new());
        }
    }

    /// The update of `version` at this place in the group, before it begins.
    fn combining(&self, place: &Place, version: Version) -> Combining {
        let updates = version.0.saturating_sub(self.together.0);
        let combining = Combining::new(place, self.parameters.len(), updates);
        match self.by_layers {
            true => combining.by_layers(self.aggregator.trained()),
            false => combining,
        }
    }

    /// True if the worker waits for the state of training.
    pub(super) const fn is_behind(&self) -> bool {
        matches!(self.stage, Stage::Behind(_))
    }

    /// True if the next update may begin.
    const fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Makes an update. Returns true if an evaluation is due.
    fn update(&mut self, combined: Combined, job: &Job) -> bool {
        match combined {
            // A gradient that is not finite was found so after its first ranges were added.
            Combined::Gradient(gradient, _)
                if self.by_layers && self.first_not_finite(&gradient).is_some() =>
            {
                self.lockstep.advance(&job.stopping)
            }
            Combined::Gradient(mut gradient, absent) => {
                let worker_of = |rank: Rank| self.lockstep.member(rank as usize);
                let absent: Vec<WorkerId> = absent.into_iter().filter_map(worker_of).collect();
                if !absent.is_empty() {
                    let count = self.lockstep.shares().count();
                    let here = count.saturating_sub(absent.len());
                    let correction = self.lockstep.correction(&absent);
                    self.aggregator.correct(&mut gradient, correction, (here, count));
                }
                self.apply(gradient);
                self.lockstep.advance_without(&absent, &job.stopping)
            }
            Combined::Average(parameters, gradient) => {
                self.parameters = Arc::new(parameters);
                gradient.into_iter().for_each(|gradient| self.apply(gradient));
                self.lockstep.advance(&job.stopping)
            }
        }
    }

    /// The first key at which a gradient is not a finite number.
    fn first_not_finite(&self, gradient: &[f32]) -> Option<u64> {
        let keys = KeyRange::new(0, self.parameters.len() as u64).ok()?;
        first_not_finite(keys, gradient)
    }

    pub(super) fn apply(&mut self, gradient: Vec<f32>) {
        let version = self.version();
        self.aggregator.begin(version);
        self.spare = self.aggregator.give_whole(gradient);
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut self.parameters);
        self.aggregator.apply(parameters, version);
    }
}

impl Peer {
    /// Begins the next update, if the group is there and no update is in progress.
    pub(super) fn begin(&mut self, now: Time, out: &mut Outbox) {
        if self.links.group().is_none() {
            return;
        }
        let Joined { run, incarnation, job, training } = joined(&mut self.member);
        if training.pairs.is_some() {
            return self.begin_alone(now, out);
        }
        if !training.is_idle() {
            return;
        }
        // A worker that joins may still have mini-batches for all.
        if training.lockstep.is_over() {
            return;
        }
        let len = training.parameters.len();
        let (version, share) = (training.version(), training.lockstep.share(training.worker));
        // A worker that is behind its neighbors makes its missing updates alone.
        let place = match version < training.together {
            true => training.scheme.place(0, &[training.worker], len),
            false => training.place.clone(),
        };
        let begun = training.ahead.take_if(|(ahead, _)| *ahead == version);
        let new = || training.combining(&place, version);
        let mut combining = begun.map_or_else(new, |(_, combining)| combining);
        let mut outgoing = Vec::new();
        combining.begin(&training.parameters, &mut outgoing);
        let (unsent, own, opening) = (VecDeque::from(outgoing), None, Opening::default());
        let step = Step { combining, is_given: false, unsent, own, bytes: 0, opening };
        training.stage = Stage::Stepping(Box::new(step));
        let activation = core::mem::take(&mut training.activation);
        let is_activated = matches!(activation, Activation::Next(next) if next == version);
        match (share, training.next.take()) {
            (None, _) => self.contribute(now, Part::None, out),
            (Some(_), Some(next)) => self.computed(now, next, out),
            // It is being computed already, from an earlier version perhaps.
            (Some(share), None) if training.is_computing(share.task) => self.go_on(now, out),
            (Some(share), None) => {
                let order = (training.sequence(), share.task);
                training.compute(order, (run, incarnation), job, out);
                self.go_on(now, out);
            }
        }
        if is_activated {
            self.activate(now, version, out);
        }
    }

    /// The gradient of the update in progress is here.
    fn computed(&mut self, now: Time, (mut gradient, own): (Vec<f32>, Own), out: &mut Outbox) {
        let Joined { job, training, .. } = joined(&mut self.member);
        let share = training.lockstep.share(training.worker);
        let (Stage::Stepping(step), Some(share)) = (&mut training.stage, share) else {
            return; // the rows of the worker are others in this group
        };
        step.own = Some(own);
        // The rest of a gradient makes the sum not finite, and no member applies it.
        let is_begun = step.combining.is_given_in_part();
        training.gave(now, own.base, job.membership.partial_after);
        let parameters = &training.parameters;
        let part = match (&mut training.filtering, own.not_finite.filter(|_| !is_begun)) {
            (_, Some(_)) => Part::NotFinite,
            (None, None) => {
                // Without state there is no need to count the members.
                let has_state = training.aggregator.trained() < gradient.len();
                if has_state && !training.scheme.is_gossip() {
                    let mut workers = training.lockstep.shares().map(|(worker, _)| worker);
                    let count = workers.clone().count();
                    let place = workers.position(|it| it == training.worker).unwrap_or_default();
                    let place = (place, count);
                    training.aggregator.share_state(&mut gradient, share.factor, place);
                }
                Part::Gradient(gradient, share.factor)
            }
            (Some(filtering), None) => {
                let of = (own.base, share.task);
                Part::Filtered(filtering.filter(gradient, of, parameters), share.factor)
            }
        };
        self.contribute(now, part, out);
    }

    /// Orders the gradient of the update after the one in progress, from the current parameters.
    fn compute_next(&mut self, out: &mut Outbox) {
        let Joined { run, incarnation, job, training } = joined(&mut self.member);
        if job.mode.in_flight.is_none_or(|in_flight| in_flight < 2) {
            return;
        }
        if let Some(task) = training.lockstep.task_after_next(training.worker) {
            let order = (Sequence(training.sequence().0 + 1), task);
            training.compute(order, (run, incarnation), job, out);
        }
    }

    /// Gives the own part of the update.
    fn contribute(&mut self, now: Time, part: Part, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        let parameters = training.parameters.len();
        let Stage::Stepping(step) = &mut training.stage else {
            unreachable!("a gradient is given to the update in progress")
        };
        let mut outgoing = Vec::new();
        step.combining.lend(core::mem::take(&mut training.spares));
        step.combining.give(part, parameters, &mut outgoing);
        step.is_given = true;
        step.unsent.extend(outgoing);
        self.compute_next(out);
        self.go_on(now, out);
    }

    /// This member has the version of its group now.
    fn catches_up(&mut self, now: Time, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        training.stage = Stage::Idle;
        training.computing = None;
        if training.pairs.is_some() {
            return self.catches_up_alone(now, out);
        }
        self.updated(now, None, true, out);
    }

    /// Reports an update, with the parameters if `shows`, and begins the next. Of workers with the
    /// same parameters the first shows them.
    fn updated(&mut self, now: Time, part: Option<Contributed>, shows: bool, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        let reduced = training.report(part);
        let is_first = self.links.group().is_some_and(|group| group.rank == 0);
        let is_shown = shows && (is_first || training.scheme.is_gossip());
        let snapshot = is_shown.then(|| training.snapshot(training.version()));
        self.tell(now, reduced, out);
        if let Some(snapshot) = snapshot {
            self.tell(now, snapshot, out);
        }
        // After the snapshot: the meeting point has both once it has the state.
        self.save_if_wanted(now, out);
        self.begin(now, out);
    }

    /// Sends what can be sent, and makes the update once the sum is there.
    pub(super) fn go_on(&mut self, now: Time, out: &mut Outbox) {
        self.send_packets(now, out);
        self.tell_late(now, out);
        let meeting = self.meeting();
        let Joined { job, training, .. } = joined(&mut self.member);
        if training.pairs.is_some() {
            return self.go_on_alone(now, out);
        }
        let version = training.version();
        let Stage::Stepping(step) = &mut training.stage else {
            return; // values of an update that this member has not begun
        };
        let links = &mut self.links;
        step.unsent.retain(|outgoing| {
            let Some(way) = links.sends(now, outgoing.to, meeting) else { return true };
            step.bytes += outgoing.content.bytes();
            out.push(way.send(message(version, outgoing)));
            false
        });
        step.opening.note(now, !step.unsent.is_empty());
        out.extend(step.combining.excess().map(Effect::Recycle));
        if !step.combining.is_done() || !step.unsent.is_empty() {
            return;
        }
        let Stage::Stepping(step) = core::mem::replace(&mut training.stage, Stage::Idle) else {
            unreachable!("the update is in progress")
        };
        let Step { combining, own, bytes, opening, .. } = *step;
        let (combined, spares) = combining.into_parts();
        training.spares = spares;
        let evaluates = training.update(combined, job);
        // While it computes the next gradient, it does not wait for the sum.
        let waits = match (&training.next, training.computing) {
            (Some((_, next)), _) => Some(next.since),
            (None, Some(_)) => Some(now),
            (None, None) => None,
        };
        let part = own.map(|own| {
            let times = (now, waits.unwrap_or(own.since));
            own.contributed(times, (bytes, training.take_received()), opening)
        });
        self.damage.progressed();
        self.updated(now, part, evaluates, out);
    }

    /// A connection of the group is gone.
    pub(super) fn lose_link(&mut self, now: Time, peer: PeerId, why: &str, out: &mut Outbox) {
        if let Some((rank, connection)) = self.links.lost(now, peer) {
            self.halt_because_of(now, (rank, connection), why, out);
        }
    }

    /// Halts the group, which cannot get on because of a member.
    pub(super) fn give_up_on(&mut self, now: Time, rank: Rank, why: &str, out: &mut Outbox) {
        self.halt_because_of(now, (rank, self.links.connection(rank)), why, out);
    }
}

/// A piece of the update of a version, as a message.
fn message(version: Version, Outgoing { piece, content, .. }: &Outgoing) -> MemberMessage {
    let piece = *piece;
    match content {
        Content::Values(values) => {
            let header = PieceHeader { version, piece, answers: false };
            MemberMessage::Piece(Piece { header, values: Arc::clone(values) })
        }
        Content::Encoded(factor, values) => {
            let header = EncodedPieceHeader { version, piece, factor: *factor };
            MemberMessage::EncodedPiece(EncodedPiece { header, values: Arc::clone(values) })
        }
    }
}
