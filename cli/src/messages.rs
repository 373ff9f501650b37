//! The only place that prints: messages on stderr, results on stdout.

#![expect(clippy::print_stderr, reason = "this is where messages are printed")]

use std::io::Write;

/// Prints a message on stderr.
pub(crate) fn say(message: &str) {
    eprintln!("pstrain: {message}");
}

/// Prints a warning on stderr.
pub(crate) fn warn(message: &str) {
    eprintln!("pstrain: warning: {message}");
}

/// Prints an error with its causes on stderr.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("pstrain: {error:#}");
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
