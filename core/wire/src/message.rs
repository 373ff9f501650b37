//! The enum of all messages.

use alloc::boxed::Box;

use pstrain_compute::decided::Decided;

use crate::checkpoint::{GoBack, Written};
use crate::client::{Control, Controlled, PullStatus};
use crate::group::{
    Arrived, Attach, Attached, Begin, Decisions, Enlist, Enlisted, Followed, Leave, Mapped,
    Measured, Portion, Slice, Taken,
};
use crate::holders::Holders;
use crate::keys::{Keys, KeysHeader, KeysKnown};
use crate::range::{PartDue, PullRange, PushRange, RangeOf, RangePart, RangePushed};
use crate::refusal::Refusal;
use crate::replica::{Combined, Deposed, Entry, Follow, Kept, Standby, State, Vote, VoteRequest};
use crate::status::Status;
use crate::worker::{
    Bye, End, ExamplesChunk, Heartbeat, Hello, Parameters, Pull, PullExamples, Push, Ready, Welcome,
};

/// A message between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Worker to server: the first message of a connection.
    Hello(Hello),
    /// Server to worker: accepts the worker.
    Welcome(Box<Welcome>),
    /// Either way, the last message of a connection: what was wrong and what to do.
    Refused(Refusal),
    /// Worker to server: requests the worker's examples from a row on.
    PullExamples(PullExamples),
    /// Server to worker: some of the worker's examples.
    Examples(ExamplesChunk),
    /// Worker to server: its data are loaded.
    Ready(Ready),
    /// Worker to server: requests parameters.
    Pull(Pull),
    /// Worker to server: a gradient.
    Push(Push),
    /// Server to worker: parameters, and the permission to push once.
    Parameters(Parameters),
    /// Server to worker: the decision on a push that did not pull.
    Ack(Decided),
    /// Either way: a sign of life.
    Heartbeat(Heartbeat),
    /// Server to worker: the run has ended.
    End(End),
    /// Worker to server: the worker leaves.
    Bye(Bye),
    /// Client to server: requests the status of the job.
    PullStatus(PullStatus),
    /// Server to client: the status of the job.
    Status(Box<Status>),
    /// Client to server: changes the mode.
    Control(Control),
    /// Server to client: the result of the change.
    Controlled(Controlled),
    /// Server to coordinator: asks to become one of the job's servers.
    Enlist(Enlist),
    /// Coordinator to server: accepts the server.
    Enlisted(Box<Enlisted>),
    /// Coordinator to server: decisions to follow.
    Decisions(Decisions),
    /// Server to coordinator: the number of decisions that it has followed.
    Followed(Followed),
    /// Server to coordinator: its part of a gradient has arrived.
    Arrived(Arrived),
    /// Server to coordinator: its part of the parameters.
    Slice(Slice),
    /// Server to coordinator: its part of sums over all keys.
    Measured(Measured),
    /// Worker to server: the worker is a member of the job.
    Attach(Attach),
    /// Server to worker: accepts the worker.
    Attached(Attached),
    /// Worker to server: the keys of its working set, as a digest.
    UseKeys(KeysHeader),
    /// Server to worker: whether it knows this list of keys.
    KeysKnown(KeysKnown),
    /// Worker to server: the list of keys.
    Keys(Keys),
    /// Standby to primary: asks to follow the primary.
    Follow(Follow),
    /// Primary to standby: a part of the primary's state.
    State(State),
    /// Primary to standby: the next entry of the stream.
    Entry(Entry),
    /// Primary to standby: the combined gradient of an update, in place of the gradients that it
    /// was combined from.
    Combined(Combined),
    /// Standby to primary: the number of entries that it has kept.
    Kept(Kept),
    /// Server to elector: requests a vote to lead.
    VoteRequest(VoteRequest),
    /// Elector to server: the vote, granted or denied.
    Vote(Vote),
    /// Server to worker or server: the address of its standby.
    Standby(Standby),
    /// Server to server: fences the receiver, because the sender leads now.
    Deposed(Deposed),
    /// Coordinator to worker: the new key map.
    Holders(Holders),
    /// Worker to coordinator: it uses the new key map.
    Mapped(Mapped),
    /// Coordinator to a new server: the decision from which on it follows.
    Begin(Begin),
    /// Client to server: requests the parameters of a key range.
    PullRange(PullRange),
    /// Server to client: the parameters of a key range.
    RangeOf(RangeOf),
    /// Server to coordinator, or back: a piece of the state of keys that move.
    Portion(Portion),
    /// Server to coordinator: all state of its new keys has arrived.
    Taken(Taken),
    /// Server to coordinator: the server wants to leave the job.
    Leave(Leave),
    /// Client to server: announces values for a key range.
    PushRange(PushRange),
    /// Server to client: requests a part of the values.
    PartDue(PartDue),
    /// Client to server: a part of the values.
    RangePart(RangePart),
    /// Server to client: the result of the push.
    RangePushed(RangePushed),
    /// Server to coordinator: its part of a checkpoint is on its disk.
    Written(Written),
    /// Coordinator to server: go back to a checkpoint.
    GoBack(GoBack),
}
