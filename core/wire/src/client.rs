//! Messages of clients to a server, and its answers: settings of the mode, and the status.

use alloc::string::String;

use pstrain_compute::id::Version;
use serde::{Deserialize, Serialize};

/// An order to change one setting of the mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The newest protocol version that the client speaks.
    pub protocol_max: u8,
    /// The setting, as a job file names it.
    pub key: String,
    /// Its value, as in a job file.
    pub value: String,
}

/// The mode that began, or why it did not.
pub type Controlled = Result<Begun, String>;

/// A mode that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The version of the parameters from which on it is so.
    pub version: Version,
    /// All of the mode, as people say it: what did not go with the order is back to what it is
    /// without being set.
    pub mode: String,
}

/// A question about the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullStatus {
    /// The newest protocol version that the client speaks.
    pub protocol_max: u8,
}
