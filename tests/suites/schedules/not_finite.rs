//! Non-finite gradients, driven by hand: the fault of one worker, or of diverged parameters.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Incarnation, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, Job, OnLoss};
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{Departure, Effect, Event, Input, MOST_IN_A_ROW, Outbox, Server};
use pstrain_tests::Toy;
use pstrain_wire::worker::{EndReason, Parameters, Pull, Push, PushHeader, Ready};
use pstrain_wire::{Message, Refusal};

use super::by_hand::{Hand, RUN};

/// Value of a worker's gradient, given its number and the parameters.
type Gradient = fn(u32, &[f32]) -> f32;

/// An honest worker: its gradient is finite unless the parameters are far out.
const HONEST: Gradient = |_, parameters| {
    if parameters.iter().any(|value| value.abs() > 1e20) { f32::NAN } else { 0.01 }
};
/// A worker that sends huge gradients until one is applied.
const POISONS: Gradient = |number, _| if number >= 5 { 1e30 } else { 0.01 };
/// A worker with bad data.
const BROKEN: Gradient =
    |number, parameters| if number >= 5 { f32::NAN } else { HONEST(number, parameters) };

/// Policies with different rules of which worker waits for which.
const POLICIES: [ConsistencySpec; 6] = [
    ConsistencySpec::Bsp,
    ConsistencySpec::Asp,
    ConsistencySpec::Ssp { slack: 1 },
    ConsistencySpec::KBatchSync { gradients: 2 },
    ConsistencySpec::Ringmaster { staleness: 4 },
    ConsistencySpec::RoundRobin,
];

/// A server and its workers, each with the push that it may make.
struct Crew {
    server: Hand<Server>,
    gradients: Vec<Gradient>,
    allowed: Vec<Option<Parameters>>,
    /// Number of gradients of each worker.
    answers: Vec<u32>,
    /// Sequence number of the last push with a huge gradient.
    huge: Option<Sequence>,
    events: Vec<Event>,
}

impl Crew {
    fn new(consistency: ConsistencySpec, on_loss: OnLoss, gradients: &[Gradient]) -> Self {
        Self::with(consistency, on_loss, gradients, |_| {})
    }

    fn with(
        consistency: ConsistencySpec,
        on_loss: OnLoss,
        gradients: &[Gradient],
        change: impl FnOnce(&mut Job),
    ) -> Self {
        let workers = gradients.len() as u32;
        let mut job = Toy::new(workers, 4 * gradients.len()).job;
        job.mode = Mode::of(consistency);
        job.budget.epochs = 1000;
        job.membership.on_loss = on_loss;
        job.membership.min_workers = Some(1);
        change(&mut job);
        let mut crew = Self {
            server: Hand::new(Server::new(job, RUN).unwrap()),
            gradients: gradients.to_vec(),
            allowed: vec![None; gradients.len()],
            answers: vec![0; gradients.len()],
            huge: None,
            events: Vec::new(),
        };
        let keys = KeyRange::new(0, crew.server.node.parameters().len() as u64).unwrap();
        for worker in 0..workers {
            let peer = PeerId(worker.into());
            crew.server.greet(peer, None);
            let parts = crew.server.node.job().parts_of(WorkerId(worker));
            let rows = parts.into_iter().map(|part| (part, 4)).collect();
            let ready = Ready { rows, train: None };
            crew.tell(peer, Message::Ready(ready));
            let pull = Pull { incarnation: Incarnation(1), keys, allowed: Sequence(0) };
            crew.tell(peer, Message::Pull(pull));
        }
        crew
    }

    fn tell(&mut self, peer: PeerId, message: Message) {
        self.give(Input::Message(peer, message));
    }

    fn give(&mut self, input: Input) {
        let out: Outbox = self.server.give(input);
        for effect in out {
            match effect {
                Effect::Send(peer, Message::Parameters(given)) => {
                    assert_eq!(given.header.ahead, 0, "{given:?}");
                    // A newer version supersedes the allowed push.
                    self.allowed[peer.0 as usize] = Some(given);
                }
                Effect::Close(peer) => self.allowed[peer.0 as usize] = None,
                Effect::Report(event) => self.events.push(event),
                _ => {}
            }
        }
    }

    /// Lets a worker push, if it may.
    fn answer(&mut self, worker: usize) {
        let Some(given) = self.allowed[worker].take() else { return };
        let header = PushHeader::answering(&given.header, Incarnation(1));
        self.answers[worker] += 1;
        let mut value = self.gradients[worker](self.answers[worker], &given.values);
        if value > 1e20 && self.poisoned().is_some() {
            value = 0.01;
        } else if value > 1e20 {
            self.huge = Some(header.sequence);
        }
        // The worker reports that it computes all the time: a larger window would not help it.
        let push = Push::new(
            PushHeader { samples: 4, loss: 1.0, compute_ns: u64::MAX, ..header },
            Arc::new(vec![value; given.values.len()]),
        );
        self.tell(PeerId(worker as u64), Message::Push(push));
    }

    /// Runs `turns` turns, or to the end of the run; the last worker pushes `pace` times a turn,
    /// the others once.
    fn go(&mut self, turns: usize, pace: usize) {
        for _ in 0..turns {
            if self.end().is_some() {
                return;
            }
            let last = self.gradients.len() - 1;
            (0..pace).for_each(|_| self.answer(last));
            (0..last).for_each(|worker| self.answer(worker));
            // Round-robin grants its slots by the clock.
            self.give(Input::Wake);
        }
    }

    fn end(&self) -> Option<EndReason> {
        self.events.iter().find_map(|event| match event {
            Event::Ended { reason } => Some(*reason),
            _ => None,
        })
    }

    fn refused(&self) -> Vec<WorkerId> {
        let all = self.events.iter().filter_map(|event| match event {
            Event::Refused { worker, why: Refusal::NotFinite { .. }, .. } => *worker,
            _ => None,
        });
        all.collect()
    }

    /// Returns the version that includes the huge gradient.
    fn poisoned(&self) -> Option<Version> {
        let it = (WorkerId(self.gradients.len() as u32 - 1), self.huge?);
        let is_it = |event: &Event| match event {
            Event::Applied { worker, sequence, .. } => (*worker, *sequence) == it,
            _ => false,
        };
        let place = self.events.iter().position(is_it)?;
        self.events[place..].iter().find_map(|event| match event {
            Event::Updated { point, .. } => Some(point.version),
            _ => None,
        })
    }

    /// Returns the versions on which gradients were not finite.
    fn in_doubt(&self) -> Vec<Version> {
        let pairs = self.events.windows(2).filter_map(|pair| match pair {
            [Event::Pushed { base, .. }, Event::Dropped { reason: DropReason::NotFinite, .. }] => {
                Some(*base)
            }
            _ => None,
        });
        pairs.collect()
    }
}

#[test]
fn after_one_huge_gradient_the_run_diverges_and_no_honest_worker_is_refused() {
    for policy in POLICIES {
        for (workers, pace) in [(3, 1), (3, 10), (4, 3), (7, 1)] {
            let mut gradients = vec![HONEST; workers - 1];
            gradients.push(POISONS);
            let mut crew = Crew::new(policy, OnLoss::Continue, &gradients);
            crew.go(300, pace);
            let what = format!("{policy}, {workers} workers, pace {pace}");
            let Some(EndReason::Diverged(version)) = crew.end() else {
                panic!("{what}: {:?}", crew.end())
            };
            assert_eq!(crew.in_doubt().into_iter().min(), Some(version), "{what}");
            assert!(Some(version) >= crew.poisoned(), "{what}");
            if policy == ConsistencySpec::Bsp {
                assert_eq!(Some(version), crew.poisoned(), "{what}");
            }
            // Policies that wait for suspected workers may lack other evidence at first, so one
            // honest worker may be refused.
            let most = usize::from(matches!(
                policy,
                ConsistencySpec::Ssp { .. } | ConsistencySpec::RoundRobin
            ));
            assert!(crew.refused().len() <= most, "{what}: {:?}", crew.refused());
        }
    }
}

#[test]
fn a_worker_with_non_finite_gradients_of_its_own_is_refused_and_the_others_continue() {
    for policy in POLICIES {
        for workers in [2, 3, 5] {
            for on_loss in [OnLoss::Continue, OnLoss::Wait, OnLoss::Stop] {
                let mut gradients = vec![HONEST; workers - 1];
                gradients.push(BROKEN);
                let mut crew = Crew::new(policy, on_loss, &gradients);
                crew.go(50, 1);
                let what = format!("{policy}, {workers} workers, {on_loss}");
                let broken = WorkerId(workers as u32 - 1);
                assert_eq!(crew.refused(), [broken], "{what}");
                let stops = on_loss == OnLoss::Stop;
                let end = stops.then_some(EndReason::WorkerLost(broken, Departure::Refused));
                assert_eq!(crew.end(), end, "{what}");
            }
        }
    }
}

#[test]
fn a_single_worker_with_non_finite_gradients_has_diverged() {
    let mut crew = Crew::new(ConsistencySpec::Asp, OnLoss::Continue, &[BROKEN]);
    crew.go(50, 1);
    assert_eq!(crew.end(), Some(EndReason::Diverged(Version(4))));
    assert!(crew.refused().is_empty());
}

#[test]
fn a_suspected_worker_gets_no_parameters_before_the_verdict() {
    let mut crew = Crew::new(ConsistencySpec::Asp, OnLoss::Continue, &[HONEST, HONEST, BROKEN]);
    crew.go(4, 1);
    crew.answer(2);
    // Its mini-batch is left out, and it goes on with the next.
    assert_eq!(crew.in_doubt().len(), 1, "{:?}", crew.events);
    (1..MOST_IN_A_ROW).for_each(|_| crew.answer(2));
    assert_eq!(crew.in_doubt().len(), MOST_IN_A_ROW as usize);
    // The first worker's parameters are older than the suspected version.
    crew.answer(0);
    assert!(crew.allowed[2].is_none() && crew.refused().is_empty());
    crew.answer(0);
    assert!(crew.allowed[2].is_none() && crew.refused().is_empty());
    crew.answer(1);
    crew.answer(1);
    assert_eq!(crew.refused(), [WorkerId(2)]);
}

#[test]
fn auto_restores_an_earlier_version_where_another_policy_ends_as_diverged() {
    for policy in [ConsistencySpec::Auto, ConsistencySpec::Asp] {
        let bad: Gradient =
            |number, _| if (2..2 + MOST_IN_A_ROW).contains(&number) { f32::NAN } else { 0.01 };
        let mut crew = Crew::new(policy, OnLoss::Continue, &[bad]);
        crew.go(1 + MOST_IN_A_ROW as usize, 1);
        let is_auto = policy == ConsistencySpec::Auto;
        let goes_back = |event: &Event| matches!(event, Event::Restored { from: Version(0), .. });
        assert_eq!(crew.events.iter().any(goes_back), is_auto, "{:?}", crew.events);
        assert_eq!(crew.end().is_none(), is_auto, "{:?}", crew.end());
        // The worker computes on the restored parameters, and its gradient counts.
        crew.answer(0);
        let ledger = crew.server.node.ledger();
        let left_out = u64::from(MOST_IN_A_ROW);
        assert_eq!((ledger.applied, ledger.discarded), (1 + u64::from(is_auto), left_out));
    }
}

#[test]
fn auto_ends_as_diverged_after_repeated_restores() {
    let bad: Gradient = |number, _| if number > 1 { f32::NAN } else { 0.01 };
    let mut crew = Crew::new(ConsistencySpec::Auto, OnLoss::Continue, &[bad; 3]);
    crew.go(100 + 10 * MOST_IN_A_ROW as usize, 1);
    assert!(matches!(crew.end(), Some(EndReason::Diverged(_))), "{:?}", crew.end());
    let back = crew.events.iter().filter(|event| matches!(event, Event::Restored { .. })).count();
    assert!((1..10).contains(&back), "{back}");
    assert!(crew.refused().is_empty());
}

/// One bad row, as in the fault FLIP#764 of FederatedScope: its mini-batch comes again each pass.
const ONE_ROW: Gradient = |number, _| if number % 4 == 3 { f32::NAN } else { 0.01 };

#[test]
fn a_mini_batch_that_is_not_finite_is_left_out_and_its_worker_goes_on_with_the_next() {
    for policy in POLICIES {
        for on_loss in [OnLoss::Continue, OnLoss::Stop, OnLoss::Reassign] {
            for gradients in [&[ONE_ROW][..], &[HONEST, ONE_ROW], &[ONE_ROW; 3]] {
                let mut crew = Crew::new(policy, on_loss, gradients);
                crew.go(60, 1);
                let what = format!("{policy}, {on_loss}, {} workers", gradients.len());
                assert_eq!((crew.end(), crew.refused()), (None, vec![]), "{what}");
                let mut left_out = BTreeSet::new();
                for pair in crew.events.windows(2) {
                    let Event::Pushed { part, batch, .. } = pair[0] else { continue };
                    assert!(!left_out.contains(&(part, batch)), "{what}: {pair:?} again");
                    if let Event::Dropped { reason: DropReason::NotFinite, .. } = pair[1] {
                        left_out.insert((part, batch));
                    }
                }
                let ledger = crew.server.node.ledger();
                assert_eq!(ledger.left_out, left_out.len() as u64, "{what}");
                assert!(ledger.left_out >= 4 && ledger.lost == 0, "{what}: {ledger:?}");
                let known = ledger.applied + ledger.discarded + ledger.outstanding;
                assert_eq!(ledger.assigned, known, "{what}");
            }
        }
    }
}

/// The last mini-batch of a share is left out: nobody waits for another.
#[test]
fn a_run_by_partitions_ends_although_the_last_mini_batch_is_left_out() {
    let policies = [ConsistencySpec::Bsp, ConsistencySpec::Asp, ConsistencySpec::Ssp { slack: 1 }];
    for policy in policies {
        for gradients in [&[ONE_ROW; 1][..], &[HONEST, ONE_ROW], &[ONE_ROW, ONE_ROW]] {
            let mut crew = Crew::with(policy, OnLoss::Continue, gradients, |job| {
                job.budget.kind = BudgetKind::Partition;
                job.budget.epochs = 7; // a pass has one mini-batch
            });
            crew.go(60, 1);
            let what = format!("{policy}, {} workers", gradients.len());
            assert_eq!(crew.end(), Some(EndReason::BudgetReached), "{what}");
            let ledger = crew.server.node.ledger();
            let bad = gradients.iter().filter(|it| it(3, &[]).is_nan()).count() as u64;
            assert_eq!(ledger.assigned, 7 * gradients.len() as u64, "{what}");
            assert_eq!((ledger.left_out, ledger.lost), (2 * bad, 0), "{what}");
        }
    }
}
