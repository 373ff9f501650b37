//! The clients that read or change parameters.

use serde::{Deserialize, Serialize};

use super::client_pushes::Pushes;
use super::ranges::Pullers;

/// Clients that wait for an answer about parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Clients {
    /// Clients that wait for parameters from all servers.
    pub(super) pullers: Pullers,
    /// Values that clients push into the parameters.
    pub(super) pushes: Pushes,
}
