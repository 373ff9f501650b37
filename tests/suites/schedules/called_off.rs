//! A gradient in flight that a new version calls off, driven by hand.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::Arc;

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{Effect, Event, Outbox, Server};
use pstrain_tests::Toy;
use pstrain_wire::worker::{ParametersHeader, Pull, Push, PushHeader, Ready};
use pstrain_wire::{Message, Refusal};

use super::by_hand::{Hand, RUN};

const FIRST: PeerId = PeerId(1);
const SECOND: PeerId = PeerId(2);

/// Returns the headers of the parameters that were sent to a peer.
fn given(out: &Outbox, to: PeerId) -> Vec<ParametersHeader> {
    let all = out.iter().filter_map(|effect| match effect {
        Effect::Send(peer, Message::Parameters(given)) if *peer == to => Some(given.header),
        _ => None,
    });
    all.collect()
}

fn push(header: &ParametersHeader) -> Push {
    let answering = PushHeader::answering(header, Incarnation(1));
    let values = vec![1.0; header.keys.len() as usize];
    Push::new(PushHeader { samples: 4, loss: 1.0, ..answering }, Arc::new(values))
}

/// A server under k-batch-sync with one gradient per update, after the first worker's update, while
/// the second worker still computes on version 0. Returns the server, the second worker's late
/// push, and the header of the parameters that call it off.
fn after_an_update() -> (Hand<Server>, Push, ParametersHeader) {
    let mut job = Toy::new(2, 8).job;
    job.mode = Mode::of(ConsistencySpec::KBatchSync { gradients: 1 });
    let mut server = Hand::new(Server::new(job, RUN).unwrap());
    let keys = KeyRange::new(0, server.node.parameters().len() as u64).unwrap();
    let mut outs = Vec::new();
    for (peer, part) in [(FIRST, 0), (SECOND, 1)] {
        server.greet(peer, None);
        let ready = Ready { rows: [(PartId(part), 4)].into(), train: None };
        outs.push(server.tell(peer, Message::Ready(ready)));
        let pull = Pull { incarnation: Incarnation(1), keys, allowed: Sequence(0) };
        outs.push(server.tell(peer, Message::Pull(pull)));
    }
    let first_given = |peer| outs.iter().flat_map(|out| given(out, peer)).next().unwrap();
    let late = push(&first_given(SECOND));
    let out = server.tell(FIRST, Message::Push(push(&first_given(FIRST))));
    assert_eq!(server.node.version(), Version(1), "{out:?}");
    let again = given(&out, SECOND);
    assert_eq!(again.len(), 1, "{out:?}");
    (server, late, again[0])
}

fn drops(out: &Outbox) -> usize {
    let late =
        Event::Dropped { worker: WorkerId(1), sequence: Sequence(1), reason: DropReason::Stale };
    out.iter().filter(|it| matches!(it, Effect::Report(event) if *event == late)).count()
}

#[test]
fn a_called_off_push_counts_once_when_it_arrives_and_its_substitute_is_applied() {
    let (mut server, late, again) = after_an_update();
    assert_eq!((late.header.sequence, again.sequence), (Sequence(1), Sequence(2)));
    assert_eq!((again.version, again.task), (Version(1), late.header.task));
    assert!(again.decided.unwrap().drops(Sequence(1)), "{again:?}");
    let before = server.node.ledger();
    let out = server.tell(SECOND, Message::Push(late.clone()));
    assert_eq!(drops(&out), 1, "{out:?}");
    // A repeated push changes nothing.
    assert_eq!(drops(&server.tell(SECOND, Message::Push(late))), 0);
    let after = server.node.ledger();
    assert_eq!(after.assigned, before.assigned + 1, "{after:?}");
    assert_eq!(after.discarded, before.discarded + 1, "{after:?}");
    assert_eq!(after.outstanding, before.outstanding, "{after:?}");
    server.tell(SECOND, Message::Push(push(&again)));
    assert_eq!((server.node.version(), server.node.ledger().applied), (Version(2), 2));
}

#[test]
fn a_called_off_push_is_still_validated() {
    type Change = fn(&mut PushHeader);
    let changes: [(Change, &str); 3] = [
        (|header| header.samples = 0, "push 1 counts 0 examples, but it can have 1 to "),
        (|header| header.samples = u32::MAX, "push 1 counts 4294967295 examples"),
        (|header| header.base = Version(1), "push 1 is for version 1, but was called off by"),
    ];
    for (change, says) in changes {
        let (mut server, mut late, _) = after_an_update();
        change(&mut late.header);
        let out = server.tell(SECOND, Message::Push(late));
        let refused = out.iter().find_map(|effect| match effect {
            Effect::Send(_, Message::Refused(Refusal::Unexpected { what })) => Some(what),
            _ => None,
        });
        assert!(refused.is_some_and(|what| what.starts_with(says)), "{says}: {out:?}");
        assert_eq!(drops(&out), 0, "{out:?}");
    }
}
