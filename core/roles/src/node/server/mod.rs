//! The parameter server: holds the model, admits pushes, aggregates, updates, answers.

mod account;
mod arriving;
mod checkpoints;
mod client_pushes;
mod doubt;
mod enlist;
mod group;
mod handshake;
mod keys;
mod liveness;
mod measuring;
mod mode_change;
mod push;
mod ranges;
mod rebalance;
mod replicated;
mod roster;
mod round;
mod saving;
mod status;
mod waiting;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use checkpoints::Checkpoints;
use client_pushes::Pushes;
use doubt::Doubt;
use group::Group;
use measuring::Measuring;
use mode_change::Ordered;
pub use mode_change::{LEAVE_SERVER, STOP};
use ranges::Pullers;
use roster::Roster;
use round::Round;
pub use saving::RestoreError;
use waiting::Waiting;

use super::{Effect, Evaluate, Event, Input, Node, Outbox, Point};
use crate::store::Store;
use pstrain_compute::id::{PeerId, ServerId, Version, WorkerId};
use pstrain_compute::model::{Model, ModelError};
use pstrain_compute::optim::OptimError;
use pstrain_compute::params::{KeyMap, KeyRange};
use pstrain_compute::time::Time;
use pstrain_policy::auto::Auto;
use pstrain_policy::consistency::{Cohort, Consistency, ConsistencySpec};
use pstrain_policy::job::{BudgetKind, Job, JobError, WorkError};
use pstrain_policy::mode::Mode;
use pstrain_policy::work::Assigner;
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{LatestEvaluation, Limits, Message, Phase, Refusal, Status, job_digest};

/// The parameter server as a state machine.
#[derive(Debug)]
pub struct Server {
    job: Job,
    job_digest: [u8; 32],
    run: u64,
    store: Store,
    /// All keys of the model.
    keys: KeyRange,
    /// The other servers, and the key map.
    group: Group,
    mode: Mode,
    /// Mini-batches of one worker that may be under way.
    window: u32,
    /// The controller that chooses the mode under `consistency = auto`.
    auto: Option<Auto>,
    /// The mode change that waits for the run to quiesce, if one was ordered.
    ordered: Option<Ordered>,
    /// Scheduled mode changes of the job that have been ordered so far.
    switched: usize,
    policy: Box<dyn Consistency>,
    /// Assigns mini-batches, unless each worker goes through its own partition in turn.
    assigner: Option<Box<dyn Assigner>>,
    cohort: Cohort,
    round: Round,
    /// Sums over all keys that the other servers have not all answered for yet.
    measuring: Measuring,
    roster: Roster,
    /// Connections before their first valid request (Hello, Enlist or a client's), with the time
    /// they were accepted; the oldest first.
    unauthenticated: BTreeSet<(Time, PeerId)>,
    /// The authenticated identity of each connection in `unauthenticated`.
    identities: BTreeMap<PeerId, Identity>,
    /// Connected members that wait for parameters.
    waiting: Waiting,
    /// Workers that asked for parameters since `give_out` last ran.
    newly_waiting: Vec<WorkerId>,
    /// The cohort (joins, members) and the gates of policy and assigner at the last scan of all
    /// waiting workers. While these stay the same, only `newly_waiting` needs to be looked at.
    gate: Option<((u64, usize), u64, u64)>,
    /// When the next waiting worker may be given parameters, if the policy spaces them in time.
    next_turn: Option<Time>,
    /// Members that join the cohort with the next round.
    joining: BTreeSet<WorkerId>,
    /// Members that have used up their share of a partition budget.
    finished: BTreeSet<WorkerId>,
    /// Mini-batches under way: granted, and not answered by a push.
    busy: u64,
    phase: Phase,
    phase_since: Time,
    /// Since when too few workers are present; none while there are enough.
    short_since: Option<Time>,
    /// Departed workers whose slot in the cohort is kept (`on-worker-loss = wait`), with the time
    /// of their departure.
    awaited_back: BTreeSet<(Time, WorkerId)>,
    /// The earliest time at which a lease can expire.
    lease_check: Option<Time>,
    ledger: Ledger,
    samples: u64,
    training_since: Option<Time>,
    last_update: Time,
    last_evaluated: Option<Version>,
    /// Evaluations that were requested and have not finished.
    evaluating: Vec<Evaluate>,
    /// The result of the last evaluation.
    evaluated: Option<LatestEvaluation>,
    /// Clients that wait for parameters from all servers.
    pullers: Pullers,
    /// Values that clients push into the parameters.
    pushes: Pushes,
    /// The worker whose event is being handled: a worker that is released in this step waited for
    /// it.
    released_by: Option<WorkerId>,
    /// The state of checkpoints, if they are the only durability.
    checkpoints: Option<Checkpoints>,
    /// The version that may admit no finite gradient, and the workers that say so.
    doubt: Option<Doubt>,
    end: Option<EndReason>,
    done: bool,
}

/// Where every mini-batch went. Invariant: `assigned = applied + discarded + lost + outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ledger {
    /// Mini-batches assigned; one that has to be computed again counts again.
    pub assigned: u64,
    /// Gradients that became part of an update.
    pub applied: u64,
    /// Gradients that arrived and were dropped, and mini-batches given up at the end of the run.
    pub discarded: u64,
    /// Mini-batches lost with their worker.
    pub lost: u64,
    /// Mini-batches under way, and gradients that are not part of an update yet.
    pub outstanding: u64,
}

/// Why no server can be built for a job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServerError {
    /// The job's settings are invalid.
    Job(JobError),
    /// The model is invalid.
    Model(ModelError),
    /// The optimiser is invalid.
    Optim(OptimError),
    /// There are more servers than parameters.
    FewParameters {
        /// The number of parameters of the model.
        parameters: usize,
    },
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => error.fmt(f),
            Self::Model(error) => error.fmt(f),
            Self::Optim(error) => error.fmt(f),
            Self::FewParameters { parameters } => {
                write!(f, "the model has {parameters} parameters: too few for so many servers")
            }
        }
    }
}

impl core::error::Error for ServerError {}

impl Server {
    /// Creates a server for `job`. `run` tells this run from others at the same address.
    ///
    /// # Errors
    /// [`ServerError`] if the job's settings, model or optimiser are invalid, or if it has more
    /// servers than parameters.
    pub fn new(job: Job, run: u64) -> Result<Self, ServerError> {
        job.validate().map_err(ServerError::Job)?;
        let model = Model::new(&job.model, job.data.shape).map_err(ServerError::Model)?;
        let keys = model.parameters() as u64;
        let map = KeyMap::even(job.servers, keys);
        let (Some(map), Ok(all)) = (map, KeyRange::new(0, keys)) else {
            return Err(ServerError::FewParameters { parameters: model.parameters() });
        };
        let own = map.keys_of(ServerId::COORDINATOR).unwrap_or(all);
        let store = Store::new(&job, &model, own).map_err(ServerError::Optim)?;
        Ok(Self {
            job_digest: job_digest(&job),
            run,
            store,
            keys: all,
            group: Group::new(map),
            mode: job.at_start(job.mode),
            window: job.window(),
            auto: (job.mode.consistency == ConsistencySpec::Auto).then(|| Auto::new(keys)),
            ordered: None,
            switched: 0,
            policy: job.policy(),
            assigner: job
                .assigner()
                .map_err(|error| ServerError::Job(JobError::Work(WorkError::Code(error))))?,
            cohort: Cohort::default(),
            round: Round::default(),
            measuring: Measuring::default(),
            roster: Roster::new(job.membership.workers),
            unauthenticated: BTreeSet::new(),
            identities: BTreeMap::new(),
            waiting: Waiting::default(),
            newly_waiting: Vec::new(),
            gate: None,
            next_turn: None,
            joining: BTreeSet::new(),
            finished: BTreeSet::new(),
            busy: 0,
            phase: Phase::Gathering,
            phase_since: Time::ZERO,
            short_since: None,
            awaited_back: BTreeSet::new(),
            lease_check: None,
            ledger: Ledger::default(),
            samples: 0,
            training_since: None,
            last_update: Time::ZERO,
            last_evaluated: None,
            evaluating: Vec::new(),
            evaluated: None,
            pullers: Pullers::default(),
            pushes: Pushes::default(),
            released_by: None,
            checkpoints: None,
            doubt: None,
            end: None,
            done: false,
            job,
        })
    }

    /// The job.
    #[must_use]
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// Returns the digest of the job: all runs of one job share it.
    #[must_use]
    pub const fn job_digest(&self) -> &[u8; 32] {
        &self.job_digest
    }

    /// Returns the current parameters. With several servers these are the parameters of this
    /// server's keys, unless all parameters of this version have been collected.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Vec<f32>> {
        self.group.whole(self.version()).unwrap_or_else(|| self.store.parameters())
    }

    /// Computes the parameters of all keys before the first update.
    #[must_use]
    pub fn initial(&self) -> Vec<f32> {
        let model = Model::new(&self.job.model, self.job.data.shape);
        model.map(|model| self.job.initial(&model)).unwrap_or_default()
    }

    /// Returns the current version of the parameters.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.cohort.version()
    }

    /// Returns the position of the current parameters on the training curve.
    #[must_use]
    pub fn point(&self) -> Point {
        Point {
            version: self.version(),
            samples: self.samples,
            epoch: self.samples as f64 / self.job.data.train.rows as f64,
            time: self
                .training_since
                .map_or_else(Default::default, |at| self.last_update.since(at)),
        }
    }

    /// Returns the ledger of all mini-batches so far.
    #[must_use]
    pub const fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Returns the number of examples that the budget asks for.
    #[must_use]
    pub const fn samples_wanted(&self) -> u64 {
        self.job.data.train.rows * self.job.budget.epochs as u64
    }

    /// Returns the mini-batches that a worker with `rows` examples owes under a partition budget;
    /// no limit under a global one.
    fn quota(&self, rows: u64) -> u64 {
        match self.job.budget.kind {
            BudgetKind::Global => u64::MAX,
            BudgetKind::Partition => {
                rows.div_ceil(u64::from(self.job.batch_size)) * u64::from(self.job.budget.epochs)
            }
        }
    }

    fn on_message(&mut self, now: Time, peer: PeerId, message: Message, out: &mut Outbox) {
        if let Some((_, slot)) = self.roster.of_peer(peer) {
            slot.heard = now;
            // Any message shows that the link carries data: the worker may be sent another version.
            slot.seat.is_superseding = false;
        }
        if let Some(server) = self.group.of_peer(peer) {
            return self.on_server_message(now, peer, server, message, out);
        }
        match message {
            // A client that waits for its answer has nothing else to say on this connection.
            message if self.is_asker(peer) => {
                self.refuse(now, peer, unexpected("nothing but patience", &message), out);
            }
            Message::Hello(hello) => self.on_hello(now, peer, hello, out),
            Message::Enlist(enlist) => self.on_enlist(now, peer, enlist, out),
            Message::PullStatus(_) => {
                if let Err(why) = self.check_client(peer, &message) {
                    return self.refuse(now, peer, why, out);
                }
                out.push(self.answer_status(now, peer));
                self.forget_stranger(peer);
                out.push(Effect::Close(peer));
            }
            Message::PullRange(pull) => self.on_pull_range(now, peer, pull, out),
            Message::PushRange(push) => self.on_push_range(now, peer, push, out),
            Message::RangePart(part) if self.pushes.is_awaited(peer) => {
                self.on_range_part(now, peer, part, out);
            }
            Message::Control(control) => self.on_control(now, peer, control, out),
            Message::VoteRequest(asked) if self.identities.contains_key(&peer) => {
                self.on_candidacy(now, peer, asked, out);
            }
            Message::Follow(_) => self.refuse(now, peer, no_standby(), out),
            message => match self.roster.worker_of(peer) {
                Some(worker) => self.on_member_message(now, peer, worker, message, out),
                None => self.refuse(now, peer, unexpected("a hello", &message), out),
            },
        }
    }

    fn on_member_message(
        &mut self,
        now: Time,
        peer: PeerId,
        worker: WorkerId,
        message: Message,
        out: &mut Outbox,
    ) {
        if self.is_flooding(now, worker, &message) {
            return self.refuse(now, peer, Refusal::Flooding, out);
        }
        self.released_by = Some(worker);
        // Any message but these shows that the worker is connected to all servers: it takes part in
        // the run only then.
        if !matches!(message, Message::Heartbeat(_) | Message::Bye(_))
            && let Some(slot) = self.roster.slot_mut(worker)
        {
            slot.unreached = None;
        }
        match message {
            Message::PullExamples(pull) if self.job.parts_of(worker).contains(&pull.part) => {
                let (part, from) = (pull.part, pull.from);
                out.push(Effect::SendExamples { peer, part, from });
            }
            Message::Ready(ready) => self.on_ready(now, peer, worker, &ready, out),
            Message::UseKeys(header) => self.on_use_keys(now, peer, worker, header, out),
            Message::Keys(keys) => self.on_keys(now, peer, worker, &keys, out),
            Message::Pull(pull) => self.on_pull(now, peer, worker, pull, out),
            Message::Push(push) => self.on_push(now, peer, worker, push, out),
            Message::Heartbeat(heartbeat) => {
                out.push(Effect::Send(peer, Message::Heartbeat(heartbeat)));
                self.supersede_for(now, worker, out);
            }
            Message::Mapped(mapped) => self.on_mapped(now, worker, mapped, out),
            Message::Bye(_) => self.on_bye(now, peer, worker, out),
            message => self.refuse(now, peer, unexpected("a worker's message", &message), out),
        }
    }

    /// Refuses a peer: sends the reason, closes the connection and, if the peer is a worker,
    /// removes it from the run.
    fn refuse(&mut self, now: Time, peer: PeerId, why: Refusal, out: &mut Outbox) {
        self.refuse_as(now, peer, None, why, out);
    }

    /// Like [`Self::refuse`], with the name that the peer gave if it is not a member yet.
    fn refuse_as(
        &mut self,
        now: Time,
        peer: PeerId,
        who: Option<String>,
        why: Refusal,
        out: &mut Outbox,
    ) {
        let worker = self.roster.worker_of(peer);
        let event = Event::Refused { peer, from: None, worker, who, why: why.clone() };
        out.push(Effect::Report(event));
        out.push(Effect::Send(peer, Message::Refused(why)));
        out.push(Effect::Close(peer));
        self.forget_stranger(peer);
        self.forget_asker(peer);
        let was_server = self.group.of_peer(peer).is_some();
        self.lose_server(now, peer, String::from("it was refused"), out);
        let worker = self.roster.detach(peer);
        if let Some(worker) = worker {
            self.depart(now, worker, super::Departure::Refused, out);
        }
        // A connection that was no member changes nothing that others wait for: no settling.
        if was_server || worker.is_some() {
            self.settle(now, out);
        }
    }
}

/// Returns the refusal for a standby of a server whose only durability is checkpoints.
pub(super) fn no_standby() -> Refusal {
    let what = "this server takes no standby: it keeps checkpoints; start it with --durability \
        none or log";
    Refusal::Server { what: what.into() }
}

/// Returns the refusal for a message out of place.
fn unexpected(wanted: &str, got: &Message) -> Refusal {
    Refusal::Unexpected {
        what: alloc::format!("a {:?} message came where {wanted} was expected", got.kind()),
    }
}

impl Node for Server {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        self.released_by = None;
        match input {
            Input::Start => self.phase_since = now,
            Input::Connected(peer, identity) => {
                self.unauthenticated.insert((now, peer));
                self.identities.insert(peer, identity);
                out.push(Effect::Limit(peer, Limits::UNAUTHENTICATED));
            }
            Input::Message(peer, message) => self.on_message(now, peer, message, out),
            Input::Receiving(peer) => self.on_receiving(now, peer, out),
            Input::Garbage(peer, error) => self.on_garbage(now, peer, error, out),
            Input::Disconnected { peer, why } => self.on_disconnected(now, peer, why, out),
            Input::Evaluated(evaluated) => {
                let version = evaluated.point.version;
                self.evaluating.retain(|asked| asked.point.version != version);
                self.note_evaluation(&evaluated);
                out.push(Effect::Report(evaluated.into()));
                self.settle(now, out);
            }
            Input::Overslept => self.renew_leases(now),
            Input::Checkpoint(number) => self.on_checkpoint(number, out),
            Input::Written(number) => self.on_written(now, number, out),
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Dialled(..)
            | Input::DialFailed { .. }
            | Input::Prepared(_)
            | Input::Computed(_) => {}
        }
        // The order matters: pushes that waited for a measurement make decisions, and `flush` sends
        // all decisions of this input together, as its last act.
        self.take_due(now, out);
        self.group.flush(out);
    }

    fn outlook(&self, now: Time) -> Option<Status> {
        Some(self.status(now))
    }

    fn deadline(&self) -> Option<Time> {
        self.next_deadline()
    }
}
