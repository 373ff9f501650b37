//! Messages of a group of servers: between the coordinator and the other servers, and between these
//! and workers.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::checkpoint::OnDisk;
use crate::decision::Decision;
use crate::payload::{Content, Parts, Payload};
use crate::received::Received;
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::id::{Incarnation, Sequence, ServerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::sum::ExactSum;
use pstrain_policy::job::Job;

/// Server to coordinator: the first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    /// The protocol version that the server speaks.
    pub protocol: u8,
    /// The server's release ([`BUILD`](crate::BUILD)).
    pub build: String,
    /// The server's position in the group.
    pub place: Place,
    /// The address for workers.
    pub address: String,
    /// The address of its standby, if it has one.
    pub standby: Option<String>,
    /// The run that it has followed, and the number of decisions; none if it is new.
    pub followed: Option<(u64, u64)>,
    /// Checkpoints on its disk, if it takes checkpoints.
    pub on_disk: Option<OnDisk>,
}

/// Position of a server in the group, as far as the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// One of the initial servers of the job, with their number as the server was told.
    First {
        /// The server.
        server: ServerId,
        /// Number of initial servers.
        servers: u32,
    },
    /// No position yet: the server asks to join as an additional one.
    Wanted,
    /// A server that joined later.
    Given {
        /// The server.
        server: ServerId,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { server, servers } => write!(f, "server {server} of {servers}"),
            Self::Given { server } => write!(f, "server {server}"),
            Self::Wanted => f.write_str("one more server"),
        }
    }
}

/// Maximum length of a server's address, in bytes.
pub const MOST_ADDRESS_BYTES: usize = 1024;

/// True if a text from a peer may be dialled and shown to people.
#[must_use]
pub fn is_address(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_ADDRESS_BYTES && !text.chars().any(char::is_control)
}

/// Answer to [`Enlist`]. The decisions that the server has not followed come next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enlisted {
    /// The run.
    pub run: u64,
    /// The position that the server has.
    pub server: ServerId,
    /// The job.
    pub job: Job,
    /// The job's digest as the coordinator computes it.
    pub digest: [u8; 32],
    /// The address of the coordinator's standby, if it has one.
    pub standby: Option<String>,
    /// The origin of the run, if its servers take checkpoints.
    pub origin: Option<u64>,
}

/// Maximum number of decisions in one message.
pub const MOST_DECISIONS: usize = 1024;

/// Maximum bytes of values in the decisions of one message, unless it has a single decision.
pub const MOST_DECISION_BYTES: usize = 4 * 1024 * 1024;

/// Decisions of the coordinator, in order; at most [`MOST_DECISIONS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// The number of the first decision, counted from 0 in each run.
    pub first: u64,
    /// The decisions.
    pub decisions: Vec<Decision>,
}

/// The decisions follow one another up to the end, without a count.
impl Parts for Decisions {
    const CONTENT: Option<Content> = None;

    fn append_control(&self, bytes: &mut Vec<u8>) {
        codec::append(&self.first, bytes);
        self.decisions.iter().for_each(|decision| codec::append(decision, bytes));
    }

    fn payload(&self) -> Payload<'_> {
        Payload::NONE
    }

    fn of_parts(mut control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
        if !payload.is_empty() {
            return Err(Malformed);
        }
        let first = codec::read_first(&mut control)?;
        let mut decisions = Vec::new();
        while !control.is_empty() {
            if decisions.len() == MOST_DECISIONS {
                return Err(Malformed);
            }
            decisions.push(codec::read_first(&mut control)?);
        }
        Ok(Self { first, decisions })
    }
}

/// Server to coordinator: the number of decisions that it has followed and does not need again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Number of decisions.
    pub decisions: u64,
}

/// Server to coordinator: its part of a gradient has arrived, and is kept until the decision on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The worker that sent the gradient.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The sequence number of the push.
    pub sequence: Sequence,
    /// The version that the gradient was computed on.
    pub base: Version,
    /// The first NaN or infinity among its values, if there is one.
    pub fault: Option<Fault>,
    /// The sum of the squares of its values, if the norm of the whole gradient is limited.
    pub squares: Option<ExactSum>,
}

/// Server to coordinator: its part of the sums over all keys that a two-phase update needs before
/// it can be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The number of the decision that made the sums necessary.
    pub decision: u64,
    /// Its part of each sum.
    pub sums: Vec<ExactSum>,
}

/// NaN or infinity in a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The first key with such a value.
    pub key: u64,
    /// True if the parameters have such values, too.
    pub has_diverged: bool,
}

/// Server to coordinator: its part of the parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Everything but the values.
    pub header: SliceHeader,
    /// The values, one for each key: the payload.
    pub values: Arc<Vec<f32>>,
}

/// The fields of a [`Slice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceHeader {
    /// The version of the values.
    pub version: Version,
    /// The keys of the values.
    pub keys: KeyRange,
}

/// Server to coordinator: the bytes that it has exchanged with each worker so far, in order of the
/// worker ids. It precedes each [`Slice`], and the keys that a server gives away: it is complete
/// once the final parameters are, and before a server leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// One item for each worker of the job.
    pub workers: Vec<Exchanged>,
}

/// Bytes that a server and a worker have exchanged, without frames and headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Gradients, each counted once however often it came.
    pub pushed: u64,
    /// The same gradients without filters: four bytes for each parameter that the server held.
    pub unfiltered: u64,
    /// Keys of the worker's working set, each time they came.
    pub keyed: u64,
    /// Parameters that were sent to the worker.
    pub given: u64,
}

/// Saturates: the numbers come from another process.
impl AddAssign for Exchanged {
    fn add_assign(&mut self, other: Self) {
        let Self { pushed, unfiltered, keyed, given } = other;
        self.pushed = self.pushed.saturating_add(pushed);
        self.unfiltered = self.unfiltered.saturating_add(unfiltered);
        self.keyed = self.keyed.saturating_add(keyed);
        self.given = self.given.saturating_add(given);
    }
}

/// Worker to coordinator: from now on it uses this key map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// The version of the key map.
    pub map: u64,
}

/// Coordinator to a server that has no keys yet: the state that it needs to follow decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Number of decisions before the first that the server will follow.
    pub followed: u64,
    /// Incarnation and last decided push of each worker slot, in order of the worker ids.
    pub slots: Vec<(Incarnation, Sequence)>,
}

/// Maximum bytes of a [`Portion`].
pub const MOST_PORTION_BYTES: u32 = 1024 * 1024;

/// A piece of the state of keys that move: from their old server to the coordinator, and from there
/// to their new server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Position of the piece.
    pub header: PortionHeader,
    /// Its bytes: the payload, at most [`MOST_PORTION_BYTES`]. All pieces together are the encoded
    /// part of a store.
    pub bytes: Vec<u8>,
}

/// The fields of a [`Portion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortionHeader {
    /// The number of the decision to move the keys.
    pub cut: u64,
    /// The keys.
    pub keys: KeyRange,
    /// The number of the piece, from 0.
    pub piece: u32,
    /// Number of pieces.
    pub pieces: u32,
}

impl Portion {
    /// Splits `bytes` into pieces.
    pub fn cut(cut: u64, keys: KeyRange, bytes: &[u8]) -> impl Iterator<Item = Self> {
        let pieces = bytes.chunks(MOST_PORTION_BYTES as usize);
        let count = pieces.len() as u32;
        (0..).zip(pieces).map(move |(piece, bytes)| {
            let header = PortionHeader { cut, keys, piece, pieces: count };
            Self { header, bytes: bytes.to_vec() }
        })
    }
}

/// Server to coordinator: the state of all its new keys has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The number of the decision to move the keys.
    pub cut: u64,
}

/// Server to coordinator: asks to hand over its keys to other servers, so that it can stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave;

/// Worker to a server other than the coordinator: the first message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The protocol version that the worker speaks.
    pub protocol: u8,
    /// The run, as the coordinator announced it.
    pub run: u64,
    /// The worker.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The version of the key map that the worker knows.
    pub map: u64,
}

/// Answer to [`Attach`], once the server knows the incarnation and this key map or a later one.
/// Later messages of the connection use the key map that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The version of the server's key map.
    pub map: u64,
    /// The server's keys.
    pub keys: KeyRange,
}
