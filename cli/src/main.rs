//! The binary: [`pstrain::run`] and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    pstrain::run()
}
