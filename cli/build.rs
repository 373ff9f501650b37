//! Tells the binary what it was built for, for `--version`.

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=PSTRAIN_TARGET={target}");
    println!("cargo::rerun-if-changed=build.rs");
}
