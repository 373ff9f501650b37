//! Nodes: the roles of a training run as state machines without I/O.
//!
//! # Contract with the driver
//! The driver calls [`Node::handle`] with one input and the time it happened at, then obeys the
//! effects in the outbox, in order, and drains it before the next input. When [`Node::deadline`]
//! has come it hands in [`Input::Wake`], which is harmless when nothing is due. Effects that take
//! long ([`Effect::Prepare`], [`Effect::Compute`], [`Effect::Evaluate`]) are answered by an input
//! of their own; the node goes on meanwhile. There is no callback, lock or blocking.

mod backoff;
mod damage;
mod dialler;
mod event;
mod idle;
mod inputs;
mod places;
mod replica;
mod server;
mod shard;
mod vote;
mod worker;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use event::{Cause, Departure, Event};
pub use inputs::{InputError, decode_input, encode_input};
pub use replica::{Replica, ReplicaConfig, Replicate};
pub use server::{LEAVE_SERVER, Ledger, RestoreError, STOP, Server, ServerError};
pub use shard::{Shard, ShardConfig};
pub use worker::{Worker, WorkerConfig, WorkerError};

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyList;
use pstrain_compute::saved::Saved;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Limits, Message, Status};

/// One role of a run.
pub trait Node {
    /// Takes one input and appends what must be done now to `out`.
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox);

    /// When [`Input::Wake`] is due, if ever.
    fn deadline(&self) -> Option<Time>;

    /// How its job is doing, if it knows: what a client that asks is told.
    fn outlook(&self, now: Time) -> Option<Status> {
        let _unknown = now;
        None
    }
}

/// A node whose state can be kept, for one that begins anew to go on from.
pub trait Durable: Node {
    /// Whether its state can be told just now.
    fn can_save(&self) -> bool {
        true
    }

    /// The whole state. It stays as it is.
    fn save(&mut self) -> Saved;

    /// The connections that are up, as far as it knows.
    fn peers(&self) -> Vec<PeerId>;

    /// Whether it waits for the answer to a dial.
    fn is_dialling(&self) -> bool {
        false
    }

    /// What it has asked its driver for and not been answered.
    fn unanswered(&self) -> Vec<Effect>;

    /// Whether it has finished in a way that whoever begins anew should go on from.
    fn is_over(&self) -> bool {
        false
    }
}

/// What happens to a node.
#[derive(Debug)]
pub enum Input {
    /// The run begins.
    Start,
    /// Somebody dialled this node; with who that has proved to be.
    Connected(PeerId, Identity),
    /// The dial asked for succeeded; with who answers.
    Dialled(PeerId, Identity),
    /// The dial asked for did not succeed.
    DialFailed {
        /// What went wrong, in words.
        why: String,
        /// Whether trying again cannot help (an address that does not exist).
        permanent: bool,
    },
    /// A message came.
    Message(PeerId, Message),
    /// Part of a message came; the rest is still on its way. Whoever sends it is alive, however
    /// long a large message takes over a slow link.
    Receiving(PeerId),
    /// Bytes came that are no frame; the driver closes the connection after this.
    Garbage(PeerId, pstrain_wire::FrameError),
    /// A connection is gone.
    Disconnected {
        /// Which.
        peer: PeerId,
        /// Why, in words.
        why: String,
    },
    /// The data asked for are in place.
    Prepared(Result<Prepared, String>),
    /// The gradient asked for.
    Computed(Computed),
    /// The evaluation asked for.
    Evaluated(Evaluated),
    /// A checkpoint with this number is due; answered by [`Effect::Checkpoint`].
    Checkpoint(u64),
    /// The checkpoint with this number is on the disk.
    Written(u64),
    /// Somebody wants the node to finish in order.
    Drain,
    /// The driver itself did not run for a while (a suspended process or machine) and has missed
    /// a deadline by far: whoever seemed silent meanwhile may not have been.
    Overslept,
    /// The deadline has come.
    Wake,
}

/// What a driver must do for a node.
#[derive(Debug)]
pub enum Effect {
    /// Open a connection; answered by `Dialled` or `DialFailed`. One at a time.
    Dial(Target),
    /// Send a message.
    Send(PeerId, Message),
    /// From now on, accept frames of this size from the peer.
    Limit(PeerId, Limits),
    /// Close the connection once what was sent is out. No `Disconnected` follows.
    Close(PeerId),
    /// Send these rows of a part.
    SendExamples {
        /// To whom.
        peer: PeerId,
        /// The part.
        part: PartId,
        /// The first row wanted.
        from: u64,
    },
    /// Get the data of the partition ready; answered by `Prepared`. One at a time, in order.
    Prepare(Box<Prepare>),
    /// Compute a gradient; answered by `Computed`. One at a time: another order means that the one
    /// before, if it has not been answered, need not be.
    Compute(Compute),
    /// Evaluate parameters on the held-out data; answered by `Evaluated`. Never stalls training.
    Evaluate(Evaluate),
    /// Send a status whose members are behind these connections, in order, with what is known of
    /// each of them.
    SendStatus {
        /// To whom.
        peer: PeerId,
        /// The status, without links.
        status: Box<Status>,
        /// The connection of each member, if it has one.
        links: Vec<Option<PeerId>>,
    },
    /// Take note of this state, and of what belongs to it, until [`Effect::Write`].
    Checkpoint(Box<Checkpoint>),
    /// Write the checkpoint that was taken last; answered by [`Input::Written`]. One that cannot be
    /// written is tried again.
    Write,
    /// Values that came with a message, and that nobody here needs any more: memory for others.
    Spare(Arc<Vec<f32>>),
    /// Something worth knowing happened.
    Report(Event),
    /// The node has finished.
    Done(Result<EndReason, WorkerError>),
}

/// The state of a node, to be gone back to.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The number of the checkpoint.
    pub number: u64,
    /// The run that it is of, and the origin of that ([`pstrain_wire::checkpoint`]).
    pub run: u64,
    /// See there.
    pub origin: u64,
    /// The oldest that may still be gone back to, where others decide about that.
    pub oldest: Option<u64>,
    /// The state.
    pub saved: Saved,
}

/// Whom to dial.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Target {
    /// The server that the driver was told of: the one that coordinates.
    Server,
    /// Another server, where it said that it is.
    Address(String),
}

/// The effects of one input, in order.
pub type Outbox = Vec<Effect>;

/// Data to get ready: some parts of the training split.
#[derive(Debug)]
pub struct Prepare {
    /// The job, whose recipe says how.
    pub job: Job,
    /// Whose parts.
    pub worker: WorkerId,
    /// The parts of [`Job::parts_of`], in that order, if the server sent them.
    pub examples: Option<Vec<Examples>>,
}

impl Prepare {
    /// The parts of the data that are wanted.
    #[must_use]
    pub fn parts(&self) -> Vec<PartId> {
        self.job.parts_of(self.worker)
    }
}

/// Data that are ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// Examples in each part of [`Job::parts_of`], in that order.
    pub rows: Vec<u64>,
    /// The training split they were taken from; none if the server sent them.
    pub train: Option<Fingerprint>,
    /// The keys that gradients have values for; none if for all of the model.
    pub keys: Option<KeyList>,
}

/// A gradient to compute.
#[derive(Clone, Debug)]
pub struct Compute {
    /// Which push it is for.
    pub ticket: Ticket,
    /// What it is computed from.
    pub task: Task,
    /// How much that is, in ordinary mini-batches.
    pub amount: f64,
    /// The parameters.
    pub parameters: Arc<Vec<f32>>,
    /// Memory for the gradient; what it holds does not matter.
    pub scratch: Vec<f32>,
}

/// Which push a computation is for. A result for a push that is no longer wanted is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The run: another server at the same address counts its incarnations anew.
    pub run: u64,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The push.
    pub sequence: Sequence,
    /// The version of the parameters, which may be superseded.
    pub base: Version,
}

/// A gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// Which push it is for.
    pub ticket: Ticket,
    /// The gradient.
    pub gradient: Vec<f32>,
    /// The mean loss of the examples.
    pub loss: f32,
    /// Examples it was computed from.
    pub samples: u32,
    /// How long it took.
    pub took: Duration,
}

/// Parameters to evaluate.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// Where on the training curve this is.
    pub point: Point,
    /// The parameters.
    pub parameters: Arc<Vec<f32>>,
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
    /// Training time: since the first parameters were given out.
    #[serde(rename = "time_s", serialize_with = "event::seconds")]
    pub time: Duration,
}

/// A point of the training curve with all digits of its time, for what is kept.
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

/// An evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// Where on the training curve.
    pub point: Point,
    /// What came out.
    pub evaluation: Evaluation,
}
