//! The messages of several servers: between the coordinator and the others, and between those and
//! workers.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::codec::{self, Malformed};
use crate::id::{Incarnation, Sequence, ServerId, Version, WorkerId};
use crate::job::Job;
use crate::params::KeyRange;
use crate::store::Decision;

/// A server to the coordinator: the first message of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    /// The protocol version it speaks.
    pub protocol: u8,
    /// Its release ([`super::BUILD`]).
    pub build: String,
    /// Which server it is.
    pub server: ServerId,
    /// How many it has been told there are.
    pub servers: u32,
    /// Where workers reach it.
    pub address: String,
    /// The run that it has followed, and how many of its decisions; none if it is new.
    pub followed: Option<(u64, u64)>,
}

/// The longest address of a server, in bytes.
pub const MOST_ADDRESS_BYTES: usize = 1024;

/// The answer to [`Enlist`]. The decisions that it has not followed come next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enlisted {
    /// The run.
    pub run: u64,
    /// The job.
    pub job: Job,
    /// The job's digest as the coordinator computes it.
    pub digest: [u8; 32],
}

/// Decisions in one message, at most.
pub const MOST_DECISIONS: usize = 1024;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The answer to [`Attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The keys that the server has.
    pub keys: KeyRange,
}
