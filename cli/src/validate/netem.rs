//! Runs under the kernel's `tc netem`, made by the shell script that ships with the program.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};

use crate::experiment::{Record, Run, record_of, without_settings};

/// The script, and the file that it sources.
const SCRIPTS: [(&str, &str); 2] = [
    ("cluster.sh", include_str!("../../../tests/netem/cluster.sh")),
    ("link.sh", include_str!("../../../tests/netem/link.sh")),
];

/// Exit status of the script if the machine or netem lacks something that the job needs.
const NOT_HERE: i32 = 2;
/// Exit status of the script if a measured delay was not the requested one.
const INVALID: i32 = 3;

/// Attempts at a run, as long as a measured delay is not the requested one.
const ATTEMPTS: u32 = 3;

/// The outcome of a run over a real network.
#[derive(Debug)]
pub(super) enum OverNetem {
    Done(Box<Record>),
    /// The reason why there is no measurement.
    NotMeasured(String),
    Stopped,
}

/// Executes a run over links that the kernel shapes.
pub(super) fn execute(run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<OverNetem> {
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(run, stop)? {
            Attempt::Over(done) => return Ok(done),
            Attempt::Invalid(reason) => why = reason,
        }
    }
    Ok(OverNetem::NotMeasured(format!("not valid {ATTEMPTS} times: {why}")))
}

enum Attempt {
    Over(OverNetem),
    /// The delays that differ from the requested ones.
    Invalid(String),
}

fn attempt(run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Attempt> {
    let folder = tempfile::tempdir().context("cannot make a folder for the run")?;
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    for (name, text) in SCRIPTS {
        write(name, text)?;
    }
    write("job.toml", &run.layers()?.to_toml())?;
    let out = folder.path().join("out");
    let program = std::env::current_exe().context("cannot find the program of this process")?;
    let mut script = Command::new("bash");
    script
        .arg(folder.path().join("cluster.sh"))
        .arg("--out")
        .arg(&out)
        .arg("--job")
        .arg(folder.path().join("job.toml"))
        .stdin(Stdio::null());
    without_settings(&mut script);
    let done = match script.env("PSTRAIN", program).output() {
        Ok(done) => done,
        Err(error) => {
            let why = format!("cannot run bash: {error}");
            return Ok(Attempt::Over(OverNetem::NotMeasured(why)));
        }
    };
    let said = String::from_utf8_lossy(&done.stderr);
    // The script receives Ctrl-C, too: it cleans up and ends with a status of its own.
    if stop.load(Ordering::Relaxed) {
        return Ok(Attempt::Over(OverNetem::Stopped));
    }
    match done.status.code() {
        Some(0) => Ok(Attempt::Over(OverNetem::Done(Box::new(record_of(run, &out)?)))),
        Some(NOT_HERE) => Ok(Attempt::Over(OverNetem::NotMeasured(reason(&said)))),
        Some(INVALID) => Ok(Attempt::Invalid(invalid(&out))),
        _ => bail!("{} over netem ended with {}:\n{}", run.place, done.status, said.trim_end()),
    }
}

/// Returns the script's last message, without its name.
fn reason(said: &str) -> String {
    let line = said.lines().last().unwrap_or("the script does not say why");
    line.trim_start_matches("cluster.sh: ").to_owned()
}

fn invalid(out: &Path) -> String {
    std::fs::read_to_string(out.join("INVALID"))
        .unwrap_or_else(|_| "a measured delay is not the one asked for".into())
        .trim_end()
        .replace('\n', "; ")
}
