//! Workers that dial, driven by hand: the limits before the welcome is handled, and strangers.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

use std::time::Duration;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_policy::architecture::Architecture;
use pstrain_roles::node::{
    Effect, Input, Meeting, Node, NodeError, Outbox, Peer, PeerConfig, Server, Target, Worker,
    WorkerConfig,
};
use pstrain_tests::Toy;
use pstrain_wire::identity::Identity;
use pstrain_wire::{FrameError, Limits};

use super::by_hand::{Hand, RUN, sent};

const LEASE: Duration = Duration::from_secs(5);

/// The limits of the first connection of `worker` to `server` before its welcome, and of the next.
fn limits(server: impl Node, worker: impl Node) -> [Limits; 2] {
    let (mut server, mut worker) = (Hand::new(server), Hand::new(worker));

    let limit_at = |worker: &mut Hand<_>, peer| {
        let out = worker.give(Input::Dialled(peer, Identity::Anyone));
        let limit = out.iter().rev().find_map(|effect| match effect {
            Effect::Limit(of, limits) if *of == peer => Some(*limits),
            _ => None,
        });
        (limit.expect("limits of the connection"), sent(&out)[0].clone())
    };
    let (first, hello) = limit_at(&mut worker, PeerId(1));
    server.give(Input::Connected(PeerId(1), Identity::Anyone));
    let welcomed = server.tell(PeerId(1), hello);
    worker.tell(PeerId(1), sent(&welcomed)[0].clone());
    worker.give(Input::Disconnected { peer: PeerId(1), why: "gone".into() });
    let (again, _) = limit_at(&mut worker, PeerId(2));
    [first, again]
}

/// A server may send parameters, and a meeting point a state, in one piece with the welcome.
#[test]
fn a_worker_that_dials_again_takes_what_may_follow_its_welcome() {
    let toy = Toy::new(1, 40);
    let parameters = toy.job.build_model().expect("a valid model").parameters();
    let worker = Worker::new(WorkerConfig {
        name: "worker".into(),
        worker: Some(WorkerId(0)),
        wants_examples: false,
        lease: LEASE,
        stream: Stream::new(1),
    });
    let server = Server::new(toy.job, RUN).expect("a valid job");
    assert_eq!(limits(server, worker), [Limits::DIALER, Limits::of_server(parameters)]);

    let mut toy = Toy::new(1, 40);
    toy.job.architecture = Architecture::Ring;
    let peer = Peer::new(peer_config());
    let meeting = Meeting::new(toy.job, RUN).expect("a valid job");
    assert_eq!(limits(meeting, peer), [Limits::DIALER, Limits::of_meeting(parameters)]);
}

fn peer_config() -> PeerConfig {
    PeerConfig {
        name: "peer".into(),
        worker: Some(WorkerId(0)),
        address: "here".into(),
        lease: LEASE,
        stream: Stream::new(1),
    }
}

/// Before it is a member, a worker takes foreign bytes of the address that it has dialled for
/// damage at first, and for another program if each dial ends with the same; it never minds those
/// of strangers.
#[test]
fn foreign_bytes_end_a_waiting_worker_only_if_it_has_dialled_their_sender() {
    const ATTEMPTS: u32 = 5;
    let foreign = FrameError::Magic(*b"GET ");
    let is_done = |out: &Outbox| out.iter().any(|effect| matches!(effect, Effect::Done(_)));
    let closes = |out: &Outbox, peer: PeerId| {
        out.iter().any(|effect| matches!(effect, Effect::Close(of) if *of == peer))
    };
    let mut peer = Hand::new(Peer::new(peer_config()));
    let mut strangers = (100..).map(PeerId);
    for attempt in 1..=ATTEMPTS {
        // So many would end it if they were of the address that it dials.
        for stranger in strangers.by_ref().take(10) {
            peer.give(Input::Connected(stranger, Identity::Anyone));
            let out = peer.give(Input::Garbage(stranger, foreign));
            assert!(closes(&out, stranger) && !is_done(&out), "{attempt}: {out:?}");
        }
        let dialled = PeerId(attempt.into());
        peer.give(Input::Dialled(dialled, Identity::Anyone));
        let out = peer.give(Input::Garbage(dialled, foreign));
        assert!(closes(&out, dialled), "{attempt}: {out:?}");
        if attempt < ATTEMPTS {
            assert!(!is_done(&out), "{attempt}: {out:?}");
            peer.now = peer.now + LEASE; // longer than any pause
            let out = peer.give(Input::Wake);
            let dials = out.iter().any(|effect| matches!(effect, Effect::Dial(Target::Server)));
            assert!(dials, "{attempt}: {out:?}");
            continue;
        }
        let ended = out.iter().find_map(|effect| match effect {
            Effect::Done(ended) => Some(ended.clone()),
            _ => None,
        });
        let why = foreign.to_string();
        assert_eq!(ended, Some(Err(NodeError::Mismatch { times: ATTEMPTS, why })));
    }
}
