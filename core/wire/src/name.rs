//! Checks for names that one person chooses and others see.

/// Maximum length of a worker's name, in bytes.
pub const MOST_NAME_BYTES: usize = 200;

/// True if a name may be shown as it is: it is short, and has no characters that move the cursor,
/// colour the screen or begin a new line.
#[must_use]
pub fn is_presentable(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES && !name.chars().any(char::is_control)
}
