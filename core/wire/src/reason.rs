//! Reasons that one side gives the other in words.

use alloc::string::String;

/// Maximum length of a reason, in characters.
pub const MOST_REASON: usize = 400;

/// Returns `words` as a reason that may be sent and shown: short, and without control characters.
#[must_use]
pub fn as_reason(words: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    words.chars().take(MOST_REASON).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_short_and_has_one_line() {
        assert_eq!(as_reason("no\u{1b}[31m rows\nat all"), "no [31m rows at all");
        assert_eq!(as_reason(&"é".repeat(1_000)).chars().count(), MOST_REASON);
    }
}
