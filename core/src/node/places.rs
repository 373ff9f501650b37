//! Where a server is and its standby, of which one leads.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::Target;

/// Where the two are, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Places {
    /// Who is dialled next, and who after that.
    here: Target,
    elsewhere: Option<Target>,
}

impl Places {
    pub(super) const fn new(here: Target) -> Self {
        Self { here, elsewhere: None }
    }

    /// Turns to the other, if there is one; says where to go.
    pub(super) fn turn(&mut self) -> Target {
        if let Some(elsewhere) = &mut self.elsewhere {
            core::mem::swap(&mut self.here, elsewhere);
        }
        self.here.clone()
    }

    /// Notes where the standby is. The address of one that is gone does no harm.
    pub(super) fn note_standby(&mut self, standby: Option<String>) {
        if let Some(address) = standby {
            self.elsewhere = Some(Target::Address(address));
        }
    }

    /// All there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Target> {
        core::iter::once(&self.here).chain(&self.elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_turns_to_the_standby_and_back() {
        let mut places = Places::new(Target::Server);
        assert_eq!(places.turn(), Target::Server, "there is no other");
        places.note_standby(Some("b".into()));
        assert_eq!(places.turn(), Target::Address("b".into()));
        assert_eq!(places.turn(), Target::Server);
    }
}
