//! Workers of a run without a server are the workers that they say they are, as far as their
//! certificates go.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::time::Duration;

use pstrain_compute::id::{PartId, PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::architecture::Architecture;
use pstrain_roles::node::{
    Effect, Input, Meeting, Node, Outbox, Peer, PeerConfig, Prepared, Target,
};
use pstrain_tests::Toy;
use pstrain_wire::identity::Identity;
use pstrain_wire::peers::{Connection, Meet, Reachable};
use pstrain_wire::worker::{Hello, Ready};
use pstrain_wire::{Message, PROTOCOL_VERSION, Refusal};

use super::peers;

const NOW: Time = Time::ZERO;
/// The connection of the second worker to the meeting point, at either end.
const MEETING: PeerId = PeerId(100);
/// A connection between the second worker and another node.
const OTHER: PeerId = PeerId(101);

const fn worker(number: u32) -> Identity {
    Identity::Worker(Some(WorkerId(number - 1)))
}

/// The second worker of a run of two; the first is played by hand.
struct Played {
    toy: Toy,
    meeting: Meeting,
    peer: Peer,
}

impl Played {
    fn new() -> Self {
        let toy = peers(Architecture::Ring, 2, 24);
        let mut meeting = Meeting::new(toy.job.clone(), 1).unwrap();
        let first = PeerId(0);
        let train = Some(toy.job.data.train.clone());
        for input in [
            Input::Connected(first, worker(1)),
            Input::Message(first, Message::Hello(Hello::new("by hand", Some(WorkerId(0))))),
            Input::Message(first, Message::Reachable(Reachable { address: "first".into() })),
            Input::Message(first, Message::Ready(Ready { rows: [(PartId(0), 12)].into(), train })),
            Input::Connected(MEETING, worker(2)),
        ] {
            meeting.handle(NOW, input, &mut Outbox::new());
        }
        let peer = Peer::new(PeerConfig {
            name: "second".into(),
            worker: Some(WorkerId(1)),
            address: "second".into(),
            lease: Duration::from_secs(1),
            stream: Stream::new(1),
        });
        Self { toy, meeting, peer }
    }

    /// Lets the worker join the group. Returns the node that it dials then.
    fn joined(&mut self) -> Target {
        self.give(Input::Start);
        let out = self.give(Input::Dialled(MEETING, Identity::Server));
        let mut dials = out.into_iter().filter_map(|effect| match effect {
            Effect::Dial(target) => Some(target),
            _ => None,
        });
        dials.next().unwrap()
    }

    /// Gives the worker an input. Messages between it and the meeting point arrive at once; returns
    /// the other effects, and the messages to the meeting point as well.
    fn give(&mut self, input: Input) -> Outbox {
        let (mut inputs, mut left) = (vec![input], Outbox::new());
        while !inputs.is_empty() {
            let mut out = Outbox::new();
            self.peer.handle(NOW, inputs.remove(0), &mut out);
            for effect in out {
                match &effect {
                    Effect::Send(MEETING, message) => {
                        let mut answers = Outbox::new();
                        let message = Input::Message(MEETING, message.clone());
                        self.meeting.handle(NOW, message, &mut answers);
                        inputs.extend(answers.into_iter().filter_map(|answer| match answer {
                            Effect::Send(MEETING, message) => {
                                Some(Input::Message(MEETING, message))
                            }
                            _ => None,
                        }));
                    }
                    Effect::Prepare(_) => {
                        let train = Some(self.toy.job.data.train.clone());
                        let rows = vec![12];
                        let prepared = Prepared { rows, train, keys: None, initial: None };
                        inputs.push(Input::Prepared(Ok(prepared)));
                    }
                    _ => {}
                }
                left.push(effect);
            }
        }
        left
    }
}

#[test]
fn a_worker_dials_workers_as_workers_and_tells_when_the_certificate_is_of_another_node() {
    for is in [worker(2), worker(3), Identity::Server, Identity::Client] {
        let mut played = Played::new();
        assert_eq!(played.joined(), Target::Worker("first".into()));
        let out = played.give(Input::Dialled(OTHER, is));
        assert!(!out.iter().any(|it| matches!(it, Effect::Send(OTHER, _))), "{is}: {out:?}");
        assert!(out.iter().any(|it| matches!(it, Effect::Close(OTHER))), "{is}: {out:?}");
        let complaint = out.iter().find_map(|effect| match effect {
            Effect::Send(MEETING, Message::Halted(halted)) => halted.complaints.first().cloned(),
            _ => None,
        });
        let complaint = complaint.unwrap();
        assert_eq!((complaint.about, complaint.connection), (WorkerId(0), Connection::Outgoing));
        assert_eq!(complaint.why, format!("{is} answers at its address"));
    }
    for is in [worker(1), Identity::Worker(None), Identity::Anyone] {
        let mut played = Played::new();
        played.joined();
        let out = played.give(Input::Dialled(OTHER, is));
        let met = |it: &Effect| matches!(it, Effect::Send(OTHER, Message::Meet(_)));
        assert!(out.iter().any(met), "{is}: {out:?}");
    }
}

#[test]
fn a_worker_refuses_one_that_introduces_itself_as_another_by_name() {
    let meet = |worker| {
        let (run, to) = (1, WorkerId(1));
        Message::Meet(Meet { protocol: PROTOCOL_VERSION, run, generation: 2, worker, to })
    };
    for (is, says) in
        [(worker(1), WorkerId(2)), (Identity::Server, WorkerId(0)), (Identity::Client, WorkerId(0))]
    {
        let mut played = Played::new();
        played.joined();
        played.give(Input::Connected(OTHER, is));
        let out = played.give(Input::Message(OTHER, meet(says)));
        let what = format!("{is} says that it is worker {says}");
        let refused = Message::Refused(Refusal::Unexpected { what });
        let sent = |it: &Effect| matches!(it, Effect::Send(OTHER, it) if *it == refused);
        assert!(out.iter().any(sent), "{out:?}");
        assert!(out.iter().any(|it| matches!(it, Effect::Close(OTHER))), "{out:?}");
    }
    for is in [worker(1), Identity::Worker(None)] {
        let mut played = Played::new();
        played.joined();
        played.give(Input::Connected(OTHER, is));
        let out = played.give(Input::Message(OTHER, meet(WorkerId(0))));
        assert!(!out.iter().any(|it| matches!(it, Effect::Close(OTHER))), "{is}: {out:?}");
    }
}
