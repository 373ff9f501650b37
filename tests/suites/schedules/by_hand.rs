//! Single nodes driven by hand through situations that random schedules never or rarely reach.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure here fails the test")]

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, ServerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{
    Compute, Computed, Departure, Effect, Evaluated, Event, Input, Node, NodeError, Outbox,
    Prepared, Server, Shard, ShardConfig, Worker, WorkerConfig, decode_input, encode_input,
};
use pstrain_tests::Toy;
use pstrain_wire::client::{Begun, Control};
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{
    Arrived, Attach, Decisions, Enlist, Enlisted, Exchanged, Place, Slice, SliceHeader, Traffic,
};
use pstrain_wire::identity::Identity;
use pstrain_wire::range::PullRange;
use pstrain_wire::worker::{
    Bye, EndReason, Heartbeat, Hello, Pull, Push, PushHeader, Ready, Resume, Welcome,
};
use pstrain_wire::{
    BUILD, MemberState, Message, PROTOCOL_VERSION, Refusal, WaitReason, job_digest,
};

pub(super) const RUN: u64 = 1;
/// Far more messages than a worker can have saved up.
const FLOOD: usize = 100_000;

/// Resume data of a worker's first incarnation that was not allowed any push yet.
pub(super) fn resume(worker: WorkerId) -> Resume {
    let (incarnation, nothing) = (Incarnation(1), Sequence(0));
    Resume { worker, incarnation, run: RUN, allowed: nothing, decided: nothing }
}

/// Hands inputs to a node, one millisecond apart.
pub(super) struct Hand<N> {
    pub(super) node: N,
    pub(super) now: Time,
}

impl<N: Node> Hand<N> {
    pub(super) fn new(node: N) -> Self {
        let mut hand = Self { node, now: Time::ZERO };
        hand.give(Input::Start);
        hand
    }

    pub(super) fn give(&mut self, input: Input) -> Outbox {
        self.now = self.now + Duration::from_millis(1);
        let mut out = Outbox::new();
        self.node.handle(self.now, input, &mut out);
        out
    }

    pub(super) fn tell(&mut self, peer: PeerId, message: Message) -> Outbox {
        self.give(Input::Message(peer, message))
    }
}

impl Hand<Server> {
    /// Admits a worker over a new connection.
    pub(super) fn greet(&mut self, peer: PeerId, resume: Option<Resume>) -> Outbox {
        self.give(Input::Connected(peer, Identity::Anyone));
        self.tell(
            peer,
            Message::Hello(Hello { resume, wants_examples: true, ..Hello::new("by hand", None) }),
        )
    }

    /// Admits a worker up to its first parameters; returns the push that answers them.
    pub(super) fn take_in(&mut self, peer: PeerId) -> Push {
        self.greet(peer, None);
        self.tell(peer, Message::Ready(Ready { rows: [(PartId(0), 8)].into(), train: None }));
        let keys = KeyRange::new(0, self.node.parameters().len() as u64).unwrap();
        let pull = Pull { incarnation: Incarnation(1), keys, allowed: Sequence(0) };
        let out = self.tell(peer, Message::Pull(pull));
        let header = out.iter().find_map(|effect| match effect {
            Effect::Send(_, Message::Parameters(parameters)) => Some(parameters.header),
            _ => None,
        });
        let header = header.expect("parameters");
        Push::new(
            PushHeader { samples: 8, loss: 1.0, ..PushHeader::answering(&header, Incarnation(1)) },
            Arc::new(vec![1.0; keys.len() as usize]),
        )
    }
}

pub(super) fn sent(out: &Outbox) -> Vec<&Message> {
    let sent = out.iter().filter_map(|effect| match effect {
        Effect::Send(_, message) => Some(message),
        _ => None,
    });
    sent.collect()
}

pub(super) fn server() -> Hand<Server> {
    Hand::new(Server::new(Toy::new(1, 8).job, RUN).unwrap())
}

#[test]
fn a_push_of_another_incarnation_is_refused() {
    let mut server = server();
    let mut push = server.take_in(PeerId(1));
    push.header.incarnation = Incarnation(0);
    let out = server.tell(PeerId(1), Message::Push(push));
    let refusal = Refusal::Fenced { incarnation: Incarnation(0) };
    let why = Some(refusal.to_string());
    assert_eq!(sent(&out), [&Message::Refused(refusal)]);
    let lost =
        Event::Departed { worker: WorkerId(0), how: Departure::Refused, lost: 1, why: why.clone() };
    assert!(out.iter().any(|effect| matches!(effect, Effect::Report(event) if *event == lost)));
    assert_eq!((server.node.ledger().lost, server.node.version().0), (1, 0));
    let member = &server.node.status(server.now).members[0];
    assert_eq!((member.state, &member.why_left), (MemberState::Refused, &why));
}

#[test]
fn workers_that_are_early_or_late_at_the_start_are_turned_away_without_a_report() {
    let mut toy = Toy::new(1, 8);
    toy.job.servers = 2;
    let mut server = Hand::new(Server::new(toy.job, RUN).unwrap());
    let missing = Refusal::ServersMissing { server: ServerId(1), servers: 2 };
    let early = server.greet(PeerId(1), None);
    server.give(Input::Connected(PeerId(2), Identity::Anyone));
    // It asks whether it may describe the model of its compute process.
    let late = server.tell(PeerId(2), Message::Heartbeat(Heartbeat::default()));
    assert_eq!(sent(&early), [&Message::Refused(missing)]);
    assert!(matches!(sent(&late)[..], [Message::Refused(Refusal::Unexpected { .. })]), "{late:?}");
    for (peer, out) in [(1, early), (2, late)] {
        assert!(!out.iter().any(|effect| matches!(effect, Effect::Report(_))), "{out:?}");
        assert!(matches!(out.last(), Some(Effect::Close(PeerId(it))) if *it == peer), "{out:?}");
    }
}

#[test]
fn a_worker_ahead_of_the_restored_state_proves_it_and_becomes_a_new_incarnation() {
    let known = |incarnation, allowed, decided| {
        let (incarnation, run) = (Incarnation(incarnation), RUN);
        let (allowed, decided) = (Sequence(allowed), Sequence(decided));
        Resume { worker: WorkerId(0), incarnation, run, allowed, decided }
    };
    // The restored state allowed the worker its first push and knows nothing later.
    for (was, is, shows) in [
        (known(1, 0, 0), 1, false),
        (known(1, 1, 0), 1, false),
        (known(1, 1, 1), 2, true),
        (known(1, 2, 0), 2, true),
        (known(3, 0, 0), 4, true),
        // An implausible incarnation number is ignored, so that the numbers do not run out.
        (known(u64::MAX, 0, 0), 2, false),
    ] {
        let mut server = server();
        server.take_in(PeerId(1));
        server.give(Input::Disconnected { peer: PeerId(1), why: "it was killed".into() });
        let out = server.greet(PeerId(2), Some(was));
        let told = sent(&out);
        let [Message::Welcome(welcome)] = &told[..] else { panic!("{was:?}: {told:?}") };
        let told = (welcome.resumed, welcome.incarnation);
        assert_eq!(told, (is == 1, Incarnation(is)), "{was:?}");
        let behind = Event::Behind { worker: WorkerId(0), incarnation: was.incarnation };
        let says = out.iter().any(|effect| matches!(effect, Effect::Report(it) if *it == behind));
        assert_eq!(says, shows, "{was:?}");
    }
}

#[test]
fn a_worker_that_floods_the_server_is_refused() {
    let mut server = server();
    let push = server.take_in(PeerId(1));
    let beat = || Message::Heartbeat(Heartbeat::of(Some(Incarnation(1))));
    let lease = Toy::new(1, 8).job.membership.lease;
    // An honest worker's heartbeats, for a long time.
    for _ in 0..1000 {
        server.now = server.now + lease / 10;
        assert!(!sent(&server.tell(PeerId(1), beat())).contains(&&refusal()));
    }
    // The heartbeats of some leases may have waited behind others in the queue of a slow link.
    let answers = (0..FLOOD).map(|_| {
        let out = server.tell(PeerId(1), beat());
        sent(&out).contains(&&refusal())
    });
    let refused = answers.take_while(|refused| !refused).count();
    assert!((1000..FLOOD).contains(&refused), "{refused}");
    assert_eq!(server.node.ledger().lost, 1);
    let out = server.tell(PeerId(1), Message::Push(push));
    assert_eq!(server.node.version().0, 0, "{out:?}");
}

/// The second of two servers, whose coordinator is at `coordinator`, of a job with one worker.
fn shard(coordinator: PeerId) -> Hand<Shard> {
    let mut job = Toy::new(1, 8).job;
    job.servers = 2;
    let (server, servers, lease) = (ServerId(1), 2, job.membership.lease);
    let config = ShardConfig {
        place: Place::First { server, servers },
        address: "here".into(),
        lease,
        stream: Stream::new(1),
    };
    let mut shard = Hand::new(Shard::new(config));
    shard.give(Input::Dialled(coordinator, Identity::Anyone));
    let digest = job_digest(&job);
    let enlisted = Enlisted { run: RUN, server, job, digest, standby: None, origin: None };
    shard.tell(coordinator, Message::Enlisted(Box::new(enlisted)));
    shard
}

#[test]
fn a_worker_that_floods_a_non_coordinating_server_is_refused() {
    let lease = Toy::new(1, 8).job.membership.lease;
    let (coordinator, worker) = (PeerId(1), PeerId(2));
    let mut shard = shard(coordinator);
    let decisions = vec![Decision::Admit { worker: WorkerId(0), incarnation: Incarnation(1) }];
    shard.tell(coordinator, Message::Decisions(Decisions { first: 0, decisions }));
    shard.give(Input::Connected(worker, Identity::Anyone));
    let attach = Attach {
        protocol: PROTOCOL_VERSION,
        run: RUN,
        worker: WorkerId(0),
        incarnation: Incarnation(1),
        map: 0,
    };
    let out = shard.tell(worker, Message::Attach(attach));
    assert!(matches!(sent(&out)[..], [Message::Attached(_)]), "{out:?}");
    let beat = || Message::Heartbeat(Heartbeat::of(Some(Incarnation(1))));
    for _ in 0..1000 {
        shard.now = shard.now + lease / 10;
        assert!(!sent(&shard.tell(worker, beat())).contains(&&refusal()));
    }
    let mut answers = (0..FLOOD).map(|_| sent(&shard.tell(worker, beat())).contains(&&refusal()));
    assert!(answers.any(|refused| refused), "it may flood as it likes");
}

/// The coordinator of two servers, with the second one at `other`.
fn coordinator(other: PeerId) -> Hand<Server> {
    let mut job = Toy::new(1, 8).job;
    job.servers = 2;
    let mut server = Hand::new(Server::new(job, RUN).unwrap());
    server.give(Input::Connected(other, Identity::Anyone));
    let enlist = Enlist {
        protocol: PROTOCOL_VERSION,
        build: BUILD.into(),
        place: Place::First { server: ServerId(1), servers: 2 },
        address: "there".into(),
        standby: None,
        followed: None,
        on_disk: None,
    };
    server.tell(other, Message::Enlist(enlist));
    server
}

#[test]
fn a_server_counts_the_traffic_of_the_workers_of_the_job() {
    let mut server = coordinator(PeerId(1));
    let exchanged = Exchanged { pushed: 5, unfiltered: u64::MAX, keyed: 0, given: 7 };
    let mut tell = |workers| server.tell(PeerId(1), Message::Traffic(Traffic { workers }));
    assert!(tell(vec![Exchanged::default()]).is_empty());
    assert!(tell(vec![exchanged]).is_empty());
    let out = tell(vec![exchanged; 2]);
    let what = "the traffic of 2 workers came from server 2, but the job has 1".to_owned();
    assert_eq!(sent(&out)[0], &Message::Refused(Refusal::Unexpected { what }));
    assert_eq!(server.node.trained().elsewhere, [exchanged], "the latest of each server");
}

#[test]
fn a_server_refuses_a_report_of_a_worker_that_the_job_does_not_have() {
    let mut server = coordinator(PeerId(1));
    let arrived = |worker| {
        let (incarnation, sequence, base) = (Incarnation(1), Sequence(1), Version(0));
        let (fault, squares) = (None, None);
        Message::Arrived(Arrived { worker, incarnation, sequence, base, fault, squares })
    };
    assert!(server.tell(PeerId(1), arrived(WorkerId(0))).is_empty());
    let out = server.tell(PeerId(1), arrived(WorkerId(1)));
    let what = "a push of worker 2 came to server 2, but the job has 1 workers".to_owned();
    assert_eq!(sent(&out)[0], &Message::Refused(Refusal::Unexpected { what }));
}

#[test]
fn a_shard_fails_at_a_decision_about_a_worker_that_the_job_does_not_have() {
    let decided = [
        Decision::Admit { worker: WorkerId(1), incarnation: Incarnation(1) },
        Decision::Forget { worker: WorkerId(1) },
        Decision::Give { worker: WorkerId(1), headers: Vec::new() },
        Decision::Drop { worker: WorkerId(1), sequence: Sequence(1) },
    ];
    for decision in decided {
        let mut shard = shard(PeerId(1));
        let decisions = Decisions { first: 0, decisions: vec![decision.clone()] };
        let out = shard.tell(PeerId(1), Message::Decisions(decisions));
        let what = "it decided on worker 2, which its job does not have";
        let fails = |effect: &Effect| match effect {
            Effect::Done(Err(NodeError::Protocol(why))) => why == what,
            _ => false,
        };
        assert!(out.iter().any(fails), "{decision:?}: {out:?}");
    }
}

#[test]
fn resent_values_from_before_a_rebalance_do_not_answer_a_pull() {
    let (other, client, id) = (PeerId(1), PeerId(2), ServerId(1));
    let mut server = coordinator(other);
    let its = server.node.key_map().keys_of(id).unwrap();
    let all = KeyRange::new(0, its.end()).unwrap();
    server.give(Input::Connected(client, Identity::Anyone));
    let pull = PullRange { protocol_max: PROTOCOL_VERSION, keys: Some(all), values: true };
    server.tell(client, Message::PullRange(pull));
    let slice = |keys: KeyRange| {
        let header = SliceHeader { version: Version(0), keys };
        Message::Slice(Slice { header, values: Arc::new(vec![1.0; keys.len() as usize]) })
    };
    // The server had one key more, or one less, when it first sent the values.
    for begin in [its.begin() - 1, its.begin() + 1] {
        let out = server.tell(other, slice(KeyRange::new(begin, its.end()).unwrap()));
        assert!(out.is_empty(), "{out:?}");
    }
    let out = server.tell(other, slice(its));
    let answer = sent(&out).into_iter().find_map(|message| match message {
        Message::RangeOf(answer) => answer.non_zeros(),
        _ => None,
    });
    let answer = answer.expect("the client is answered");
    let ones = answer.iter().filter(|(_, value)| value.to_bits() == 1.0_f32.to_bits());
    assert_eq!(ones.count() as u64, its.len(), "{answer:?}");
}

fn refusal() -> Message {
    Message::Refused(Refusal::Flooding)
}

#[test]
fn identities_limit_the_worker_slots_and_survive_the_log() {
    let hello = |worker, resume| {
        Message::Hello(Hello { resume, wants_examples: true, ..Hello::new("by hand", worker) })
    };
    let [first, second] = [WorkerId(0), WorkerId(1)];
    let mut server = Hand::new(Server::new(Toy::new(2, 8).job, RUN).unwrap());
    let mut next = 0;
    let mut try_as = |server: &mut Hand<Server>, identity, worker, resume| {
        next += 1;
        let peer = PeerId(next);
        // The identity passes through the log's encoding.
        let (mut bytes, input) = (Vec::new(), Input::Connected(peer, identity));
        encode_input(Time::ZERO, &input, &mut bytes).unwrap();
        let (_, again) = decode_input(&bytes).unwrap();
        assert!(matches!(again, Input::Connected(p, i) if p == peer && i == identity));
        server.give(again);
        let out = server.tell(peer, hello(worker, resume));
        match sent(&out)[..] {
            [Message::Welcome(welcome), ..] => Ok(welcome.worker),
            [Message::Refused(why), ..] => Err(why.clone()),
            ref other => panic!("{other:?}"),
        }
    };
    let own = |worker| Identity::Worker(Some(worker));
    let denied = |is, wanted| Err(Refusal::Identity { is, wanted: Identity::Worker(wanted) });
    assert_eq!(
        try_as(&mut server, own(second), Some(first), None),
        denied(own(second), Some(first))
    );
    assert_eq!(try_as(&mut server, Identity::Client, None, None), denied(Identity::Client, None));
    assert_eq!(try_as(&mut server, own(second), None, None), Ok(second));
    assert_eq!(try_as(&mut server, Identity::Worker(None), Some(first), None), Ok(first));
    // A worker cannot resume another worker's incarnation either.
    let was = resume(first);
    let other = try_as(&mut server, own(second), None, Some(was));
    assert_eq!(other, denied(own(second), Some(first)));
    assert_eq!(try_as(&mut server, own(first), Some(first), Some(was)), Ok(first));
    // Until the run begins, a worker that may be any worker yields its slot to a worker whose
    // certificate permits only that slot; but not if it requested this slot itself.
    let mut server = Hand::new(Server::new(Toy::new(2, 8).job, RUN).unwrap());
    let any = Identity::Worker(None);
    assert_eq!(try_as(&mut server, any, None, None), Ok(first));
    assert_eq!(try_as(&mut server, own(first), None, None), Ok(first));
    let back = resume(first);
    assert_eq!(try_as(&mut server, any, None, Some(back)), Ok(second));
    let owner = String::from("by hand");
    let taken = Err(Refusal::WorkerTaken { worker: first, owner });
    assert_eq!(try_as(&mut server, own(first), None, None), taken);
    let mut server = Hand::new(Server::new(Toy::new(2, 8).job, RUN).unwrap());
    assert_eq!(try_as(&mut server, any, Some(first), None), Ok(first));
    assert_eq!(try_as(&mut server, own(first), None, None), taken);
}

#[test]
fn status_reports_the_quiesce_and_the_awaited_workers_while_auto_is_left() {
    let mut job = Toy::new(1, 8).job;
    job.mode = Mode::of(ConsistencySpec::Auto);
    let mut server = Hand::new(Server::new(job, RUN).unwrap());
    let push = server.take_in(PeerId(1));
    server.give(Input::Connected(PeerId(2), Identity::Anyone));
    let control = Control { protocol_max: 1, key: "consistency".into(), value: "ssp:2".into() };
    let out = server.tell(PeerId(2), Message::Control(control));
    assert!(sent(&out).is_empty(), "answered before the fence: {out:?}");
    let status = server.node.status(server.now);
    assert_eq!(status.consistency, "auto: asp, 1 in flight, participation share");
    assert_eq!(status.ordered.as_deref(), Some("ssp:2"));
    let wait = status.wait.expect("somebody to wait for");
    assert_eq!((wait.reason, wait.workers), (WaitReason::Fence, vec![WorkerId(0)]));
    let out = server.tell(PeerId(1), Message::Push(push));
    let begun = Begun { version: Version(1), mode: "ssp:2".into() };
    assert!(sent(&out).contains(&&Message::Controlled(Ok(begun))), "{out:?}");
    let status = server.node.status(server.now);
    assert_eq!((status.consistency.as_str(), status.ordered), ("ssp:2", None));
}

#[test]
fn a_worker_cut_off_at_the_end_reconnects_and_receives_it() {
    let mut server = server();
    let push = server.take_in(PeerId(1));
    server.give(Input::Drain);
    let out = server.tell(PeerId(1), Message::Push(push.clone()));
    let ended = Event::Ended { reason: EndReason::Stopped };
    assert!(out.iter().any(|effect| matches!(effect, Effect::Report(event) if *event == ended)));
    answer_evaluations(&mut server);
    // The connection breaks with the end in flight; the server is not done before the worker knows.
    let why = String::from("cut");
    let out = server.give(Input::Disconnected { peer: PeerId(1), why });
    assert!(!out.iter().any(|effect| matches!(effect, Effect::Done(_))), "{out:?}");
    let newcomer = server.greet(PeerId(2), None);
    assert_eq!(sent(&newcomer), [&Message::Refused(Refusal::Over)]);
    let out = server.greet(PeerId(3), Some(resume(WorkerId(0))));
    let told = sent(&out);
    assert!(matches!(told[0], Message::Welcome(welcome) if welcome.resumed), "{told:?}");
    assert!(matches!(told[1], Message::End(end) if end.reason == EndReason::Stopped), "{told:?}");
    server.tell(PeerId(3), Message::Push(push));
    let ledger = server.node.ledger();
    assert_eq!((ledger.assigned, ledger.applied, ledger.outstanding), (1, 1, 0));
    let out = server.tell(PeerId(3), Message::Bye(Bye { incarnation: Incarnation(1), why: None }));
    assert!(matches!(out.last(), Some(Effect::Done(Ok(EndReason::Stopped)))), "{out:?}");
}

/// Answers all evaluations that the server has requested.
fn answer_evaluations(server: &mut Hand<Server>) {
    for effect in server.node.unanswered() {
        if let Effect::Evaluate(order) = effect {
            let evaluation = Evaluation::default();
            server.give(Input::Evaluated(Evaluated { point: order.point, evaluation }));
        }
    }
}

/// Welcomes a worker and grants it parameters; returns the computation that it orders.
fn welcome_and_grant(worker: &mut Hand<Worker>, peer: PeerId, welcome: &Welcome) -> Compute {
    worker.give(Input::Dialled(peer, Identity::Anyone));
    let out = worker.tell(peer, Message::Welcome(Box::new(welcome.clone())));
    if out.iter().any(|effect| matches!(effect, Effect::Prepare(_))) {
        let train = Some(welcome.job.data.train.clone());
        worker.give(Input::Prepared(Ok(Prepared {
            rows: vec![8],
            train,
            keys: None,
            initial: None,
        })));
    }
    let mut server = Hand::new(Server::new(welcome.job.clone(), welcome.run).unwrap());
    server.greet(PeerId(0), None);
    server.tell(PeerId(0), Message::Ready(Ready { rows: [(PartId(0), 8)].into(), train: None }));
    let keys = KeyRange::new(0, server.node.parameters().len() as u64).unwrap();
    let pull = Message::Pull(Pull { incarnation: Incarnation(1), keys, allowed: Sequence(0) });
    let granted = server.tell(PeerId(0), pull).into_iter().find_map(|effect| match effect {
        Effect::Send(_, message @ Message::Parameters(_)) => Some(message),
        _ => None,
    });
    let out = worker.tell(peer, granted.expect("parameters"));
    let order = out.into_iter().find_map(|effect| match effect {
        Effect::Compute(order) => Some(order),
        _ => None,
    });
    order.expect("something to compute")
}

#[test]
fn a_gradient_for_a_lost_server_is_not_pushed_to_its_successor() {
    let toy = Toy::new(1, 8);
    let mut welcome = server()
        .greet(PeerId(1), None)
        .into_iter()
        .find_map(|effect| match effect {
            Effect::Send(_, Message::Welcome(welcome)) => Some(*welcome),
            _ => None,
        })
        .expect("a welcome");
    welcome.examples_from_server = false;
    let mut worker = Hand::new(Worker::new(WorkerConfig {
        name: String::from("by hand"),
        worker: None,
        wants_examples: false,
        lease: toy.job.membership.lease,
        stream: Stream::new(1),
    }));
    let first = welcome_and_grant(&mut worker, PeerId(1), &welcome);
    worker.give(Input::Disconnected { peer: PeerId(1), why: String::from("killed") });
    // The new server counts incarnations and pushes from the beginning, like the old one.
    welcome.run += 1;
    let second = welcome_and_grant(&mut worker, PeerId(2), &welcome);
    let numbers = |order: &Compute| (order.ticket.incarnation, order.ticket.sequence);
    assert_eq!(numbers(&first), (Incarnation(1), Sequence(1)));
    assert_eq!(numbers(&first), numbers(&second));
    let computed = |order: &Compute, value: f32| {
        let gradient = vec![value; order.parameters.len()];
        let took = Duration::ZERO;
        Input::Computed(Computed { ticket: order.ticket, gradient, loss: 1.0, samples: 8, took })
    };
    assert!(sent(&worker.give(computed(&first, 1.0))).is_empty());
    let out = worker.give(computed(&second, 2.0));
    assert!(matches!(sent(&out)[..], [Message::Push(push)] if push.gradient[0] == 2.0), "{out:?}");
}
