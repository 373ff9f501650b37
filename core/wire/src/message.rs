//! The table of all messages: their numbers, senders, receivers and payloads.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::checkpoint::{GoBack, Written};
use crate::client::{Control, Controlled, PullStatus};
use crate::encoded_piece::EncodedPiece;
use crate::evaluation::{EvaluationAnswer, EvaluationPart};
use crate::group::{
    Arrived, Attach, Attached, Begin, Decisions, Enlist, Enlisted, Followed, Leave,
    MOST_PORTION_BYTES, Mapped, Measured, Portion, Slice, Taken, Traffic,
};
use crate::holders::Holders;
use crate::keys::{Keys, KeysHeader, KeysKnown};
use crate::payload::{Content, Parts, Payload, PayloadField};
use crate::peers::{
    Activate, Allow, Halt, Halted, Inherit, MOST_INHERIT_BYTES, MOST_PACKET_BYTES, Meet, Met,
    Missed, Packet, Piece, Ranks, Reachable, Reduced, Rest, Rested, Save, Show, Snapshot,
};
use crate::range::{PartDue, PullRange, RangeOf, RangePart};
use crate::received::Received;
use crate::refusal::Refusal;
use crate::relayed::{MemberMessage, Relayed};
use crate::replica::{
    Combined, Deposed, Entry, Follow, Kept, STATE_CHUNK_BYTES, Standby, State, Vote, VoteRequest,
};
use crate::status::Status;
use crate::table::{Party, Way, messages, split};
use crate::worker::{
    Bye, EXAMPLES_CHUNK_BYTES, End, ExamplesChunk, Heartbeat, Hello, Parameters, Pull,
    PullExamples, Push, Ready, Welcome,
};
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::decided::Decided;

messages! {
    "Every connection" {
        /// The reason of a refusal and its cure: the last message of a connection.
        Refused(Refusal) = 3, Node -> Node;
        /// A sign of life.
        Heartbeat(Heartbeat) = 11, Node -> Node;
        /// The run has ended.
        End(End) = 12, Server -> Worker, Coordinator -> Server, Primary -> Standby;
    }

    "Worker and server" {
        /// Introduces the worker: the first message of a connection.
        Hello(Hello) = 1, Worker -> Server;
        /// Accepts the worker.
        Welcome(Box<Welcome>) = 2, Server -> Worker;
        /// Introduces a worker that has joined the job to another of its servers.
        Attach(Attach) = 24, Worker -> Server;
        /// Accepts the worker.
        Attached(Attached) = 25, Server -> Worker;
        /// Requests the worker's examples from a row on.
        PullExamples(PullExamples) = 4, Worker -> Server;
        /// Some of the worker's examples.
        Examples(ExamplesChunk { rows; packed: Content::Bytes(EXAMPLES_CHUNK_BYTES) }) = 5,
            Server -> Worker;
        /// The keys of the worker's working set, as a digest.
        UseKeys(KeysHeader) = 40, Worker -> Server;
        /// Whether the server knows this list of keys.
        KeysKnown(KeysKnown) = 41, Server -> Worker;
        /// The list of keys.
        Keys(Keys { header, form; bytes: Content::KeyList }) = 42, Worker -> Server;
        /// The worker's data are loaded.
        Ready(Ready) = 6, Worker -> Server;
        /// Requests a part of the worker's initial parameters.
        PartDue(PartDue) = 47, Server -> Worker;
        /// A part of the initial parameters.
        RangePart(RangePart: Parts) = 48, Worker -> Server;
        /// Requests parameters.
        Pull(Pull) = 7, Worker -> Server;
        /// A gradient.
        Push(Push: Parts) = 8, Worker -> Server;
        /// Parameters, and the permission to push once.
        Parameters(Parameters: Parts) = 9, Server -> Worker;
        /// The decision on a push that did not pull.
        Ack(Decided) = 10, Server -> Worker;
        /// The new key map.
        Holders(Holders) = 34, Coordinator -> Worker;
        /// The worker uses the new key map.
        Mapped(Mapped) = 35, Worker -> Coordinator;
        /// A part of parameters that the worker is to evaluate, since the server cannot.
        EvaluationPart(EvaluationPart: Parts) = 53, Server -> Worker;
        /// The evaluation, the request for the next part, or why there is no evaluation.
        EvaluationAnswer(EvaluationAnswer) = 54, Worker -> Server;
        /// The worker leaves.
        Bye(Bye) = 13, Worker -> Server;
        /// Describes the model of the worker's compute process, as JSON, to a server that has no
        /// job yet. It follows a heartbeat that the server has answered, and is answered by
        /// another.
        Description(String) = 55, Worker -> Server;
    }

    "Client and server" {
        /// Requests the status of the job.
        PullStatus(PullStatus) = 14, Client -> Server;
        /// The status of the job.
        Status(Box<Status>) = 15, Server -> Client;
        /// Changes the mode.
        Control(Control) = 16, Client -> Server;
        /// The result of the change.
        Controlled(Controlled) = 17, Server -> Client;
        /// Requests the parameters of a key range.
        PullRange(PullRange) = 44, Client -> Server;
        /// The parameters of a key range.
        RangeOf(RangeOf { header; bytes: Content::Unlimited }) = 45, Server -> Client;
    }

    "Coordinator and server" {
        /// Asks to become one of the job's servers.
        Enlist(Enlist) = 18, Server -> Coordinator;
        /// Accepts the server.
        Enlisted(Box<Enlisted>) = 19, Coordinator -> Server;
        /// Decisions to follow.
        Decisions(Decisions: Parts) = 20, Coordinator -> Server;
        /// The number of decisions that the server has followed.
        Followed(Followed) = 21, Server -> Coordinator;
        /// The server's part of a gradient has arrived.
        Arrived(Arrived) = 22, Server -> Coordinator;
        /// The server's part of sums over all keys.
        Measured(Measured) = 43, Server -> Coordinator;
        /// The server's part of the parameters.
        Slice(Slice { header; values: Content::Values }) = 23, Server -> Coordinator;
        /// The bytes that the server has exchanged with the workers.
        Traffic(Traffic) = 56, Server -> Coordinator;
        /// The decision from which on a new server follows.
        Begin(Begin) = 36, Coordinator -> Server;
        /// A piece of the state of keys that move.
        Portion(Portion { header; bytes: Content::Bytes(MOST_PORTION_BYTES) }) = 37,
            Server -> Coordinator, Coordinator -> Server;
        /// All state of the server's new keys has arrived.
        Taken(Taken) = 38, Server -> Coordinator;
        /// The server wants to leave the job.
        Leave(Leave) = 39, Server -> Coordinator;
        /// The server's part of a checkpoint is on its disk.
        Written(Written) = 51, Server -> Coordinator;
        /// Go back to a checkpoint.
        GoBack(GoBack) = 52, Coordinator -> Server;
    }

    "Workers without a server" {
        /// The address at which other workers reach the worker.
        Reachable(Reachable) = 57, Worker -> Server;
        /// The workers that reduce their gradients from now on.
        Ranks(Ranks) = 58, Server -> Worker;
        /// Introduces a worker to another: the first message of a connection.
        Meet(Meet) = 59, Worker -> Worker;
        /// Accepts the other worker: values may follow.
        Met(Met) = 66, Worker -> Worker;
        /// Values of a reduction.
        Piece(Piece { header; values: Content::Values }) = 60, Worker -> Worker;
        /// Values of a filtered gradient.
        EncodedPiece(EncodedPiece: Parts) = 50, Worker -> Worker;
        /// A chunk of a gradient, or the sum of all workers' chunks.
        Packet(Packet { header; values: Content::Bytes(MOST_PACKET_BYTES) }) = 73,
            Worker -> Meeting, Meeting -> Worker;
        /// A message of one worker to another that do not reach each other.
        Relayed(Relayed: Parts) = 74, Worker -> Meeting, Meeting -> Worker;
        /// The combined gradient of an update that the receiver has missed.
        Missed(Missed { version, done; values: Content::Values }) = 61, Worker -> Worker;
        /// Make an update without late gradients.
        Activate(Activate) = 49, Worker -> Worker;
        /// A part of the state of training, for a worker that joins, a checkpoint, or a worker of a
        /// resumed run.
        Inherit(Inherit { header; bytes: Content::Bytes(MOST_INHERIT_BYTES) }) = 67,
            Worker -> Worker, Worker -> Meeting, Meeting -> Worker;
        /// Send the state of training of a version.
        Save(Save) = 68, Meeting -> Worker;
        /// The worker has made an update.
        Reduced(Reduced) = 62, Worker -> Server;
        /// Reduce no more.
        Halt(Halt) = 63, Server -> Worker;
        /// The worker reduces no more.
        Halted(Halted) = 64, Worker -> Server;
        /// The worker may make updates up to a version.
        Allow(Allow) = 72, Meeting -> Worker;
        /// Begin no update, or go on.
        Rest(Rest) = 69, Meeting -> Worker;
        /// The worker has no update under way.
        Rested(Rested) = 70, Worker -> Meeting;
        /// Send the parameters.
        Show(Show) = 71, Meeting -> Worker;
        /// The worker's parameters, or initial parameters for it.
        Snapshot(Snapshot { version; values: Content::Values }) = 65,
            Worker -> Server, Meeting -> Worker;
    }

    "Primary and standby" {
        /// Asks to follow the primary.
        Follow(Follow) = 26, Standby -> Primary;
        /// A part of the primary's state.
        State(State { header; bytes: Content::Bytes(STATE_CHUNK_BYTES as u32) }) = 27,
            Primary -> Standby;
        /// The next entry of the stream.
        Entry(Entry { header; input: Content::Input }) = 28, Primary -> Standby;
        /// The combined gradient of an update, in place of the gradients that it was combined from.
        Combined(Combined { header; values: Content::Values }) = 46, Primary -> Standby;
        /// The number of entries that the standby has kept.
        Kept(Kept) = 29, Standby -> Primary;
        /// The address of the sender's standby.
        Standby(Standby) = 32, Server -> Worker, Server -> Coordinator, Coordinator -> Server;
        /// Requests a vote to lead.
        VoteRequest(VoteRequest) = 30, Server -> Elector;
        /// The vote, granted or denied.
        Vote(Vote) = 31, Elector -> Server;
        /// Fences the receiver, because the sender leads now.
        Deposed(Deposed) = 33, Server -> Server;
    }
}

impl From<MemberMessage> for Message {
    fn from(message: MemberMessage) -> Self {
        match message {
            MemberMessage::Piece(piece) => Self::Piece(piece),
            MemberMessage::EncodedPiece(piece) => Self::EncodedPiece(piece),
            MemberMessage::Activate(activate) => Self::Activate(activate),
            MemberMessage::Missed(missed) => Self::Missed(missed),
            MemberMessage::Inherit(part) => Self::Inherit(part),
        }
    }
}

impl Kind {
    /// True if `from` may send this kind of message to `to`.
    pub(super) const fn goes(self, from: Party, to: Party) -> bool {
        let (ways, mut at) = (self.ways(), 0);
        while at < ways.len() {
            if ways[at].from as u8 == from as u8 && ways[at].to as u8 == to as u8 {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// Encodes a kind as its number, counted from 0: logs of inputs contain kinds in this form.
impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (*self as u8 - 1).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = u8::deserialize(deserializer)?.checked_add(1).and_then(Self::from_number);
        kind.ok_or_else(|| de::Error::custom("no kind of message"))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use core::fmt::Write as _;
    use std::path::Path;

    use super::*;

    /// The reference page of all messages.
    fn page() -> String {
        let mut page = String::from(
            "# Messages\n\nThe messages between nodes, by conversation. The coordinator is one of \
             several servers; in a\nconversation with it, a server is another one. The layout of \
             frames:\n[core/wire](../../core/wire/src/lib.rs). This page is generated from the \
             table in\n\
             [message.rs](../../core/wire/src/message.rs).\n",
        );
        let mut heading = "";
        for kind in Kind::ALL {
            if kind.conversation() != heading {
                heading = kind.conversation();
                let _infallible = write!(
                    page,
                    "\n## {heading}\n\n| kind | message | from, to | payload | meaning |\n\
                     |---|---|---|---|---|\n"
                );
            }
            let ways = kind.ways().iter().map(|it| format!("{:?} to {:?}", it.from, it.to));
            let ways = ways.collect::<Vec<_>>().join("; ").to_lowercase();
            let payload = kind.content().map(described).unwrap_or_default();
            let about = kind.about().trim();
            let number = *kind as u8;
            let _infallible =
                writeln!(page, "| {number} | `{kind:?}` | {ways} | {payload} | {about} |");
        }
        page
    }

    fn described(content: Content) -> String {
        match content {
            Content::Gradient => "gradient: at most 4 bytes a parameter".into(),
            Content::Values => "values: at most 4 bytes a parameter".into(),
            Content::KeyList => "keys: at most 33 bits a parameter".into(),
            Content::Input => "input: at most 4 bytes a parameter and 16 MiB".into(),
            Content::Part(most) => {
                format!("values: at most 4 bytes a parameter, and {} KiB", most / 1024)
            }
            Content::Relayed => {
                format!(
                    "as of the message: at most 4 bytes a parameter, or {} KiB",
                    MOST_INHERIT_BYTES / 1024
                )
            }
            Content::Bytes(most) => format!("at most {} KiB", most / 1024),
            Content::Unlimited => "of any length".into(),
        }
    }

    #[test]
    fn the_page_of_messages_is_that_of_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/messages.md");
        if std::env::var_os("PSTRAIN_WRITE_PAGES").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/reference/messages.md differs from the table of messages: write it with \
             `PSTRAIN_WRITE_PAGES=1 cargo test -p pstrain-wire page_of_messages`"
        );
    }

    #[test]
    fn a_conversation_is_in_one_place_and_a_kind_comes_back_from_its_encoding() {
        let mut headings: Vec<_> = Kind::ALL.iter().map(|kind| kind.conversation()).collect();
        headings.dedup();
        let conversations = headings.len();
        headings.sort_unstable();
        headings.dedup();
        assert_eq!(headings.len(), conversations);
        for &kind in Kind::ALL {
            let mut bytes = Vec::new();
            codec::append(&kind, &mut bytes);
            assert_eq!(bytes, [kind as u8 - 1]);
            assert_eq!(codec::read(&bytes), Ok(kind));
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(codec::read::<Kind>(&[u8::MAX]), Err(Malformed));
    }
}
