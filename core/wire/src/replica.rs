//! The messages of a server and its standby, and what both ask of workers.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::filter::Form;
use pstrain_compute::id::{Incarnation, ServerId, Term, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;

/// Standby to primary: the first message of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The protocol version it speaks.
    pub protocol: u8,
    /// Its release ([`BUILD`](crate::BUILD)).
    pub build: String,
    /// A number that nobody else has.
    pub id: u64,
    /// The digest of the job it was given ([`super::job_digest`]).
    pub digest: [u8; 32],
    /// Where workers reach it.
    pub address: String,
    /// The run it keeps, and how many of its entries; none if it keeps nothing yet.
    pub kept: Option<(u64, u64)>,
    /// The latest term it knows of, or has asked for.
    pub term: Term,
}

/// Primary to standby: a part of its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which part, of which state.
    pub header: StateHeader,
    /// The bytes: the payload.
    pub bytes: Vec<u8>,
}

/// The fields of a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHeader {
    /// The run.
    pub run: u64,
    /// Which server of the job it is of.
    pub server: ServerId,
    /// The term of whoever leads.
    pub term: Term,
    /// The first entry that is not part of it.
    pub entry: u64,
    /// The time it is of, by the clock of the stream.
    pub at: Time,
    /// The first byte of this part.
    pub from: u64,
    /// Bytes of the whole state.
    pub total: u64,
}

/// Bytes of a state in one message, at most.
pub const STATE_CHUNK_BYTES: usize = 256 * 1024;

/// Primary to standby: the next entry of the stream that both keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Everything but the input.
    pub header: EntryHeader,
    /// An input as the primary encodes it: the payload; empty in other entries.
    pub input: Arc<Vec<u8>>,
}

/// The fields of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryHeader {
    /// Its number, from 0 in each run.
    pub number: u64,
    /// The term of whoever leads.
    pub term: Term,
    /// Entries that both have, as far as the primary knows.
    pub settled: u64,
    /// The last of those that count only together: nobody has this one before it has that. An entry
    /// that counts alone is the last itself.
    pub last: u64,
    /// When it was sent first, by the clock of the stream; an input may have come earlier.
    pub sent: Time,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// An input of the server, which follows.
    Input,
    /// The same of a push whose values do not follow: what they became part of does ([`Combined`]),
    /// or they came to nothing.
    Bare(Option<Shape>),
    /// Those whose promises count from here on.
    Electorate(Electorate),
    /// From here on nobody sees an effect of an entry that the standby does not have.
    Paired(Electorate),
}

/// What is known of the bytes of a push that was encoded, without them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How they were to be read.
    pub form: Form,
    /// How many there were.
    pub bytes: u64,
}

/// Primary to standby: what the gradients of an update were combined to, ahead of the entry that
/// makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// Everything but the values.
    pub header: CombinedHeader,
    /// The combined gradient as it is before it is clipped, one value for each key: the payload.
    pub values: Arc<Vec<f32>>,
}

/// The fields of a [`Combined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CombinedHeader {
    /// The version that the update changes.
    pub version: Version,
    /// The keys that it changes.
    pub keys: KeyRange,
}

impl Combined {
    /// Bytes of the values on the wire, without frame and header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.values.len() * size_of::<f32>()) as u64
    }
}

/// Somebody whose promise decides who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Elector {
    /// A worker of the job.
    Worker(WorkerId, Incarnation),
    /// The server that coordinates, where another one is to be led.
    Coordinator,
}

/// All whose promises decide who leads.
pub type Electorate = BTreeSet<Elector>;

/// Standby to primary: so many entries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// How many.
    pub entries: u64,
}

/// A server to an elector: promise that you follow nobody else in an earlier term, or this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidacy {
    /// The run.
    pub run: u64,
    /// Which server of the job it wants to be.
    pub server: ServerId,
    /// The term it wants to lead in.
    pub term: Term,
    /// The term of what it has kept.
    pub kept: Term,
    /// Who asks.
    pub id: u64,
    /// How far it is.
    pub stage: Stage,
}

/// How far a server is that wants to lead. Nobody acts upon the first promise alone: so whoever
/// dies between the two leaves nothing behind that another would have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It asks who would follow it.
    Asks,
    /// Enough would: now it binds them, and once enough have heard it leads.
    Binds,
    /// Its partner is back before enough have heard: nobody is bound to it any more. It has led in
    /// no term after that of what it has kept, and will not in this one.
    Releases,
}

/// An elector to a server that wants to lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Whose it is.
    pub elector: Elector,
    /// The incarnations that a worker had before in this run, as the same worker and the same
    /// process, which has not forgotten what it promised then: it promises as those, too.
    pub before: Vec<Incarnation>,
    /// The term asked for if it is promised; if not, the one that forbids it.
    pub term: Term,
    /// What was asked.
    pub stage: Stage,
    /// Whether it is promised.
    pub granted: bool,
}

/// A server to a worker, or to one that it coordinates: where it can go if this one is gone. One
/// that does not coordinate to the coordinator: whether it has a standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standby {
    /// The address, while there is a standby.
    pub address: Option<String>,
}

/// Whoever leads to a server that does no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deposed {
    /// The run.
    pub run: u64,
    /// The term that has begun.
    pub term: Term,
}
