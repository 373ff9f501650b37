//! Checkers of a run, independent of the code under test: they see the delivered messages and the
//! reported events, and recompute everything. Used by `world` and `simulated`.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

mod account;
mod books;
mod deck;
mod doubts;
mod promises;
mod ranks;
mod state;
mod timesheet;
mod twin;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, ServerId, WorkerId};
use pstrain_compute::model::ModelSpec;
use pstrain_compute::params::KeyList;
use pstrain_compute::time::Time;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::job::{BudgetKind, Job, OnLoss, WorkSpec};
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{Compute, Departure, Event, LEAVE_SERVER, Node, Point, STOP, Server};
use pstrain_wire::client::{Begun, Control, Controlled};
use pstrain_wire::range::RangeOf;
use pstrain_wire::worker::{EndReason, Push};

use books::Books;
use deck::Deck;
use doubts::Doubts;
use ranks::Ranks;
use timesheet::Timesheet;

/// All checkers of one run.
///
/// Every method panics if a check fails.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    job: Job,
    /// Longest delay after which the server may notice a deadline.
    late: Duration,
    /// Examples in each part of the data.
    rows: Vec<u64>,
    books: Books,
    ranks: Ranks,
    doubts: Doubts,
    timesheet: Timesheet,
    /// Connections before their Hello, and clients that owe pushed values; each with the time since
    /// which it may be silent.
    strangers: BTreeMap<PeerId, Time>,
    /// Connections that the server has closed.
    closed: BTreeSet<PeerId>,
    attached: BTreeMap<WorkerId, (PeerId, Time)>,
    /// Clients whose order awaits its answer, with the order.
    askers: BTreeMap<PeerId, Control>,
    alive: BTreeMap<WorkerId, Time>,
    /// Members that counted when they departed and have not returned, with the time of departure.
    missed: BTreeMap<WorkerId, Time>,
    short_since: Option<Time>,
    /// Disconnected servers, and since when.
    away: BTreeMap<ServerId, Time>,
    /// Servers that hold keys, except the coordinator.
    holders: BTreeSet<ServerId>,
    /// The version of the key map.
    map: u64,
    /// True if a rebalance of key ranges was ever requested.
    moves: bool,
    /// True while the server awaits measurements (of an update or of the parameters) from the
    /// others.
    measures: bool,
    /// Time of the last update, or since when the next one is possible.
    progress: Time,
    /// Longest time without an update although enough workers were present.
    pub(crate) longest_stall: Duration,
    drained: bool,
    evaluations: u32,
    evaluated: Option<u64>,
    /// Losses of the evaluations before the end.
    losses: Vec<f64>,
    /// Workers evaluate, or may have to: the end waits for the last evaluation.
    workers_evaluate: bool,
    ended: Option<(Time, EndReason)>,
    /// Time of the server's last restart: everything that it missed before is due then.
    began: Option<Time>,
}

impl Checker {
    /// Checkers for a server that has not started, which notices deadlines at most `late` late, and
    /// whose parts of the data have `rows` examples each.
    #[must_use]
    pub(crate) fn new(server: &Server, late: Duration, rows: Vec<u64>) -> Self {
        Self {
            job: server.job().clone(),
            late,
            books: Books::new(server, &rows),
            rows,
            ranks: Ranks::new(server.job()),
            doubts: Doubts::default(),
            timesheet: Timesheet::default(),
            strangers: BTreeMap::new(),
            closed: BTreeSet::new(),
            attached: BTreeMap::new(),
            askers: BTreeMap::new(),
            alive: BTreeMap::new(),
            missed: BTreeMap::new(),
            short_since: None,
            map: 0,
            moves: false,
            measures: false,
            holders: (1..server.job().servers).map(ServerId).collect(),
            away: (1..server.job().servers).map(|it| (ServerId(it), Time::ZERO)).collect(),
            progress: Time::ZERO,
            longest_stall: Duration::ZERO,
            drained: false,
            evaluations: 0,
            evaluated: None,
            losses: Vec::new(),
            // Of another model the server expects that its driver evaluates, until it refuses.
            workers_evaluate: matches!(server.job().model, ModelSpec::External { .. }),
            ended: None,
            began: None,
        }
    }

    /// Restricts the vectors of each worker to its working set; an empty list means all keys.
    #[must_use]
    pub(crate) fn of_working_sets(mut self, keys: Vec<KeyList>) -> Self {
        self.books.keys = keys;
        self
    }

    /// The server restarted and renewed all leases.
    pub(crate) fn began_anew(&mut self, now: Time) {
        self.alive.values_mut().for_each(|heard| *heard = now);
        self.began = Some(now);
        // The wait for goodbyes starts again: no goodbye could arrive during the restart.
        self.ended.iter_mut().for_each(|(at, _)| *at = now);
    }

    /// A worker computed a gradient.
    pub(crate) fn computed(&mut self, worker: WorkerId, order: &Compute, gradient: &[f32]) {
        self.books.computed(worker, order, gradient);
    }

    /// A worker sent a gradient, for the first time or as a repetition.
    pub(crate) fn sent(&mut self, worker: WorkerId, push: &Push) {
        self.books.sent(worker, push);
    }

    /// A connection reaches the server.
    pub(crate) fn connected(&mut self, now: Time, peer: PeerId) {
        self.strangers.insert(peer, now);
    }

    /// A message reaches the server.
    pub(crate) fn heard(&mut self, now: Time, peer: PeerId) {
        let whose = self.attached.iter().find(|(_, (attached, _))| *attached == peer);
        if let Some((&worker, _)) = whose {
            self.alive.entry(worker).and_modify(|heard| *heard = now);
        }
    }

    /// An order of a client (a mode, a stop, the leave of a server) reaches the server.
    pub(crate) fn asked(&mut self, peer: PeerId, control: &Control) {
        self.strangers.remove(&peer);
        self.askers.insert(peer, control.clone());
        self.ranks.may_switch = true;
    }

    /// A client's request for the parameters of a key range reaches the server. Its answer may have
    /// to wait for all servers.
    pub(crate) fn pulls(&mut self, peer: PeerId) {
        self.strangers.remove(&peer);
    }

    /// A client received the parameters of a key range.
    pub(crate) fn pulled(&self, answer: &RangeOf) {
        self.books.pulled(answer);
    }

    /// The server answered an order in the step with these events.
    pub(crate) fn answered(&mut self, events: &[Event], peer: PeerId, result: &Controlled) {
        let control = self.askers.remove(&peer);
        let control = control.unwrap_or_else(|| panic!("{peer} was answered twice, or unasked"));
        if control.key == STOP {
            assert!(
                result.is_err() || self.drained,
                "{peer} stopped the run without an order: {result:?}"
            );
        } else if control.key == LEAVE_SERVER && result.is_ok() {
            let server = control.value.parse().ok().map(|number: u32| ServerId(number - 1));
            let goes = |event: &Event| match event {
                Event::KeysMoved { left, .. } => *left == server,
                _ => false,
            };
            assert!(events.iter().any(goes), "server {} has not gone", control.value);
        } else if let Ok(Begun { version, .. }) = result {
            let begins = |event: &Event| match event {
                Event::Switched { version: with, mode, .. } => {
                    let is_so = |wished: Mode, mode: &Mode| {
                        wished.set(&control.key, &control.value) == Ok(*mode)
                    };
                    let auto = Mode::of(ConsistencySpec::Auto);
                    let begins_auto = **mode == self.job.at_start(auto) && is_so(auto, &auto);
                    with == version && (is_so(**mode, mode) || begins_auto)
                }
                _ => false,
            };
            assert!(events.iter().any(begins), "{control:?} is not so from {version} on");
        }
    }

    /// A connection is closed, at the server's end.
    pub(crate) fn closed(&mut self, peer: PeerId) {
        self.closed.insert(peer);
        self.strangers.remove(&peer);
        self.attached.retain(|_, (attached, _)| *attached != peer);
    }

    /// A rebalance of key ranges was requested.
    pub(crate) const fn moves(&mut self) {
        self.moves = true;
    }

    /// A stop of the run was requested.
    pub(crate) const fn drained(&mut self) {
        self.drained = true;
        self.ranks.drained = true;
    }

    /// The checker of the run as it was before it was to stop.
    pub(crate) fn undrained(mut self) -> Self {
        (self.drained, self.ranks.drained) = (false, false);
        self.askers.retain(|_, control| control.key != STOP);
        self
    }

    /// The server asked for an evaluation.
    pub(crate) const fn evaluate(&mut self) {
        self.evaluations += 1;
    }

    /// Checks a step of the server, caused by a message from `peer` if `Some`.
    pub(crate) fn step(
        &mut self,
        now: Time,
        server: &Server,
        events: &[Event],
        peer: Option<PeerId>,
    ) {
        self.measures = server.is_measuring();
        (self.ranks.measures, self.ranks.saves) = (self.measures, server.awaits_checkpoint());
        let mut fenced = self.askers.keys().any(|asker| Some(*asker) != peer);
        for (place, event) in events.iter().enumerate() {
            fenced &= !matches!(event, Event::Switched { .. } | Event::KeysMoved { .. });
            assert!(!fenced || !matches!(event, Event::Granted { .. }), "{event:?} before a fence");
            let next = events.get(place + 1);
            if matches!(event, Event::Restored { .. }) {
                let before = place.checked_sub(1).and_then(|before| events.get(before));
                let begins = matches!(before, Some(Event::Switched { .. }));
                assert!(begins, "{event:?} after {before:?}, with no mode that begins with it");
            }
            // Before the ranks handle it: after that the worker no longer counts.
            if let Event::Departed { worker, how, .. } = event {
                self.departed(now, *worker, *how);
            }
            self.timesheet.event(now, event);
            self.books.event(event, next);
            self.ranks.event(event, &events[place + 1..], &self.books);
            self.attendance(now, event, peer);
            self.doubts.event(event, next, &self.books);
        }
        // A measurement that ends may leave no event, and joiners count from then on.
        self.ranks.admit_if_nobody_counts(&[], &self.books);
        self.books.balance(server);
        self.ranks.check();
        let waits = !self.measures || server.status(now).wait.is_some();
        assert!(waits, "it measures, and says that it waits for nobody");
        // A run that is being stopped no longer reports that it has too few workers.
        let short = self.ranks.present() < self.job.membership.needed_to_run();
        let stopping = self.drained && short && self.ranks.in_rounds();
        // No round is decided while the update before it is being measured.
        let waits = self.measures || !self.books.has_open_round();
        let held = self.short_since.is_some() || stopping || waits;
        let ranks = &self.ranks;
        assert!(held || ranks.awaits_more(), "a round waits for nobody who counts: {ranks:?}");
        let global = self.job.budget.kind == BudgetKind::Global;
        let reached = global && self.books.samples >= server.samples_wanted();
        let ended = self.ended.is_some() || self.measures;
        assert!(!reached || ended, "it continues past its budget");
        let used_up = self.books.deck.as_ref().is_some_and(Deck::is_empty);
        let more = ranks.somebody_computes() || ended;
        assert!(!used_up || more || self.short_since.is_some(), "there is nothing left to do");
        self.check_times(now, server);
    }

    /// The connection can carry no more answers.
    pub(crate) fn hung_up(&mut self, peer: PeerId) {
        self.askers.remove(&peer);
    }

    /// Checks that every pending order has something to wait for.
    pub(crate) fn check_askers(&self) {
        let held = self.short_since.is_some() && self.books.has_open_round();
        // Orders also wait for a rebalance, and not every request for one is visible here.
        let waits = held || self.ranks.somebody_computes() || self.moves || self.measures;
        let over = self.ended.is_some() || !(self.ranks.running() || self.moves);
        assert!(self.askers.is_empty() || (waits && !over), "in vain: {:?}", self.askers);
    }

    fn attendance(&mut self, now: Time, event: &Event, peer: Option<PeerId>) {
        let present = self.ranks.present();
        let needed = self.job.membership.needed_to_run();
        match event {
            Event::Joined { worker, .. } => {
                let peer = peer.expect("somebody joined without a message");
                self.strangers.remove(&peer);
                let older = self.attached.insert(*worker, (peer, now));
                assert_eq!(older, None, "the older connection of {worker} was left open");
                // The worker may be refused in the same step.
                self.attached.retain(|_, (attached, _)| !self.closed.contains(attached));
                self.alive.insert(*worker, now);
            }
            Event::Ready { worker, rows } => {
                let own = match self.job.work {
                    WorkSpec::Shards { .. } => self.rows.iter().sum(),
                    WorkSpec::Equal | WorkSpec::Speed => self.rows[worker.0 as usize],
                };
                assert_eq!(*rows, own, "{worker} has the data of another");
                self.missed.remove(worker);
            }
            Event::Refused { worker: Some(worker), why, .. } => {
                use pstrain_wire::Refusal::{Data, Frame, NotFinite};
                let deserved = matches!(why, Data { .. } | Frame { .. } | NotFinite { .. });
                assert!(deserved, "{worker} was in order, but refused: {why}");
            }
            Event::Started { .. } => self.progress = now,
            Event::Updated { .. } => {
                assert!(present >= needed || !self.ranks.in_rounds(), "a round closed while short");
                self.progressed(now);
            }
            Event::Paused { present: said, needed: wanted } => {
                assert_eq!((*said, *wanted), (present, needed), "present and needed");
                assert!(present < needed && self.short_since.is_none(), "paused for nothing");
                self.short_since = Some(now);
                self.progressed(now);
            }
            Event::ServerWaits { .. } => {
                self.strangers.remove(&peer.expect("a server waits without a message"));
            }
            Event::KeysMoved { map, joined, left, .. } => {
                self.holders.extend(joined);
                self.holders.retain(|server| Some(*server) != *left);
                assert_eq!(*map, self.map + 1, "a version of the key map is missing");
                self.map = *map;
                self.progressed(now);
            }
            Event::ServerJoined { server } => {
                let peer = peer.expect("a server joined without a message");
                self.strangers.remove(&peer);
                self.away.remove(server);
            }
            // A server without keys is not missed.
            Event::ServerCutOff { server, .. } if self.holders.contains(server) => {
                self.away.insert(*server, now);
            }
            Event::Unpaused => {
                assert!(present >= needed && self.short_since.is_some(), "continued too early");
                self.short_since = None;
                self.progress = now;
            }
            Event::Granted { worker, .. } => {
                assert!(self.short_since.is_none(), "{worker} continues while too few are there");
                assert!(!self.drained, "{worker} continues though the run is to stop");
            }
            Event::Evaluated { point, evaluation } => self.note_evaluated(now, *point, evaluation),
            Event::EvaluationRequested { .. } | Event::Unevaluated { .. } => {
                self.workers_evaluate = true;
            }
            Event::Ended { reason } => {
                self.check_reason(now, *reason);
                self.ended = Some((now, *reason));
                self.progressed(now);
            }
            _ => {}
        }
    }

    fn progressed(&mut self, now: Time) {
        if self.short_since.is_none_or(|since| since == now) && self.progress > Time::ZERO {
            self.longest_stall = self.longest_stall.max(now.since(self.progress));
        }
        self.progress = now;
    }

    fn departed(&mut self, now: Time, worker: WorkerId, how: Departure) {
        let heard = self.alive.remove(&worker);
        let heard = heard.unwrap_or_else(|| panic!("{worker} departed, but it was not there"));
        if how == Departure::Lost && self.ended.is_none() {
            let lease = self.job.membership.lease;
            assert!(now >= heard + lease, "{worker} was given up before its lease was over");
        }
        // A replaced worker is not missed: another process has its slot.
        let missed = how != Departure::Replaced && self.ranks.counts(worker);
        if missed && self.ranks.running() && !self.drained {
            self.missed.entry(worker).or_insert(now);
        }
    }

    fn note_evaluated(&mut self, now: Time, point: Point, evaluation: &Evaluation) {
        self.evaluations -= 1;
        if self.ended.is_none() && evaluation.examples > 0 {
            self.losses.push(evaluation.loss);
        }
        self.evaluated = self.evaluated.max(Some(point.version.0));
        // Workers that evaluate learn of the end only then.
        let workers_evaluate = self.workers_evaluate;
        self.ended.iter_mut().filter(|_| workers_evaluate).for_each(|(at, _)| *at = now);
    }

    /// Evaluations since the best one.
    fn unimproved(&self) -> usize {
        let finite = self.losses.iter().enumerate().filter(|(_, loss)| loss.is_finite());
        let best = finite.min_by(|(_, one), (_, other)| one.total_cmp(other));
        self.losses.len() - best.map_or(0, |(place, _)| place + 1)
    }

    /// Checks that the run may end now for `reason`.
    fn check_reason(&self, now: Time, reason: EndReason) {
        let membership = self.job.membership;
        let wanted = self.job.data.train.rows * u64::from(self.job.budget.epochs);
        let waited = |since: Time| now >= since + membership.patience();
        let unimproved = self.unimproved();
        let patience = self.job.stopping.patience.map_or(usize::MAX, |most| most as usize);
        let is_over = unimproved >= patience;
        match reason {
            EndReason::NoImprovement => assert!(is_over, "only {unimproved} were no better"),
            EndReason::Diverged(_) => {}
            _ => assert!(!is_over, "{unimproved} evaluations were no better"),
        }
        match reason {
            EndReason::TargetReached => panic!("there is no target"),
            EndReason::ParametersLost(_) | EndReason::Apart(_) => {
                panic!("the server has the parameters, and workers connect to it alone")
            }
            EndReason::NoImprovement => {}
            EndReason::BudgetReached if self.job.budget.kind == BudgetKind::Global => {
                // Mini-batches that are left out are no samples; the deck counts them.
                let is_dealt = self.books.deck.is_some();
                assert!(is_dealt || self.books.samples >= wanted, "it ended too early");
            }
            EndReason::BudgetReached => {
                assert!(self.ranks.all_finished(), "somebody had not done their share");
                assert!(!self.books.has_open_round(), "finished gradients were thrown away");
            }
            EndReason::Stopped => assert!(self.drained, "nobody asked it to stop"),
            EndReason::WorkerLost(worker, _) => {
                assert!(!self.ranks.finished(worker), "{worker} had done its share");
                let since = self.missed.get(&worker);
                let since = since.unwrap_or_else(|| panic!("{worker} did not count"));
                match membership.on_loss {
                    OnLoss::Continue | OnLoss::Reassign => panic!("it ended because of {worker}"),
                    OnLoss::Wait => assert!(waited(*since), "it did not wait for {worker}"),
                    OnLoss::Stop => assert_eq!(*since, now, "it ended too late"),
                }
            }
            EndReason::TooFewWorkers { .. } => {
                let gathering = now >= Time::ZERO + membership.start_patience();
                let since = self.short_since;
                assert!(since.map_or(gathering, waited), "it was not patient");
                let away = self.away.keys().next().filter(|_| since.is_none());
                assert_eq!(away, None, "a server was not there for the workers that were");
            }
            EndReason::ServerLost(server) => {
                let since = self.away.get(&server).unwrap_or_else(|| panic!("{server} is there"));
                let gathering = now >= Time::ZERO + membership.start_patience();
                assert!(gathering || waited(*since), "it did not wait for server {server}");
            }
            EndReason::Diverged(version) => {
                assert!(self.books.saw_bad_gradient, "every gradient was finite");
                self.doubts.check_diverged(version);
            }
        }
    }

    /// Checks that everything that is due by now has happened.
    fn check_times(&self, now: Time, server: &Server) {
        if self.began == Some(now) {
            return;
        }
        if let Some(at) = server.deadline() {
            assert!(now <= at + self.late, "the server missed {at} at {now}");
        }
        let membership = self.job.membership;
        let limit = membership.lease + self.late;
        if server.deadline().is_none() {
            return; // the server has finished
        }
        for (peer, since) in &self.strangers {
            assert!(now <= *since + limit, "{peer} may be silent for ever");
        }
        for (worker, heard) in &self.alive {
            assert!(now <= *heard + limit, "{worker} is dead, and nobody noticed");
        }
        if let Some((at, _)) = self.ended {
            // The other servers are awaited as in training, since each holds a part of the result.
            let awaits = self.evaluations > 0 || self.job.servers > 1 || self.map > 0;
            assert!(now <= at + limit || awaits, "it does not come to its end");
        }
        if !self.ranks.running() || self.drained {
            return;
        }
        let patience = membership.patience() + self.late;
        assert_eq!(
            self.ranks.present() < membership.needed_to_run(),
            self.short_since.is_some(),
            "paused, but not short, or the other way round"
        );
        if let Some(since) = self.short_since {
            assert!(now <= since + patience, "too few workers for too long");
        }
        if membership.on_loss == OnLoss::Wait {
            for (worker, since) in &self.missed {
                assert!(now <= *since + patience, "it waits for {worker} for ever");
            }
        }
        assert!(membership.on_loss != OnLoss::Stop || self.missed.is_empty(), "it did not stop");
    }

    /// True if the server has reported the end of the run.
    #[must_use]
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// True if all workers were present at the start and none joined or departed before the end.
    #[must_use]
    pub(crate) const fn membership_was_fixed(&self) -> bool {
        self.ranks.fixed
    }

    /// Final checks once the server has finished.
    pub(crate) fn finish(&self, server: &Server, reason: EndReason) {
        self.books.close();
        assert!(self.alive.is_empty(), "some are there after the end: {:?}", self.alive);
        assert_eq!(self.evaluations, 0, "evaluations that were not waited for");
        assert!(self.askers.is_empty(), "never answered: {:?}", self.askers);
        let version = server.version().0;
        let is_lost = matches!(reason, EndReason::ServerLost(_));
        assert!(self.ended.is_some_and(|(_, end)| is_lost || end == reason), "{reason}");
        if version > 0 && !is_lost {
            assert_eq!(self.evaluated, Some(version), "the result was not evaluated");
        }
        if let (Some(deck), Some((_, EndReason::BudgetReached))) = (&self.books.deck, self.ended) {
            deck.check_finished();
        }
        let partition = self.job.budget.kind == BudgetKind::Partition;
        let reached = matches!(self.ended, Some((_, EndReason::BudgetReached)));
        if partition && reached && self.membership_was_fixed() {
            for worker in (0..self.job.membership.workers).map(WorkerId) {
                let batches = self.ranks.rows(worker).div_ceil(self.job.batch_size.into());
                let quota = batches * u64::from(self.job.budget.epochs);
                assert_eq!(self.books.batches_finished(worker), quota, "the share of {worker}");
            }
        }
    }
}
