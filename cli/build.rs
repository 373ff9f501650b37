//! Tells the binary its target, for `--version`, and the process tests what this machine has.

#[path = "../tests/machine.rs"]
mod machine;

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=PSTRAIN_TARGET={target}");
    machine::tell();
}
