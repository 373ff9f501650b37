//! What happens in a run, as one typed stream. Progress bars, records and checks all read it; no
//! state machine prints or logs on its own.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::{Evaluated, Point};
use pstrain_compute::decided::DropReason;
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{
    BatchId, Clock, Incarnation, PartId, PeerId, Sequence, ServerId, Term, Version, WorkerId,
};
use pstrain_compute::params::KeyRange;
use pstrain_policy::job::Job;
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use pstrain_wire::range::{How, PushedRange};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Refusal, TimeSpent};

/// Something that happened, with enough in it to be judged.
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
        /// Whether it took up an interrupted membership.
        resumed: bool,
    },
    /// A worker has its data.
    Ready {
        /// The worker.
        worker: WorkerId,
        /// Examples in its partition.
        rows: u64,
    },
    /// Another server of the job has come, or has come back.
    ServerJoined {
        /// Which.
        server: ServerId,
    },
    /// Another server has come and wants keys.
    ServerWaits {
        /// Which.
        server: ServerId,
    },
    /// The connection of another server is gone; what it has of the parameters it has still.
    ServerCutOff {
        /// Which.
        server: ServerId,
        /// Why, in words.
        why: String,
    },
    /// This server follows a coordinator.
    Enlisted {
        /// The job.
        #[serde(skip)]
        job: Box<Job>,
        /// Which server it is.
        server: ServerId,
        /// The keys it has.
        keys: KeyRange,
    },
    /// A standby has all that this server has: from now on nobody sees an effect that it does not
    /// know of.
    StandbyJoined {
        /// Where workers reach it.
        address: String,
    },
    /// The standby is gone, and the workers have promised to follow this server alone.
    StandbyLost {
        /// The term that has begun.
        term: Term,
        /// How long nobody was answered.
        #[serde(rename = "stood_s", serialize_with = "seconds")]
        stood: Duration,
        /// Why it is gone, in words.
        why: String,
    },
    /// Standby's side: it has the state of the server that it stands by for.
    Following {
        /// The version of the parameters that it has; none if it is one that does not coordinate.
        version: Option<Version>,
    },
    /// Standby's side: it leads now, since the server that it stood by for was gone and enough have
    /// promised to follow it.
    TookOver {
        /// The term that has begun.
        term: Term,
        /// The version of the parameters that it goes on from; none if it is one that does not
        /// coordinate.
        version: Option<Version>,
        /// How long nobody had led.
        #[serde(rename = "stood_s", serialize_with = "seconds")]
        stood: Duration,
        /// Why the other is gone, in words.
        why: String,
    },
    /// This server, which follows a coordinator, has other keys than before.
    Holds {
        /// The keys it has now.
        keys: KeyRange,
    },
    /// Keys have moved from server to server, since one more has come or one wants to go.
    KeysMoved {
        /// The version of the key map.
        map: u64,
        /// The server that has come.
        joined: Option<ServerId>,
        /// The server that goes.
        left: Option<ServerId>,
        /// How many keys have moved.
        keys: u64,
        /// The time since it was wanted.
        #[serde(rename = "took_s", serialize_with = "seconds")]
        took: Duration,
    },
    /// Enough workers are there.
    Started {
        /// How many.
        workers: u32,
    },
    /// A worker was given parameters and a mini-batch.
    Granted {
        /// The worker.
        worker: WorkerId,
        /// The push it may make.
        sequence: Sequence,
        /// The version of the parameters.
        version: Version,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of it.
        batch: BatchId,
        /// How long the server let it wait.
        #[serde(rename = "waited_s", serialize_with = "seconds")]
        waited: Duration,
    },
    /// A worker said which keys it has values for.
    Keyed {
        /// The worker.
        worker: WorkerId,
        /// Bytes of the keys on the way.
        bytes: u64,
    },
    /// Parameters went to a worker.
    Given {
        /// The worker.
        worker: WorkerId,
        /// Bytes of their values on the way.
        bytes: u64,
    },
    /// A gradient came for the first time.
    Pushed {
        /// The worker.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
        /// The version it was computed on.
        base: Version,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of it.
        batch: BatchId,
        /// Mean loss of the mini-batch.
        loss: f32,
        /// Bytes that the gradient was on its way.
        bytes: u64,
        /// The same of one that is not filtered: four for each parameter that this server has.
        unfiltered: u64,
        /// Time from the parameters being given out to the gradient being there.
        #[serde(rename = "turnaround_s", serialize_with = "seconds")]
        turnaround: Duration,
        /// How long before this was told it came, where it was kept back from a standby meanwhile.
        #[serde(rename = "ago_s", serialize_with = "seconds")]
        ago: Duration,
        /// The part of it that was computation, as the worker measured it.
        #[serde(rename = "compute_s", serialize_with = "seconds")]
        compute: Duration,
        /// Where the worker's time went since its gradient before, or its first parameters.
        spent: TimeSpent,
    },
    /// A push or a pull came again after a reconnect, and was answered again.
    Repeated {
        /// The worker.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
    },
    /// A worker was given a newer version in the place of an earlier one, on which its gradients
    /// would be of no use. Its pushes that have not come are called off, and it may make as many
    /// others for the same mini-batches. One that was on its way comes all the same, and is
    /// dropped.
    Superseded {
        /// The worker.
        worker: WorkerId,
        /// The first of the other pushes: they follow the last that was called off.
        sequence: Sequence,
        /// The version to compute it on.
        version: Version,
    },
    /// A gradient was thrown away.
    Dropped {
        /// The worker.
        worker: WorkerId,
        /// The push.
        sequence: Sequence,
        /// Why.
        reason: DropReason,
    },
    /// A gradient became part of an update. Those of one update come in the order in which they
    /// were combined, and the update itself after them.
    Applied {
        /// The worker.
        worker: WorkerId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The push.
        sequence: Sequence,
        /// The part of the data.
        part: PartId,
        /// The mini-batch of it.
        batch: BatchId,
        /// The size it has of its own; 0 for the job's batch size.
        examples: u32,
        /// The iteration of that worker.
        clock: Clock,
        /// The version it was computed on.
        base: Version,
        /// Updates between the version it was computed on and this one.
        staleness: u64,
        /// Examples it was computed from.
        samples: u32,
        /// The time since its parameters were given out: how old the newest that the server knows
        /// of this worker's data is.
        #[serde(rename = "age_s", serialize_with = "seconds")]
        age: Duration,
    },
    /// The parameters have a new version, made from what was applied since the last one.
    Updated {
        /// Where on the training curve.
        #[serde(flatten)]
        point: Point,
        /// Which of the gradients that were there it was made of.
        closing: Closing,
    },
    /// Another mode began: what came before was applied under the one before.
    Switched {
        /// The version it began with.
        version: Version,
        /// The mode.
        #[serde(serialize_with = "words")]
        mode: Box<Mode>,
        /// Why.
        #[serde(serialize_with = "words")]
        cause: Cause,
        /// Whether all who count begin anew, with nothing gathered: it counts otherwise than the
        /// mode before, or an update was made for one that was ordered in between.
        anew: bool,
    },
    /// The parameters of an earlier version became a new one: the updates since were of no use.
    /// What the optimiser remembered is forgotten.
    Restored {
        /// Where on the training curve.
        #[serde(flatten)]
        point: Point,
        /// The earlier version.
        from: Version,
    },
    /// Values that a client has pushed became part of the parameters, as a new version. What the
    /// optimiser remembered is kept.
    RangePushed {
        /// Where on the training curve.
        #[serde(flatten)]
        point: Point,
        /// The keys.
        keys: KeyRange,
        /// What became of their parameters.
        how: How,
        /// The values.
        #[serde(skip)]
        pushed: Arc<PushedRange>,
    },
    /// `auto` lets a worker have more or fewer mini-batches under way.
    Adjusted {
        /// The worker.
        worker: WorkerId,
        /// How many.
        in_flight: u32,
        /// Why.
        why: String,
    },
    /// A worker knows more of this run than this server, which goes on from what was kept of it:
    /// the end of that is lost, whatever the disk had confirmed. The worker joins as a new
    /// incarnation.
    Behind {
        /// The worker.
        worker: WorkerId,
        /// The incarnation that it was.
        incarnation: Incarnation,
    },
    /// A worker's connection is gone; its lease is not over.
    CutOff {
        /// The worker.
        worker: WorkerId,
        /// Why, in words.
        why: String,
    },
    /// A worker does not count any more.
    Departed {
        /// The worker.
        worker: WorkerId,
        /// How it went.
        how: Departure,
        /// Mini-batches it had that were lost with it.
        lost: u64,
    },
    /// A connection was turned away.
    Refused {
        /// Which.
        peer: PeerId,
        /// The host it comes from. The node does not know it: its driver fills it in.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The worker, if it was one.
        worker: Option<WorkerId>,
        /// The name of a worker or the number of a server, as it said, if it is not in yet.
        #[serde(skip_serializing_if = "Option::is_none")]
        who: Option<String>,
        /// Why.
        #[serde(serialize_with = "words")]
        why: Refusal,
    },
    /// Too few workers are there; nothing goes on until more come.
    Paused {
        /// Workers present.
        present: u32,
        /// Workers needed.
        needed: u32,
    },
    /// Enough workers are there again.
    Unpaused,
    /// Parameters were evaluated on the held-out data.
    Evaluated {
        /// Where on the training curve.
        #[serde(flatten)]
        point: Point,
        /// What came out.
        #[serde(flatten)]
        evaluation: Evaluation,
    },
    /// The run is over.
    Ended {
        /// Why.
        #[serde(serialize_with = "words")]
        reason: EndReason,
    },
    /// Worker's side: it lost its connection, or could not get one, and will try again.
    Redialling {
        /// Tries since the last connection.
        attempt: u32,
        /// When it will try again, from now.
        #[serde(rename = "pause_s", serialize_with = "seconds")]
        pause: Duration,
        /// What went wrong, in words.
        why: String,
    },
    /// Worker's side: the server took it in.
    Welcomed {
        /// Its id.
        worker: WorkerId,
        /// Whether it took up an interrupted membership.
        resumed: bool,
        /// The job.
        #[serde(skip)]
        job: Box<Job>,
    },
    /// Worker's side: parameters are there, and the computation begins.
    Received {
        /// The push they are for.
        sequence: Sequence,
        /// Their version.
        version: Version,
    },
    /// Worker's side: it has a new incarnation, and what its filters had taken from the gradients
    /// of the one before, and not sent yet, is lost.
    Forgot {
        /// The L2 norm of that.
        carried: f64,
    },
    /// Worker's side: a gradient is on its way.
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
    /// Somebody ordered it.
    Ordered,
    /// The job foresaw it.
    Scheduled,
    /// `auto` chose it, for this reason.
    Chosen(String),
    /// It is the same, and began anew on other parameters.
    Pushed,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("ordered"),
            Self::Scheduled => f.write_str("foreseen by the job"),
            Self::Chosen(why) => f.write_str(why),
            Self::Pushed => f.write_str("values were pushed"),
        }
    }
}

/// How a worker went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// It said goodbye.
    Left,
    /// Its lease ran out.
    Lost,
    /// It was turned away.
    Refused,
    /// Another process took its place.
    Replaced,
}

impl Event {
    /// It is told so long after it happened.
    pub(super) const fn is_told_later(&mut self, later: Duration) {
        if let Self::Pushed { ago, .. } = self {
            *ago = later;
        }
    }

    /// Names the connection as the driver of a replica knows it. Without one it belonged to another
    /// server or an earlier term.
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

/// Writes a duration in seconds.
pub(super) fn seconds<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.as_secs_f64())
}

/// Writes a reason in words.
fn words<T: fmt::Display, S: Serializer>(reason: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(reason)
}
