//! Updates missing from a record: a standby records only updates made while it follows a primary.

use std::fmt;

use pstrain_compute::id::Version;
use serde::{Deserialize, Serialize};

/// Consecutive updates that a record lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRange {
    /// The first version.
    pub(crate) first: Version,
    /// The last version.
    pub(crate) last: Version,
}

/// The last version in a record, and the stretches missing before it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Gaps {
    version: Version,
    stretches: Vec<VersionRange>,
}

impl Gaps {
    /// Notes that an update is in the record.
    pub(super) const fn has(&mut self, version: Version) {
        self.version = version;
    }

    /// Notes that the next update in the record is the one after `version`; true if updates before
    /// it are missing.
    pub(super) fn goes_on_from(&mut self, version: Version) -> bool {
        if version <= self.version {
            return false;
        }
        self.stretches.push(VersionRange { first: self.version.next(), last: version });
        self.version = version;
        true
    }

    pub(super) fn stretches(&self) -> &[VersionRange] {
        &self.stretches
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first} to {last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_not_missing() {
        let mut missing = Gaps::default();
        assert!(!missing.goes_on_from(Version(0)));
        missing.has(Version(1));
        assert!(!missing.goes_on_from(Version(1)));
        assert!(missing.goes_on_from(Version(4)));
        assert!(missing.goes_on_from(Version(6)), "it followed twice before it saw an update");
        missing.has(Version(7));
        assert!(missing.goes_on_from(Version(8)));
        let told: Vec<String> = missing.stretches().iter().map(VersionRange::to_string).collect();
        assert_eq!(told, ["2 to 4", "5 to 6", "8"]);
    }
}
