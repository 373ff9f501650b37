//! Training on a processor without an operating system: a server and two workers as on any network,
//! with a heap of fixed size. Built for the host, the same program prints the same line, so that
//! the two can be compared; `tests/edge/bare-metal.sh` runs both.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod cluster;
#[cfg(target_os = "none")]
mod device;
mod job;

use alloc::format;
use alloc::string::{String, ToString};

use sha2::{Digest as _, Sha256};

/// Trains, and returns the result in one line: accuracy, updates, digest of the parameters.
fn train() -> Result<String, String> {
    let examples = job::examples().map_err(|error| error.to_string())?;
    let outcome = cluster::Cluster::new(examples)?.run()?;
    let mut hash = Sha256::new();
    for value in &outcome.parameters {
        hash.update(value.to_le_bytes());
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(
        "accuracy {:.4} after {} updates of {} parameters, SHA-256 {digest}",
        outcome.evaluation.accuracy(),
        outcome.updates,
        outcome.parameters.len(),
    ))
}

#[cfg(not(target_os = "none"))]
fn main() -> Result<(), String> {
    println!("{}", train()?);
    Ok(())
}
