//! Versions of the protocol and of this build.

/// The protocol version that this build speaks.
pub const PROTOCOL_VERSION: u8 = 31;
/// The release of this build. Servers and workers must be of the same release.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
