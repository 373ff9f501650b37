//! The status that a meeting point gives of workers without a server.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::time::Duration;

use pstrain_compute::id::{PartId, PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_roles::node::{Effect, Event, Input, Meeting, Node, Outbox};
use pstrain_tests::Toy;
use pstrain_wire::identity::Identity;
use pstrain_wire::peers::{Complaint, Connection, Halted, Piece, PieceHeader, Reachable, Reduced};
use pstrain_wire::worker::{EndReason, Heartbeat, Hello, Ready};
use pstrain_wire::{
    Endpoint, MemberMessage, MemberState, MemberStatus, Message, Relayed, Status, WaitReason,
};

use super::peers;

/// A meeting point whose workers are played by hand.
struct Played {
    meeting: Meeting,
    now: Time,
}

impl Played {
    fn new(toy: &Toy) -> Self {
        Self { meeting: Meeting::new(toy.job.clone(), 1).unwrap(), now: Time::ZERO }
    }

    /// A run of three workers that train.
    fn training(toy: &Toy) -> Self {
        let mut played = Self::new(toy);
        (0..3).for_each(|it| played.join(toy, it, it, &format!("worker {it}")));
        played
    }

    /// A worker joins over a connection, and is ready.
    fn join(&mut self, toy: &Toy, worker: u64, peer: u64, address: &str) {
        let peer = PeerId(peer);
        self.give(Input::Connected(peer, Identity::Anyone));
        let hello = Hello::new("by hand", Some(WorkerId(worker as u32)));
        let train = Some(toy.job.data.train.clone());
        let rows = [(PartId(worker as u32), 8)].into();
        for message in [
            Message::Hello(hello),
            Message::Reachable(Reachable { address: address.into() }),
            Message::Ready(Ready { rows, train }),
        ] {
            self.give(Input::Message(peer, message));
        }
    }

    fn give(&mut self, input: Input) -> Outbox {
        let mut out = Outbox::new();
        self.meeting.handle(self.now, input, &mut out);
        out
    }

    fn hear(&mut self, worker: u64) {
        let beat = Message::Heartbeat(Heartbeat::default());
        self.give(Input::Message(PeerId(worker), beat));
    }

    fn status(&self) -> Status {
        self.meeting.outlook(self.now).unwrap()
    }
}

fn states(status: &Status) -> Vec<MemberState> {
    status.members.iter().map(|member| member.state).collect()
}

#[test]
fn a_silent_member_is_named_before_its_lease_is_over() {
    let toy = peers(Architecture::Ring, 3, 24);
    let lease = toy.job.membership.lease;
    let mut played = Played::training(&toy);
    let status = played.status();
    assert_eq!((status.wait.clone(), states(&status)), (None, vec![MemberState::Computing; 3]));
    for beat in 1..=3 {
        played.now = Time::ZERO + lease / 5 * beat;
        played.hear(0);
        played.hear(2);
    }
    let status = played.status();
    let wait = status.wait.clone().unwrap();
    assert_eq!((wait.reason, wait.workers), (WaitReason::Gradients, vec![WorkerId(1)]));
    assert_eq!((wait.waited, wait.left), (lease / 5 * 3, Some(lease / 5 * 2)));
    let waiting = MemberState::Waiting;
    assert_eq!(states(&status), [waiting, MemberState::Computing, waiting]);
    played.hear(1);
    assert_eq!(played.status().wait, None);
    // The group halts without a member that stays silent.
    for beat in 4..=8 {
        played.now = Time::ZERO + lease / 5 * beat;
        played.hear(0);
        played.hear(2);
    }
    played.give(Input::Wake);
    let status = played.status();
    assert_eq!(status.members[1].state, MemberState::Lost);
    assert_eq!(status.wait.unwrap().workers, [WorkerId(0), WorkerId(2)]);
}

#[test]
fn a_member_that_trains_is_not_late_by_the_time_of_the_whole_run() {
    let toy = peers(Architecture::Ring, 3, 24);
    let mut played = Played::training(&toy);
    let since = |played: &Played| played.status().members[0].since;
    played.now = Time::ZERO + Duration::from_millis(70);
    assert_eq!(since(&played), Duration::from_millis(70));
    for worker in 0..3 {
        let reduced = Reduced { version: Version(1), part: None, done: None };
        played.give(Input::Message(PeerId(worker), Message::Reduced(reduced)));
    }
    assert_eq!((played.status().version, since(&played)), (Version(1), Duration::ZERO));
}

#[test]
fn a_worker_that_is_refused_has_not_left() {
    let toy = peers(Architecture::Ring, 3, 24);
    let mut played = Played::training(&toy);
    let description = Message::Description(String::new());
    played.give(Input::Message(PeerId(2), description));
    let member = &played.status().members[2];
    assert_eq!(member.state, MemberState::Refused);
    assert!(member.why_left.as_ref().unwrap().contains("Description"), "{member:?}");
}

#[test]
fn a_run_whose_members_with_the_parameters_are_lost_ends_for_that_and_not_for_too_few() {
    let mut toy = peers(Architecture::Ring, 3, 24);
    toy.job.membership.min_workers = Some(2);
    for (gone, parameters_lost) in [([0, 1], true), ([0, 2], false)] {
        let mut played = Played::new(&toy);
        (0..2).for_each(|it| played.join(&toy, it, it, &format!("worker {it}")));
        for worker in 0..2 {
            let reduced = Reduced { version: Version(1), part: None, done: None };
            played.give(Input::Message(PeerId(worker), Message::Reduced(reduced)));
        }
        // It has no parameters before the next group forms.
        played.join(&toy, 2, 2, "worker 2");
        let mut reason = None;
        for worker in gone {
            let wrong = Message::Description(String::new());
            let out = played.give(Input::Message(PeerId(worker), wrong));
            reason = out.into_iter().find_map(|effect| match effect {
                Effect::Report(Event::Ended { reason }) => Some(reason),
                _ => None,
            });
        }
        let expected = match parameters_lost {
            true => EndReason::ParametersLost(Version(1)),
            false => EndReason::TooFewWorkers { present: 1, needed: 2 },
        };
        assert_eq!(reason, Some(expected));
    }
}

/// All members halt their group: the third does not reach the second, if it says why.
fn halt(played: &mut Played, generation: u64, complaints: &[(u64, u64, Connection, &str)]) {
    for worker in [2, 0, 1] {
        let own = complaints.iter().filter(|(by, ..)| *by == worker);
        let complaints = own.map(|(_, about, connection, why)| Complaint {
            about: WorkerId(*about as u32),
            connection: *connection,
            why: (*why).into(),
        });
        let complaints = complaints.collect();
        let version = played.status().version;
        let halted = Halted { generation, version, complaints, awaits: None };
        played.give(Input::Message(PeerId(worker), Message::Halted(halted)));
    }
    played.give(Input::Wake);
}

fn relayed(status: &Status) -> Vec<Vec<u32>> {
    let of = |member: &MemberStatus| member.relayed.iter().map(|it| it.0).collect();
    status.members.iter().map(of).collect()
}

#[test]
fn a_member_that_another_does_not_reach_is_named_with_the_route_that_their_messages_take() {
    use Connection::{Incoming, Outgoing};
    let toy = peers(Architecture::Ring, 3, 24);
    let lease = toy.job.membership.lease;
    let mut played = Played::training(&toy);
    let pass = |played: &mut Played, leases: u32| {
        played.now = Time::ZERO + lease * leases;
        (0..3).for_each(|worker| played.hear(worker));
    };
    pass(&mut played, 1);
    halt(&mut played, 1, &[(2, 1, Outgoing, "timed\u{1b} out"), (0, 2, Incoming, "absent")]);
    pass(&mut played, 2);
    let status = played.status();
    assert_eq!(status.wait, None);
    let (unreached, since) = status.members[2].unreached.clone().unwrap();
    assert_eq!((unreached.node, since), (Endpoint::Worker(WorkerId(1)), lease));
    assert_eq!((&*unreached.address, &*unreached.why), ("worker 1", "timed  out"));
    assert!(status.members[..2].iter().all(|member| member.unreached.is_none()));
    // The second dials the third.
    let none = [const { Vec::<u32>::new() }; 3];
    assert_eq!(relayed(&status), none);
    halt(&mut played, 2, &[(2, 1, Incoming, "it has not connected")]);
    let status = played.status();
    assert_eq!(relayed(&status), [vec![], vec![2], vec![1]]);
    // A worker that begins another membership may have another address.
    played.give(Input::Disconnected { peer: PeerId(2), why: String::new() });
    pass(&mut played, 3);
    halt(&mut played, 3, &[]);
    played.join(&toy, 2, 9, "elsewhere");
    let status = played.status();
    assert_eq!((relayed(&status), &status.members[2].unreached), (none.to_vec(), &None));
}

#[test]
fn messages_of_workers_that_listen_nowhere_are_relayed_to_each_other_alone() {
    let toy = peers(Architecture::Ring, 3, 24);
    let mut played = Played::new(&toy);
    (0..3).for_each(|worker| played.join(&toy, worker, worker, ["", "", "there"][worker as usize]));
    assert_eq!(relayed(&played.status()), [vec![1], vec![0], vec![]]);
    let message = |generation, other| {
        let header = PieceHeader { version: Version(0), piece: 0, answers: false };
        let message = MemberMessage::Piece(Piece { header, values: [1.0].to_vec().into() });
        Message::Relayed(Relayed { generation, other: WorkerId(other), message })
    };
    let sent = played.give(Input::Message(PeerId(0), message(1, 1)));
    let [Effect::Report(told), Effect::Send(PeerId(1), passed)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(*told, Event::Relayed { worker: WorkerId(0), bytes: 4 });
    assert_eq!(*passed, message(1, 0));
    assert!(played.give(Input::Message(PeerId(0), message(0, 1))).is_empty(), "of no group");
    let refused = played.give(Input::Message(PeerId(0), message(1, 2)));
    let is_refusal = |it: &Effect| matches!(it, Effect::Send(PeerId(0), Message::Refused(_)));
    assert!(refused.iter().any(is_refusal), "they reach each other: {refused:?}");
}
