//! Messages between a server and its standby, and the votes that both request from electors.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::filter::Form;
use pstrain_compute::id::{Incarnation, ServerId, Term, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::time::Time;

/// Standby to primary: the first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The protocol version that the standby speaks.
    pub protocol: u8,
    /// The standby's release ([`BUILD`](crate::BUILD)).
    pub build: String,
    /// A number that no other process has.
    pub id: u64,
    /// The digest of the job that the standby was given ([`super::job_digest`]).
    pub digest: [u8; 32],
    /// The address for workers.
    pub address: String,
    /// The run that it keeps, and the number of entries; none if it keeps nothing yet.
    pub kept: Option<(u64, u64)>,
    /// The latest term that it knows of, or has stood for election in.
    pub term: Term,
}

/// Primary to standby: a part of the primary's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Position of the part, and of the state in the stream.
    pub header: StateHeader,
    /// The bytes: the payload.
    pub bytes: Vec<u8>,
}

/// The fields of a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHeader {
    /// The run.
    pub run: u64,
    /// The server that has this state.
    pub server: ServerId,
    /// The term of the primary.
    pub term: Term,
    /// The number of the first entry that the state does not include.
    pub entry: u64,
    /// The time of the state, by the stream's clock.
    pub at: Time,
    /// Offset of this part in the state, in bytes.
    pub from: u64,
    /// Length of the whole state in bytes.
    pub total: u64,
}

/// Maximum bytes of a state in one message.
pub const STATE_CHUNK_BYTES: usize = 256 * 1024;

/// Primary to standby: the next entry of the replicated stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Everything but the input.
    pub header: EntryHeader,
    /// The payload: an input as the primary encodes it; empty in entries of other kinds.
    pub input: Arc<Vec<u8>>,
}

/// The fields of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryHeader {
    /// The number of the entry, counted from 0 in each run.
    pub number: u64,
    /// The term of the primary.
    pub term: Term,
    /// Number of entries that both nodes have, as far as the primary knows.
    pub settled: u64,
    /// The number of the last entry of its batch. The standby applies a batch only once it has all
    /// of it: pushes without values are useless without the update that they became part of. A
    /// single entry is its own last.
    pub last: u64,
    /// When it was first sent, by the stream's clock. Its input may have arrived earlier.
    pub sent: Time,
    /// The kind of the entry.
    pub kind: EntryKind,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// An input of the server, in the payload.
    Input,
    /// An input that is a push without its values: the standby receives what the values were
    /// combined to ([`Combined`]), or the push was dropped. The value is the shape of its encoded
    /// bytes, if it was encoded.
    Bare(Option<Shape>),
    /// The electors whose votes count from this entry on.
    Electorate(Electorate),
    /// From this entry on no effect of an entry is visible before the standby has the entry.
    Paired(Electorate),
}

/// The shape of an encoded push, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The encoding.
    pub form: Form,
    /// Number of bytes.
    pub bytes: u64,
}

/// Primary to standby: the combined gradient of an update, sent before the entry that applies it.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// Everything but the values.
    pub header: CombinedHeader,
    /// The combined gradient before clipping, one value for each key: the payload.
    pub values: Arc<Vec<f32>>,
}

/// The fields of a [`Combined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CombinedHeader {
    /// The version that the update starts from.
    pub version: Version,
    /// The keys that the update changes.
    pub keys: KeyRange,
}

impl Combined {
    /// Returns the bytes of the values on the wire, without frame and header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.values.len() * size_of::<f32>()) as u64
    }
}

/// A node whose vote decides who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Elector {
    /// A worker of the job.
    Worker(WorkerId, Incarnation),
    /// The coordinator, in elections of any other server.
    Coordinator,
}

/// All nodes whose votes decide who leads.
pub type Electorate = BTreeSet<Elector>;

/// Standby to primary: the number of entries that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Number of entries.
    pub entries: u64,
}

/// Server to elector: requests a vote. An elector that grants it follows no other server in this
/// term, and none in an earlier term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteRequest {
    /// The run.
    pub run: u64,
    /// The server of the job that the candidate wants to be.
    pub server: ServerId,
    /// The term that the candidate wants to lead in.
    pub term: Term,
    /// The term of the candidate's last entry.
    pub kept: Term,
    /// The id of the candidate's process.
    pub id: u64,
    /// The stage of the election.
    pub stage: Stage,
}

/// Stage of an election, as in Paxos. No server leads on votes of the first stage alone. So a
/// candidate that dies between the stages leaves no state that another server would have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The candidate asks which electors would follow it.
    Asks,
    /// Enough electors would. They are bound now, and the candidate leads once enough have
    /// answered.
    Binds,
    /// The candidate's partner came back before enough electors were bound: no elector is bound any
    /// longer. The candidate has led in no term after [`VoteRequest::kept`], and will not lead in
    /// this one.
    Releases,
}

/// Elector to candidate: the vote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The elector.
    pub elector: Elector,
    /// Earlier incarnations of a worker in this run, with the same worker id in the same process,
    /// which remembers how it voted: the vote counts for them, too.
    pub before: Vec<Incarnation>,
    /// The requested term if the vote is granted; otherwise the term that forbids it.
    pub term: Term,
    /// The stage of the request.
    pub stage: Stage,
    /// True if the vote is granted.
    pub granted: bool,
}

/// Server to worker, or coordinator to another server: the address to go to if the sender is gone.
/// From another server to the coordinator: whether it has a standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standby {
    /// The address; none if there is no standby.
    pub address: Option<String>,
}

/// Leading server to a deposed primary: fences the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deposed {
    /// The run.
    pub run: u64,
    /// The term that has started.
    pub term: Term,
}
