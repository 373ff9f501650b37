//! Decision which contributions become an update.

use serde::{Deserialize, Serialize};

/// The contributions that become an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Closing {
    /// None yet.
    NotYet,
    /// All contributions.
    Everything,
    /// The contributions of the oldest iteration that has any.
    Oldest,
    /// The contribution that came last; the others stay where they are.
    Latest,
}
