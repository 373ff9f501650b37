//! Arguments of the commands that read the results of a run.

use std::path::PathBuf;

use clap::Args;
use pstrain_transports::process::ProcessAddress;

use super::Form;

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The model: model.safetensors, or the results folder that contains it
    #[arg(long, value_name = "PATH")]
    pub(crate) model: PathBuf,
    /// The data, as the job setting `data`
    #[arg(long, value_name = "PATH|FORMAT")]
    pub(crate) data: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Parses a norm.
fn norm(text: &str) -> Result<f64, String> {
    let norm = text.parse().ok().filter(|norm: &f64| *norm >= 0.0);
    norm.ok_or_else(|| "must be a number from 0 up".to_owned())
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The results folder of a run, or its order.log, with job.toml in the same folder
    #[arg(value_name = "PATH")]
    pub(crate) log: PathBuf,
    /// Stop at this version of the parameters
    #[arg(long, value_name = "VERSION")]
    pub(crate) until: Option<u64>,
    /// Stop before the first update with a larger norm
    ///
    /// The L2 norm of its gradient, before clipping. The mini-batches behind it are printed.
    #[arg(long, value_name = "NORM", value_parser = norm)]
    pub(crate) break_norm: Option<f64>,
    /// The run's data at their present place
    ///
    /// As the job setting `data` [default: where its job file says].
    #[arg(long, value_name = "PATH|FORMAT")]
    pub(crate) data: Option<String>,
    /// The run's evaluation rows, or other rows
    ///
    /// The rows to evaluate on; none: the rows held out of its data [default: where its job file
    /// says].
    #[arg(long, value_name = "PATH|FORMAT|none")]
    pub(crate) evaluation_data: Option<String>,
    /// The compute process of the run, if it had one
    ///
    /// A shell command, or unix:PATH. A job file never starts a process by itself here, since
    /// records may come from elsewhere.
    #[arg(long, value_name = "COMMAND|unix:PATH")]
    pub(crate) process: Option<ProcessAddress>,
    /// Write the model to this file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}
