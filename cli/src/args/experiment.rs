//! Arguments of `pstrain experiment` and `pstrain validate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Form;

#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(subcommand)]
    pub(crate) command: ExperimentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    /// Lists the shipped experiments
    List,
    /// Prints the specification of an experiment, a file to start your own from
    Show {
        /// A shipped experiment, or a file
        name: String,
    },
    /// Executes the missing runs of an experiment, and reports
    Run(ExperimentRunArgs),
    /// Makes tables, pictures, claims and report again from the runs in a results folder
    Report {
        /// The results folder
        folder: PathBuf,
        /// End with exit code 1 unless all claims hold
        #[arg(long)]
        check: bool,
        /// Print no claims
        #[arg(long, short)]
        quiet: bool,
    },
}

/// Settings that overrule those of the base job.
#[derive(Debug, Args)]
pub(crate) struct BaseArgs {
    /// Data of all runs, as the job setting `data`
    #[arg(long, value_name = "PATH|FORMAT")]
    pub(crate) data: Option<String>,
    /// Separate evaluation rows of all runs, as the job setting `evaluation-data`
    #[arg(long, value_name = "PATH|FORMAT")]
    pub(crate) evaluation_data: Option<String>,
    /// Overrule another setting in all runs; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub(crate) set: Vec<(String, String)>,
}

impl BaseArgs {
    /// These arguments as settings with their values.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let of = |key: &str, text: &Option<String>| text.clone().map(|text| (key.to_owned(), text));
        let data = [of("data", &self.data), of("evaluation-data", &self.evaluation_data)];
        data.into_iter().flatten().chain(self.set.iter().cloned()).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExperimentRunArgs {
    /// A shipped experiment (`pstrain experiment list`), or a file (TOML)
    pub(crate) experiment: String,
    #[command(flatten)]
    pub(crate) base: BaseArgs,
    /// The results folder [default: results/NAME]
    ///
    /// Runs that it already holds are not repeated.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Repetitions of each cell, with different seeds [default: what the experiment says]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reps: Option<u32>,
    /// Concurrent runs [default: the number of cores]
    #[arg(long, value_name = "NUMBER", value_parser = one_or_more)]
    pub(crate) jobs: Option<usize>,
    /// Real processes over shaped links instead of virtual time, one run after the other
    #[arg(long, conflicts_with = "jobs")]
    pub(crate) real_time: bool,
    /// End with exit code 1 unless all claims hold
    #[arg(long)]
    pub(crate) check: bool,
    /// Discard the runs that the results folder holds
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print neither progress nor claims
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// A job file (TOML), or an experiment: a shipped one or a file. The experiment `validation` is
    /// a grid for this purpose
    pub(crate) jobs: String,
    #[command(flatten)]
    pub(crate) base: BaseArgs,
    /// End with exit code 1 unless all times agree within 5 % and rank the jobs alike
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    /// Print no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn one_or_more(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "use a number from 1".into())
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as epochs=5")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}
