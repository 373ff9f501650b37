//! Names that people choose and others read.

/// The longest name of a worker, in bytes.
pub const MOST_NAME_BYTES: usize = 200;

/// Whether a name may be shown to people as it is: short, and without characters that move the
/// cursor, colour the screen or begin a new line.
#[must_use]
pub fn is_presentable(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES && !name.chars().any(char::is_control)
}
