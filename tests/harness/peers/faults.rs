//! The faults of the lab.

use std::time::Duration;

use pstrain_policy::job::InitialFrom;
use pstrain_roles::node::Input;

use super::{Happening, Lab, MEETING, State};

/// The faults of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFaults {
    /// None.
    None,
    /// A worker dies, is stopped or is cut off, for good.
    One,
    /// The first worker that makes some update is cut off at once: the others lack its values.
    Ahead,
    /// Several of all kinds; connections are tried twice, too.
    Many,
    /// The meeting point dies and is started again from its last checkpoint, and connections break.
    Restarts,
    /// The same, and several faults of all kinds.
    ManyAndRestarts,
    /// Some workers listen nowhere, and some do not reach some others.
    Apart,
    /// The same, and several faults of all kinds.
    ApartAndMany,
    /// A person stops the run.
    Stopped,
    /// The same, and a worker dies at about that time.
    StoppedAndKilled,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// A worker is killed.
    Kill,
    /// A worker is stopped, and goes on later.
    Stop,
    /// Nothing goes from one process to another.
    CutOneWay,
    /// Nothing goes between two processes.
    Cut,
    /// Nothing goes between a worker and all others.
    Isolate,
    /// A connection breaks, with all that is on its way.
    Break,
}

/// A fault of a worker's process, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: PeerFault,
    pub(super) process: usize,
    pub(super) lasts: Duration,
}

impl Lab<'_> {
    pub(super) fn plan(&mut self, faults: PeerFaults) {
        use PeerFault as F;
        let lease = self.toy.job.membership.lease;
        let workers = self.toy.job.membership.workers;
        let step = self.compute + self.delay * 2 * workers;
        if matches!(faults, PeerFaults::Restarts | PeerFaults::ManyAndRestarts) {
            self.plan_restarts();
        }
        let (count, kinds) = match faults {
            PeerFaults::None | PeerFaults::Apart => return,
            PeerFaults::Stopped | PeerFaults::StoppedAndKilled => {
                let at = self.span(self.delay * 10 + step * 20);
                if faults == PeerFaults::StoppedAndKilled {
                    let process = 1 + self.random.below(workers.into()) as usize;
                    let kill = Fault { kind: F::Kill, process, lasts: lease };
                    let later = self.span(self.delay * 8);
                    self.after(at + later, Happening::Strikes(kill));
                }
                return self.after(at, Happening::Input(MEETING, Input::Drain));
            }
            PeerFaults::Ahead => {
                let lasts = [lease / 2, lease * 5][self.random.below(2) as usize];
                let fault = Fault { kind: F::Isolate, process: MEETING, lasts };
                self.ambush = Some((1 + self.random.below(25), fault));
                return;
            }
            PeerFaults::Restarts => {
                // After a break, workers with models of their own are apart by some updates.
                let most = if self.toy.job.architecture.is_gossip() { 1 } else { 4 };
                (self.random.below(most), &[F::Break][..])
            }
            PeerFaults::One => (1, &[F::Kill, F::Stop, F::Isolate][..]),
            PeerFaults::Many | PeerFaults::ManyAndRestarts | PeerFaults::ApartAndMany => (
                1 + self.random.below(8),
                &[F::Kill, F::Stop, F::Stop, F::CutOneWay, F::Cut, F::Isolate, F::Break, F::Break]
                    [..],
            ),
        };
        // Each takes two delays at most: a dial and its answer, Hello, Welcome and Ready, then the
        // request for the initial parameters of a worker and its answer.
        let messages = match self.toy.job.initial {
            InitialFrom::Seed | InitialFrom::Server => 5,
            InitialFrom::Worker => 7,
        };
        let formed = self.delay * 2 * messages + self.compute;
        for _ in 0..count {
            let kind = kinds[self.random.below(kinds.len() as u64) as usize];
            let process = 1 + self.random.below(workers.into()) as usize;
            let lasts = match faults {
                PeerFaults::One => lease * 40,
                _ => [lease / 20, lease / 2, lease * 2, lease * 5][self.random.below(4) as usize],
            };
            let at = formed + self.span(step * 30);
            self.after(at, Happening::Strikes(Fault { kind, process, lasts }));
        }
    }

    pub(super) fn strikes(&mut self, Fault { kind, process, lasts }: Fault) {
        if matches!(self.processes[process].state, State::Gone)
            || matches!(self.processes[MEETING].state, State::Gone)
        {
            return;
        }
        let all = 0..self.processes.len();
        let other = (process + 1 + self.random.below(all.len() as u64 - 1) as usize) % all.len();
        match kind {
            PeerFault::Kill => self.end(process),
            PeerFault::Stop => match self.processes[process].state {
                State::Runs => {
                    self.processes[process].state = State::Stopped(self.now, Vec::new());
                    self.after(lasts, Happening::GoesOn(process));
                }
                _ => return,
            },
            PeerFault::CutOneWay => {
                self.cuts.insert((process, other), self.now + lasts);
            }
            PeerFault::Cut => {
                let both = [(process, other), (other, process)];
                self.cuts.extend(both.map(|ends| (ends, self.now + lasts)));
            }
            PeerFault::Isolate => {
                let others = all.filter(|it| *it != process);
                let both = others.flat_map(|it| [(process, it), (it, process)]);
                self.cuts.extend(both.map(|ends| (ends, self.now + lasts)));
            }
            PeerFault::Break => {
                if !self.breaks() {
                    return;
                }
            }
        }
        self.struck.push(kind);
    }

    /// A process that was stopped goes on. It has missed deadlines, if it was stopped for long.
    pub(super) fn goes_on(&mut self, process: usize) {
        let it = &mut self.processes[process];
        let State::Stopped(since, waiting) = &mut it.state else { return };
        let (since, waiting) = (*since, std::mem::take(waiting));
        it.state = State::Runs;
        it.wake = None;
        if self.now.since(since) > self.beat() {
            self.input(process, Input::Overslept);
        }
        for input in waiting {
            self.input(process, input);
        }
        self.plan_wake(process);
    }
}
