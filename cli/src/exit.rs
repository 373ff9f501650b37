//! Exit codes: the same number always has the same meaning.

use std::process::ExitCode;

use pstrain_transports::process::kill_all;
use pstrain_wire::worker::EndReason;

use crate::messages;

/// The meaning of the exit codes, for `--help` and the manual page.
pub(crate) const HELP: &str = "Exit codes:
  0    done
  1    the run ended without reaching its goal: it diverged, lost workers, was refused
  2    usage or environment: a bad option, file, address or disk
  3    stopped early on request (Ctrl-C or SIGTERM once); the summary is valid
  130  aborted (Ctrl-C or SIGTERM twice)";

/// The exit code after an end on request.
const STOPPED: u8 = 3;

/// The exit code of an error of usage or environment.
pub(crate) const USAGE: u8 = 2;

/// The exit code after a second Ctrl-C: 128 + SIGINT, as in shells.
const ABORTED: i32 = 130;

/// Ends this program at once, and its compute processes. Says how its run `goes_on`, if it does.
pub(crate) fn abort(goes_on: Option<&str>) -> ! {
    match goes_on {
        Some(how) => messages::say(&format!("aborted: {how}")),
        None => messages::say("aborted"),
    }
    kill_all();
    std::process::exit(ABORTED)
}

/// The outcome of a command that no error stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    Stopped,
}

/// A run that ended without reaching its goal, as opposed to an error of usage or environment.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failed(pub(crate) String);

/// A process that a signal stopped before there was a run.
#[derive(Debug, thiserror::Error)]
#[error("stopped on request")]
pub(crate) struct Stopped;

/// Returns the outcome of a run that ended for `reason`.
pub(crate) fn of_reason(reason: EndReason) -> anyhow::Result<Ending> {
    match reason {
        reason if reason.is_complete() => Ok(Ending::Done),
        EndReason::Stopped => Ok(Ending::Stopped),
        reason => Err(Failed(format!("the run ended early: {reason}")).into()),
    }
}

/// Prints the error, if any, and returns the exit code.
pub(crate) fn code(done: anyhow::Result<Ending>) -> ExitCode {
    match done {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Stopped) => ExitCode::from(STOPPED),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Stopped>() => {
            messages::say(&error.to_string());
            ExitCode::from(STOPPED)
        }
        Err(error) => {
            let code = if error.is::<Failed>() { 1 } else { USAGE };
            messages::error(&error, code);
            ExitCode::from(code)
        }
    }
}

/// True if the reader of stdout closed the pipe, as in `pstrain ... | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::HELP;
    use crate::tests::{assert_page, row};

    #[test]
    fn the_page_of_exit_codes_is_that_of_the_help() {
        let rows = HELP.lines().skip(1).map(|line| {
            let (code, meaning) = line.trim().split_once(' ').unwrap();
            row(&[code, meaning.trim()])
        });
        let page = format!(
            "# Exit codes\n\nThe same number always has the same meaning. This page is generated \
             from the text of `pstrain --help`.\n\n| code | meaning |\n|---|---|\n{}",
            rows.collect::<String>()
        );
        assert_page("exit-codes", &page);
    }
}
