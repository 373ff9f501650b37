//! The messages, one kind after the other.

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
use crate::replica::{Candidacy, Combined, Deposed, Entry, Follow, Kept, Promise, Standby, State};
use crate::status::Status;
use crate::worker::{
    Bye, End, ExamplesChunk, Heartbeat, Hello, Parameters, Pull, PullExamples, Push, Ready, Welcome,
};

/// A message between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Worker to server: the first message of a connection.
    Hello(Hello),
    /// Server to worker: you are in.
    Welcome(Box<Welcome>),
    /// Either way, the last message of a connection: what was wrong and what to do.
    Refused(Refusal),
    /// Worker to server: send me my examples from this one on.
    PullExamples(PullExamples),
    /// Server to worker: some of the worker's examples.
    Examples(ExamplesChunk),
    /// Worker to server: I have my data.
    Ready(Ready),
    /// Worker to server: I want parameters.
    Pull(Pull),
    /// Worker to server: a gradient.
    Push(Push),
    /// Server to worker: parameters, and the permission to push once.
    Parameters(Parameters),
    /// Server to worker: what became of a push that did not pull.
    Ack(Decided),
    /// Either way: I am here.
    Heartbeat(Heartbeat),
    /// Server to worker: the run is over.
    End(End),
    /// Worker to server: I am leaving.
    Bye(Bye),
    /// Client to server: how is the job?
    PullStatus(PullStatus),
    /// Server to client: so it is.
    Status(Box<Status>),
    /// Client to server: change the mode.
    Control(Control),
    /// Server to client: what became of that.
    Controlled(Controlled),
    /// Server to coordinator: I am one of the job's servers.
    Enlist(Enlist),
    /// Coordinator to server: you are in.
    Enlisted(Box<Enlisted>),
    /// Coordinator to server: follow these.
    Decisions(Decisions),
    /// Server to coordinator: I have, up to here.
    Followed(Followed),
    /// Server to coordinator: my part of a gradient has come.
    Arrived(Arrived),
    /// Server to coordinator: my part of the parameters.
    Slice(Slice),
    /// Server to coordinator: my part of what must be known of all keys.
    Measured(Measured),
    /// Worker to server: I am a worker of the job.
    Attach(Attach),
    /// Server to worker: you are.
    Attached(Attached),
    /// Worker to server: my values are for these keys.
    UseKeys(KeysHeader),
    /// Server to worker: I know them, or not.
    KeysKnown(KeysKnown),
    /// Worker to server: these they are.
    Keys(Keys),
    /// Standby to primary: I follow you.
    Follow(Follow),
    /// Primary to standby: a part of my state.
    State(State),
    /// Primary to standby: what comes next.
    Entry(Entry),
    /// Primary to standby: what becomes an update, in the place of the gradients that it was made
    /// of.
    Combined(Combined),
    /// Standby to primary: I have it, up to here.
    Kept(Kept),
    /// Server to worker: may I lead?
    Candidacy(Candidacy),
    /// Worker to server: you may, or not.
    Promise(Promise),
    /// Server to worker: where my standby is.
    Standby(Standby),
    /// Server to server: I lead.
    Deposed(Deposed),
    /// Coordinator to worker: the keys are elsewhere now.
    Holders(Holders),
    /// Worker to coordinator: I know.
    Mapped(Mapped),
    /// Coordinator to a new server: follow from here on.
    Begin(Begin),
    /// Client to server: what are the parameters of a key range?
    PullRange(PullRange),
    /// Server to client: these they are.
    RangeOf(RangeOf),
    /// Either way: some of what there is to know of keys that move.
    Portion(Portion),
    /// Server to coordinator: I have all of it.
    Taken(Taken),
    /// Server to coordinator: I want to go.
    Leave(Leave),
    /// Client to server: I have values for a key range.
    PushRange(PushRange),
    /// Server to client: send these of them.
    PartDue(PartDue),
    /// Client to server: here they are.
    RangePart(RangePart),
    /// Server to client: what became of them.
    RangePushed(RangePushed),
    /// Server to coordinator: my part of a checkpoint is on my disk.
    Written(Written),
    /// Coordinator to server: go back to a checkpoint.
    GoBack(GoBack),
}
