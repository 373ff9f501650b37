//! Accounts for each worker's time from events: the parts must add up to the time that passed.

use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::Event;

/// Start of each worker's current step.
#[derive(Clone, Debug, Default)]
pub(super) struct Timesheet {
    began: BTreeMap<WorkerId, Time>,
}

impl Timesheet {
    /// Handles an event at `now`.
    pub(super) fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Granted { worker, .. } => drop(self.began.entry(*worker).or_insert(now)),
            Event::Departed { worker, .. } => drop(self.began.remove(worker)),
            Event::Pushed { worker, spent, compute, .. } => {
                let began = self.began.insert(*worker, now);
                let passed = began.map(|began| now - began);
                assert_eq!(Some(spent.total()), passed, "{event:?}: not all of its time");
                assert!(spent.compute <= *compute, "{event:?}: more than it computed");
                assert!(spent.called_off.is_zero(), "{event:?}: it was not called off");
            }
            Event::CalledOff { worker, spent, compute, .. } => {
                let began = self.began.insert(*worker, now);
                let passed = began.map(|began| now - began);
                assert_eq!(Some(spent.total()), passed, "{event:?}: not all of its time");
                assert!(spent.compute <= *compute, "{event:?}: more than it computed");
                assert_eq!(spent.called_off, spent.compute, "{event:?}: not all called off");
            }
            _ => {}
        }
    }
}
