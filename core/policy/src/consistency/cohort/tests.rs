//! Compares the cohort with a reference model that scans all members for each answer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::Cohort;
use crate::rules::Closing;
use pstrain_compute::id::{Clock, Version, WorkerId};

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u32, u64),
    Leave(u32),
    Contribute(u32),
    Close,
}

/// Reference model: computes each answer from scratch.
#[derive(Default)]
struct Plain {
    version: u64,
    members: BTreeMap<u32, (u64, bool)>,
    contributions: usize,
    /// The iteration after the latest one that has contributions.
    front: u64,
}

impl Plain {
    fn take(&mut self, step: Step) {
        match step {
            Step::Join(worker, clock) => {
                self.members.insert(worker, (clock, false));
            }
            Step::Leave(worker) => {
                self.members.remove(&worker);
            }
            Step::Contribute(worker) => {
                self.contributions += 1;
                let slowest = self.members.values().map(|&(clock, _)| clock).min();
                let own = self.members.get(&worker).map(|&(clock, _)| clock);
                self.front = self.front.max(own.or(slowest).unwrap_or_default() + 1);
                if let Some((clock, contributed)) = self.members.get_mut(&worker) {
                    (*clock, *contributed) = (*clock + 1, true);
                }
            }
            Step::Close => {
                self.version += 1;
                (self.contributions, self.front) = (0, 0);
                self.members.values_mut().for_each(|(_, contributed)| *contributed = false);
            }
        }
    }
}

fn take(cohort: &mut Cohort, step: Step) {
    match step {
        Step::Join(worker, clock) => cohort.join(WorkerId(worker), Clock(clock), 1),
        Step::Leave(worker) => {
            let clock = cohort.clock(WorkerId(worker));
            assert_eq!(cohort.leave(WorkerId(worker)), clock);
        }
        Step::Contribute(worker) => {
            cohort.contribute(WorkerId(worker));
        }
        Step::Close => cohort.close(Closing::Everything),
    }
}

fn compare(cohort: &Cohort, plain: &Plain) {
    let clocks = || plain.members.values().map(|&(clock, _)| Clock(clock));
    assert_eq!(cohort.version(), Version(plain.version));
    assert_eq!(cohort.len(), plain.members.len());
    assert_eq!(cohort.is_empty(), plain.members.is_empty());
    assert_eq!(cohort.slowest(), clocks().min());
    let slowest_member = plain.members.iter().map(|(&worker, &(clock, _))| (clock, worker)).min();
    let slowest_member = slowest_member.map(|(clock, worker)| (Clock(clock), WorkerId(worker)));
    assert_eq!(cohort.slowest_member(), slowest_member);
    let front = Some(Clock(plain.front)).filter(|_| plain.contributions > 0);
    assert_eq!(cohort.fastest(), clocks().max().max(front));
    assert_eq!(cohort.contributions(), plain.contributions);
    assert_eq!(cohort.members_owing(), plain.members.values().filter(|(_, done)| !done).count());
    let workers: Vec<u32> = cohort.workers().map(|worker| worker.0).collect();
    assert_eq!(workers, plain.members.keys().copied().collect::<Vec<u32>>());
    for number in 0..WORKERS {
        let (worker, member) = (WorkerId(number), plain.members.get(&number));
        assert_eq!(cohort.contains(worker), member.is_some());
        assert_eq!(cohort.clock(worker), member.map(|&(clock, _)| Clock(clock)));
        assert_eq!(cohort.contributed(worker), member.is_some_and(|&(_, done)| done));
        let lead = member.zip(clocks().min()).map_or(0, |(&(clock, _), slowest)| clock - slowest.0);
        assert_eq!(cohort.lead(worker), lead);
    }
}

const WORKERS: u32 = 5;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = || 0..WORKERS;
    let step = prop_oneof![
        (worker(), 0_u64..4).prop_map(|(worker, clock)| Step::Join(worker, clock)),
        worker().prop_map(Step::Leave),
        worker().prop_map(Step::Contribute),
        worker().prop_map(Step::Contribute),
        Just(Step::Close),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn every_answer_is_that_of_looking_at_everybody(steps in steps()) {
        let (mut cohort, mut plain) = (Cohort::default(), Plain::default());
        for step in steps {
            take(&mut cohort, step);
            plain.take(step);
            compare(&cohort, &plain);
        }
    }
}

#[test]
fn a_leaver_does_not_close_the_round_for_others() {
    let mut cohort = Cohort::default();
    for worker in 0..3 {
        cohort.join(WorkerId(worker), Clock(0), 1);
    }
    cohort.contribute(WorkerId(0));
    cohort.contribute(WorkerId(1));
    cohort.leave(WorkerId(0));
    // As many contributions as members, and still one member owes.
    assert_eq!((cohort.contributions(), cohort.len(), cohort.members_owing()), (2, 2, 1));
}

#[test]
fn whoever_comes_back_to_an_open_round_owes_again_and_only_once() {
    let mut cohort = Cohort::default();
    cohort.join(WorkerId(0), Clock(0), 1);
    cohort.contribute(WorkerId(0));
    cohort.leave(WorkerId(0));
    cohort.join(WorkerId(0), Clock(1), 1);
    assert_eq!(cohort.members_owing(), 1);
    cohort.contribute(WorkerId(0));
    assert_eq!(cohort.members_owing(), 0);
    cohort.close(Closing::Everything);
    assert_eq!(cohort.members_owing(), 1);
}
