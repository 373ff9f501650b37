//! The messages of several servers: between the coordinator and the others, and between those and
//! workers.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::checkpoint::OnDisk;
use crate::decision::Decision;
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::id::{Incarnation, Sequence, ServerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::sum::ExactSum;
use pstrain_policy::job::Job;

/// A server to the coordinator: the first message of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    /// The protocol version it speaks.
    pub protocol: u8,
    /// Its release ([`BUILD`](crate::BUILD)).
    pub build: String,
    /// Which server it is.
    pub place: Place,
    /// Where workers reach it.
    pub address: String,
    /// Where its standby is, if it has one.
    pub standby: Option<String>,
    /// The run that it has followed, and how many of its decisions; none if it is new.
    pub followed: Option<(u64, u64)>,
    /// What it has on its disk, if it takes checkpoints.
    pub on_disk: Option<OnDisk>,
}

/// Which server of a job somebody is, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// One of those that the job begins with; how many it has been told there are.
    First {
        /// Which.
        server: ServerId,
        /// Of how many.
        servers: u32,
    },
    /// None: it wants to be one more.
    Wanted,
    /// One that came later.
    Given {
        /// Which.
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

/// The longest address of a server, in bytes.
pub const MOST_ADDRESS_BYTES: usize = 1024;

/// Whether a text that a peer sent may be dialled and shown to people.
#[must_use]
pub fn is_address(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_ADDRESS_BYTES && !text.chars().any(char::is_control)
}

/// The answer to [`Enlist`]. The decisions that it has not followed come next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enlisted {
    /// The run.
    pub run: u64,
    /// Which server it is.
    pub server: ServerId,
    /// The job.
    pub job: Job,
    /// The job's digest as the coordinator computes it.
    pub digest: [u8; 32],
    /// Where the coordinator's standby is, if it has one.
    pub standby: Option<String>,
    /// The origin of the run, if its servers take checkpoints.
    pub origin: Option<u64>,
}

/// Decisions in one message, at most.
pub const MOST_DECISIONS: usize = 1024;

/// Bytes of values in the decisions of one message, at most, unless it has one decision alone.
pub const MOST_DECISION_BYTES: usize = 4 * 1024 * 1024;

/// Decisions of the coordinator, in order; at most [`MOST_DECISIONS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// The number of the first, from 0 in each run.
    pub first: u64,
    /// The decisions.
    pub decisions: Vec<Decision>,
}

impl Decisions {
    /// Appends them to `bytes`, one after the other to the end.
    pub(super) fn append(&self, bytes: &mut Vec<u8>) {
        codec::append(&self.first, bytes);
        self.decisions.iter().for_each(|decision| codec::append(decision, bytes));
    }

    /// Reads what [`Self::append`] wrote.
    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let first = codec::read_first(&mut bytes)?;
        let mut decisions = Vec::new();
        while !bytes.is_empty() {
            if decisions.len() == MOST_DECISIONS {
                return Err(Malformed);
            }
            decisions.push(codec::read_first(&mut bytes)?);
        }
        Ok(Self { first, decisions })
    }
}

/// A server to the coordinator: so many decisions have been followed and are not needed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// How many.
    pub decisions: u64,
}

/// A server to the coordinator: its part of a gradient has come, and is kept until it is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Whose.
    pub worker: WorkerId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The push.
    pub sequence: Sequence,
    /// The version it was computed on.
    pub base: Version,
    /// What is wrong with its values.
    pub fault: Option<Fault>,
    /// The sum of their squares, if the length of the whole is limited.
    pub squares: Option<ExactSum>,
}

/// A server to the coordinator: its part of what must be known of all keys before the update goes
/// on that the coordinator has decided on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The number of the decision.
    pub decision: u64,
    /// Its part of each sum.
    pub sums: Vec<ExactSum>,
}

/// Values that are no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The first bad key of the gradient.
    pub key: u64,
    /// Whether the parameters have such values, too.
    pub has_diverged: bool,
}

/// A server's part of the parameters, for the coordinator.
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
    /// Their keys.
    pub keys: KeyRange,
}

/// A worker to the coordinator: from now on it goes by this key map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// Its version.
    pub map: u64,
}

/// The coordinator to a server that has no keys yet: what it must know to follow the decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// How many decisions were made before those that it will follow.
    pub followed: u64,
    /// Of each worker id, in order, its incarnation and its last push that was decided.
    pub seats: Vec<(Incarnation, Sequence)>,
}

/// Bytes of a [`Portion`], at most.
pub const MOST_PORTION_BYTES: u32 = 1024 * 1024;

/// A piece of what there is to know of keys that move: from whoever has them to the coordinator,
/// and from there to whoever shall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Which piece.
    pub header: PortionHeader,
    /// Its bytes: the payload, at most [`MOST_PORTION_BYTES`]. Those of all pieces are a
    /// part of a store.
    pub bytes: Vec<u8>,
}

/// The fields of a [`Portion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortionHeader {
    /// The number of the decision that the keys shall move.
    pub cut: u64,
    /// The keys.
    pub keys: KeyRange,
    /// The number of the piece, from 0.
    pub piece: u32,
    /// How many pieces there are.
    pub pieces: u32,
}

impl Portion {
    /// The pieces that `bytes` travel in.
    pub fn cut(cut: u64, keys: KeyRange, bytes: &[u8]) -> impl Iterator<Item = Self> {
        let pieces = bytes.chunks(MOST_PORTION_BYTES as usize);
        let count = pieces.len() as u32;
        (0..).zip(pieces).map(move |(piece, bytes)| {
            let header = PortionHeader { cut, keys, piece, pieces: count };
            Self { header, bytes: bytes.to_vec() }
        })
    }
}

/// A server to the coordinator: all that it shall have has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The number of the decision that the keys shall move.
    pub cut: u64,
}

/// A server to the coordinator: others shall have its keys, so that it can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave;

/// A worker to a server that does not coordinate: the first message of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The protocol version it speaks.
    pub protocol: u8,
    /// The run, as the coordinator said.
    pub run: u64,
    /// The worker.
    pub worker: WorkerId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The version of the key map that it knows.
    pub map: u64,
}

/// The answer to [`Attach`], once the server knows the incarnation and that key map or a later one.
/// What comes after it is by the key map that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The version of the key map that the server goes by.
    pub map: u64,
    /// The keys that the server has.
    pub keys: KeyRange,
}
