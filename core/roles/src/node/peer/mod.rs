//! A worker without a server: it has all parameters, and reduces its gradients with other workers.
//!
//! A peer dials the meeting point, which admits it and tells it the ranks of its group. The peers
//! of a group connect to each other, each to its neighbors in the all-reduce, and train in step
//! without the meeting point.
//!
//! A group ends when a member is lost or a connection between members breaks: the meeting point
//! halts its members and forms the next group. Members differ by one update at most, since no
//! member makes an update without a gradient of all others. A member that has missed the last
//! update gets its combined gradient from one that has made it; the update that was under way
//! begins again. So each update is made exactly once by every member.

mod evaluating;
mod links;
mod meeting_point;
mod opening;
mod pairs;
mod training;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use self::links::Links;
use self::training::Training;
use super::damage::{Damage, is_foreign};
use super::dialler::Dialler;
use super::evaluating::Evaluating;
use super::{Effect, Input, Node, NodeError, Outbox};
use pstrain_compute::id::{Incarnation, PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::job::Job;
use pstrain_wire::Message;
use pstrain_wire::peers::Complaint;
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::{Bye, EndReason, Ready};

/// Configuration of a peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// A name for people.
    pub name: String,
    /// The requested worker id; none to let the meeting point choose.
    pub worker: Option<WorkerId>,
    /// The address at which other workers reach it.
    pub address: String,
    /// Time limits before the job is known.
    pub lease: Duration,
    /// Random numbers for pauses between dials.
    pub stream: Stream,
}

/// A worker without a server, as a state machine.
#[derive(Debug)]
pub struct Peer {
    config: PeerConfig,
    /// The connection to the meeting point.
    dialler: Dialler,
    damage: Damage,
    /// True if the meeting point has admitted the peer on this connection.
    welcome: bool,
    member: Option<Member>,
    /// Orders to prepare data that have not been answered. Only the answer to the last one is of
    /// this membership.
    preparations: u32,
    links: Links,
    evaluating: Evaluating,
    /// The members with which the last group could not go on.
    complaints: Vec<Complaint>,
    done: bool,
}

/// Membership in a job.
#[derive(Debug)]
struct Member {
    worker: WorkerId,
    incarnation: Incarnation,
    run: u64,
    job: Box<Job>,
    /// The number of parameters.
    parameters: usize,
    /// Messages to the meeting point that wait for a connection.
    unsent: Vec<Message>,
    data: Data,
}

/// The worker's part of the data, and what depends on it.
#[derive(Debug)]
enum Data {
    Preparing,
    Ready {
        training: Box<Training>,
        /// The report of the data to the meeting point.
        ready: Ready,
    },
}

impl Member {
    fn training(&mut self) -> Option<&mut Training> {
        match &mut self.data {
            Data::Preparing => None,
            Data::Ready { training, .. } => Some(training),
        }
    }
}

/// The membership of a worker that has been in a group of this run.
struct Joined<'a> {
    run: u64,
    incarnation: Incarnation,
    job: &'a Job,
    training: &'a mut Training,
}

/// The membership, in a group or after one: only workers whose data are here join a group.
fn joined(member: &mut Option<Member>) -> Joined<'_> {
    let Some(Member { run, incarnation, job, data: Data::Ready { training, .. }, .. }) = member
    else {
        unreachable!("a worker joins a group once its data are here")
    };
    Joined { run: *run, incarnation: *incarnation, job, training }
}

impl Peer {
    /// A peer that will dial the meeting point at [`Input::Start`].
    #[must_use]
    pub fn new(config: PeerConfig) -> Self {
        Self {
            dialler: Dialler::new(config.stream),
            damage: Damage::default(),
            config,
            welcome: false,
            member: None,
            preparations: 0,
            links: Links::default(),
            evaluating: Evaluating::default(),
            complaints: Vec::new(),
            done: false,
        }
    }

    /// The worker id, once the meeting point has assigned one.
    #[must_use]
    pub fn id(&self) -> Option<WorkerId> {
        self.member.as_ref().map(|member| member.worker)
    }

    /// The incarnation, once the meeting point has assigned one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.member.as_ref().map(|member| member.incarnation)
    }

    /// The connection to the meeting point, if it has admitted this peer over it.
    fn meeting(&self) -> Option<PeerId> {
        self.dialler.peer().filter(|_| self.welcome)
    }

    fn lease(&self) -> Duration {
        self.member.as_ref().map_or(self.config.lease, |member| member.job.membership.lease)
    }

    /// The training; none before the data are here. Requests of the meeting point are ignored
    /// before: it sends them to members of a group.
    fn training(&mut self) -> Option<&mut Training> {
        self.member.as_mut().and_then(Member::training)
    }

    /// Sends a message to the meeting point, now or once there is a connection.
    fn tell(&mut self, now: Time, message: Message, out: &mut Outbox) {
        // A meeting point may welcome back a worker that it has never admitted.
        let Some(member) = &mut self.member else { return };
        if matches!(message, Message::Snapshot(_)) {
            // The latest one replaces those before it.
            member.unsent.retain(|unsent| !matches!(unsent, Message::Snapshot(_)));
        }
        member.unsent.push(message);
        self.send_unsent(now, out);
    }

    fn finish(&mut self, result: Result<EndReason, NodeError>, out: &mut Outbox) {
        out.extend(self.dialler.peer().map(Effect::Close));
        self.links.close(out);
        self.done = true;
        out.push(Effect::Done(result));
    }

    /// Leaves the run, which has ended or cannot continue on this machine.
    fn leave(&mut self, now: Time, ended: Result<EndReason, NodeError>, out: &mut Outbox) {
        if let (Some(peer), Some(member)) = (self.dialler.peer(), &self.member) {
            let why = ended.as_ref().err().map(|error| as_reason(&error.to_string()));
            self.dialler.sent(now);
            let bye = Bye { incarnation: member.incarnation, why };
            out.push(Effect::Send(peer, Message::Bye(bye)));
        }
        self.finish(ended, out);
    }

    fn on_message(&mut self, now: Time, from: PeerId, message: Message, out: &mut Outbox) {
        if self.dialler.heard(now, from) {
            self.on_meeting_point(now, message, out);
        } else {
            self.on_peer(now, from, message, out);
        }
    }

    /// A message to or from the meeting point was damaged in transit: drops the connection.
    fn on_damage(&mut self, now: Time, error: &str, may_be_foreign: bool, out: &mut Outbox) {
        match self.damage.again(error, may_be_foreign) {
            Ok(why) => self.redial(now, why, out),
            Err(error) => self.finish(Err(error), out),
        }
    }
}

impl Node for Peer {
    fn handle(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.done {
            return;
        }
        match input {
            Input::Start => self.dialler.start(now, out),
            Input::Connected(peer, identity) => self.links.connected(now, peer, identity, out),
            Input::Dialled(peer, identity) if self.dialler.release() => {
                self.on_peer_dialled(now, peer, identity, out);
            }
            Input::Dialled(peer, identity) => self.on_dialled(now, peer, identity, out),
            Input::DialFailed { why, fault } => self.on_dial_failed(now, why, fault, out),
            Input::Message(from, message) => self.on_message(now, from, message, out),
            Input::Receiving(from) => {
                let _is_known = self.dialler.heard(now, from);
            }
            Input::Garbage(peer, error) if self.dialler.peer() == Some(peer) => {
                let may_be_foreign = self.member.is_none() && is_foreign(error);
                self.on_damage(now, &error.to_string(), may_be_foreign, out);
            }
            Input::Garbage(peer, error) => self.on_damaged_link(now, peer, error, out),
            Input::Disconnected { peer, why } => {
                if self.dialler.lost(peer) {
                    self.redial(now, why, out);
                } else {
                    self.lose_link(now, peer, &why, out);
                }
            }
            Input::Prepared(prepared) => self.on_prepared(now, prepared, out),
            Input::ComputedRange(range) => self.on_computed_range(now, range, out),
            Input::Computed(computed) => self.on_computed(now, computed, out),
            Input::EvaluatedHere(ticket, result) => {
                self.on_evaluated_here(now, ticket, result, out);
            }
            Input::ComputeFailed(why) => self.leave(now, Err(NodeError::Compute(why)), out),
            Input::Overslept => {
                self.dialler.overslept(now);
                self.links.overslept(now);
            }
            Input::Drain => self.leave(now, Ok(EndReason::Stopped), out),
            Input::Wake => self.on_wake(now, out),
            // Inputs of other roles.
            Input::Evaluated(_)
            | Input::Unevaluated { .. }
            | Input::Initial(_)
            | Input::Checkpoint(_)
            | Input::Written(_)
            | Input::WorkersDown
            | Input::Extend(_) => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.done {
            return None;
        }
        let (lease, may_dial) = (self.lease(), !self.dialler.is_dialling());
        let partial_at = match self.member.as_ref().map(|member| &member.data) {
            Some(Data::Ready { training, .. }) => training.partial_at(),
            Some(Data::Preparing) | None => None,
        };
        let due = [self.dialler.deadline(lease), self.links.deadline(lease, may_dial), partial_at];
        due.into_iter().flatten().min()
    }
}
