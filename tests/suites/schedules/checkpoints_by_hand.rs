//! Groups of servers with checkpoints only, driven by hand: which server is admitted, sent back or
//! refused, and when a checkpoint is complete.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::time::Duration;

use pstrain_compute::id::{CheckpointId, Incarnation, PeerId, ServerId, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Durable as _, Effect, Event, Input, Node, NodeError, Outbox, Server, Shard, ShardConfig,
};
use pstrain_tests::Toy;
use pstrain_wire::checkpoint::{MOST_CHECKPOINTS, OnDisk, Written};
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{Decisions, Enlist, Enlisted, Place};
use pstrain_wire::identity::Identity;
use pstrain_wire::range::PullRange;
use pstrain_wire::worker::{EndReason, Heartbeat};
use pstrain_wire::{BUILD, Message, PROTOCOL_VERSION, Refusal, job_digest};

use super::by_hand::{Hand, RUN, resume, sent};

const OTHER: ServerId = ServerId(1);

/// Coordinator of two servers that take checkpoints.
fn coordinator() -> Hand<Server> {
    let mut job = Toy::new(1, 8).job;
    job.servers = 2;
    Hand::new(Server::new(job, RUN).unwrap().with_checkpoints())
}

/// The other server connects, with these contents of its disk.
fn comes(
    server: &mut Hand<Server>,
    peer: u64,
    followed: Option<(u64, u64)>,
    on_disk: Option<OnDisk>,
) -> Outbox {
    let place = Place::First { server: OTHER, servers: 2 };
    let (build, address) = (BUILD.into(), "there".into());
    server.give(Input::Connected(PeerId(peer), Identity::Anyone));
    let (protocol, standby) = (PROTOCOL_VERSION, None);
    let enlist = Enlist { protocol, build, place, address, standby, followed, on_disk };
    server.tell(PeerId(peer), Message::Enlist(enlist))
}

fn goes(server: &mut Hand<Server>, peer: u64) {
    server.give(Input::Disconnected { peer: PeerId(peer), why: "gone".into() });
}

fn new() -> Option<OnDisk> {
    Some(OnDisk::default())
}

/// Disk contents of a server that wrote these checkpoints of this run; `is_there`: its state is the
/// last of them.
fn with(numbers: &[u64], is_there: bool) -> Option<OnDisk> {
    let id = |&number: &u64| CheckpointId { run: RUN, number };
    let checkpoints: Vec<_> = numbers.iter().map(id).collect();
    let at = checkpoints.last().copied().filter(|_| is_there);
    Some(OnDisk { origin: Some(RUN), checkpoints, at })
}

/// Returns the number of the checkpoint that is taken.
fn taken(out: &Outbox) -> Option<u64> {
    out.iter().find_map(|effect| match effect {
        Effect::Checkpoint(checkpoint) => Some(checkpoint.number),
        _ => None,
    })
}

fn writes(out: &Outbox) -> bool {
    out.iter().any(|effect| matches!(effect, Effect::Write))
}

/// Returns the checkpoint to which the server goes back, if that is its last effect.
fn goes_back(out: &Outbox) -> Option<u64> {
    match out.last() {
        Some(Effect::Done(Err(NodeError::GoesBack(to)))) => Some(to.number),
        _ => None,
    }
}

fn sends_back(out: &Outbox) -> Option<u64> {
    sent(out).into_iter().find_map(|message| match message {
        Message::GoBack(back) => Some(back.checkpoint.number),
        _ => None,
    })
}

fn takes_in(out: &Outbox) -> bool {
    sent(out).iter().any(|message| matches!(message, Message::Enlisted(_)))
}

fn refusal(out: &Outbox) -> Option<Refusal> {
    sent(out).into_iter().find_map(|message| match message {
        Message::Refused(why) => Some(why.clone()),
        _ => None,
    })
}

fn words(out: &Outbox) -> String {
    refusal(out).map(|why| why.to_string()).unwrap_or_default()
}

/// Coordinator with an admitted server and so many completed checkpoints.
fn after(checkpoints: u64) -> Hand<Server> {
    let mut server = coordinator();
    assert!(takes_in(&comes(&mut server, 1, None, new())));
    for number in 1..=checkpoints {
        assert_eq!(taken(&server.give(Input::Checkpoint(number))), Some(number));
        assert!(writes(&server.tell(PeerId(1), Message::Written(Written { number }))));
        server.give(Input::Written(number));
    }
    server
}

#[test]
fn checkpoints_are_taken_one_at_a_time_and_the_coordinator_writes_last() {
    let mut server = after(1);
    let out = server.give(Input::Checkpoint(2));
    assert_eq!((taken(&out), writes(&out)), (Some(2), false), "the other has not written its own");
    let decided = sent(&out).into_iter().any(|message| match message {
        Message::Decisions(some) => {
            some.decisions.contains(&Decision::Checkpoint { number: 2, oldest: 0 })
        }
        _ => false,
    });
    assert!(decided, "{out:?}");
    assert_eq!(taken(&server.give(Input::Checkpoint(3))), None, "one is under way");
    let told = |server: &mut Hand<Server>, number| {
        writes(&server.tell(PeerId(1), Message::Written(Written { number })))
    };
    assert!(!told(&mut server, 1), "that is the one before");
    assert!(told(&mut server, 2));
    assert!(!told(&mut server, 2), "it was told twice");
    assert_eq!(taken(&server.give(Input::Checkpoint(3))), None, "it is not on the disk yet");
    server.give(Input::Written(2));
    assert_eq!(taken(&server.give(Input::Checkpoint(2))), None, "there is one with that number");
    assert_eq!(taken(&server.give(Input::Checkpoint(3))), Some(3));
}

#[test]
fn a_server_that_lost_its_state_sends_all_back_unless_its_old_connection_lives() {
    for (checkpoints, has) in [(0, new()), (2, with(&[1, 2], false))] {
        let mut server = after(checkpoints);
        let out = comes(&mut server, 2, None, has.clone());
        assert_eq!(refusal(&out), Some(Refusal::ServerTaken { server: OTHER }));
        assert!(words(&out).contains("server 2 is there already"), "{}", words(&out));
        goes(&mut server, 1);
        let out = comes(&mut server, 3, None, has);
        assert_eq!(goes_back(&out), Some(checkpoints), "{out:?}");
        assert_eq!(server.node.deadline(), None, "it wants nothing more");
    }
    // A server that was cut off has lost nothing.
    let mut server = after(2);
    goes(&mut server, 1);
    assert!(takes_in(&comes(&mut server, 2, Some((RUN, 2)), with(&[1, 2], false))));
    // A server that did not receive its admission has lost nothing either.
    let mut server = after(2);
    server.node.begin_lineage(RUN + 1, RUN, 2);
    goes(&mut server, 1);
    for peer in 2..5 {
        let out = comes(&mut server, peer, Some((RUN, 2)), with(&[1, 2], true));
        assert!(takes_in(&out), "{out:?}");
    }
}

#[test]
fn a_server_past_the_checkpoint_is_sent_back_before_its_admission() {
    let mut server = after(2);
    server.node.begin_lineage(RUN + 1, RUN, 2);
    goes(&mut server, 1);
    // One server has progressed past the checkpoint; the other was restarted without loading it.
    for (peer, followed) in [(2, Some((RUN, 7))), (3, None)] {
        let out = comes(&mut server, peer, followed, with(&[1, 2], false));
        assert_eq!(sends_back(&out), Some(2), "{out:?}");
    }
    assert!(takes_in(&comes(&mut server, 4, Some((RUN, 2)), with(&[1, 2], true))));

    let mut server = coordinator();
    server.node.begin_lineage(RUN + 1, RUN, 0);
    assert_eq!(sends_back(&comes(&mut server, 1, Some((RUN, 7)), with(&[1], false))), Some(0));
    assert!(takes_in(&comes(&mut server, 2, None, with(&[1], false))));
}

#[test]
fn a_server_without_the_checkpoint_or_of_another_run_is_refused_harmlessly() {
    let mut server = after(2);
    goes(&mut server, 1);
    let of_another = OnDisk { origin: Some(RUN + 9), ..OnDisk::default() };
    let taken_anew = OnDisk {
        checkpoints: vec![CheckpointId { run: RUN + 1, number: 2 }],
        origin: Some(RUN),
        at: None,
    };
    for (peer, has, why) in [
        (2, new(), "which it does not have"),
        (3, with(&[1], false), "which it does not have"),
        (4, Some(taken_anew), "which it does not have"),
        (5, Some(of_another), "another run"),
        (6, None, "server 1 takes checkpoints, and so must all others"),
    ] {
        let out = comes(&mut server, peer, None, has);
        assert!(words(&out).contains(why), "{out:?}");
        assert!(refusal(&out).is_some_and(|why| why.is_permanent()) && goes_back(&out).is_none());
    }
    assert!(takes_in(&comes(&mut server, 9, Some((RUN, 2)), with(&[1, 2], false))));

    let mut job = Toy::new(1, 8).job;
    job.servers = 2;
    let mut plain = Hand::new(Server::new(job, RUN).unwrap());
    let out = comes(&mut plain, 1, None, new());
    assert!(words(&out).contains("it takes checkpoints, but server 1 does not"), "{out:?}");
    let out = comes(&mut plain, 2, Some((RUN + 1, 0)), None);
    assert!(words(&out).contains("another run"), "{out:?}");
}

fn says_end(out: &Outbox) -> bool {
    sent(out).iter().any(|message| matches!(message, Message::End(_)))
}

#[test]
fn the_state_before_a_stop_is_on_disk_before_workers_are_notified_if_the_disk_has_space() {
    let stopped = || {
        let mut server =
            Hand::new(Server::new(Toy::new(1, 8).job, RUN).unwrap().with_checkpoints());
        server.greet(PeerId(1), None);
        let out = server.give(Input::Drain);
        assert!(taken(&out).is_some() && writes(&out) && !says_end(&out), "{out:?}");
        let saved = out.iter().find_map(|effect| match effect {
            Effect::Checkpoint(checkpoint) => Some(checkpoint.saved.clone()),
            _ => None,
        });
        (server, taken(&out).unwrap(), saved.unwrap())
    };
    let (mut server, number, saved) = stopped();
    assert!(!says_end(&server.give(Input::Wake)));
    assert!(says_end(&server.give(Input::Written(number))));
    assert!(!server.node.is_over());
    // A server restored from this checkpoint goes on.
    let mut again = Hand::new(Server::restore(Toy::new(1, 8).job, &saved).unwrap());
    again.node.begin_lineage(RUN + 1, RUN, number);
    again.give(Input::Disconnected { peer: PeerId(1), why: "it began anew".into() });
    let out = again.greet(PeerId(2), Some(resume(WorkerId(0))));
    assert!(!says_end(&out) && again.node.ended().is_none(), "{out:?}");

    let (mut server, ..) = stopped();
    server.now = server.now + server.node.job().membership.lease / 2;
    let heartbeat = Heartbeat::of(Some(Incarnation(1)));
    server.tell(PeerId(1), Message::Heartbeat(heartbeat));
    server.now = server.node.deadline().unwrap();
    let out = server.give(Input::Wake);
    assert!(says_end(&out), "{out:?}");
    assert!(matches!(out.last(), Some(Effect::Done(Ok(EndReason::Stopped)))), "{out:?}");
}

#[test]
fn a_server_that_goes_back_while_the_run_ends_forgets_the_end() {
    let mut server = after(2);
    server.give(Input::Checkpoint(3));
    goes(&mut server, 1);
    // A client requests parameters of the other server, which is absent.
    server.give(Input::Connected(PeerId(5), Identity::Anyone));
    let pull = PullRange { protocol_max: PROTOCOL_VERSION, keys: None, values: true };
    server.tell(PeerId(5), Message::PullRange(pull));
    server.give(Input::Drain);
    let out = comes(&mut server, 2, None, with(&[1, 2], false));
    assert_eq!(goes_back(&out), Some(2), "{out:?}");
    assert!(!server.node.is_over());
}

#[test]
fn a_run_that_never_began_reports_the_missing_server_and_may_resume_with_it() {
    let patience = Toy::new(1, 8).job.membership.start_patience();
    for (is_away, reason) in [
        (true, EndReason::ServerLost(OTHER)),
        (false, EndReason::TooFewWorkers { present: 0, needed: 1 }),
    ] {
        let mut server = after(1);
        server.now = Time::ZERO + (patience - Duration::from_millis(2));
        if is_away {
            goes(&mut server, 1);
        } else {
            server.tell(PeerId(1), Message::Heartbeat(Heartbeat::default()));
        }
        let left = server.node.status(server.now).wait.unwrap().left;
        assert_eq!(left, Some(Duration::from_millis(2)), "{reason}");
        let ended = |out: &Outbox| {
            out.iter().find_map(|effect| match effect {
                Effect::Report(Event::Ended { reason }) => Some(*reason),
                _ => None,
            })
        };
        assert_eq!(ended(&server.give(Input::Wake)), None, "it was not patient");
        let out = server.give(Input::Wake);
        assert_eq!(ended(&out), Some(reason));
        // A stored end is final, so it is not stored while a server is missing.
        assert_eq!(taken(&out).is_some(), !is_away, "{out:?}");
    }
}

#[test]
fn a_shard_whose_coordinator_never_drops_a_checkpoint_keeps_as_many_as_it_may_announce() {
    let mut job = Toy::new(1, 8).job;
    job.servers = 2;
    let config = ShardConfig {
        place: Place::First { server: OTHER, servers: 2 },
        address: "here".into(),
        lease: job.membership.lease,
        stream: Stream::new(1),
    };
    let mut shard = Hand::new(Shard::new(config).with_checkpoints(OnDisk::default()));
    let coordinator = PeerId(1);
    shard.give(Input::Dialled(coordinator, Identity::Anyone));
    let (digest, origin) = (job_digest(&job), Some(RUN));
    let enlisted = Enlisted { run: RUN, server: OTHER, job, digest, standby: None, origin };
    shard.tell(coordinator, Message::Enlisted(Box::new(enlisted)));
    for number in 1..=40 {
        let decisions = vec![Decision::Checkpoint { number, oldest: 0 }];
        let decisions = Decisions { first: number - 1, decisions };
        let out = shard.tell(coordinator, Message::Decisions(decisions));
        let oldest = out.iter().find_map(|effect| match effect {
            Effect::Checkpoint(checkpoint) => checkpoint.oldest,
            _ => None,
        });
        // The files of dropped checkpoints go, too.
        assert_eq!(oldest, Some((number + 1).saturating_sub(MOST_CHECKPOINTS as u64)));
        shard.give(Input::Written(number));
        let kept = &shard.node.on_disk().unwrap().checkpoints;
        assert_eq!(kept.len() as u64, number.min(MOST_CHECKPOINTS as u64));
        assert_eq!(kept.last().unwrap().number, number);
    }
}
