//! Faulty workers, and clients that are not workers, are refused with the reason.

use std::sync::Arc;

use pstrain_compute::id::{PartId, Sequence};
use pstrain_compute::params::KeyRange;
use pstrain_policy::job::{BudgetKind, OnLoss};
use pstrain_roles::node::MOST_IN_A_ROW;
use pstrain_tests::{RawPeer, Received, hello, partition_of};
use pstrain_wire::worker::{
    Heartbeat, Hello, Parameters, Pull, Push, PushHeader, Ready, Resume, Welcome,
};
use pstrain_wire::{Message, Refusal};

use super::*;

/// Connects a hand-driven worker; returns it with its welcome.
fn join(server: &ServerThread, hello: Hello) -> (RawPeer, Welcome) {
    let mut raw = RawPeer::connect(&server.address);
    raw.send(&Message::Hello(hello));
    match raw.message() {
        Message::Welcome(welcome) => (raw, *welcome),
        other => panic!("{other:?}"),
    }
}

/// Returns the worker's answer to the welcome: it has the right data.
fn ready(toy: &Toy, welcome: &Welcome) -> Message {
    let partition = partition_of(&toy.train, toy.job.membership.workers, welcome.worker);
    let train = Some(welcome.job.data.train.clone());
    Message::Ready(Ready { rows: [(welcome.worker.into(), partition.len() as u64)].into(), train })
}

fn pull(toy: &Toy, welcome: &Welcome) -> Message {
    let model = toy.job.build_model().unwrap();
    let keys = KeyRange::new(0, model.parameters() as u64).unwrap();
    Message::Pull(Pull { incarnation: welcome.incarnation, keys, allowed: Sequence(0) })
}

fn parameters(raw: &mut RawPeer) -> Parameters {
    match raw.message() {
        Message::Parameters(parameters) => parameters,
        other => panic!("{other:?}"),
    }
}

/// Returns a valid push: for the given parameters, with every value `value`.
fn push(welcome: &Welcome, given: &Parameters, value: f32) -> Push {
    let header = PushHeader {
        samples: 4,
        loss: 1.0,
        compute_ns: 1000,
        ..PushHeader::answering(&given.header, welcome.incarnation)
    };
    Push::new(header, Arc::new(vec![value; given.values.len()]))
}

/// Makes a push invalid.
type Change = fn(&mut Push);

/// Returns the server's refusal and checks that the connection is then closed.
fn refusal(raw: &mut RawPeer) -> Refusal {
    loop {
        match raw.message() {
            Message::Refused(why) => {
                assert_eq!(raw.receive(), Received::End);
                return why;
            }
            Message::Heartbeat(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_worker_with_other_data_is_refused_with_the_difference_and_the_others_finish() {
    within(LIMIT, || {
        for on_loss in [OnLoss::Continue, OnLoss::Wait, OnLoss::Stop] {
            let mut toy = toy(3, 400);
            toy.job.membership.min_workers = Some(2);
            toy.job.membership.on_loss = on_loss;
            toy.job.budget.epochs = 200;
            let server = ServerThread::start(&toy);
            let good = vec![
                WorkerThread::start(&toy, 0, &server.address),
                WorkerThread::start(&toy, 1, &server.address),
            ];
            server.wait_for_version(5);
            let mut other = Toy::new(3, 202);
            other.job.membership.lease = toy.job.membership.lease;
            let error = WorkerThread::start(&other, 2, &server.address).join().unwrap_err();
            assert!(matches!(error, NodeError::Refused(Refusal::Data { .. })), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("202 training rows where the job has 203"), "{text}");
            all_end_with(EndReason::BudgetReached, good);
            let end = server.join();
            assert_eq!(end.reason, EndReason::BudgetReached, "{on_loss}");
            check_exactly_once(&end.events, &end.ledger);
        }
    });
}

#[test]
fn a_worker_that_pushes_nan_is_refused_with_the_key_and_the_others_finish() {
    within(LIMIT, || {
        let mut toy = toy(3, 500);
        toy.job.budget.epochs = 100;
        let server = ServerThread::start(&toy);
        let good = vec![
            WorkerThread::start(&toy, 0, &server.address),
            WorkerThread::start(&toy, 1, &server.address),
        ];
        let (mut raw, welcome) = join(&server, hello("bad", Some(WorkerId(2))));
        raw.send(&ready(&toy, &welcome));
        raw.send(&pull(&toy, &welcome));
        let given = parameters(&mut raw);
        raw.send(&Message::Push(push(&welcome, &given, 0.01)));
        for _ in 0..MOST_IN_A_ROW {
            let given = parameters(&mut raw);
            let mut push = push(&welcome, &given, 0.01);
            Arc::make_mut(&mut push.gradient)[17] = f32::NAN;
            raw.send(&Message::Push(push));
        }
        let why = refusal(&mut raw);
        let (count, sequence) = (MOST_IN_A_ROW, Sequence(1 + u64::from(MOST_IN_A_ROW)));
        assert_eq!(why, Refusal::NotFinite { count, sequence, key: 17 });
        assert!(why.to_string().contains("its last 16 gradients are not finite"), "{why}");
        all_end_with(EndReason::BudgetReached, good);
        let end = server.join();
        check_exactly_once(&end.events, &end.ledger);
        assert!(end.parameters.iter().all(|value| value.is_finite()));
    });
}

#[test]
fn invalid_pushes_are_refused_with_the_reason() {
    within(LIMIT, || {
        let toy = endless(1, 2000);
        let server = ServerThread::start(&toy);
        let changes: [(Change, &str); 6] = [
            (|push| push.header.sequence.0 += 5, "without parameters having been given out"),
            (|push| push.header.base.0 += 1, "is for version"),
            (|push| push.header.task.batch.0 += 1, "mini-batch"),
            (|push| push.header.samples = 0, "counts 0 examples"),
            (|push| push.header.incarnation.0 += 1, "was replaced by a newer one"),
            (|push| Arc::make_mut(&mut push.gradient).truncate(1), "but the model has keys"),
        ];
        for (change, reason) in changes {
            let (mut raw, welcome) = join(&server, hello("odd", Some(WorkerId(0))));
            raw.send(&ready(&toy, &welcome));
            raw.send(&pull(&toy, &welcome));
            let given = parameters(&mut raw);
            let mut push = push(&welcome, &given, 0.01);
            change(&mut push);
            raw.send(&Message::Push(push));
            let why = refusal(&mut raw).to_string();
            assert!(why.contains(reason), "{why}");
        }
        server.drain();
        let end = server.join();
        assert_eq!((end.ledger.applied, end.ledger.lost), (0, 6));
        check_exactly_once(&end.events, &end.ledger);
    });
}

#[test]
fn wrong_row_counts_are_refused() {
    within(LIMIT, || {
        let mut toy = endless(1, 2000);
        toy.job.budget.kind = BudgetKind::Partition;
        let server = ServerThread::start(&toy);
        for rows in [u64::MAX, toy.job.data.train.rows + 1, 0] {
            let (mut raw, welcome) = join(&server, hello("many", Some(WorkerId(0))));
            raw.send(&Message::Ready(Ready { rows: [(PartId(0), rows)].into(), train: None }));
            let why = refusal(&mut raw);
            assert!(matches!(why, Refusal::Data { .. }), "{why:?}");
            assert_eq!(welcome.worker, WorkerId(0));
        }
        server.drain();
        assert_eq!(server.join().reason, EndReason::Stopped);
    });
}

#[test]
fn a_second_worker_with_a_taken_id_is_refused_with_the_owners_name() {
    within(LIMIT, || {
        let toy = endless(2, 1000);
        let server = ServerThread::start(&toy);
        let workers = start_workers(&toy, &server);
        server.wait_for_version(5);
        let mut raw = RawPeer::connect(&server.address);
        raw.send(&Message::Hello(hello("second", Some(WorkerId(1)))));
        let why = refusal(&mut raw);
        let owner = String::from("test-1");
        assert_eq!(why, Refusal::WorkerTaken { worker: WorkerId(1), owner });
        assert!(!why.is_permanent(), "the place may become free");
        // A worker without a requested id finds no free slot either; an id that does not exist is
        // refused for good.
        let mut raw = RawPeer::connect(&server.address);
        raw.send(&Message::Hello(hello("third", None)));
        assert_eq!(refusal(&mut raw), Refusal::Full { workers: 2 });
        let mut raw = RawPeer::connect(&server.address);
        raw.send(&Message::Hello(hello("fourth", Some(WorkerId(7)))));
        assert!(refusal(&mut raw).to_string().contains("(1 to 2)"));
        server.drain();
        all_end_with(EndReason::Stopped, workers);
        let end = server.join();
        check_exactly_once(&end.events, &end.ledger);
    });
}

#[test]
fn connections_without_a_hello_are_closed_after_a_lease() {
    within(LIMIT, || {
        let toy = endless(1, 300);
        let server = ServerThread::start(&toy);
        let worker = WorkerThread::start(&toy, 0, &server.address);
        server.wait_for_version(5);
        // Silent connections, and one that has sent part of a frame.
        let mut strangers: Vec<_> = (0..3).map(|_| RawPeer::connect(&server.address)).collect();
        strangers[1].write(b"PST");
        let refused = |event: &Event| match event {
            Event::Refused { worker: None, why, .. } => {
                why.to_string().contains("no hello came within 300ms")
            }
            _ => false,
        };
        server.wait_for("three refusals", |events| count(events, refused) == 3);
        for stranger in &mut strangers {
            assert!(!matches!(stranger.receive(), Received::Nothing), "it was not closed");
        }
        server.drain();
        all_end_with(EndReason::Stopped, vec![worker]);
        drop(server.join());
    });
}

#[test]
fn a_reconnected_worker_is_sent_no_parameters_before_it_asks() {
    // The worker reconnects before the server has detected its loss. Until it has received its
    // welcome, it accepts no message as large as parameters.
    within(LIMIT, || {
        let toy = endless(2, 5000);
        let server = ServerThread::start(&toy);
        let (mut fast, welcome) = join(&server, hello("fast", Some(WorkerId(0))));
        let (mut slow, slow_welcome) = join(&server, hello("slow", Some(WorkerId(1))));
        for (raw, welcome) in [(&mut fast, &welcome), (&mut slow, &slow_welcome)] {
            raw.send(&ready(&toy, welcome));
            raw.send(&pull(&toy, welcome));
        }
        let given = parameters(&mut fast);
        let slow_given = parameters(&mut slow);
        fast.send(&Message::Push(push(&welcome, &given, 0.01)));
        server.wait_for("the push", |events| {
            events.iter().any(|event| matches!(event, Event::Pushed { worker: WorkerId(0), .. }))
        });
        // The fast worker now waits for the slow one, and loses its connection undetected.
        let resume = Some(Resume {
            worker: welcome.worker,
            incarnation: welcome.incarnation,
            run: welcome.run,
            allowed: Sequence(1),
            decided: Sequence(0),
        });
        let back = Hello { resume, ..hello("fast", Some(WorkerId(0))) };
        let (mut again, welcome_back) = join(&server, back);
        assert!(welcome_back.resumed);
        slow.send(&Message::Push(push(&slow_welcome, &slow_given, 0.01)));
        assert_eq!(parameters(&mut slow).header.version.0, 1);
        let heartbeat = Message::Heartbeat(Heartbeat::default());
        again.send(&heartbeat);
        assert_eq!(again.message(), heartbeat, "parameters came before they were asked for");
        again.send(&Message::Push(push(&welcome, &given, 0.01)));
        assert_eq!(parameters(&mut again).header.version.0, 1);
        drop(fast);
        server.drain();
        let end = server.join();
        check_exactly_once(&end.events, &end.ledger);
        assert_eq!(end.ledger.applied, 2);
    });
}
