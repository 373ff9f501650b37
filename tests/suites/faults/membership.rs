//! Workers that die, are missing or join late, under each `on_worker_loss` policy.

use pstrain_policy::job::OnLoss;

use super::*;

/// Starts three workers under BSP and kills one of them after some updates.
fn lose_one(toy: &Toy) -> (ServerThread, Vec<WorkerThread>) {
    let server = ServerThread::start(toy);
    let mut workers = start_workers(toy, &server);
    server.wait_for_version(20);
    workers.remove(1).kill();
    (server, workers)
}

fn lost_one(events: &[Event]) -> bool {
    let lost = |event: &Event| {
        matches!(event, Event::Departed { worker: WorkerId(1), how: Departure::Lost, .. })
    };
    events.iter().any(lost)
}

/// Returns the number of updates after the loss of worker 1.
fn updates_since_loss(events: &[Event]) -> usize {
    let at = events.iter().position(|event| lost_one(std::slice::from_ref(event)));
    at.map_or(0, |at| count(&events[at..], |event| matches!(event, Event::Updated { .. })))
}

#[test]
fn on_worker_loss_continue_proceeds_without_the_lost_worker_after_a_lease() {
    within(LIMIT, || {
        let toy = endless(3, 300);
        let (server, workers) = lose_one(&toy);
        server.wait_for("updates without it", |events| updates_since_loss(events) > 20);
        server.drain();
        all_end_with(EndReason::Stopped, workers);
        let end = server.join();
        check_exactly_once(&end.events, &end.ledger);
        let at = end.events.iter().position(|event| lost_one(std::slice::from_ref(event)));
        let of_the_lost = |event: &Event| {
            matches!(
                event,
                Event::Applied { worker: WorkerId(1), .. }
                    | Event::Granted { worker: WorkerId(1), .. }
            )
        };
        // A gradient that it had pushed may be part of the round that its loss completes.
        let after = count(&end.events[at.unwrap()..], of_the_lost);
        assert!(after <= 1, "{after} pushes of a worker that is lost");
    });
}

#[test]
fn on_worker_loss_wait_keeps_the_slot_until_another_worker_takes_it() {
    within(LIMIT, || {
        let mut toy = toy(3, 400);
        toy.job.membership.on_loss = OnLoss::Wait;
        toy.job.budget.epochs = 100;
        let (server, mut workers) = lose_one(&toy);
        server.wait_for("its loss", lost_one);
        std::thread::sleep(Duration::from_millis(300));
        server.wait_for("nothing", |events| {
            assert_eq!(updates_since_loss(events), 0, "it did not wait");
            true
        });
        workers.push(WorkerThread::start(&toy, 1, &server.address));
        all_end_with(EndReason::BudgetReached, workers);
        // The server kept the worker slot and every accepted gradient, so no bit differs.
        check_unharmed(&toy, &server.join());
    });
}

#[test]
fn on_worker_loss_wait_ends_when_the_patience_is_over() {
    within(LIMIT, || {
        let mut toy = endless(3, 150);
        toy.job.membership.on_loss = OnLoss::Wait;
        let (server, workers) = lose_one(&toy);
        let reason = EndReason::WorkerLost(WorkerId(1), Departure::Lost);
        all_end_with(reason, workers);
        let end = server.join();
        assert_eq!(end.reason, reason);
        assert_eq!(updates_since_loss(&end.events), 0);
        check_exactly_once(&end.events, &end.ledger);
    });
}

#[test]
fn on_worker_loss_stop_ends_the_run_after_a_lease() {
    within(LIMIT, || {
        let mut toy = endless(3, 300);
        toy.job.membership.on_loss = OnLoss::Stop;
        let (server, workers) = lose_one(&toy);
        let reason = EndReason::WorkerLost(WorkerId(1), Departure::Lost);
        all_end_with(reason, workers);
        let end = server.join();
        assert_eq!((end.reason, updates_since_loss(&end.events)), (reason, 0));
        check_exactly_once(&end.events, &end.ledger);
    });
}

#[test]
fn with_too_few_workers_a_run_pauses_and_continues_when_one_joins() {
    within(LIMIT, || {
        let mut toy = endless(3, 300);
        toy.job.membership.min_workers = Some(2);
        let server = ServerThread::start(&toy);
        // The run starts with two workers; the third joins late and takes part from then on.
        let first = WorkerThread::start(&toy, 0, &server.address);
        let second = WorkerThread::start(&toy, 1, &server.address);
        server.wait_for_version(10);
        let late = WorkerThread::start(&toy, 2, &server.address);
        server.wait_for("pushes of the late one", |events| {
            let applied =
                |event: &Event| matches!(event, Event::Applied { worker: WorkerId(2), .. });
            count(events, applied) > 5
        });
        second.kill();
        late.kill();
        let paused = |event: &Event| matches!(event, Event::Paused { present: 1, needed: 2 });
        server.wait_for("a pause", |events| events.iter().any(paused));
        let again = WorkerThread::start(&toy, 2, &server.address);
        server.wait_for("more updates", |events| {
            let at = events.iter().position(|event| matches!(event, Event::Unpaused));
            at.is_some_and(|at| {
                count(&events[at..], |event| matches!(event, Event::Updated { .. })) > 10
            })
        });
        server.drain();
        all_end_with(EndReason::Stopped, vec![first, again]);
        let end = server.join();
        check_exactly_once(&end.events, &end.ledger);
        let at = |which: fn(&Event) -> bool| end.events.iter().position(which).unwrap();
        let pause = at(|event| matches!(event, Event::Paused { .. }))..at(|event| {
            matches!(event, Event::Unpaused)
        });
        let updated = count(&end.events[pause], |event| matches!(event, Event::Updated { .. }));
        assert_eq!(updated, 0, "updates while it was paused");
    });
}

#[test]
fn with_too_few_workers_for_too_long_a_run_ends() {
    within(LIMIT, || {
        let mut toy = endless(2, 150);
        toy.job.membership.min_workers = Some(2);
        let server = ServerThread::start(&toy);
        let stays = WorkerThread::start(&toy, 0, &server.address);
        let dies = WorkerThread::start(&toy, 1, &server.address);
        server.wait_for_version(10);
        dies.kill();
        let reason = EndReason::TooFewWorkers { present: 1, needed: 2 };
        assert_eq!(stays.join(), Ok(reason));
        let end = server.join();
        assert_eq!(end.reason, reason);
        check_exactly_once(&end.events, &end.ledger);
    });
}

#[test]
fn the_others_do_not_wait_for_a_worker_that_left_in_order() {
    within(LIMIT, || {
        let toy = endless(3, 5000);
        let server = ServerThread::start(&toy);
        let mut workers = start_workers(&toy, &server);
        server.wait_for_version(20);
        let leaver = workers.remove(1);
        leaver.drain();
        assert_eq!(leaver.join(), Ok(EndReason::Stopped));
        // The others continue before its lease is over.
        server.wait_for("updates without it", |events| {
            let left = |event: &Event| {
                matches!(event, Event::Departed { worker: WorkerId(1), how: Departure::Left, .. })
            };
            let at = events.iter().position(left);
            at.is_some_and(|at| {
                count(&events[at..], |event| matches!(event, Event::Updated { .. })) > 20
            })
        });
        server.drain();
        all_end_with(EndReason::Stopped, workers);
        let end = server.join();
        assert_eq!(count(&end.events, is_lost), 0);
        check_exactly_once(&end.events, &end.ledger);
    });
}
