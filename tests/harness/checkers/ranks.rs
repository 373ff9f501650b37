//! Cohort checker: recomputes from events alone which workers count and at which clock, and checks
//! both against the guarantees of the policy.

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{Incarnation, Version, WorkerId};
use pstrain_policy::job::{BudgetKind, Job, OnLoss};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use pstrain_roles::node::{Departure, Event};

use super::books::Books;
use super::deck::Deck;
use super::promises::{Given, Member, Promises};

/// Second opinion on the cohort.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    job: Job,
    mode: Mode,
    promises: Promises,
    ranks: Vec<Rank>,
    started: bool,
    ended: bool,
    /// True if a change of mode may have been requested.
    pub(super) may_switch: bool,
    /// True while the server awaits measurements (of an update or of the parameters) from the
    /// others: their consequences come in a later step.
    pub(super) measures: bool,
    /// True while the state that a stopped run resumes from is not on the disk.
    pub(super) saves: bool,
    /// True if a stop of the run was requested.
    pub(super) drained: bool,
    /// True if the membership has not changed since the start.
    pub(super) fixed: bool,
    version: Version,
    /// Gradients accepted so far.
    accepted: u64,
    /// Accepted gradients that are not yet part of an update.
    pending: Vec<Given>,
    /// Gradients applied since the last update.
    round: Vec<Given>,
    /// Deferred checks since an update that may or may not make way for another mode.
    unclear: Vec<Unclear>,
}

/// A check that is deferred until its circumstances are known.
#[derive(Clone, Debug)]
enum Unclear {
    Updated { closing: Closing, taken: Vec<Given>, members: Vec<Member>, fixed: bool, idle: bool },
    Wanted(u64),
    Widened(u32),
    Left(WorkerId),
}

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    ready: bool,
    alive: bool,
    counts: bool,
    joining: bool,
    finished: bool,
    /// Mini-batches granted and not yet pushed.
    under_way: u64,
    contributed: bool,
    incarnation: Incarnation,
    clock: u64,
    /// Gradients that had been accepted when it began to count.
    since: u64,
    rows: u64,
}

impl Ranks {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            mode: job.at_start(job.mode),
            promises: Promises::new(
                &job.at_start(job.mode),
                job.membership.workers,
                wanted(job, 0),
            ),
            ranks: vec![Rank::default(); job.membership.workers as usize],
            started: false,
            may_switch: !job.switches.is_empty(),
            ended: false,
            measures: false,
            saves: false,
            drained: false,
            fixed: true,
            version: Version(0),
            accepted: 0,
            pending: Vec::new(),
            round: Vec::new(),
            unclear: Vec::new(),
            job: job.clone(),
        }
    }

    /// Handles an event, with the events after it in this step. The books already include it.
    pub(super) fn event(&mut self, event: &Event, later: &[Event], books: &Books) {
        match event {
            Event::Granted { .. } => {
                self.clear_up(false);
                // Joiners waited while an update was being measured.
                self.admit_if_nobody_counts(later, books);
            }
            Event::Pushed { .. } => self.clear_up(false),
            // A mode that counts the same changes no cohort, so it does not tell what an update
            // before it made way for: an order that arrives while the last update before pushed
            // values is measured begins first, and the push with its new cohort after it.
            Event::Switched { anew: true, .. } => self.clear_up(true),
            Event::Ended { .. } => self.clear_up(self.may_end(books)),
            _ => {}
        }
        match event {
            Event::Joined { worker, resumed: false, incarnation, .. } => {
                let rank = self.rank(*worker);
                assert!(!rank.alive, "{worker} was given away twice");
                rank.incarnation = *incarnation;
                (rank.alive, rank.ready) = (true, false);
            }
            Event::Ready { worker, rows } => self.gets_ready(*worker, *rows, books),
            Event::Started { workers } => {
                self.started = true;
                for rank in &mut self.ranks {
                    rank.counts = rank.ready;
                }
                assert_eq!(*workers as usize, self.counted().count(), "workers at the start");
                self.fixed = *workers == self.job.membership.workers;
            }
            Event::Granted { worker, .. } => self.granted(*worker),
            Event::Pushed { worker, base, .. } => {
                let dropped = match later.first() {
                    Some(Event::Dropped { reason, .. }) => Some(*reason),
                    _ => None,
                };
                self.check_admission(*worker, *base, dropped);
                if books.came_late {
                    return; // another push replaces it
                }
                self.pushed(*worker, dropped, books);
            }
            Event::Applied { worker, incarnation, clock, staleness, .. } => {
                self.applied((*worker, *incarnation, clock.0), *staleness);
            }
            Event::Updated { point, closing } => {
                self.version = point.version;
                self.updated(*closing, self.is_flush(later, books));
                self.told(Unclear::Wanted(wanted(&self.job, books.samples)));
            }
            Event::Switched { mode, anew, .. } => self.switched(mode, *anew, books),
            Event::Restored { point, .. } => self.version = point.version,
            Event::Adjusted { in_flight, .. } => self.told(Unclear::Widened(*in_flight)),
            Event::Departed { worker, how, .. } => self.departed(*worker, *how),
            Event::Ended { .. } => {
                self.ended = true;
                self.pending.clear();
            }
            _ => {}
        }
        self.admit_if_nobody_counts(later, books);
    }

    /// Lets joiners count if there is no round to wait for; `later` are the remaining events of the
    /// step.
    pub(super) fn admit_if_nobody_counts(&mut self, later: &[Event], books: &Books) {
        // If several workers depart in one step, none of them counts in place of another.
        let more_depart = later.iter().any(|event| matches!(event, Event::Departed { .. }));
        let nobody = self.counted().count() == 0 && !books.has_open_round();
        if self.started && nobody && !more_depart && !self.measures {
            self.admit();
        }
    }

    fn rank(&mut self, worker: WorkerId) -> &mut Rank {
        &mut self.ranks[worker.0 as usize]
    }

    fn counted(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(|rank| rank.counts)
    }

    fn slowest(&self) -> Option<u64> {
        self.counted().map(|rank| rank.clock).min()
    }

    /// The workers that count.
    fn members(&self) -> Vec<Member> {
        let all = (0..).map(WorkerId).zip(&self.ranks).filter(|(_, rank)| rank.counts);
        let member = |(worker, rank): (WorkerId, &Rank)| Member {
            worker,
            clock: rank.clock,
            since: rank.since,
            pass: self.job.pass_over(rank.rows),
        };
        all.map(member).collect()
    }

    /// Lets `worker` count from now on, at the clock of the slowest or of the fastest.
    fn count(&mut self, worker: WorkerId) {
        let clocks = self.counted().map(|rank| rank.clock);
        let entry = if self.promises.in_front() {
            // Not in an iteration to which a departed worker has contributed, either.
            clocks.max().max(self.pending.iter().map(|given| given.clock + 1).max())
        } else {
            clocks.min()
        };
        let accepted = self.accepted;
        let rank = self.rank(worker);
        rank.counts = true;
        rank.contributed = false;
        rank.since = accepted;
        rank.clock = entry.unwrap_or(rank.clock);
    }

    fn gets_ready(&mut self, worker: WorkerId, rows: u64, books: &Books) {
        let nobody = self.counted().count() == 0 && !books.has_open_round() && !self.measures;
        let (started, in_rounds) = (self.started, self.promises.in_rounds());
        self.fixed &= !started;
        let rank = self.rank(worker);
        (rank.ready, rank.rows) = (true, rows);
        if !started || rank.finished || rank.counts {
        } else if in_rounds && !nobody {
            rank.joining = true;
        } else {
            self.count(worker);
        }
    }

    fn granted(&mut self, worker: WorkerId) {
        let slowest = self.slowest().unwrap_or_default();
        let members = self.members();
        let member = members.iter().find(|member| member.worker == worker);
        let under_way = self.rank(worker).under_way;
        let enough = |member| self.promises.has_given_enough(member, under_way, &self.pending);
        assert!(!member.is_some_and(enough), "{worker} continues in vain: {:?}", self.pending);
        let pass = member.map_or(u64::MAX, |member| member.pass);
        let most = self.promises.most_lead_of(members.len(), pass);
        let holds = self.promises.holds();
        let rank = self.rank(worker);
        assert!(rank.counts && rank.alive && rank.ready, "{worker} does not count: {rank:?}");
        assert!(!holds || !rank.contributed, "{worker} may contribute twice to a round");
        let clock = rank.clock + rank.under_way;
        rank.under_way += 1;
        assert!(
            clock - slowest <= most,
            "{worker} starts at clock {clock} while the slowest is at {slowest}"
        );
        let turn = (worker, clock);
        let before = members
            .iter()
            .find(|other| other.worker != worker && self.promises.waits_for_turn(turn, other));
        assert_eq!(before, None, "{worker} starts at clock {clock}, but it is not its turn");
    }

    /// Checks that a gradient is dropped if and only if it is too stale for the policy or the run
    /// has ended.
    fn check_admission(&self, worker: WorkerId, base: Version, dropped: Option<DropReason>) {
        let stale = self.version.since(base);
        let too_stale = stale >= self.promises.staleness_below()
            || self.mode.max_staleness.is_some_and(|most| stale > most);
        match dropped {
            Some(DropReason::Over) => assert!(self.ended, "it is not over for {worker}"),
            Some(DropReason::Stale) => assert!(too_stale, "{worker}: dropped at {stale}"),
            Some(DropReason::NotFinite) => {} // checked by `Doubts`
            Some(DropReason::Redundant) => panic!("{worker}: nobody computes its mini-batches too"),
            None => assert!(!too_stale, "{worker}: accepted at {stale}"),
        }
    }

    fn pushed(&mut self, worker: WorkerId, dropped: Option<DropReason>, books: &Books) {
        // A worker that does not count contributes to the iteration of the slowest.
        let slowest = self.slowest();
        let number = self.accepted;
        let rank = self.rank(worker);
        rank.under_way -= 1;
        match dropped {
            Some(DropReason::NotFinite) => return self.finish(worker, books),
            Some(_) => return,
            None => {}
        }
        let clock = if rank.counts { rank.clock } else { slowest.unwrap_or_default() };
        let given = Given { worker, incarnation: rank.incarnation, clock, number, staleness: 0 };
        if rank.counts {
            rank.clock += 1;
            rank.contributed = true;
        }
        self.promises.given(worker);
        self.finish(worker, books);
        self.accepted += 1;
        self.pending.push(given);
    }

    /// A worker that has finished its share counts no more.
    fn finish(&mut self, worker: WorkerId, books: &Books) {
        let (kind, batch_size) = (self.job.budget.kind, u64::from(self.job.batch_size));
        let rank = &mut self.ranks[worker.0 as usize];
        let quota = rank.rows.div_ceil(batch_size) * u64::from(self.job.budget.epochs);
        if kind == BudgetKind::Partition && books.accepted(worker) >= quota {
            (rank.finished, rank.counts) = (true, false);
            self.told(Unclear::Left(worker));
        }
    }

    fn applied(&mut self, (worker, incarnation, clock): (WorkerId, Incarnation, u64), stale: u64) {
        let same = |given: &Given| {
            (given.worker, given.incarnation, given.clock) == (worker, incarnation, clock)
        };
        let place = self.pending.iter().position(same);
        let place = place.unwrap_or_else(|| {
            panic!("{worker} gave nothing at clock {clock}, of {:?}", self.pending)
        });
        let given = self.pending.remove(place);
        self.round.push(Given { staleness: stale, ..given });
    }

    /// True if an update makes way for another mode, or is the last of the run: nothing is under
    /// way, and the mode or the end follows directly. `None` if that is unknown before the update
    /// is made.
    fn is_flush(&self, later: &[Event], books: &Books) -> Option<bool> {
        // Evaluations have no effect on training.
        let goes_on = |event: &&Event| {
            matches!(
                event,
                Event::Applied { .. }
                    | Event::Updated { .. }
                    | Event::Evaluated { .. }
                    | Event::EvaluationRequested { .. }
                    | Event::Unevaluated { .. }
            )
        };
        let makes_way = match later.iter().find(|event| !goes_on(event)) {
            Some(Event::Switched { anew, .. }) => *anew,
            Some(Event::Ended { .. }) => self.may_end(books),
            None if self.measures => return None,
            _ => false,
        };
        Some(makes_way && !self.somebody_computes())
    }

    /// True if the run may end before all guarantees are met.
    fn may_end(&self, books: &Books) -> bool {
        self.may_switch || books.deck.as_ref().is_some_and(Deck::is_empty)
    }

    /// Runs the deferred checks: it is now known whether their updates made way for another mode.
    fn clear_up(&mut self, makes_way: bool) {
        for unclear in std::mem::take(&mut self.unclear) {
            match unclear {
                Unclear::Updated { taken, fixed, idle: true, .. } if makes_way => {
                    self.promises.flushed(&taken, fixed);
                }
                Unclear::Updated { closing, taken, members, fixed, .. } => {
                    self.promises.updated(closing, &taken, &members, fixed);
                }
                Unclear::Wanted(wanted) => self.promises.set_wanted(wanted),
                Unclear::Widened(window) => self.promises.widen(window),
                Unclear::Left(worker) => self.promises.left(worker),
            }
        }
    }

    /// Reports to the guarantees, at once if no check is deferred.
    fn told(&mut self, unclear: Unclear) {
        let is_clear = self.unclear.is_empty();
        self.unclear.push(unclear);
        if is_clear {
            self.clear_up(false);
        }
    }

    /// Another mode begins.
    fn switched(&mut self, mode: &Mode, anew: bool, books: &Books) {
        let is_same = mode.counts_like(&self.mode);
        assert!(anew || is_same, "{mode} counts otherwise than {}", self.mode);
        assert!(!anew || !is_same || self.may_switch, "nobody ordered another than {mode}");
        if !anew {
            self.told(Unclear::Widened(mode.window()));
            self.mode = *mode;
            return;
        }
        // A gradient counts under the mode under which it was granted.
        assert!(!self.somebody_computes(), "{mode} began while gradients were under way");
        assert!(self.pending.is_empty(), "{mode} began with gradients of the one before");
        self.mode = *mode;
        let wanted = wanted(&self.job, books.samples);
        self.promises = Promises::new(mode, self.job.membership.workers, wanted);
        let fastest = self.counted().map(|rank| rank.clock).max().unwrap_or_default();
        for rank in self.ranks.iter_mut().filter(|rank| rank.counts) {
            (rank.clock, rank.contributed) = (fastest, false);
        }
        self.admit();
    }

    /// True if a gradient is under way.
    pub(super) fn somebody_computes(&self) -> bool {
        self.ranks.iter().any(|rank| rank.under_way > 0)
    }

    fn updated(&mut self, closing: Closing, is_flush: Option<bool>) {
        let mut taken = std::mem::take(&mut self.round);
        taken.sort_by_key(|given| given.number);
        let (members, fixed, idle) = (self.members(), self.fixed, !self.somebody_computes());
        self.unclear.push(Unclear::Updated { closing, taken, members, fixed, idle });
        is_flush.into_iter().for_each(|is_flush| self.clear_up(is_flush));
        if self.pending.is_empty() {
            self.ranks.iter_mut().for_each(|rank| rank.contributed = false);
        }
        self.admit();
    }

    /// Lets the joiners count from now on.
    fn admit(&mut self) {
        for place in 0..self.ranks.len() {
            if std::mem::take(&mut self.ranks[place].joining) {
                self.count(WorkerId(place as u32));
            }
        }
    }

    fn departed(&mut self, worker: WorkerId, how: Departure) {
        let keeps = self.job.membership.on_loss == OnLoss::Wait && !self.drained;
        let over = self.ended || !self.started;
        self.fixed &= self.ended;
        let counted = self.counts(worker);
        let rank = self.rank(worker);
        assert!(rank.alive, "{worker} departed ({how:?}), but it was not there");
        (rank.alive, rank.ready, rank.under_way) = (false, false, 0);
        rank.counts &= over || keeps;
        rank.joining = false;
        if counted && !rank.counts {
            self.told(Unclear::Left(worker));
        }
    }

    /// Checks after each step of the server that no worker computes too far ahead, and that a run
    /// that is being stopped has something to wait for.
    pub(super) fn check(&mut self) {
        let computing = self.somebody_computes();
        // A flush before pushed values waits for disconnected servers, so its checks stay deferred.
        if !self.measures && (computing || !self.may_switch) {
            self.clear_up(false);
        }
        let over = self.ended || self.measures || self.saves || !self.drained;
        assert!(computing || over, "there is nothing left to wait for");
        let (most, Some(slowest)) = (self.promises.most_lead(), self.slowest()) else { return };
        if self.promises.in_rounds() {
            return; // contributors are ahead until the update, and must wait for it
        }
        for rank in self.counted() {
            let ahead = rank.clock + rank.under_way - slowest;
            assert!(ahead <= most.saturating_add(1), "{rank:?} while the slowest is at {slowest}");
        }
    }

    /// True if the open round has something to wait for.
    pub(super) fn awaits_more(&self) -> bool {
        self.promises.awaits_more(&self.pending, &self.members())
    }

    /// Workers that are present with their data, or have finished their share.
    pub(super) fn present(&self) -> u32 {
        self.ranks.iter().filter(|rank| rank.ready || rank.finished).count() as u32
    }

    /// True if every present worker has finished its share.
    pub(super) fn all_finished(&self) -> bool {
        self.ranks.iter().all(|rank| !rank.alive || rank.finished)
            && self.counted().count() == 0
            && self.ranks.iter().any(|rank| rank.finished)
    }

    /// True if `worker` has finished its share.
    pub(super) fn finished(&self, worker: WorkerId) -> bool {
        self.ranks[worker.0 as usize].finished
    }

    /// True if `worker` counts.
    pub(super) fn counts(&self, worker: WorkerId) -> bool {
        self.ranks[worker.0 as usize].counts
    }

    /// Examples in the partition of `worker`, as it reported.
    pub(super) fn rows(&self, worker: WorkerId) -> u64 {
        self.ranks[worker.0 as usize].rows
    }

    /// True if gradients are gathered in rounds.
    pub(super) const fn in_rounds(&self) -> bool {
        self.promises.in_rounds()
    }

    /// True between the start and the end of the run.
    pub(super) const fn running(&self) -> bool {
        self.started && !self.ended
    }
}

/// Mini-batches that the budget still asks for after updates of `samples` examples.
fn wanted(job: &Job, samples: u64) -> u64 {
    let all = job.data.train.rows * u64::from(job.budget.epochs);
    match job.budget.kind {
        BudgetKind::Global => {
            all.saturating_sub(samples).div_ceil(job.whole_batch(job.data.train.rows))
        }
        BudgetKind::Partition => u64::MAX,
    }
}
