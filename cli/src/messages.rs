//! The only place that prints: messages on stderr, results on stdout.

use std::io::Write;

/// Prints a message on stderr.
pub(crate) fn say(message: &str) {
    // As one text: pieces would get mixed up with those of other processes at the same terminal.
    let line = format!("pstrain: {message}\n");
    // Whoever read them may be gone: that is no reason to end.
    let _unread = std::io::stderr().write_all(line.as_bytes());
}

/// Prints a warning on stderr.
pub(crate) fn warn(message: &str) {
    say(&format!("warning: {message}"));
}

/// Prints an error with its causes on stderr.
pub(crate) fn error(error: &anyhow::Error) {
    say(&format!("{error:#}"));
}

/// Prints a result on stdout.
pub(crate) fn result(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}
