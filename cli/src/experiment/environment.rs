//! The environment of the runs: program, machine, system, date.

use pstrain_transports::calendar_time;
use serde::{Deserialize, Serialize};

use crate::record::BUILD;

/// Facts about how results were made, for their readers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// Version and commit of the program.
    pub(crate) pstrain: String,
    pub(crate) target: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// Date and time in UTC.
    pub(crate) date: String,
    /// The command that reproduces the results.
    pub(crate) command: String,
}

impl Environment {
    /// The facts that this process can find out.
    pub(crate) fn here(command: String) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let kernel = read("/proc/sys/kernel/osrelease");
        let known = |text: &str| match text.trim() {
            "" => String::from("unknown"),
            text => text.to_owned(),
        };
        Self {
            pstrain: BUILD.into(),
            target: env!("PSTRAIN_TARGET").into(),
            cpu: known(cpu.map_or("", |(_, model)| model)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("{} {}", std::env::consts::OS, known(&kernel)),
            date: humantime::format_rfc3339_seconds(calendar_time()).to_string(),
            command,
        }
    }

    /// The facts by name, without the program: each run records which build made it.
    pub(crate) fn rows(&self) -> [(&'static str, String); 5] {
        [
            ("built for", self.target.clone()),
            ("CPU", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            ("system", self.kernel.clone()),
            ("date", self.date.clone()),
        ]
    }
}
