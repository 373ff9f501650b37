//! Addresses of a server and its standby; one of the two leads.

use alloc::collections::VecDeque;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::Target;
use pstrain_wire::group::is_address;

/// Limit of addresses that are kept only because a server named them.
const MOST_NAMED: usize = 2;

/// The addresses of the pair, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Addresses {
    /// The first address. Never forgotten: the addresses that others name may not be reachable from
    /// here.
    first: Target,
    here: Target,
    /// The other addresses, in the order in which they are dialled.
    others: VecDeque<Target>,
    /// The last leader, and the standby that it named. One of them leads, or has led since: a
    /// standby that missed a change of leaders cannot displace them.
    leader: Option<Target>,
    standby: Option<Target>,
}

impl Addresses {
    pub(super) fn new(first: Target) -> Self {
        let here = first.clone();
        Self { first, here, others: VecDeque::new(), leader: None, standby: None }
    }

    /// Advances to the next address, if there is another; returns the address to dial.
    pub(super) fn turn(&mut self) -> Target {
        if let Some(next) = self.others.pop_front() {
            self.others.push_back(core::mem::replace(&mut self.here, next));
        }
        self.here.clone()
    }

    /// Records that the server at the current address leads, and the standby that it names.
    pub(super) fn leads(&mut self, standby: Option<String>) {
        self.leader = Some(self.here.clone());
        self.note_standby(standby);
    }

    /// Records the standby's address, as the leader states; it is dialled next.
    pub(super) fn note_standby(&mut self, standby: Option<String>) {
        self.standby = target(standby);
        if let Some(standby) = self.standby.clone() {
            self.put_next(standby);
        }
        self.forget_oldest();
    }

    /// Records the leader's address, as a standby states; it is dialled next. An obsolete address
    /// does no harm.
    pub(super) fn note_other(&mut self, other: String) {
        if let Some(other) = target(Some(other)) {
            self.put_next(other);
            self.forget_oldest();
        }
    }

    fn put_next(&mut self, place: Target) {
        if place != self.here {
            self.others.retain(|it| *it != place);
            self.others.push_front(place);
        }
    }

    /// Drops the addresses that were named longest ago while there are too many.
    fn forget_oldest(&mut self) {
        while self.all().filter(|it| self.is_only_named(it)).count() > MOST_NAMED
            && let Some(oldest) = self.others.iter().rposition(|it| self.is_only_named(it))
        {
            self.others.remove(oldest);
        }
    }

    fn is_only_named(&self, place: &Target) -> bool {
        let kept = [Some(&self.first), self.leader.as_ref(), self.standby.as_ref()];
        !kept.contains(&Some(place))
    }

    /// All addresses, the current one first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Target> {
        core::iter::once(&self.here).chain(&self.others)
    }
}

fn target(address: Option<String>) -> Option<Target> {
    address.filter(|address| is_address(address)).map(Target::Address)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(address: &str) -> Target {
        Target::Address(address.into())
    }

    #[test]
    fn it_turns_to_the_standby_and_back() {
        let mut places = Addresses::new(Target::Server);
        assert_eq!(places.turn(), Target::Server, "there is no other");
        places.note_other("b".into());
        assert_eq!(places.turn(), at("b"));
        assert_eq!(places.turn(), Target::Server);
    }

    #[test]
    fn it_turns_to_the_place_that_it_was_told_last_and_keeps_the_first() {
        let mut places = Addresses::new(Target::Server);
        for address in ["b", "c", "d", "", "a\nb"] {
            places.note_other(address.into());
        }
        let turns: [Target; 4] = core::array::from_fn(|_| places.turn());
        assert_eq!(turns, [at("d"), at("c"), Target::Server, at("d")]);
        places.note_other("d".into());
        places.note_other("e".into());
        let turns: [Target; 3] = core::array::from_fn(|_| places.turn());
        assert_eq!(turns, [at("e"), Target::Server, at("d")]);
    }

    #[test]
    fn it_keeps_the_server_that_led_last_and_its_standby_whatever_others_name() {
        let mut places = Addresses::new(Target::Server);
        places.note_standby(Some("b".into()));
        assert_eq!(places.turn(), at("b"));
        places.leads(Some("c".into()));
        for stale in ["x", "y", "z"] {
            places.turn();
            places.note_other(stale.into());
        }
        let turns: Vec<Target> = (0..6).map(|_| places.turn()).collect();
        for kept in [Target::Server, at("b"), at("c"), at("z")] {
            assert!(turns.contains(&kept), "{kept:?} is not among {turns:?}");
        }
        assert!(!turns.contains(&at("x")), "{turns:?}");
    }
}
