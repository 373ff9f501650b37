//! Messages between clients and a server: changes of the mode, and the status.

use alloc::string::String;

use pstrain_compute::id::Version;
use serde::{Deserialize, Serialize};

/// A request to change one setting of the mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The newest protocol version that the client speaks.
    pub protocol_max: u8,
    /// The name of the setting, as in a job file.
    pub key: String,
    /// Its value, as in a job file.
    pub value: String,
}

/// The mode that started, or why it did not.
pub type Controlled = Result<Begun, String>;

/// A mode that has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The first version of the parameters under this mode.
    pub version: Version,
    /// The whole mode in words. Settings that are incompatible with the changed one are back at
    /// their defaults.
    pub mode: String,
}

/// A request for the status of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullStatus {
    /// The newest protocol version that the client speaks.
    pub protocol_max: u8,
}
