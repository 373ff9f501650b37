//! The parameter server: holds the model, admits pushes, aggregates, updates, answers.

mod account;
mod arriving;
mod by_workers;
mod checkpoints;
mod decide;
mod doubt;
mod early;
mod enlist;
mod evaluations;
mod grant;
mod group;
mod handshake;
mod initial;
mod keys;
mod lifecycle;
mod liveness;
mod measuring;
mod members;
mod mode_change;
mod modes;
mod progress;
mod push;
mod ranges;
mod rebalance;
mod replicated;
mod roster;
mod round;
mod rounds;
mod saving;
mod status;
mod waiting;

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::node::doubt::Doubt;
pub(super) use account::Account;
use checkpoints::Checkpoints;
use early::Early;
pub(super) use evaluations::Evaluations;
use group::Group;
use initial::Initial;
pub(super) use lifecycle::Lifecycle;
use measuring::Measuring;
use members::Members;
pub use mode_change::{LEAVE_SERVER, STOP};
use modes::Modes;
pub use progress::Ledger;
use progress::Progress;
use ranges::Pullers;
use rounds::Rounds;
pub use saving::RestoreError;

use super::run_job::RunJob;
use super::{Effect, Event, Input, Node, Outbox, Point, Trained};
use crate::store::Store;
use pstrain_compute::id::{PeerId, ServerId, Version, WorkerId};
use pstrain_compute::model::ModelError;
use pstrain_compute::optim::OptimError;
use pstrain_compute::params::{KeyMap, KeyRange};
use pstrain_compute::time::Time;
use pstrain_policy::auto::Auto;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, Exchange, InitialFrom, Job, JobError, WorkError};
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::{EndReason, Heartbeat};
use pstrain_wire::{Limits, Message, Refusal, Status};

/// The parameter server as a state machine.
#[derive(Debug)]
pub struct Server {
    job: RunJob,
    run: u64,
    store: Store,
    /// All keys of the model.
    keys: KeyRange,
    initial: Initial,
    /// The other servers, and the key map.
    group: Group,
    modes: Modes,
    rounds: Rounds,
    members: Members,
    /// Sums over all keys that the other servers have not all answered for yet.
    measuring: Measuring,
    lifecycle: Lifecycle,
    progress: Progress,
    evaluations: Evaluations,
    pullers: Pullers,
    /// The state of checkpoints, if they are the only durability.
    checkpoints: Option<Checkpoints>,
    /// The version that may admit no finite gradient, and the workers that say so.
    doubt: Doubt,
    /// Values that workers were sent before their update.
    early: Early,
}

/// Why no server can be built for a job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The job's settings are invalid.
    #[error(transparent)]
    Job(JobError),
    /// The model is invalid.
    #[error(transparent)]
    Model(ModelError),
    /// The optimiser is invalid.
    #[error(transparent)]
    Optim(OptimError),
    /// There are more servers than parameters.
    #[error("the model has {parameters} parameters: too few for so many servers")]
    FewParameters {
        /// The number of parameters of the model.
        parameters: usize,
    },
}

impl Server {
    /// Creates a server for `job`. `run` tells this run from others at the same address.
    ///
    /// # Errors
    /// [`ServerError`] if the job's settings, model or optimiser are invalid, or if it has more
    /// servers than parameters.
    pub fn new(job: Job, run: u64) -> Result<Self, ServerError> {
        job.validate().map_err(ServerError::Job)?;
        let model = job.build_model().map_err(ServerError::Model)?;
        let keys = model.parameters() as u64;
        let map = KeyMap::even(job.servers, keys);
        let (Some(map), Ok(all)) = (map, KeyRange::new(0, keys)) else {
            return Err(ServerError::FewParameters { parameters: model.parameters() });
        };
        let own = map.keys_of(ServerId::COORDINATOR).unwrap_or(all);
        let store = Store::new(&job, &model, own).map_err(ServerError::Optim)?;
        let assigner = job
            .assigner()
            .map_err(|error| ServerError::Job(JobError::Work(WorkError::Code(error))))?;
        Ok(Self {
            run,
            store,
            keys: all,
            initial: Initial::of(job.initial),
            group: Group::new(map),
            modes: Modes::new(
                job.at_start(job.mode),
                (job.mode.consistency == ConsistencySpec::Auto).then(|| Auto::new(keys)),
            ),
            rounds: Rounds::new(job.policy(), assigner, job.window()),
            members: Members::new(job.membership.workers),
            measuring: Measuring::default(),
            lifecycle: Lifecycle::new(),
            progress: Progress::default(),
            evaluations: Evaluations::default(),
            pullers: Pullers::default(),
            checkpoints: None,
            doubt: Doubt::default(),
            early: Early::default(),
            job: RunJob::new(job),
        })
    }

    /// The job.
    #[must_use]
    pub const fn job(&self) -> &Job {
        self.job.get()
    }

    /// Returns the digest of the job as the run began: all runs of one job share it.
    pub(in crate::node) const fn job_digest(&self) -> &[u8; 32] {
        self.job.first_digest()
    }

    /// Returns the current parameters. With several servers these are the parameters of this
    /// server's keys, unless all parameters of this version have been collected.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Vec<f32>> {
        self.group.whole(self.version()).unwrap_or_else(|| self.store.parameters())
    }

    /// Returns the current version of the parameters.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.rounds.cohort.version()
    }

    /// Returns the position of the current parameters on the training curve.
    #[must_use]
    pub fn point(&self) -> Point {
        self.progress.point(self.version(), self.train_rows())
    }

    /// Returns why the run has ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<EndReason> {
        self.lifecycle.end()
    }

    /// Returns the ledger of all mini-batches so far.
    #[must_use]
    pub const fn ledger(&self) -> Ledger {
        self.progress.ledger
    }

    /// Returns the result of the run so far.
    #[must_use]
    pub fn trained(&self) -> Trained {
        let parameters = self.parameters();
        let is_whole = parameters.len() as u64 == self.keys.len();
        Trained {
            point: self.point(),
            ledger: self.ledger(),
            elsewhere: self.group.traffic(self.job.membership.workers),
            parameters: is_whole.then(|| Arc::clone(parameters)),
        }
        .with_kept(self.evaluations.kept())
    }

    /// Returns the number of examples that the budget asks for.
    #[must_use]
    pub fn samples_wanted(&self) -> u64 {
        self.train_rows().saturating_mul(self.job.budget.epochs.into())
    }

    /// Number of examples of an epoch; at least 1. If each worker has rows of its own, the examples
    /// of all workers that have joined so far, whether they are still there or not.
    fn train_rows(&self) -> u64 {
        match self.job.data.is_local() {
            true => self.members.roster.iter().map(|(_, slot)| slot.rows).sum::<u64>().max(1),
            false => self.job.data.train.rows,
        }
    }

    /// Returns the mini-batches that a worker with `rows` examples owes under a partition budget;
    /// no limit under a global one.
    fn quota(&self, rows: u64) -> u64 {
        match self.job.budget.kind {
            BudgetKind::Global => u64::MAX,
            BudgetKind::Partition => {
                self.job.pass(rows).batches() * u64::from(self.job.budget.epochs)
            }
        }
    }

    fn on_message(&mut self, now: Time, peer: PeerId, message: Message, out: &mut Outbox) {
        let whole = self.store.keys();
        if let Some((_, slot)) = self.members.roster.of_peer(peer) {
            slot.heard = now;
            // Any message shows that the link carries data: the worker may be sent another version.
            // But a range may be the first of many that are on their way.
            let is_range = self.job.exchange == Exchange::Layers
                && matches!(&message, Message::Push(push) if push.header.keys != whole);
            slot.pushes.is_superseding &= is_range;
        }
        if let Some(server) = self.group.of_peer(peer) {
            return self.on_server_message(now, peer, server, message, out);
        }
        match message {
            // A client that waits for its answer has nothing else to say on this connection.
            message if self.is_asker(peer) => {
                self.refuse(now, peer, unexpected("nothing but patience", &message), out);
            }
            // It would describe the model of its compute process, but another worker was earlier.
            Message::Heartbeat(_) if self.members.identities.contains_key(&peer) => {
                self.refuse_silently(peer, unexpected("a hello", &message), out);
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
            Message::Control(control) => self.on_control(now, peer, control, out),
            Message::VoteRequest(asked) if self.members.identities.contains_key(&peer) => {
                self.on_candidacy(now, peer, asked, out);
            }
            Message::Follow(_) => self.refuse(now, peer, no_standby(), out),
            message => match self.members.roster.worker_of(peer) {
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
        self.rounds.released_by = Some(worker);
        // Any message but these shows that the worker is connected to all servers: it takes part in
        // the run only then.
        let shows_nothing = matches!(
            message,
            Message::Heartbeat(_) | Message::EvaluationAnswer(_) | Message::Bye(_)
        );
        if !shows_nothing {
            self.members.roster[worker].unreached = None;
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
                let answer = Heartbeat::of(heartbeat.incarnation);
                out.push(Effect::Send(peer, Message::Heartbeat(answer)));
                self.take_stopped(now, worker, &heartbeat, out);
                self.supersede_for(now, worker, out);
            }
            Message::RangePart(part) if self.job.initial == InitialFrom::Worker => {
                self.on_initial_part(now, peer, part, out);
            }
            Message::Mapped(mapped) => self.on_mapped(now, worker, mapped, out),
            Message::EvaluationAnswer(answer) => {
                self.on_evaluation_answer(now, peer, worker, answer, out);
            }
            Message::Bye(bye) => self.on_bye(now, peer, worker, bye, out),
            message => self.refuse(now, peer, unexpected("a worker's message", &message), out),
        }
    }

    /// Refuses a peer: sends the reason, closes the connection and, if the peer is a worker,
    /// removes it from the run.
    fn refuse(&mut self, now: Time, peer: PeerId, why: Refusal, out: &mut Outbox) {
        self.refuse_as(now, peer, None, why, out);
    }

    /// Refuses a peer that has not said who it is, in the course of every start: it comes again.
    /// Nothing is reported.
    fn refuse_silently(&mut self, peer: PeerId, why: Refusal, out: &mut Outbox) {
        self.forget_stranger(peer);
        out.extend([Effect::Send(peer, Message::Refused(why)), Effect::Close(peer)]);
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
        let worker = self.members.roster.worker_of(peer);
        let said = why.to_string();
        let event = Event::Refused { peer, from: None, worker, who, why: why.clone() };
        out.push(Effect::Report(event));
        out.push(Effect::Send(peer, Message::Refused(why)));
        out.push(Effect::Close(peer));
        self.forget_stranger(peer);
        self.forget_asker(peer);
        let was_server = self.group.of_peer(peer).is_some();
        self.lose_server(now, peer, String::from("it was refused"), out);
        let worker = self.members.roster.detach(peer);
        if let Some(worker) = worker {
            self.members.roster[worker].why_left = Some(as_reason(&said));
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
        self.rounds.released_by = None;
        match input {
            Input::Start => self.lifecycle.since = now,
            Input::Connected(peer, identity) => {
                self.members.connected(now, peer, identity);
                out.push(Effect::Limit(peer, Limits::UNAUTHENTICATED));
            }
            Input::Message(peer, message) => self.on_message(now, peer, message, out),
            Input::Receiving(peer) => self.on_receiving(now, peer, out),
            Input::Garbage(peer, error) => self.on_garbage(now, peer, error, out),
            Input::Disconnected { peer, why } => self.on_disconnected(now, peer, why, out),
            Input::Evaluated(evaluated) => {
                self.evaluations.by_workers.driver_evaluated();
                self.publish(now, evaluated, out);
                self.settle(now, out);
            }
            Input::Unevaluated { version, why } => self.on_unevaluated(now, version, why, out),
            Input::Initial(Message::RangePart(part)) => self.on_given_part(now, part, out),
            Input::Overslept => self.renew_leases(now),
            Input::WorkersDown => self.members.roster.went_down(),
            Input::Extend(epochs) => self.extend(now, epochs, out),
            Input::Checkpoint(number) => self.on_checkpoint(number, out),
            Input::Written(number) => self.on_written(now, number, out),
            Input::Drain => self.drain(now, out),
            Input::Wake => self.on_wake(now, out),
            Input::Initial(_)
            | Input::Dialled(..)
            | Input::DialFailed { .. }
            | Input::Prepared(_)
            | Input::ComputedRange(_)
            | Input::Computed(_)
            | Input::ComputeFailed(_)
            | Input::EvaluatedHere(..) => {}
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
