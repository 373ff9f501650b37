//! Evaluations by workers, by hand. Random schedules have them, too, in every fifth world.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure here fails the test")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Incarnation, PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::model::{Activation, ModelSpec};
use pstrain_compute::params::{KeyMap, KeyRange};
use pstrain_compute::rng::Stream;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{Job, Stopping};
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{
    Effect, EvaluateHere, Event, Input, Outbox, Prepared, Server, Target, Worker, WorkerConfig,
};
use pstrain_tests::Toy;
use pstrain_tests::world::{Settings, let_happen};
use pstrain_wire::evaluation::{EvaluationAnswer, EvaluationStep};
use pstrain_wire::holders::Holders;
use pstrain_wire::identity::Identity;
use pstrain_wire::worker::{Bye, EndReason, Heartbeat, Pull, Push, PushHeader, Ready};
use pstrain_wire::{Message, Refusal, WaitReason};

use super::by_hand::{Hand, RUN, resume, sent, server};
use super::{LARGEST, for_seeds};

#[test]
fn under_random_schedules_evaluations_that_improve_no_more_end_a_run() {
    let ends = RefCell::new(BTreeMap::new());
    let ran = for_seeds(LARGEST / 6, |seed| {
        let mut settings = Settings::draw(seed);
        settings.job.stopping = Stopping {
            evaluate_every: 0.25,
            patience: Some(1 + (seed % 3) as u32),
            ..Stopping::default()
        };
        if seed % 4 == 0 {
            settings = settings.with_servers(2 + (seed % 3) as u32);
        }
        if seed % 2 == 0 {
            (settings.crashes, settings.saves) = (seed % 20, 10 + seed % 100);
        }
        // The checkers know from the losses when the run has to end.
        let aftermath = let_happen(&settings);
        *ends.borrow_mut().entry(aftermath.reason.to_string()).or_insert(0) += 1;
    });
    let expected = [EndReason::NoImprovement, EndReason::BudgetReached].map(|it| it.to_string());
    ran.expect_each(expected.iter().map(String::as_str), |end| ends.borrow().contains_key(end));
}

/// A job of two workers that begins with one.
fn job() -> Job {
    let mut job = Toy::new(2, 8).job;
    job.membership.min_workers = Some(1);
    job.mode = Mode::of(ConsistencySpec::Asp);
    job
}

impl Hand<Server> {
    /// Admits the next worker.
    fn join(&mut self, worker: u32) -> Outbox {
        let peer = PeerId(u64::from(worker) + 1);
        self.greet(peer, None);
        let rows = [(PartId(worker), 4)].into();
        self.tell(peer, Message::Ready(Ready { rows, train: None }))
    }

    /// Refuses the evaluation of a version, as a driver without an evaluator.
    fn refuse_to_evaluate(&mut self, version: u64) -> Outbox {
        let why = String::from("it has no evaluator");
        self.give(Input::Unevaluated { version: Version(version), why })
    }

    fn answer(&mut self, peer: u64, version: u64, answer: EvaluationStep) -> Outbox {
        let (incarnation, version) = (Incarnation(1), Version(version));
        let answer = EvaluationAnswer { incarnation, version, answer };
        self.tell(PeerId(peer), Message::EvaluationAnswer(answer))
    }

    fn cannot(&mut self, peer: u64, version: u64) -> Outbox {
        self.answer(peer, version, EvaluationStep::Unable(String::from("it\ncannot")))
    }
}

fn evaluation() -> EvaluationStep {
    EvaluationStep::Evaluated(Evaluation { examples: 8, loss: 0.5, ..Evaluation::default() })
}

/// The connections that were sent a part to evaluate, with the version.
fn asked(out: &Outbox) -> Vec<(u64, u64)> {
    let asked = out.iter().filter_map(|effect| match effect {
        Effect::Send(peer, Message::EvaluationPart(part)) => Some((peer.0, part.version.0)),
        _ => None,
    });
    asked.collect()
}

fn events(out: &Outbox) -> Vec<&Event> {
    let events = out.iter().filter_map(|effect| match effect {
        Effect::Report(event) => Some(event),
        _ => None,
    });
    events.collect()
}

/// The examples of the evaluation that was reported.
fn evaluated(out: &Outbox) -> Option<u64> {
    events(out).into_iter().find_map(|event| match event {
        Event::Evaluated { evaluation, .. } => Some(evaluation.examples),
        _ => None,
    })
}

fn orders(out: &Outbox) -> bool {
    out.iter().any(|effect| matches!(effect, Effect::Evaluate(_)))
}

#[test]
fn the_first_worker_that_can_evaluates() {
    let mut server = Hand::new(Server::new(job(), RUN).unwrap());
    assert!(orders(&server.join(0)));
    server.join(1);
    assert_eq!(asked(&server.refuse_to_evaluate(0)), [(1, 0)]);
    assert!(server.refuse_to_evaluate(0).is_empty(), "refused already");
    assert_eq!(asked(&server.cannot(1, 0)), [(2, 0)]);
    let out = server.answer(2, 0, evaluation());
    assert_eq!((evaluated(&out), asked(&out).len()), (Some(8), 0));
    assert!(server.answer(2, 0, evaluation()).is_empty(), "a second answer");
    let latest = server.node.status(server.now).evaluated.unwrap();
    assert_eq!((latest.version, latest.loss), (Version(0), 0.5));
}

#[test]
fn if_none_can_the_user_is_told_once_and_one_worker_is_asked_from_then_on() {
    let mut server = Hand::new(Server::new(job(), RUN).unwrap());
    server.join(0);
    server.join(1);
    server.refuse_to_evaluate(0);
    server.cannot(1, 0);
    let out = server.cannot(2, 0);
    let why = String::from("worker 2: it cannot");
    assert!(events(&out).contains(&&Event::Unevaluated { version: Version(0), why }), "{out:?}");
    assert_eq!(evaluated(&out), Some(0));
    let push = server.pull_and_compute(1);
    assert!(orders(&server.tell(PeerId(1), Message::Push(push))));
    // The first worker computes.
    assert_eq!(asked(&server.refuse_to_evaluate(1)), [(2, 1)]);
    let out = server.cannot(2, 1);
    let is_told = events(&out).into_iter().any(|event| matches!(event, Event::Unevaluated { .. }));
    assert_eq!((asked(&out).len(), evaluated(&out), is_told), (0, Some(0), false));
}

impl Hand<Server> {
    /// Pulls parameters, and returns the push that answers them.
    fn pull_and_compute(&mut self, peer: u64) -> Push {
        let keys = KeyRange::new(0, self.node.parameters().len() as u64).unwrap();
        let pull = Pull { incarnation: Incarnation(1), keys, allowed: Sequence(0) };
        let out = self.tell(PeerId(peer), Message::Pull(pull));
        let header = out.iter().find_map(|effect| match effect {
            Effect::Send(_, Message::Parameters(parameters)) => Some(parameters.header),
            _ => None,
        });
        let header = PushHeader::answering(&header.expect("parameters"), Incarnation(1));
        let gradient = Arc::new(vec![1.0; keys.len() as usize]);
        Push::new(PushHeader { samples: 8, loss: 1.0, ..header }, gradient)
    }
}

#[test]
fn a_worker_that_is_cut_off_or_late_is_followed_by_the_next() {
    let mut server = Hand::new(Server::new(job(), RUN).unwrap());
    server.join(0);
    server.join(1);
    server.refuse_to_evaluate(0);
    let cut = |peer| Input::Disconnected { peer: PeerId(peer), why: String::from("cut") };
    assert_eq!(asked(&server.give(cut(1))), [(2, 0)]);
    server.greet(PeerId(3), Some(resume(WorkerId(0))));
    assert!(server.answer(3, 0, evaluation()).is_empty(), "another worker was asked since");
    let mut found = Vec::new();
    for _ in 0..1000 {
        server.now = server.now + server.node.job().membership.heartbeat();
        for peer in [2, 3] {
            let heartbeat = Heartbeat::of(Some(Incarnation(1)));
            server.tell(PeerId(peer), Message::Heartbeat(heartbeat));
        }
        let out = server.give(Input::Wake);
        found.extend(asked(&out));
        if evaluated(&out).is_some() {
            break;
        }
    }
    // The first one, which was only cut off, is asked again; then the time is up.
    assert_eq!(found, [(3, 0)]);
    let patience = server.node.job().membership.evaluation_patience();
    assert!(server.now < pstrain_compute::time::Time::ZERO + patience * 3, "{:?}", server.now);
    assert!(server.node.unanswered().is_empty());
}

#[test]
fn an_impossible_evaluation_is_refused_and_one_that_was_not_requested_is_ignored() {
    let mut server = server();
    server.take_in(PeerId(1));
    assert!(server.answer(1, 0, evaluation()).is_empty(), "not requested");
    server.refuse_to_evaluate(0);
    assert!(server.answer(1, 7, evaluation()).is_empty(), "another version");
    assert!(server.answer(1, 0, EvaluationStep::PartDue(3)).is_empty(), "not the next part");
    let mut save = server.node.save();
    save = Server::restore(server.node.job().clone(), &save).unwrap().save();
    let again = Server::restore(server.node.job().clone(), &save).unwrap();
    assert_eq!(format!("{again:?}"), format!("{:?}", server.node), "it is kept");
    let out = server.answer(1, 0, EvaluationStep::Evaluated(Evaluation::default()));
    let what = String::from("its evaluation is impossible: it evaluates no examples");
    assert!(sent(&out).contains(&&Message::Refused(Refusal::Unexpected { what })), "{out:?}");
}

#[test]
fn the_end_is_told_once_the_last_evaluation_is_made() {
    let mut server = server();
    let push = server.take_in(PeerId(1));
    server.refuse_to_evaluate(0);
    server.answer(1, 0, evaluation());
    server.give(Input::Drain);
    let out = server.tell(PeerId(1), Message::Push(push));
    let ended = Event::Ended { reason: EndReason::Stopped };
    assert!(events(&out).contains(&&ended) && orders(&out), "{out:?}");
    let tells = |out: &Outbox| sent(out).iter().any(|it| matches!(it, Message::End(_)));
    assert!(!tells(&out), "the worker has to evaluate");
    assert_eq!(asked(&server.refuse_to_evaluate(1)), [(1, 1)]);
    let wait = server.node.status(server.now).wait.unwrap();
    assert_eq!((wait.reason, wait.workers), (WaitReason::Evaluation, vec![WorkerId(0)]));
    let cut = Input::Disconnected { peer: PeerId(1), why: String::from("cut") };
    assert!(!tells(&server.give(cut)));
    let out = server.greet(PeerId(2), Some(resume(WorkerId(0))));
    assert_eq!((asked(&out), tells(&out)), (vec![(2, 1)], false));
    let out = server.answer(2, 1, evaluation());
    assert_eq!((evaluated(&out), tells(&out)), (Some(8), true));
    let out = server.tell(PeerId(2), Message::Bye(Bye { incarnation: Incarnation(1), why: None }));
    assert!(matches!(out.last(), Some(Effect::Done(Ok(EndReason::Stopped)))), "{out:?}");
}

#[test]
fn without_workers_the_run_ends_without_its_last_evaluation() {
    let mut server = server();
    let push = server.take_in(PeerId(1));
    server.refuse_to_evaluate(0);
    server.give(Input::Drain);
    server.tell(PeerId(1), Message::Push(push));
    server.refuse_to_evaluate(1);
    server.give(Input::Disconnected { peer: PeerId(1), why: String::from("cut") });
    server.now = server.now + server.node.job().membership.lease;
    let out = server.give(Input::Wake);
    assert!(matches!(out.last(), Some(Effect::Done(Ok(EndReason::Stopped)))), "{out:?}");
    assert_eq!(evaluated(&out), Some(0));
}

/// A server and its worker. Messages arrive at once.
struct Pair {
    server: Hand<Server>,
    worker: Hand<Worker>,
    /// Their connection.
    peer: PeerId,
    /// Evaluations that the worker's node has requested.
    requested: Vec<EvaluateHere>,
    /// Parts of parameters that the server has sent.
    parts: usize,
    /// Evaluations that the server has reported, by their examples.
    evaluated: Vec<u64>,
}

impl Pair {
    fn begin(job: Job) -> Self {
        let server = Hand::new(Server::new(job, RUN).unwrap());
        let worker = Worker::new(WorkerConfig {
            name: String::from("by hand"),
            worker: None,
            wants_examples: false,
            lease: Duration::from_secs(1),
            stream: Stream::new(1),
        });
        let worker = Hand { node: worker, now: server.now };
        let peer = PeerId(0);
        let (requested, evaluated) = (Vec::new(), Vec::new());
        let mut pair = Self { server, worker, peer, requested, parts: 0, evaluated };
        pair.does(false, Input::Start);
        pair
    }

    /// Hands an input to one of the two, and all messages that follow from it.
    fn does(&mut self, to_server: bool, input: Input) {
        let mut queue = VecDeque::from([(to_server, input)]);
        while let Some((to_server, input)) = queue.pop_front() {
            let out = if to_server { self.server.give(input) } else { self.worker.give(input) };
            self.evaluated.extend(evaluated(&out));
            for effect in out {
                match effect {
                    Effect::Send(_, message) => {
                        self.parts += usize::from(matches!(message, Message::EvaluationPart(_)));
                        queue.push_back((!to_server, Input::Message(self.peer, message)));
                    }
                    Effect::Dial(Target::Server) => {
                        self.peer = PeerId(self.peer.0 + 1);
                        queue.push_back((true, Input::Connected(self.peer, Identity::Anyone)));
                        queue.push_back((false, Input::Dialled(self.peer, Identity::Anyone)));
                    }
                    Effect::Prepare(order) => {
                        let train = Some(order.job.data.train.clone());
                        let (rows, keys, initial) = (vec![8], None, None);
                        let prepared = Ok(Prepared { rows, train, keys, initial });
                        queue.push_back((false, Input::Prepared(prepared)));
                    }
                    Effect::Evaluate(order) => {
                        let (version, why) = (order.point.version, String::from("it cannot"));
                        queue.push_back((true, Input::Unevaluated { version, why }));
                    }
                    Effect::EvaluateHere(order) => self.requested.push(order),
                    _ => {}
                }
            }
        }
    }

    /// Cuts the connection.
    fn cut(&mut self) {
        for to_server in [true, false] {
            let why = String::from("cut");
            self.does(to_server, Input::Disconnected { peer: self.peer, why });
        }
    }

    /// Lets the worker reconnect.
    fn reconnect(&mut self) {
        self.worker.now = self.worker.now + Duration::from_millis(500);
        self.does(false, Input::Wake);
    }

    /// Finishes the evaluation that was requested last.
    fn evaluates(&mut self) {
        let EvaluateHere { ticket, parameters } = self.requested.last().expect("one").clone();
        let result = Evaluation { examples: 8, ..Evaluation::absent(&parameters) };
        self.does(false, Input::EvaluatedHere(ticket, Ok(result)));
    }
}

/// A job of one worker whose parameters are sent in several parts.
fn large_job() -> Job {
    let mut job = Toy::new(1, 8).job;
    job.data.from = pstrain_policy::job::DataFrom::Own;
    job.model = ModelSpec::Mlp { hidden: vec![40_000], activation: Activation::Relu };
    job
}

#[test]
fn the_worker_evaluates_the_servers_parameters_though_they_come_in_parts() {
    let mut pair = Pair::begin(large_job());
    assert_eq!((pair.requested.len(), pair.parts), (1, 3));
    assert_eq!(pair.requested[0].parameters, *pair.server.node.parameters());
    pair.evaluates();
    assert_eq!(pair.evaluated, [8]);
    pair.evaluates();
    assert_eq!(pair.evaluated, [8], "a result that was sent already");
}

#[test]
fn a_result_waits_until_the_server_has_sent_all_parts_again_after_a_reconnect() {
    for ends_while_cut_off in [true, false] {
        let mut pair = Pair::begin(large_job());
        pair.cut();
        if ends_while_cut_off {
            pair.evaluates();
        }
        pair.reconnect();
        if !ends_while_cut_off {
            assert!(pair.evaluated.is_empty());
            pair.evaluates();
        }
        assert_eq!((pair.requested.len(), pair.parts, &pair.evaluated[..]), (1, 6, &[8][..]));
    }
}

#[test]
fn a_result_is_sent_though_the_worker_is_attaching_to_another_server() {
    let mut pair = Pair::begin(large_job());
    let keys = pair.server.node.parameters().len() as u64;
    let map = KeyMap::even(2, keys).unwrap();
    let holders = Holders { map, addresses: vec![String::from("the other")] };
    let peer = pair.peer;
    let out = pair.worker.tell(peer, Message::Holders(holders));
    assert!(matches!(out[..], [Effect::Dial(Target::Address(_))]), "{out:?}");
    pair.evaluates();
    assert_eq!(pair.evaluated, [8]);
}
