//! The protocol between workers, servers and clients: messages and their encoding.
//!
//! # Frames
//! A stream carries frames, one message each. Numbers are little-endian.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..4 | magic | `PSTR` |
//! | 4 | version | of the protocol, [`PROTOCOL_VERSION`] |
//! | 5 | kind | which message ([`Kind`]; [`message`] is the table of all messages) |
//! | 6..8 | layout | of the messages, in short ([`Protocol`]) |
//! | 8..12 | control length | bytes of the control part |
//! | 12..16 | payload length | bytes of the payload |
//! | 16.. | control part | the message's fields, bincode 2 with its standard settings: little-endian, variable-length integers |
//! | .. | payload | raw: `f32` values of a key range, a gradient in the form its push names ([`Form`](pstrain_compute::filter::Form)), packed examples, or keys |
//! | .. | checksum | CRC-32C of all that is before it |
//!
//! Both lengths are checked against [`Limits`] before anything is allocated. A connection starts
//! with small limits; the handshake, which fixes the size of the model, raises them.
//!
//! # A connection
//! ```text
//! worker                                   server
//!   Hello(protocols, build, resume?)  ->
//!                                     <-   Welcome(worker, incarnation, job, digest) | Refused(why)
//!   PullExamples(from) ...            ->                    (only if the server has the data)
//!                                     <-   Examples(from, total) + packed rows ...
//!   Ready(rows, fingerprint)          ->                                     | Refused(why)
//!   Pull                              ->
//!                                     <-   Parameters(version, grant) + values
//!   Push(sequence, base, pull, form?) + gradient  ->
//!                                     <-   Parameters(decided, version, grant) + values
//!   ...
//!   Heartbeat                         ->
//!                                     <-   Heartbeat
//!                                     <-   End(reason)
//!   Bye                               ->
//! ```
//! A server that cannot evaluate has a worker do it, once in a while:
//! ```text
//!                                     <-   EvaluationPart(version, keys) + values
//!   EvaluationAnswer(part due)        ->                    (and so on, to the last key)
//!   EvaluationAnswer(evaluation)      ->
//! ```
//! Where the model is sparse, `UseKeys`, `KeysKnown` and, if a server does not know them,
//! [`Keys`](keys) come before `Ready`; what follows has values for these keys.
//!
//! Parameters are a permission: they carry the sequence number of the one push that they allow, and
//! the number of the mini-batch to compute it on. A push is identified by (worker, incarnation,
//! sequence) and decided exactly once. After a reconnect the worker may repeat it; the server then
//! answers it and does not apply it again. A client that sends `PullStatus` instead of `Hello`
//! receives one `Status`. A client that sends `PullRange` receives one [`RangeOf`](range). A client
//! that sends `Control` receives a `Controlled` once the change has taken effect, or cannot.
//!
//! # Several servers
//! ```text
//! server 2 ...                          coordinator                            worker
//!   Enlist(server, followed)          ->
//!                                     <-   Enlisted(run, job), Decisions ...
//!                                                 <- Hello, Welcome(servers) ->
//!   <------------------------------------------------ Attach(run, worker, incarnation)
//!   Attached(keys) -------------------------------------------------------------->
//!                                                 <- Push + gradient of its keys
//!   <------------------------------------------------ Push + gradient of its keys
//!   Arrived(worker, sequence)         ->
//!                                     <-   Decisions(gather, close, give, ...)
//!                                                    Parameters + values of its keys ->
//!   Parameters + values of its keys ----------------------------------------------->
//! ```
//! The coordinator decides on a push once every server has its part of it. The other servers follow
//! its decisions in order ([`Decision`](decision::Decision)). An update that depends on a norm or
//! on distances takes one more turn for each: every server sends the part of its keys, and then the
//! coordinator decides how the update continues.
//! ```text
//!                                     <-   Decisions(close)
//!   Measured(sums)                    ->
//!                                     <-   Decisions(found, give, ...)
//! ```
//!
//! # Rebalancing of keys
//! Starts once no gradient is in flight. `from` has the keys, `to` receives them; one of the two
//! may be the coordinator.
//! ```text
//! to                     from                   coordinator                      worker
//!   Enlist(wanted) ------------------------------>
//!   <----------------------------- Enlisted, Begin
//!                                <- Decisions(cut)
//!                          Portion ... ---------->
//!   <--------------------------------- Portion ...
//!   Taken --------------------------------------->
//!   <------------------------------------------------ Decisions(map) -> from
//!                                               Holders -------------------------->
//!   <------------------------------------------------------------ Attach, Attached ->
//!                                                 <------------------ Mapped, Pull
//! ```
//! Until `Decisions(map)` all keys stay where they are: if a node is lost before, nothing has
//! changed. A server that wants to stop sends `Leave`, and receives `End` once its keys are
//! elsewhere.
//!
//! # Checkpoints of several servers
//! Used where checkpoints are the only durable state. All servers save their state at the same
//! decision. The coordinator writes its own state once all other servers have theirs on disk:
//! ```text
//!                                     <-   Decisions(checkpoint n)
//!   Written(n)                        ->
//! ```
//! A run that continues from a checkpoint is a new run. A server that has state from after the
//! checkpoint is told to go back:
//! ```text
//!   Enlist(followed, on disk)         ->
//!                                     <-   GoBack(n)
//!   Enlist(on disk, at n)             ->
//!                                     <-   Enlisted(run, job), Decisions ...
//! ```

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod buffer_pool;
pub mod checkpoint;
mod checksum;
pub mod client;
pub mod decision;
mod decoder;
mod encoded_piece;
pub mod evaluation;
mod frame;
pub mod group;
pub mod holders;
pub mod identity;
pub mod keys;
mod limits;
pub mod message;
pub mod name;
mod outgoing;
mod payload;
pub mod peers;
pub mod range;
pub mod reason;
mod received;
mod refusal;
mod relayed;
mod release;
pub mod replica;
mod spent;
mod status;
mod table;
pub mod worker;

use pstrain_policy::job::Job;
use sha2::Digest as _;

pub use buffer_pool::BufferPool;
pub use checksum::crc32c;
pub use decoder::Decoder;
pub use encoded_piece::{EncodedPiece, EncodedPieceHeader};
pub use frame::decode_whole;
pub use frame::{CHECKSUM_BYTES, FrameError, HEADER_BYTES, Tail, encode, frame_len};
pub use limits::Limits;
pub use message::{Kind, Message};
pub use outgoing::Outgoing;
pub use payload::{Content, Payload};
pub use refusal::Refusal;
pub use relayed::{MemberMessage, Relayed};
pub use release::{BUILD, PROTOCOL, PROTOCOL_VERSION, Protocol};
pub use spent::{Held, LinkFigures, MOST_HOLDERS, Recent, TcpFigures, TimeSpent};
pub use status::{
    Endpoint, LatestEvaluation, MOST_MOMENTS, MemberState, MemberStatus, Moment, Phase,
    RefusedStatus, ServerStatus, Status, Successor, Unreached, Wait, WaitReason,
};
pub use table::{Party, Way};

/// Computes the identity of a job: SHA-256 of its encoding. Equal exactly if all settings are
/// equal.
#[must_use]
pub fn job_digest(job: &Job) -> [u8; 32] {
    let mut bytes = alloc::vec::Vec::new();
    pstrain_compute::codec::append(job, &mut bytes);
    sha2::Sha256::digest(&bytes).into()
}
