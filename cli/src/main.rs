//! The binary; calls [`pstrain::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    pstrain::run()
}
