//! Runs under the kernel's own `tc netem`, by the shell script that ships with the program.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::experiment::{Record, Run, record_of};

/// The script, and the one it reads.
const SCRIPTS: [(&str, &str); 2] = [
    ("cluster.sh", include_str!("../../../tests/netem/cluster.sh")),
    ("link.sh", include_str!("../../../tests/netem/link.sh")),
];

/// What the script ends with when the machine lacks something it needs ...
const NOT_HERE: i32 = 2;
/// ... and when a measured delay was not the one asked for.
const INVALID: i32 = 3;

/// A run over a real network.
#[derive(Debug)]
pub(super) enum OverNetem {
    Done(Box<Record>),
    /// Why it cannot be made on this machine.
    NotHere(String),
}

/// Makes a run over links that the kernel shapes.
pub(super) fn execute(run: &Run<'_>) -> anyhow::Result<OverNetem> {
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
    let done = Command::new("bash")
        .arg(folder.path().join("cluster.sh"))
        .arg("--out")
        .arg(&out)
        .arg("--job")
        .arg(folder.path().join("job.toml"))
        .env("PSTRAIN", program)
        .stdin(Stdio::null())
        .output();
    let done = match done {
        Ok(done) => done,
        Err(error) => return Ok(OverNetem::NotHere(format!("cannot run bash: {error}"))),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.code() {
        Some(0) => Ok(OverNetem::Done(Box::new(record_of(run, &out)?))),
        Some(NOT_HERE) => Ok(OverNetem::NotHere(reason(&said))),
        Some(INVALID) => bail!("{}: {}", run.place, invalid(&out)),
        _ => bail!("{} over netem ended with {}:\n{}", run.place, done.status, said.trim_end()),
    }
}

/// The script's sentence, without its name.
fn reason(said: &str) -> String {
    let line = said.lines().last().unwrap_or("the script does not say why");
    line.trim_start_matches("cluster.sh: ").to_owned()
}

fn invalid(out: &Path) -> String {
    std::fs::read_to_string(out.join("INVALID"))
        .unwrap_or_else(|_| "a measured delay is not the one asked for".into())
        .trim_end()
        .to_owned()
}
