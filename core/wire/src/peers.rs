//! Messages of workers that reduce their gradients among themselves, and of their meeting point.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::{Version, WorkerId};
use pstrain_policy::collective::Rank;
use pstrain_policy::in_network::{self, Exponent};
use pstrain_policy::lockstep::Done;

/// Worker to meeting point: the address at which other workers reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reachable {
    /// The address; empty if it listens nowhere.
    pub address: String,
}

/// Meeting point to worker: the workers that train together from now on, in the order of their
/// ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks {
    /// The number of the group; a group with a higher number replaces one with a lower.
    pub generation: u64,
    /// The version from which the group goes on: the latest of its members.
    pub version: Version,
    /// Its members.
    pub members: Vec<RankOf>,
    /// Pairs of ranks: the first has not reached the second at its address.
    pub unreached: Vec<(Rank, Rank)>,
}

/// How the messages of a rank and another one travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The rank dials the other one.
    Dials,
    /// The other one dials.
    IsDialled,
    /// Neither reaches the other: their messages go by way of the meeting point.
    Relayed,
}

impl Ranks {
    /// How the messages of a member and another one travel. Of two that reach each other, the
    /// higher rank dials.
    #[must_use]
    pub fn route(&self, own: Rank, other: Rank) -> Route {
        let reaches = |from: Rank, to: Rank| {
            let member = self.members.get(to as usize);
            member.is_some_and(RankOf::has_address) && !self.unreached.contains(&(from, to))
        };
        match (reaches(own, other), reaches(other, own)) {
            (true, true) if own > other => Route::Dials,
            (true, false) => Route::Dials,
            (true | false, true) => Route::IsDialled,
            (false, false) => Route::Relayed,
        }
    }
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOf {
    /// The worker.
    pub worker: WorkerId,
    /// The address at which it is reached; empty if it listens nowhere.
    pub address: String,
    /// The examples of its part.
    pub rows: u64,
    /// The version that it has.
    pub version: Version,
    /// True if it joins: it does not have the state of training yet, unless the run begins.
    pub joins: bool,
    /// The worker whose answer to an exchange it has awaited since an earlier group.
    pub awaits: Option<WorkerId>,
}

impl RankOf {
    /// True if the worker listens for others.
    const fn has_address(&self) -> bool {
        !self.address.is_empty()
    }
}

/// Worker to worker: the first message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meet {
    /// The protocol version that the worker speaks.
    pub protocol: u8,
    /// The run.
    pub run: u64,
    /// The group.
    pub generation: u64,
    /// The worker.
    pub worker: WorkerId,
    /// The worker that it wants to reach: its address may lead to another one.
    pub to: WorkerId,
}

/// Answer to [`Meet`]: the receiver is in the group, and takes values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// The group.
    pub generation: u64,
}

/// Worker to worker: values of a reduction, or parameters of a neighbor.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Everything but the values.
    pub header: PieceHeader,
    /// The values: the payload.
    pub values: Arc<Vec<f32>>,
}

/// The fields of a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceHeader {
    /// The version that the update changes. Of an exchange of two workers it is the number, as the
    /// one that asks counts them, in the request and in the answer.
    pub version: Version,
    /// The index of the piece.
    pub piece: u32,
    /// True in the answer of an exchange of two workers.
    pub answers: bool,
}

/// Maximum bytes of the values of a [`Packet`].
pub const MOST_PACKET_BYTES: u32 = 256 * 1024;

/// Worker to meeting point: a chunk of its gradient in fixed point, to be added up. Meeting point
/// to worker: the sum of all workers' chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Everything but the values.
    pub header: PacketHeader,
    /// The values: the payload, at most [`MOST_PACKET_BYTES`].
    pub values: Arc<Vec<i32>>,
}

/// The fields of a [`Packet`], whose meaning is the one of [`in_network::Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketHeader {
    /// The group.
    pub generation: u64,
    /// The index of the slot.
    pub slot: u32,
    /// The number of the slot's turn.
    pub turn: u64,
    /// The greatest exponent of the chunk in the slot's next turn.
    pub next: Exponent,
}

impl Packet {
    /// A packet of a group, as a message.
    #[must_use]
    pub fn new(generation: u64, packet: in_network::Packet) -> Self {
        let in_network::Packet { slot, turn, next, values } = packet;
        Self { header: PacketHeader { generation, slot, turn, next }, values }
    }

    /// The packet, without the number of its group.
    #[must_use]
    pub fn into_packet(self) -> in_network::Packet {
        let Self { header: PacketHeader { slot, turn, next, .. }, values } = self;
        in_network::Packet { slot, turn, next, values }
    }
}

/// Worker to worker: the sum of an update is due without the gradients that are not here
/// (activation of a partial collective: Li et al., "Taming unbalanced training workloads in deep
/// learning with partial collective operations", PPoPP 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activate {
    /// The version that the update changes.
    pub version: Version,
}

/// Worker to worker: the combined gradient of an update that the receiver has missed.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// The version that the gradient changes.
    pub version: Version,
    /// The mini-batches in all updates with this one, if updates may be without late gradients.
    pub done: Option<Done>,
    /// The gradient: the payload.
    pub values: Arc<Vec<f32>>,
}

/// Maximum bytes of an [`Inherit`].
pub const MOST_INHERIT_BYTES: u32 = 1024 * 1024;

/// A part of the state of training: between workers for one that joins, from a worker to the
/// meeting point for a checkpoint, and back to a worker of a run that is resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherit {
    /// Position of the part.
    pub header: InheritHeader,
    /// Its bytes: the payload, at most [`MOST_INHERIT_BYTES`].
    pub bytes: Vec<u8>,
}

impl Inherit {
    /// The parts of a state of `version`, in order.
    pub fn parts(version: Version, state: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let total = state.len() as u64;
        let parts = state.chunks(MOST_INHERIT_BYTES as usize).zip(0..);
        parts.map(move |(bytes, place)| {
            let from = place * u64::from(MOST_INHERIT_BYTES);
            Self { header: InheritHeader { version, from, total }, bytes: bytes.to_vec() }
        })
    }
}

/// The fields of an [`Inherit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritHeader {
    /// The version of the state.
    pub version: Version,
    /// The first byte of the part.
    pub from: u64,
    /// Bytes of the whole state.
    pub total: u64,
}

/// Worker to meeting point: it has made an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// The version that the update made.
    pub version: Version,
    /// The worker's part in it; none if it had no mini-batch, was late, or was sent the update.
    pub part: Option<Contributed>,
    /// The mini-batches in all updates so far, if updates may be without late gradients.
    pub done: Option<Done>,
}

/// A worker's part in an update.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contributed {
    /// The version from which its gradient was computed.
    pub base: Version,
    /// Mean loss of its mini-batch.
    pub loss: f32,
    /// How long its gradient took.
    pub compute: Duration,
    /// How long it did nothing but wait for the sum of all gradients.
    pub reduce: Duration,
    /// The time from the begin of its gradient to the update.
    pub age: Duration,
    /// How long its values waited for connections to be opened.
    pub opening: Duration,
    /// Bytes of values that it sent for the sum.
    pub bytes: u64,
    /// Bytes of values that it received since its last part in an update.
    pub received: u64,
    /// The first key at which its gradient was not a finite number. Such a gradient is dropped:
    /// zeros take its place.
    pub not_finite: Option<u64>,
}

/// Meeting point to worker: reduce no more in this group; answered by [`Halted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// The group.
    pub generation: u64,
}

/// Worker to meeting point: it reduces no more in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// The group.
    pub generation: u64,
    /// The version that the worker has.
    pub version: Version,
    /// Members with which it cannot reduce: the first is why it halted, if it was not asked to.
    pub complaints: Vec<Complaint>,
    /// The worker whose answer to an exchange it awaits.
    pub awaits: Option<WorkerId>,
}

/// Why a member of a group cannot reduce with another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// The other member.
    pub about: WorkerId,
    /// The connection to it.
    pub connection: Connection,
    /// Why, in words that may be shown as they are.
    pub why: String,
}

/// The connection of a member to another one about which it complains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connection {
    /// There was one.
    Made,
    /// The member could not open it.
    Outgoing,
    /// The other member has not opened it.
    Incoming,
}

/// Meeting point to worker at its own pace: begin no update, or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// The number of the request.
    pub number: u64,
    /// False to go on.
    pub rests: bool,
}

/// Answer to [`Rest`]: no update and no own exchange is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rested {
    /// The number of the request.
    pub number: u64,
}

/// Meeting point to worker at its own pace: it may make updates up to a version of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allow {
    /// The version.
    pub version: Version,
}

/// Meeting point to worker at its own pace: send the parameters, in a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Show {
    /// The number of the request.
    pub number: u64,
}

/// Meeting point to worker: send the state of training of a version, in [`Inherit`] parts, once it
/// is there. A worker that has a later version already sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Save {
    /// The version.
    pub version: Version,
}

/// Worker to meeting point: its parameters. Meeting point to worker: the initial parameters, if
/// they are not from the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Their version, or the number of the request if the worker trains at its own pace.
    pub version: Version,
    /// The parameters: the payload.
    pub values: Arc<Vec<f32>>,
}
