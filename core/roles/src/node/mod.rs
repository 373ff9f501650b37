//! Nodes: the roles of a training run as state machines without I/O.
//!
//! # Contract with the driver
//! The driver calls [`Node::handle`] with one input and the time it happened at, then executes the
//! effects in the outbox, in order, and drains it before the next input. When [`Node::deadline`]
//! has come it hands in [`Input::Wake`], which is harmless when nothing is due. Effects that take
//! long ([`Effect::Prepare`], [`Effect::Compute`], [`Effect::Evaluate`]) are answered by an input
//! of their own; the node continues meanwhile. There is no callback, lock or blocking.

mod addresses;
mod admission;
mod backoff;
mod by_workers;
mod damage;
mod dialler;
mod doubt;
mod evaluating;
mod event;
mod flood;
mod incoming;
mod inputs;
mod meeting;
mod peer;
mod replica;
mod run_job;
mod server;
mod shard;
mod vote;
mod worker;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use doubt::MOST_IN_A_ROW;
pub use event::{Cause, Event};
pub use inputs::{InputError, decode_input, encode_input};
pub use meeting::Meeting;
pub use peer::{Peer, PeerConfig};
pub use pstrain_wire::worker::Departure;
pub use replica::{Replica, ReplicaConfig, Replicate};
pub use server::{LEAVE_SERVER, Ledger, RestoreError, STOP, Server, ServerError};
pub use shard::{Shard, ShardConfig};
pub use worker::{NodeError, Worker, WorkerConfig};

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::{KeyList, KeyRange};
use pstrain_compute::saved::Saved;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_wire::group::Exchanged;
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Limits, Message, Status};

/// One role of a run.
pub trait Node {
    /// Handles one input and appends the effects that the driver must execute now to `out`.
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox);

    /// When [`Input::Wake`] is due, if ever.
    fn deadline(&self) -> Option<Time>;

    /// The status of the node's job, for a client's request; none if the node does not know it.
    fn outlook(&self, now: Time) -> Option<Status> {
        let _unknown = now;
        None
    }
}

/// A node whose state can be saved, and restored after a restart.
pub trait Durable: Node {
    /// True if the state can be saved now.
    fn can_save(&self) -> bool {
        true
    }

    /// Returns the whole state, which stays unchanged.
    fn save(&mut self) -> Saved;

    /// The open connections, as far as the node knows.
    fn peers(&self) -> Vec<PeerId>;

    /// True if the node waits for the answer to a dial.
    fn is_dialling(&self) -> bool {
        false
    }

    /// Effects that the driver has not answered yet.
    fn unanswered(&self) -> Vec<Effect>;

    /// True if the final state must be resumed from after a restart.
    fn is_over(&self) -> bool {
        false
    }
}

/// An input of a node.
#[derive(Debug)]
pub enum Input {
    /// The run begins.
    Start,
    /// A peer dialled this node; with its verified identity.
    Connected(PeerId, Identity),
    /// The requested dial succeeded; with the verified identity of the server.
    Dialled(PeerId, Identity),
    /// The requested dial failed.
    DialFailed {
        /// The error, in words.
        why: String,
        /// The prospect of another attempt.
        fault: DialFault,
    },
    /// A message was received.
    Message(PeerId, Message),
    /// Part of a message was received; the rest is in transit. The sender is alive, however long a
    /// large message takes over a slow link.
    Receiving(PeerId),
    /// The bytes received are not a frame; the driver closes the connection after this.
    Garbage(PeerId, pstrain_wire::FrameError),
    /// A connection is closed.
    Disconnected {
        /// The connection.
        peer: PeerId,
        /// Why, in words.
        why: String,
    },
    /// The requested data is in place, or cannot be prepared.
    Prepared(Result<Prepared, String>),
    /// A range of the requested gradient that is final before the rest, if
    /// [`Compute::by_range`].
    ComputedRange(ComputedRange),
    /// The requested gradient.
    Computed(Computed),
    /// The requested gradient cannot be computed; why, in words.
    ComputeFailed(String),
    /// The requested evaluation.
    Evaluated(Evaluated),
    /// The driver cannot make the requested evaluation: a worker may.
    Unevaluated {
        /// The version of the parameters.
        version: Version,
        /// Why, in words.
        why: String,
    },
    /// The evaluation that a worker's node has requested, or why there is none, in words.
    EvaluatedHere(EvaluationTicket, Result<Evaluation, String>),
    /// A part of the initial parameters, for a server whose driver has them; the parts come in the
    /// order of their keys, after the start. The message is a `RangePart`, as a worker would send.
    Initial(Message),
    /// A checkpoint with this number is due; answered by [`Effect::Checkpoint`].
    Checkpoint(u64),
    /// The checkpoint with this number is on the disk.
    Written(u64),
    /// The operator wants the node to finish in order.
    Drain,
    /// The driver itself did not run for a while (a suspended process or machine) and has missed a
    /// deadline by far: peers that seem silent may not have been.
    Overslept,
    /// This server has resumed, and its workers may have gone down with it: those come back as new
    /// incarnations, which are waited for.
    WorkersDown,
    /// The run is to make this many passes over the data, more than its job says. One that had used
    /// up its budget goes on.
    Extend(u32),
    /// The deadline has come.
    Wake,
}

/// The prospect of another attempt after a failed dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DialFault {
    /// It may succeed.
    Temporary,
    /// It cannot: there is no such address, or it is forbidden.
    Permanent,
    /// The other end has another key or security, or is another program. Bytes that were damaged on
    /// the way look alike, but not several times in a row.
    Mismatch,
}

/// An action that the driver must execute for a node.
#[derive(Debug)]
pub enum Effect {
    /// Open a connection; answered by `Dialled` or `DialFailed`. One at a time.
    Dial(Target),
    /// Send a message.
    Send(PeerId, Message),
    /// From now on, accept frames up to these limits from the peer.
    Limit(PeerId, Limits),
    /// Close the connection after the messages sent so far. No `Disconnected` follows.
    Close(PeerId),
    /// Send rows of a part of the data.
    SendExamples {
        /// The recipient.
        peer: PeerId,
        /// The part.
        part: PartId,
        /// The first row wanted.
        from: u64,
    },
    /// Get the data of the partition ready; answered by `Prepared`. One at a time, in order.
    Prepare(Box<Prepare>),
    /// Compute a gradient; answered by `Computed` or `ComputeFailed`. One at a time: another
    /// `Compute` cancels an unanswered one, which need not be answered.
    Compute(Compute),
    /// Evaluate parameters on the held-out data; answered by `Evaluated` or `Unevaluated`. Never
    /// stalls training.
    Evaluate(Evaluate),
    /// A worker's node: evaluate parameters on the held-out data with the source of the worker's
    /// gradients, after earlier `Compute`s; answered by `EvaluatedHere`. Must not delay messages.
    EvaluateHere(EvaluateHere),
    /// Send a status whose members have these connections, in order, completed with each
    /// connection's link statistics.
    SendStatus {
        /// The recipient.
        peer: PeerId,
        /// The status, without links.
        status: Box<Status>,
        /// The connection of each member, if it has one.
        links: Vec<Option<PeerId>>,
    },
    /// Take a snapshot of this state, and of data that belongs to it, to be written at
    /// [`Effect::Write`].
    Checkpoint(Box<Checkpoint>),
    /// Write the last snapshot; answered by [`Input::Written`]. A failed write is retried.
    Write,
    /// The run is stopped on request: keep neither this input nor any later one. The process ends,
    /// and a node that resumes goes on from before the stop.
    Pause,
    /// A buffer of values from a message that the node no longer needs, for reuse.
    Recycle(Arc<Vec<f32>>),
    /// Report an event.
    Report(Event),
    /// The node has finished.
    Done(Result<EndReason, NodeError>),
}

/// A state of a node that the node can go back to.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The number of the checkpoint.
    pub number: u64,
    /// The run that it belongs to, and the origin of that run ([`pstrain_wire::checkpoint`]).
    pub run: u64,
    /// The origin of the run.
    pub origin: u64,
    /// The oldest checkpoint that may still be gone back to, where another node decides about it.
    pub oldest: Option<u64>,
    /// The state.
    pub saved: Saved,
}

/// A node to dial.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Target {
    /// The server that the driver was configured with: the coordinator.
    Server,
    /// Another server, at the address that it announced.
    Address(String),
    /// Another worker, at the address that it announced. It has to prove that it is a worker, and
    /// its certificate has no host name.
    Worker(String),
}

/// The effects of one input, in order.
pub type Outbox = Vec<Effect>;

/// Data to prepare: some parts of the training split.
#[derive(Debug)]
pub struct Prepare {
    /// The job, whose recipe says how.
    pub job: Job,
    /// The worker whose parts are needed.
    pub worker: WorkerId,
    /// The parts of [`Job::parts_of`], in that order, if the server sent them.
    pub examples: Option<Vec<Examples>>,
}

impl Prepare {
    /// The parts of the data to prepare.
    #[must_use]
    pub fn parts(&self) -> Vec<PartId> {
        self.job.parts_of(self.worker)
    }
}

/// Prepared data.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// Examples in each part of [`Job::parts_of`], in that order.
    pub rows: Vec<u64>,
    /// The training split they were taken from; none if the server sent them.
    pub train: Option<Fingerprint>,
    /// The keys that gradients have values for; none if for all keys of the model.
    pub keys: Option<KeyList>,
    /// Initial parameters of all keys, if the job takes them from a worker. The worker keeps them:
    /// servers that go back to a state before training ask for them again.
    pub initial: Option<Arc<Vec<f32>>>,
}

/// A gradient to compute.
#[derive(Clone, Debug)]
pub struct Compute {
    /// The push that the gradient is for.
    pub ticket: Ticket,
    /// The mini-batch.
    pub task: Task,
    /// The amount of work, in ordinary mini-batches.
    pub amount: f64,
    /// The parameters.
    pub parameters: Arc<Vec<f32>>,
    /// A buffer for the gradient; its contents do not matter.
    pub scratch: Vec<f32>,
    /// True if ranges of the gradient are wanted as soon as they are final.
    pub by_range: bool,
}

/// A range of a gradient that is final before the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedRange {
    /// The push that the gradient is for.
    pub ticket: Ticket,
    /// The keys.
    pub keys: KeyRange,
    /// The gradient, one value for each key.
    pub values: Vec<f32>,
    /// Examples that the gradient is computed from.
    pub samples: u32,
}

/// Identifies the push that a computation is for. A result for a push that is no longer wanted is
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The run: another server at the same address restarts its count of incarnations.
    pub run: u64,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The push.
    pub sequence: Sequence,
    /// The version of the parameters, which may be superseded.
    pub base: Version,
}

/// A computed gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// The push that the gradient is for.
    pub ticket: Ticket,
    /// The gradient.
    pub gradient: Vec<f32>,
    /// Mean loss of the examples.
    pub loss: f32,
    /// Number of examples.
    pub samples: u32,
    /// Duration of the computation.
    pub took: Duration,
}

/// Parameters to evaluate.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// The point of the training curve.
    pub point: Point,
    /// The parameters.
    pub parameters: Arc<Vec<f32>>,
}

/// Parameters that a worker is to evaluate.
#[derive(Clone, Debug)]
pub struct EvaluateHere {
    /// The evaluation.
    pub ticket: EvaluationTicket,
    /// The parameters.
    pub parameters: Arc<Vec<f32>>,
}

/// Identifies an evaluation by a worker. A result that is no longer wanted is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationTicket {
    /// The run.
    pub run: u64,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The version of the parameters.
    pub version: Version,
}

/// A point of the training curve.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// Updates applied.
    pub version: Version,
    /// Examples applied.
    pub samples: u64,
    /// Passes over the training split.
    pub epoch: f64,
    /// Training time: since the first parameters were sent.
    #[serde(rename = "time_s", serialize_with = "event::seconds")]
    pub time: Duration,
}

/// A point of the training curve with all digits of its time, for saved state.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct ExactPoint {
    version: Version,
    samples: u64,
    epoch: f64,
    time: Duration,
}

impl From<Point> for ExactPoint {
    fn from(Point { version, samples, epoch, time }: Point) -> Self {
        Self { version, samples, epoch, time }
    }
}

impl From<ExactPoint> for Point {
    fn from(ExactPoint { version, samples, epoch, time }: ExactPoint) -> Self {
        Self { version, samples, epoch, time }
    }
}

/// The result of a run. Reports are made from it and the events.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The position of the parameters on the training curve.
    pub point: Point,
    /// Where every mini-batch went.
    pub ledger: Ledger,
    /// Bytes that each worker has exchanged with the other servers; events are of this one alone.
    pub elsewhere: Vec<Exchanged>,
    /// The last parameters of all keys, or the best ones if the job keeps those; none if part of
    /// them is lost.
    pub parameters: Option<Arc<Vec<f32>>>,
}

impl Trained {
    /// The result with the evaluated parameters that are kept, if any.
    fn with_kept(self, kept: Option<&Evaluate>) -> Self {
        match kept {
            Some(Evaluate { point, parameters }) => {
                Self { point: *point, parameters: Some(Arc::clone(parameters)), ..self }
            }
            None => self,
        }
    }
}

/// An evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// The point of the training curve.
    pub point: Point,
    /// The result.
    pub evaluation: Evaluation,
}
