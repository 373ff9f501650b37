//! Numbers of things in messages.

use alloc::format;
use alloc::string::String;

/// Writes a number of things, whose noun has a regular plural: `1 worker`, `2 workers`.
#[must_use]
pub fn counted(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
