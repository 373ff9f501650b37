//! Where a server is and its standby, of which one leads.

use alloc::collections::VecDeque;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::Target;
use crate::protocol::group::is_address;

/// Places that are kept besides the present one, at most.
const MOST_OTHERS: usize = 2;

/// Where the two are, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Places {
    /// The first, which is never forgotten: others may be told that cannot be reached from here.
    first: Target,
    here: Target,
    /// Those after it, in turn.
    others: VecDeque<Target>,
}

impl Places {
    pub(super) fn new(first: Target) -> Self {
        Self { here: first.clone(), first, others: VecDeque::new() }
    }

    /// Turns to the next, if there is another; says where to go.
    pub(super) fn turn(&mut self) -> Target {
        if let Some(next) = self.others.pop_front() {
            self.others.push_back(core::mem::replace(&mut self.here, next));
        }
        self.here.clone()
    }

    /// Notes where the other of the two is, as one of them says: that is where it turns next. The
    /// address of one that is gone does no harm.
    pub(super) fn note_other(&mut self, other: Option<String>) {
        let Some(address) = other.filter(|other| is_address(other)) else { return };
        let other = Target::Address(address);
        if other == self.here {
            return;
        }
        self.others.retain(|it| *it != other);
        self.others.push_front(other);
        if self.others.len() > MOST_OTHERS
            && let Some(oldest) = self.others.iter().rposition(|it| *it != self.first)
        {
            self.others.remove(oldest);
        }
    }

    /// All there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Target> {
        core::iter::once(&self.here).chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Target {
        Target::Address(address.into())
    }

    #[test]
    fn it_turns_to_the_standby_and_back() {
        let mut places = Places::new(Target::Server);
        assert_eq!(places.turn(), Target::Server, "there is no other");
        places.note_other(Some("b".into()));
        assert_eq!(places.turn(), at("b"));
        assert_eq!(places.turn(), Target::Server);
    }

    #[test]
    fn it_turns_to_the_place_that_it_was_told_last_and_keeps_the_first() {
        let mut places = Places::new(Target::Server);
        for address in ["b", "c", "d", "", "a\nb"] {
            places.note_other(Some(address.into()));
        }
        let turns: [Target; 4] = core::array::from_fn(|_| places.turn());
        assert_eq!(turns, [at("d"), at("c"), Target::Server, at("d")]);
        places.note_other(Some("d".into()));
        places.note_other(Some("e".into()));
        let turns: [Target; 3] = core::array::from_fn(|_| places.turn());
        assert_eq!(turns, [at("e"), Target::Server, at("d")]);
    }
}
