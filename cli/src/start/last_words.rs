//! The last lines of a run: what is kept of it, and how it goes on.

use pstrain_policy::job::Keep;
use pstrain_wire::worker::EndReason;

use super::host::Training;
use crate::args::quoted;

impl Training {
    /// Says which results of the run are kept, which has ended for `reason`, and how it goes on.
    pub(super) fn last_words(&self, reason: EndReason) -> Vec<String> {
        let kept = match (&self.output.out, self.job.stopping.keep) {
            _ if self.output.quiet => None,
            (None, _) if self.state.is_none() => Some(String::from(
                "nothing of this run is kept: --out DIR keeps its model and its records",
            )),
            _ if self.output.form.json => None,
            (None, _) => None,
            (Some(out), keep) => {
                let (which, folder) = (
                    match keep {
                        Keep::Last => "the last model",
                        Keep::Best => "the best model",
                    },
                    quoted(&out.display().to_string()),
                );
                Some(format!(
                    "kept in {folder}: {which} and the records; `pstrain eval --model {folder} \
                     --data FILE` tries it on other rows"
                ))
            }
        };
        kept.into_iter().chain(self.goes_on(reason)).collect()
    }

    /// How the run goes on after it has ended for `reason`, with the command to type; none if it
    /// cannot.
    fn goes_on(&self, reason: EndReason) -> Option<String> {
        let (resume, epochs) = (self.resume()?, self.job.budget.epochs);
        let workers = self.workers_again();
        match reason {
            EndReason::Stopped => Some(format!(
                "paused: `{resume}` goes on{workers}; with --epochs N, more than {epochs}, it \
                 trains for longer"
            )),
            EndReason::BudgetReached => Some(format!(
                "`{resume} --epochs N`, with more than {epochs}, trains for longer{workers}"
            )),
            _ => None,
        }
    }

    /// How the run goes on after a second signal has ended its process; none if it cannot.
    pub(super) fn after_abort(&self) -> Option<String> {
        let (resume, workers) = (self.resume()?, self.workers_again());
        Some(format!("`{resume}` goes on from the state that is kept there{workers}"))
    }

    /// The command that resumes the run, if it keeps a state.
    fn resume(&self) -> Option<String> {
        let folder = quoted(&self.state.as_ref()?.display().to_string());
        Some(format!("{} --resume {folder}", self.command))
    }

    const fn workers_again(&self) -> &'static str {
        if self.guests { ", once its workers are started again" } else { "" }
    }
}
