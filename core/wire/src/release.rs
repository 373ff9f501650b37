//! Versions of the protocol and of this build.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The protocol version that this build speaks.
pub const PROTOCOL_VERSION: u8 = 34;
/// The release of this build. Servers and workers must be of the same release.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// The protocol that this build speaks. Every frame says it.
pub const PROTOCOL: Protocol = Protocol { version: PROTOCOL_VERSION, layout: 0xe6f9 };

/// A wire protocol: builds that encode messages in different ways have different ones, also if they
/// are of one release. Written `32.5e0c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protocol {
    /// Counts changes that people make.
    pub version: u8,
    /// The low half of a CRC-32C over encoded messages of every kind. A test computes it, so that
    /// no change of an encoding is forgotten.
    pub layout: u16,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04x}", self.version, self.layout)
    }
}
