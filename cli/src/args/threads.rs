//! The number of threads of a worker.

use std::num::NonZero;
use std::str::FromStr;
use std::thread::available_parallelism;

use clap::Args;

/// The most threads of a worker.
const MOST: usize = 1024;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ThreadsArgs {
    /// Threads that compute a gradient: a number or auto
    ///
    /// auto: the cores of this machine, divided by the workers of this process. Their number
    /// changes no bit of a result. Networks with large layers or mini-batches gain by them. With a
    /// compute process it is OMP_NUM_THREADS [default: 1; with a process: auto].
    #[arg(long, value_name = "NUMBER|auto", help_heading = "Worker")]
    threads: Option<ThreadsOf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadsOf {
    Auto,
    Number(usize),
}

impl FromStr for ThreadsOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(number @ 1..=MOST) => Ok(Self::Number(number)),
            _ => Err(format!("must be a number from 1 to {MOST}, or auto")),
        }
    }
}

impl ThreadsArgs {
    /// The threads of each of `workers` in this process; `None` if nothing was said.
    pub(crate) fn of(self, workers: u32) -> Option<usize> {
        self.threads.map(|threads| match threads {
            ThreadsOf::Auto => share_of_cores(workers),
            ThreadsOf::Number(number) => number,
        })
    }
}

/// The cores of this machine for each of `workers`, 1 at least.
pub(crate) fn share_of_cores(workers: u32) -> usize {
    (available_parallelism().map_or(1, NonZero::get) / workers.max(1) as usize).max(1)
}
