//! State of a node as text, without the fields that do not influence its behaviour.

use std::fmt::{self, Write as _};

/// Omitted fields: figures for reports, jitter, spare memory.
const IDLE: [&str; 9] =
    ["account", "attempt", "config", "idle", "job", "mover", "rng", "spare", "trouble"];

/// Returns the text of `node`.
pub(super) fn of(node: &impl fmt::Debug) -> String {
    let mut whole = String::new();
    write!(whole, "{node:?}").unwrap_or_default();
    let mut text = String::with_capacity(whole.len());
    let mut rest = whole.as_str();
    while let Some((begin, value)) = first(rest) {
        text.push_str(rest.get(..begin).unwrap_or_default());
        rest = after(rest.get(value..).unwrap_or_default());
    }
    text.push_str(rest);
    text
}

/// Finds the first omitted field and returns where it begins and where its value begins.
fn first(text: &str) -> Option<(usize, usize)> {
    text.match_indices(": ").find_map(|(colon, blank)| {
        let before = text.get(..colon)?;
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let begin = before.trim_end_matches(is_name).len();
        let name = before.get(begin..)?;
        IDLE.contains(&name).then_some((begin, colon + blank.len()))
    })
}

/// Returns the text after the value that `text` begins with.
fn after(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' | b',' if depth == 0 => {
                return text.get(place..).unwrap_or_default();
            }
            b'}' | b']' | b')' => depth -= 1,
            _ => {}
        }
    }
    ""
}
