//! Which contributions become an update.

use serde::{Deserialize, Serialize};

/// Which contributions become an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Closing {
    /// None yet.
    NotYet,
    /// All.
    Everything,
    /// Those of the oldest iteration that has any.
    Oldest,
    /// The one that came last; the others stay where they are.
    Latest,
}
