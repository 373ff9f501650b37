//! The binary: [`pstrain::Program`] without additions.

use std::process::ExitCode;

fn main() -> ExitCode {
    pstrain::Program::new().run()
}
