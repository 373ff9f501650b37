//! Events of a run, as one typed stream. Progress bars, records and checks all read it; no state
//! machine prints or logs on its own.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::{Evaluated, Point};
use pstrain_compute::decided::DropReason;
use pstrain_compute::evaluation::{Evaluation, flat};
use pstrain_compute::id::{
    BatchId, Clock, Incarnation, PartId, PeerId, Sequence, ServerId, Term, Version, WorkerId,
};
use pstrain_compute::params::KeyRange;
use pstrain_policy::job::Job;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use pstrain_wire::worker::{Departure, EndReason};
use pstrain_wire::{Refusal, TimeSpent};

/// An event, with enough detail to judge it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A worker got an id.
    Joined {
        /// The worker.
        worker: WorkerId,
        /// Its name.
        name: String,
        /// Its incarnation.
        incarnation: Incarnation,
        /// True if the worker resumed an interrupted membership.
        resumed: bool,
    },
    /// A worker has its data.
    Ready {
        /// The worker.
        worker: WorkerId,
        /// Examples in its partition.
        rows: u64,
    },
    /// Another server of the job has joined, or is back.
    ServerJoined {
        /// The server.
        server: ServerId,
    },
    /// Another server has joined and waits for keys.
    ServerWaits {
        /// The server.
        server: ServerId,
    },
    /// The connection to another server is closed; that server still holds its parameters.
    ServerCutOff {
        /// The server.
        server: ServerId,
        /// Why, in words.
        why: String,
    },
    /// This server follows a coordinator.
    Enlisted {
        /// The job.
        #[serde(skip)]
        job: Box<Job>,
        /// The id of this server.
        server: ServerId,
        /// The keys it holds.
        keys: KeyRange,
    },
    /// A standby has the whole state: from now on no effect is visible before the standby knows it.
    StandbyJoined {
        /// The address at which workers reach it.
        address: String,
    },
    /// The standby is gone, and the workers have voted for this server to lead without one.
    StandbyLost {
        /// The term that has begun.
        term: Term,
        /// How long the server withheld its effects.
        #[serde(rename = "stood_s", serialize_with = "seconds")]
        stood: Duration,
        /// Why the standby is gone, in words.
        why: String,
    },
    /// Standby's side: it has the state of its primary.
    Following {
        /// The version of its parameters; none if the server does not coordinate.
        version: Option<Version>,
    },
    /// Standby's side: it leads now, since its primary is gone and enough electors have voted for
    /// it.
    TookOver {
        /// The term that has begun.
        term: Term,
        /// The version of the parameters that it continues from; none if the server does not
        /// coordinate.
        version: Option<Version>,
        /// How long no server led.
        #[serde(rename = "stood_s", serialize_with = "seconds")]
        stood: Duration,
        /// Why the primary is gone, in words.
        why: String,
    },
    /// This server, which follows a coordinator, holds another key range than before.
    Holds {
        /// The keys it holds now.
        keys: KeyRange,
    },
    /// Keys were rebalanced among servers, since one has joined or wants to leave.
    KeysMoved {
        /// The version of the key map.
        map: u64,
        /// The server that has joined.
        joined: Option<ServerId>,
        /// The server that leaves.
        left: Option<ServerId>,
        /// Number of keys moved.
        keys: u64,
        /// Time since the rebalance was requested.
        #[serde(rename = "took_s", serialize_with = "seconds")]
        took: Duration,
    },
    /// Enough workers are present.
    Started {
        /// Number of workers.
        workers: u32,
    },
    /// A worker was sent parameters and a mini-batch.
    Granted {
        /// The worker.
        worker: WorkerId,
        /// The push it may make.
        sequence: Sequence,
        /// The version of the parameters.
        version: Version,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of that part.
        batch: BatchId,
        /// How long the server made the worker wait.
        #[serde(rename = "waited_s", serialize_with = "seconds")]
        waited: Duration,
    },
    /// A worker sent its working set.
    Keyed {
        /// The worker.
        worker: WorkerId,
        /// Size of the keys that came to this server, on the wire, in bytes.
        bytes: u64,
    },
    /// Parameters were sent to a worker; or, without a server, other workers' values.
    Given {
        /// The worker.
        worker: WorkerId,
        /// Size of the values, on the wire, in bytes.
        bytes: u64,
    },
    /// Values of a worker went to another one by way of the meeting point.
    Relayed {
        /// The sender.
        worker: WorkerId,
        /// Size of the values, in bytes.
        bytes: u64,
    },
    /// A gradient arrived for the first time.
    Pushed {
        /// The worker.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
        /// The version it was computed on.
        base: Version,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of that part.
        batch: BatchId,
        /// Mean loss of the mini-batch.
        loss: f32,
        /// Size of the part of the gradient that came to this server, on the wire, in bytes.
        bytes: u64,
        /// Its size without filters: four bytes for each parameter that this server holds.
        unfiltered: u64,
        /// Time from sending the parameters to the arrival of the gradient.
        #[serde(rename = "turnaround_s", serialize_with = "seconds")]
        turnaround: Duration,
        /// How long this report was delayed because the push was withheld from the standby.
        #[serde(rename = "ago_s", serialize_with = "seconds")]
        ago: Duration,
        /// The computation time within the turnaround, as the worker measured it.
        #[serde(rename = "compute_s", serialize_with = "seconds")]
        compute: Duration,
        /// Breakdown of the worker's time since its previous gradient, or its first parameters.
        spent: TimeSpent,
    },
    /// A push or a pull was repeated after a reconnect, and answered again.
    Repeated {
        /// The worker.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
    },
    /// A worker was sent a newer version that supersedes an earlier one, on which its gradients
    /// would be useless. Its pushes that have not arrived are called off, and it may make as many
    /// new pushes for the same mini-batches. A push that was in transit still arrives, and is
    /// dropped.
    Superseded {
        /// The worker.
        worker: WorkerId,
        /// The first of the new pushes: they follow the last push that was called off.
        sequence: Sequence,
        /// The version to compute it on.
        version: Version,
    },
    /// A worker stopped computing a gradient: a newer version superseded its parameters, or the
    /// run ended.
    CalledOff {
        /// The worker.
        worker: WorkerId,
        /// The push that it was for.
        sequence: Sequence,
        /// The version it was computed on.
        base: Version,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of that part.
        batch: BatchId,
        /// How long the worker computed it.
        #[serde(rename = "compute_s", serialize_with = "seconds")]
        compute: Duration,
        /// Breakdown of the worker's time since its previous gradient or call, or its first
        /// parameters.
        spent: TimeSpent,
    },
    /// A gradient was dropped.
    Dropped {
        /// The worker.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
        /// Why.
        reason: DropReason,
    },
    /// A gradient became part of an update. The gradients of an update are reported in the order in
    /// which they were combined, before the update itself.
    Applied {
        /// The worker.
        worker: WorkerId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The push.
        sequence: Sequence,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of that part.
        batch: BatchId,
        /// The mini-batch's own size; 0 for the job's batch size.
        examples: u32,
        /// The iteration of that worker.
        clock: Clock,
        /// The version it was computed on.
        base: Version,
        /// Updates between the version it was computed on and this one.
        staleness: u64,
        /// Examples it was computed from.
        samples: u32,
        /// Time since its parameters were sent: the age of the newest contribution of this worker's
        /// data that the server has.
        #[serde(rename = "age_s", serialize_with = "seconds")]
        age: Duration,
    },
    /// The parameters have a new version, made from the gradients applied since the last one.
    Updated {
        /// The point of the training curve.
        #[serde(flatten)]
        point: Point,
        /// Which of the gradients present it was made from.
        closing: Closing,
    },
    /// Another mode began: earlier events belong to the mode before.
    Switched {
        /// The version that the mode began with.
        version: Version,
        /// The mode.
        #[serde(serialize_with = "words")]
        mode: Box<Mode>,
        /// Why.
        #[serde(serialize_with = "words")]
        cause: Cause,
        /// True if all workers restart in step, with no gradient gathered: the new mode counts
        /// gradients differently, or an update was made to let an ordered mode begin.
        anew: bool,
    },
    /// The parameters of an earlier version became a new one: the updates since were of no use. The
    /// optimiser's state is reset.
    Restored {
        /// The point of the training curve.
        #[serde(flatten)]
        point: Point,
        /// The earlier version.
        from: Version,
    },
    /// The parameters of version 0 are those of a worker, or of the server's driver.
    Initialised {
        /// The worker, if a worker sent them.
        worker: Option<WorkerId>,
        /// The values.
        #[serde(skip)]
        values: Arc<Vec<f32>>,
    },
    /// `auto` changed how many mini-batches a worker may have in flight.
    Adjusted {
        /// The worker.
        worker: WorkerId,
        /// Number of mini-batches.
        in_flight: u32,
        /// Why.
        why: String,
    },
    /// A worker knows more of this run than this server, which resumed from saved state: the end of
    /// that state is lost, although the disk had confirmed it. The worker joins as a new
    /// incarnation.
    Behind {
        /// The worker.
        worker: WorkerId,
        /// The incarnation that the worker had.
        incarnation: Incarnation,
    },
    /// A worker's connection is closed; its lease has not expired.
    CutOff {
        /// The worker.
        worker: WorkerId,
        /// Why, in words.
        why: String,
    },
    /// A worker is no longer a member.
    Departed {
        /// The worker.
        worker: WorkerId,
        /// How it departed.
        how: Departure,
        /// Its mini-batches that were lost.
        lost: u64,
        /// Why, in words, if it left because of an error or was refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A connection was refused.
    Refused {
        /// The connection.
        peer: PeerId,
        /// The host it comes from. The node does not know it: the driver fills it in.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The worker, if it was one.
        worker: Option<WorkerId>,
        /// The name of a worker or the number of a server, as the peer stated, if it has not
        /// joined.
        #[serde(skip_serializing_if = "Option::is_none")]
        who: Option<String>,
        /// Why.
        #[serde(serialize_with = "words")]
        why: Refusal,
    },
    /// Workers that reduce their gradients among themselves have formed another group, since a
    /// member was lost or could not be reached.
    Regrouped {
        /// The number of the group.
        generation: u64,
        /// Number of its members.
        members: u32,
        /// The version from which it goes on.
        version: Version,
        /// Why, in words.
        why: String,
    },
    /// Too few workers are present; training stops until more join.
    Paused {
        /// Workers present.
        present: u32,
        /// Workers needed.
        needed: u32,
    },
    /// Enough workers are present again.
    Unpaused,
    /// Parameters were evaluated on the held-out data.
    Evaluated {
        /// The point of the training curve.
        #[serde(flatten)]
        point: Point,
        /// The result.
        #[serde(flatten, serialize_with = "flat")]
        evaluation: Evaluation,
    },
    /// Evaluations do not have the metric that the target of the job names. Reported once in a run.
    TargetUnknown {
        /// The metric.
        metric: String,
        /// The metrics that they have, other than the loss.
        metrics: Vec<String>,
    },
    /// A worker was requested to evaluate parameters, since the server cannot.
    EvaluationRequested {
        /// The worker.
        worker: WorkerId,
        /// The version of the parameters.
        version: Version,
    },
    /// Parameters could not be evaluated. Reported once in a run: later versions may fail, too.
    Unevaluated {
        /// The version of the parameters.
        version: Version,
        /// Why, in words.
        why: String,
    },
    /// The run has ended.
    Ended {
        /// Why.
        #[serde(serialize_with = "words")]
        reason: EndReason,
    },
    /// A worker, a standby, or a server that follows a coordinator lost its connection, or could
    /// not open one, and will dial again.
    Redialling {
        /// Attempts since the last connection.
        attempt: u32,
        /// Pause before the next attempt.
        #[serde(rename = "pause_s", serialize_with = "seconds")]
        pause: Duration,
        /// The error, in words.
        why: String,
    },
    /// Worker's side: the server admitted it.
    Welcomed {
        /// Its id.
        worker: WorkerId,
        /// True if it resumed an interrupted membership.
        resumed: bool,
        /// The job.
        #[serde(skip)]
        job: Box<Job>,
    },
    /// Worker's side: parameters have arrived, and the computation begins.
    Received {
        /// The push they are for.
        sequence: Sequence,
        /// Their version.
        version: Version,
    },
    /// Worker's side: it has a new incarnation; the residual of the previous incarnation's filters
    /// (error feedback) is lost.
    Forgot {
        /// The L2 norm of that residual.
        carried: f64,
    },
    /// Worker's side: a gradient was sent.
    Sent {
        /// The push.
        sequence: Sequence,
        /// The version it was computed on.
        base: Version,
        /// Examples it was computed from.
        samples: u32,
        /// Mean loss of the mini-batch.
        loss: f32,
    },
}

/// Why a mode began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cause {
    /// A client ordered it.
    Ordered,
    /// The job scheduled it.
    Scheduled,
    /// `auto` chose it, for this reason.
    Chosen(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("ordered"),
            Self::Scheduled => f.write_str("foreseen by the job"),
            Self::Chosen(why) => f.write_str(why),
        }
    }
}

impl Event {
    /// Records the delay between the event and its report.
    pub(super) const fn is_told_later(&mut self, later: Duration) {
        if let Self::Pushed { ago, .. } = self {
            *ago = later;
        }
    }

    /// Translates the connection id to the id of a replica's driver. Without a translation the
    /// connection belonged to another server or to an earlier term.
    pub(super) fn translate(&mut self, outer: impl Fn(PeerId) -> Option<PeerId>) {
        if let Self::Refused { peer, from, .. } = self {
            match outer(*peer) {
                Some(outer) => *peer = outer,
                None => *from = Some(String::from("an earlier connection")),
            }
        }
    }
}

impl From<Evaluated> for Event {
    fn from(Evaluated { point, evaluation }: Evaluated) -> Self {
        Self::Evaluated { point, evaluation }
    }
}

/// Serializes a duration in seconds.
pub(super) fn seconds<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.as_secs_f64())
}

/// Serializes a reason in words.
fn words<T: fmt::Display, S: Serializer>(reason: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(reason)
}
