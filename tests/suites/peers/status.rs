//! The status that a meeting point gives of workers without a server.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::time::Duration;

use pstrain_compute::id::{PartId, PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_roles::node::{Input, Meeting, Node, Outbox};
use pstrain_tests::Toy;
use pstrain_wire::identity::Identity;
use pstrain_wire::peers::{Complaint, Connection, Halted, Reachable, Reduced};
use pstrain_wire::worker::{Heartbeat, Hello, Ready};
use pstrain_wire::{Endpoint, MemberState, Message, Status, WaitReason};

use super::peers;

/// A meeting point whose workers are played by hand.
struct Played {
    meeting: Meeting,
    now: Time,
}

impl Played {
    /// A run of three workers that train.
    fn training(toy: &Toy) -> Self {
        let meeting = Meeting::new(toy.job.clone(), 1).unwrap();
        let mut played = Self { meeting, now: Time::ZERO };
        for worker in 0..3 {
            let peer = PeerId(worker);
            played.give(Input::Connected(peer, Identity::Anyone));
            let hello = Hello::new("by hand", Some(WorkerId(worker as u32)));
            let train = Some(toy.job.data.train.clone());
            let rows = [(PartId(worker as u32), 8)].into();
            for message in [
                Message::Hello(hello),
                Message::Reachable(Reachable { address: format!("worker {worker}") }),
                Message::Ready(Ready { rows, train }),
            ] {
                played.give(Input::Message(peer, message));
            }
        }
        played
    }

    fn give(&mut self, input: Input) {
        self.meeting.handle(self.now, input, &mut Outbox::new());
    }

    fn hear(&mut self, worker: u64) {
        let beat = Message::Heartbeat(Heartbeat { incarnation: None });
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
        let reduced = Reduced { version: Version(1), part: None };
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

/// All members halt their group: the third does not reach the second.
fn halt(played: &mut Played, generation: u64, why: &str) {
    for worker in [2, 0, 1] {
        let (about, connection) = (WorkerId(1), Connection::Outgoing);
        let why = (worker == 2).then(|| Complaint { about, connection, why: why.into() });
        let version = played.status().version;
        let halted = Halted { generation, version, why, awaits: None };
        played.give(Input::Message(PeerId(worker), Message::Halted(halted)));
    }
}

#[test]
fn a_member_that_another_does_not_reach_is_named_while_they_try() {
    let toy = peers(Architecture::Ring, 3, 24);
    let lease = toy.job.membership.lease;
    let patience = toy.job.membership.patience();
    let mut played = Played::training(&toy);
    for (generation, why) in (1..=3).zip(["refused", "refused", "timed\u{1b} out"]) {
        assert_eq!(
            played.status().wait.map(|wait| wait.reason),
            match generation {
                1 => None,
                _ => Some(WaitReason::Unreached(Endpoint::Worker(WorkerId(1)))),
            }
        );
        played.now = Time::ZERO + lease * generation as u32;
        (0..3).for_each(|worker| played.hear(worker));
        halt(&mut played, generation, why);
        played.give(Input::Wake);
    }
    let status = played.status();
    let wait = status.wait.unwrap();
    assert_eq!((wait.workers, wait.waited), (vec![WorkerId(2)], lease * 3));
    // They have made no update since the second group was formed.
    assert_eq!(wait.left, Some(patience - lease * 2));
    let (unreached, since) = status.members[2].unreached.clone().unwrap();
    assert_eq!((unreached.node, since), (Endpoint::Worker(WorkerId(1)), lease * 3));
    assert_eq!((&*unreached.address, &*unreached.why), ("worker 1", "timed  out"));
    assert!(status.members[..2].iter().all(|member| member.unreached.is_none()));
    for worker in 0..3 {
        let reduced = Reduced { version: Version(1), part: None };
        played.give(Input::Message(PeerId(worker), Message::Reduced(reduced)));
    }
    let status = played.status();
    assert_eq!((status.wait, status.version), (None, Version(1)));
    assert!(status.members.iter().all(|member| member.unreached.is_none()));
}
