//! Who counts and how far each one is, recomputed from events alone, and held against what the
//! policy promises.

use pstrain_core::consistency::ConsistencySpec;
use pstrain_core::id::WorkerId;
use pstrain_core::job::{BudgetKind, Job, OnLoss};
use pstrain_core::node::{Departure, Event};

use super::books::Books;

/// The second opinion on the cohort.
#[derive(Debug)]
pub(super) struct Ranks {
    job: Job,
    /// The slack, if gradients are applied on arrival; none if they are gathered in rounds.
    slack: Option<u64>,
    ranks: Vec<Rank>,
    started: bool,
    ended: bool,
    /// Whether somebody asked the server to stop.
    pub(super) drained: bool,
    /// Whether the membership has not changed since the start.
    pub(super) fixed: bool,
    /// Who contributed to the update under way, with the staleness of each gradient.
    round: Vec<(WorkerId, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    ready: bool,
    alive: bool,
    counts: bool,
    joining: bool,
    finished: bool,
    /// Mini-batches it has and has not pushed.
    under_way: u64,
    contributed: bool,
    clock: u64,
    rows: u64,
}

impl Ranks {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            slack: match job.mode.consistency {
                ConsistencySpec::Bsp | ConsistencySpec::Ssp { slack: 0 } => None,
                ConsistencySpec::Ssp { slack } => Some(slack),
                ConsistencySpec::Asp => Some(u64::MAX),
            },
            ranks: vec![Rank::default(); job.membership.workers as usize],
            started: false,
            ended: false,
            drained: false,
            fixed: true,
            round: Vec::new(),
            job: job.clone(),
        }
    }

    /// The server reported something; the books are up to date with it.
    pub(super) fn event(&mut self, event: &Event, next: Option<&Event>, books: &Books) {
        match event {
            Event::Joined { worker, resumed: false, .. } => {
                let rank = self.rank(*worker);
                assert!(!rank.alive, "{worker} was given away twice");
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
            Event::Pushed { worker, .. } => {
                let dropped = matches!(next, Some(Event::Dropped { .. }));
                self.pushed(*worker, dropped, books);
            }
            Event::Applied { worker, staleness, .. } => self.round.push((*worker, *staleness)),
            Event::Updated { .. } => self.updated(),
            Event::Departed { worker, how, .. } => self.departed(*worker, *how),
            Event::Ended { .. } => self.ended = true,
            _ => {}
        }
        if self.started && self.counted().count() == 0 && !books.has_open_round() {
            self.admit(); // there is no round to wait for
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

    fn gets_ready(&mut self, worker: WorkerId, rows: u64, books: &Books) {
        let nobody = self.counted().count() == 0 && !books.has_open_round();
        let slowest = self.slowest();
        let (started, in_rounds) = (self.started, self.slack.is_none());
        self.fixed &= !started;
        let rank = self.rank(worker);
        (rank.ready, rank.rows) = (true, rows);
        if !started || rank.finished || rank.counts {
        } else if in_rounds && !nobody {
            rank.joining = true;
        } else {
            rank.counts = true;
            rank.clock = slowest.unwrap_or(rank.clock);
        }
    }

    fn granted(&mut self, worker: WorkerId) {
        let (slowest, slack) = (self.slowest().unwrap_or_default(), self.slack);
        let rank = self.rank(worker);
        assert!(rank.counts && rank.alive && rank.ready, "{worker} does not count: {rank:?}");
        match slack {
            None => assert!(!rank.contributed, "{worker} may contribute twice to a round"),
            Some(slack) => assert!(
                rank.clock + rank.under_way - slowest <= slack,
                "{worker} starts at clock {} while the slowest is at {slowest}",
                rank.clock
            ),
        }
        rank.under_way += 1;
    }

    fn pushed(&mut self, worker: WorkerId, dropped: bool, books: &Books) {
        let job = self.job.clone();
        let rank = self.rank(worker);
        rank.under_way -= 1;
        if dropped {
            return;
        }
        rank.clock += 1;
        rank.contributed = true;
        let quota = rank.rows.div_ceil(job.batch_size.into()) * u64::from(job.budget.epochs);
        if job.budget.kind == BudgetKind::Partition && books.accepted(worker) >= quota {
            (rank.finished, rank.counts) = (true, false);
        }
    }

    fn updated(&mut self) {
        let round = std::mem::take(&mut self.round);
        match self.slack {
            None => {
                for (place, (worker, staleness)) in round.iter().enumerate() {
                    assert_eq!(*staleness, 0, "{worker} contributed a stale gradient to a round");
                    let twice = round[..place].iter().any(|(other, _)| other == worker);
                    assert!(!twice, "{worker} contributed twice to a round");
                }
                for (rank, worker) in self.ranks.iter().zip((0..).map(WorkerId)) {
                    let contributed = round.iter().any(|(who, _)| *who == worker);
                    assert!(!rank.counts || contributed, "a round closed without {worker}");
                }
            }
            Some(slack) => {
                assert_eq!(round.len(), 1, "one update was made of several gradients: {round:?}");
                let others = self.ranks.len() as u64 - 1;
                let most = others.saturating_mul(slack.saturating_mul(2).saturating_add(1));
                // Its own that were under way before it.
                let most = most.saturating_add(u64::from(self.job.mode.window()) - 1);
                assert!(!self.fixed || round[0].1 <= most, "staleness {} > {most}", round[0].1);
            }
        }
        self.ranks.iter_mut().for_each(|rank| rank.contributed = false);
        self.admit();
    }

    /// Those who joined count from now on.
    fn admit(&mut self) {
        for place in 0..self.ranks.len() {
            let slowest = self.slowest();
            let rank = &mut self.ranks[place];
            if std::mem::take(&mut rank.joining) {
                rank.counts = true;
                rank.clock = slowest.unwrap_or(rank.clock);
            }
        }
    }

    fn departed(&mut self, worker: WorkerId, how: Departure) {
        let keeps = self.job.membership.on_loss == OnLoss::Wait && !self.drained;
        let over = self.ended || !self.started;
        self.fixed &= self.ended;
        let rank = self.rank(worker);
        assert!(rank.alive, "{worker} departed ({how:?}), but it was not there");
        (rank.alive, rank.ready, rank.under_way) = (false, false, 0);
        rank.counts &= over || keeps;
        rank.joining = false;
    }

    /// After each step of the server: nobody computes too far ahead, or waits for nothing.
    pub(super) fn check(&self) {
        let computing = self.ranks.iter().any(|rank| rank.under_way > 0);
        assert!(computing || self.ended || !self.drained, "there is nothing left to wait for");
        let (Some(slack), Some(slowest)) = (self.slack, self.slowest()) else { return };
        for rank in self.counted() {
            let most = slack.saturating_add(u64::from(rank.under_way == 0));
            assert!(rank.clock - slowest <= most, "{rank:?} while the slowest is at {slowest}");
        }
    }

    /// Whether somebody who counts has not contributed to the round that is open.
    pub(super) fn is_owed(&self) -> bool {
        self.counted().any(|rank| !rank.contributed)
    }

    /// Workers that are there with their data, or have done their share.
    pub(super) fn present(&self) -> u32 {
        self.ranks.iter().filter(|rank| rank.ready || rank.finished).count() as u32
    }

    /// Workers that are there with their data.
    pub(super) fn ready(&self) -> usize {
        self.ranks.iter().filter(|rank| rank.ready).count()
    }

    /// Whether everybody who is there has done their share.
    pub(super) fn all_finished(&self) -> bool {
        self.ranks.iter().all(|rank| !rank.alive || rank.finished)
            && self.counted().count() == 0
            && self.ranks.iter().any(|rank| rank.finished)
    }

    /// Whether `worker` had done its share.
    pub(super) fn finished(&self, worker: WorkerId) -> bool {
        self.ranks[worker.0 as usize].finished
    }

    /// Whether `worker` counts.
    pub(super) fn counts(&self, worker: WorkerId) -> bool {
        self.ranks[worker.0 as usize].counts
    }

    /// Examples in the partition of `worker`, as it said.
    pub(super) fn rows(&self, worker: WorkerId) -> u64 {
        self.ranks[worker.0 as usize].rows
    }

    /// Whether gradients are gathered in rounds.
    pub(super) const fn in_rounds(&self) -> bool {
        self.slack.is_none()
    }

    /// Whether the run has started, and not ended.
    pub(super) const fn running(&self) -> bool {
        self.started && !self.ended
    }
}
