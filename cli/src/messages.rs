//! The only place that prints: messages on stderr, results on stdout.

use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use anyhow::Context as _;
use clap::ValueEnum;
use pstrain_transports::calendar_time;
use serde::Serialize;

use crate::fold::prose;

/// The form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// A line of text for people.
    Text,
    /// A JSON object a line: time, level, message, fields.
    Json,
}

/// The form of all messages of this process; text until it is set.
static FORM: OnceLock<LogForm> = OnceLock::new();

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Info,
    Warning,
    Error,
}

/// A message in JSON form.
#[derive(Serialize)]
struct Line<'a, F> {
    /// UTC, RFC 3339.
    time: String,
    level: Level,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<F>,
}

/// Sets the form of all later messages. A process calls this once.
pub(crate) fn log_as(form: LogForm) {
    FORM.set(form).unwrap_or_default();
}

/// True if messages are in JSON form.
pub(crate) fn are_json() -> bool {
    FORM.get() == Some(&LogForm::Json)
}

/// Prints a message on stderr.
pub(crate) fn say(message: &str) {
    print(Level::Info, message, message, None::<()>);
}

/// Prints a message on stderr; the JSON form also has its contents as `fields`.
pub(crate) fn tell(level: Level, message: &str, fields: &impl Serialize) {
    print(level, message, message, Some(fields));
}

/// Prints a warning on stderr.
pub(crate) fn warn(message: &str) {
    print(Level::Warning, message, &format!("warning: {message}"), None::<()>);
}

/// The fields of an error in JSON form.
#[derive(Serialize)]
struct Ended {
    exit_code: u8,
}

/// Prints an error with its causes on stderr; the JSON form also has the exit code.
pub(crate) fn error(error: &anyhow::Error, exit_code: u8) {
    let message = format!("{error:#}");
    print(Level::Error, &message, &message, Some(Ended { exit_code }));
}

fn print(level: Level, message: &str, text: &str, fields: Option<impl Serialize>) {
    let text = || format!("pstrain: {text}");
    // One write for the whole line, so that output of other processes does not land inside it.
    let line = match FORM.get() {
        None | Some(LogForm::Text) if std::io::stderr().is_terminal() => {
            folded(&text(), log_width())
        }
        None | Some(LogForm::Text) => text(),
        Some(LogForm::Json) => json(level, message, fields).unwrap_or_else(|_| text()),
    };
    // The reader of a pipe may be gone; that is no reason to end the process.
    let _unread = std::io::stderr().write_all((line + "\n").as_bytes());
}

/// Folds long lines between words for a person at a terminal.
fn folded(text: &str, width: usize) -> String {
    let fold = |line: &str| match line.chars().count() > width {
        true => prose(line, 0, width),
        false => line.to_owned(),
    };
    text.lines().map(fold).collect::<Vec<_>>().join("\n")
}

fn json(level: Level, message: &str, fields: Option<impl Serialize>) -> serde_json::Result<String> {
    let time = humantime::format_rfc3339_millis(calendar_time()).to_string();
    serde_json::to_string(&Line { time, level, message, fields })
}

/// Width for results: of the terminal that shows them, else of a usual one.
pub(crate) fn width() -> usize {
    width_of(std::io::stdout())
}

/// Lines for a result that is to be seen at once: of the terminal, else of a usual one.
pub(crate) fn height() -> usize {
    const USUAL: usize = 24;
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map(|(_, height)| usize::from(height.0)).filter(|height| *height > 0).unwrap_or(USUAL)
}

fn width_of(stream: impl AsFd) -> usize {
    const USUAL: usize = 80;
    let size = terminal_size::terminal_size_of(stream);
    // A pseudo-terminal whose size was never set says 0.
    size.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0).unwrap_or(USUAL)
}

/// Width for messages and progress, which are on stderr.
pub(crate) fn log_width() -> usize {
    width_of(std::io::stderr())
}

/// True if a person reads the results on a terminal, which would break long lines within words.
pub(crate) fn on_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Prints a result on stdout.
pub(crate) fn result(text: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().context("cannot write the result to stdout")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn long_lines_fold_between_words_and_others_stay() {
        let text = "pstrain: the compute process is wrong\n  |\n2 |   here\n  |   ^^^^";
        assert_eq!(folded(text, 40), text);
        let folded = folded(text, 30);
        assert_eq!(folded, text.replace("process is", "process\nis"));
    }

    #[test]
    fn a_message_as_json_has_time_level_text_and_fields() {
        let fields = json!({ "event": "cut_off", "worker": 2 });
        let line = json(Level::Warning, "worker 2 was cut off: \"gone\"", Some(&fields));
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(line["level"], "warning");
        assert_eq!(line["message"], "worker 2 was cut off: \"gone\"");
        assert_eq!(line["fields"], fields);
        let time = humantime::parse_rfc3339(line["time"].as_str().unwrap()).unwrap();
        assert!(time > std::time::SystemTime::UNIX_EPOCH);
        let bare = json(Level::Info, "listening", None::<()>).unwrap();
        assert!(!bare.contains("fields") && !bare.contains('\n'), "{bare}");
    }
}
