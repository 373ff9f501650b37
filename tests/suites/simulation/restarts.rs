//! Policies that drop gradients of an earlier version: a run takes the time of the definition, in
//! which every worker begins on a new version as soon as it has it.

use std::collections::BTreeMap;

use pstrain_compute::rng::{Random, Stream};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_roles::node::Event;
use pstrain_tests::{Simulated, VirtualRun};

use super::closed_forms::patient;

/// Link and computing times of a worker of the definition, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Place {
    up: u64,
    down: u64,
    compute: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// Parameters of this version reach a worker.
    Came(usize, u64),
    /// A worker finishes its computation with this number; obsolete if it has started another
    /// since.
    Computed(usize, u64),
    /// A gradient on this version reaches the server.
    Pushed(usize, u64),
}

/// An independent implementation of the definition (Dutta et al. 2018; Tyurin and Richtarik 2023):
/// the server sends a new version to all workers, and the current version to a worker whose
/// gradient it takes. A worker that receives a newer version starts over on it.
#[derive(Debug)]
struct Definition {
    policy: ConsistencySpec,
    places: Vec<Place>,
    /// Happenings by time, and by number at equal times.
    agenda: BTreeMap<(u64, u64), Happening>,
    number: u64,
    version: u64,
    /// Number of gradients of each worker in the open round.
    taken: Vec<u64>,
    /// For each worker, the version that it computes on, and its number of computations so far.
    computing: Vec<(Option<u64>, u64)>,
}

impl Definition {
    fn new(policy: ConsistencySpec, places: &[Place]) -> Self {
        let workers = places.len();
        let mut definition = Self {
            policy,
            places: places.to_vec(),
            agenda: BTreeMap::new(),
            number: 0,
            version: 0,
            taken: vec![0; workers],
            computing: vec![(None, 0); workers],
        };
        (0..workers).for_each(|worker| definition.give(0, worker));
        definition
    }

    fn plan(&mut self, at: u64, happening: Happening) {
        self.number += 1;
        self.agenda.insert((at, self.number), happening);
    }

    fn give(&mut self, now: u64, worker: usize) {
        self.plan(now + self.places[worker].down, Happening::Came(worker, self.version));
    }

    fn closes(&self) -> bool {
        let (all, distinct) =
            (self.taken.iter().sum::<u64>(), self.taken.iter().filter(|n| **n > 0));
        match self.policy {
            ConsistencySpec::KBatchSync { gradients } => all >= gradients.into(),
            ConsistencySpec::KSync { workers } => distinct.count() >= workers as usize,
            ConsistencySpec::Malenia { gradients } => {
                let workers = self.taken.len() as f64;
                let inverses: f64 = self.taken.iter().map(|n| 1.0 / *n as f64).sum();
                workers / inverses >= f64::from(gradients) / workers - 1e-9
            }
            _ => unreachable!("no definition of {}", self.policy),
        }
    }

    /// Advances to the next update; returns its time.
    fn update(&mut self) -> u64 {
        loop {
            let ((now, _), happening) = self.agenda.pop_first().expect("it continues for ever");
            match happening {
                Happening::Came(worker, version) => {
                    let (computing, begins) = self.computing[worker];
                    if computing.is_none_or(|old| old < version) {
                        self.computing[worker] = (Some(version), begins + 1);
                        let at = now + self.places[worker].compute;
                        self.plan(at, Happening::Computed(worker, begins + 1));
                    }
                }
                Happening::Computed(worker, begin) if self.computing[worker].1 == begin => {
                    let base = self.computing[worker].0.take().expect("it began");
                    self.plan(now + self.places[worker].up, Happening::Pushed(worker, base));
                }
                Happening::Pushed(worker, base) if base == self.version => {
                    self.taken[worker] += 1;
                    if self.closes() {
                        self.version += 1;
                        self.taken.fill(0);
                        (0..self.places.len()).for_each(|worker| self.give(now, worker));
                        return now;
                    }
                    if !matches!(self.policy, ConsistencySpec::KSync { .. }) {
                        self.give(now, worker);
                    }
                }
                Happening::Computed(..) | Happening::Pushed(..) => {}
            }
        }
    }
}

fn draw(random: &mut Random, workers: usize, longest_delay: u64) -> Vec<Place> {
    let place = |_| Place {
        up: random.below(longest_delay),
        down: random.below(longest_delay),
        compute: 1_000_000 + random.below(9_000_000),
    };
    (0..workers).map(place).collect()
}

fn simulated(policy: ConsistencySpec, places: &[Place]) -> Simulated {
    let (mut link, mut compute) = (String::new(), String::new());
    for (worker, place) in (1..).zip(places) {
        let Place { up, down, compute: time } = place;
        link += &format!("{worker}.delay={up}ns {worker}.down.delay={down}ns ");
        compute += &format!("{worker}.time={time}ns ");
    }
    let mut toy = patient(places.len() as u32, 400, policy);
    toy.job.budget.epochs = 12;
    VirtualRun::new(&toy, &link, &compute).run()
}

#[test]
fn a_gradient_in_flight_does_not_delay_a_workers_next_version() {
    let mut random = Stream::new(3).fork("restarts", 0).rng();
    let (mut late, mut exact) = (0, 0);
    for case in 0..60 {
        let workers = 2 + case % 6;
        let gradients = 1 + random.below(2 * workers as u64) as u32;
        let policy = match case % 4 {
            0 | 1 => ConsistencySpec::KBatchSync { gradients },
            2 => ConsistencySpec::Malenia { gradients },
            _ => ConsistencySpec::KSync { workers: gradients.min(workers as u32) },
        };
        let places = draw(&mut random, workers, 4_000_000);
        let run = simulated(policy, &places);
        let begin = run.grants(0)[0];
        let updates: Vec<u64> =
            run.updates().into_iter().map(|at| (at - begin).as_nanos() as u64).collect();
        let mut definition = Definition::new(policy, &places);
        // The budget may cut the last round short.
        let whole = &updates[..updates.len() - 1];
        let defined: Vec<u64> = whole.iter().map(|_| definition.update()).collect();
        let (Some(last), Some(should)) = (whole.last(), defined.last()) else { continue };
        assert!(last <= should, "{policy}: {last} ns, but {should} ns by definition: {places:?}");
        exact += usize::from(whole == defined);
        let is_drop = |event: &Event| matches!(event, Event::Dropped { .. });
        late += run.events.iter().filter(|(.., event)| is_drop(event)).count();
    }
    assert!(late > 10_000, "only {late} gradients were on their way when a round closed");
    // The server sends a worker the next version only after it has heard from it, so a few
    // schedules differ.
    assert!(
        exact >= 50,
        "only {exact} of 60 runs took the time of the definition, update by update"
    );
}
