//! Exit codes: the same number always means the same thing.

use std::fmt;
use std::process::ExitCode;

use pstrain_wire::worker::EndReason;

use crate::messages;

/// What the exit codes mean, for `--help` and the manual page.
pub(crate) const HELP: &str = "Exit codes:
  0    done
  1    the run ended without reaching its goal: it diverged, lost workers, was refused
  2    usage or environment: a bad option, file, address or disk
  3    stopped early on request (Ctrl-C or SIGTERM once); the summary is valid
  130  aborted (Ctrl-C or SIGTERM twice)";

/// The code of a second Ctrl-C, as shells have it.
pub(crate) const ABORTED: i32 = 130;

/// How a command ended, when no error stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    Stopped,
}

/// A run that ended without reaching its goal, as opposed to an error of usage or environment.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// How a run that ended for `reason` is reported.
pub(crate) fn of_reason(reason: EndReason) -> anyhow::Result<Ending> {
    match reason {
        EndReason::BudgetReached => Ok(Ending::Done),
        EndReason::Stopped => Ok(Ending::Stopped),
        reason => Err(Failed(format!("the run ended early: {reason}")).into()),
    }
}

/// Prints what went wrong, if anything did, and gives the exit code.
pub(crate) fn code(done: anyhow::Result<Ending>) -> ExitCode {
    match done {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Stopped) => ExitCode::from(3),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            messages::error(&error);
            ExitCode::from(if error.is::<Failed>() { 1 } else { 2 })
        }
    }
}

/// Whoever reads the output has seen enough, as in `pstrain ... | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
