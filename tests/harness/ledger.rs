//! Exactly-once check of a server's events against its ledger: nothing applied twice, nothing
//! unaccounted for. Use it on the events of any run that has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pstrain_compute::id::{Sequence, WorkerId};
use pstrain_roles::node::{Event, Ledger};

/// Checks that every push was applied at most once and that the ledger balances with the events of
/// a run that has ended.
///
/// # Panics
/// If a check fails.
pub fn check_exactly_once(events: &[Event], ledger: &Ledger) {
    let mut applied = BTreeSet::new();
    let mut accepted = BTreeMap::new();
    let (mut granted, mut dropped) = (0, 0);
    let mut allowed = BTreeMap::<WorkerId, VecDeque<Sequence>>::new();
    for event in events {
        match event {
            Event::Applied { worker, incarnation, sequence, .. } => {
                let push = (*worker, *incarnation, *sequence);
                assert!(applied.insert(push), "{push:?} was applied twice");
            }
            Event::Pushed { worker, sequence, batch, .. } => {
                accepted.insert((*worker, *batch), *sequence);
                let allowed = allowed.entry(*worker).or_default();
                if allowed.front() == Some(sequence) {
                    allowed.pop_front();
                } else {
                    granted += 1; // called off, and so granted again before it arrived
                }
            }
            Event::Granted { worker, sequence, .. } => {
                granted += 1;
                allowed.entry(*worker).or_default().push_back(*sequence);
            }
            Event::Superseded { worker, sequence, .. } => {
                let mut next = *sequence;
                for allowed in allowed.entry(*worker).or_default() {
                    (*allowed, next) = (next, next.next());
                }
            }
            Event::Departed { worker, .. } => drop(allowed.remove(worker)),
            Event::Dropped { .. } => dropped += 1,
            _ => {}
        }
    }
    assert_eq!(ledger.assigned, granted, "{ledger:?}");
    assert_eq!(ledger.applied, applied.len() as u64, "{ledger:?}");
    assert!(ledger.discarded >= dropped, "{ledger:?}");
    assert!(ledger.applied <= accepted.len() as u64, "a mini-batch was applied twice: {ledger:?}");
    assert_eq!(ledger.outstanding, 0, "{ledger:?}");
    let decided = ledger.applied + ledger.discarded + ledger.lost;
    assert_eq!(ledger.assigned, decided, "{ledger:?}");
}
