//! Tells the binary its target and its commit, for `--version` and results, and the process tests
//! which optional things this machine has.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../tests/machine.rs"]
mod machine;

fn main() {
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=PSTRAIN_TARGET={target}");
    println!("cargo::rustc-env=PSTRAIN_BUILD={}", build());
    machine::tell();
}

/// The commit that is built: `$PSTRAIN_COMMIT`, or what git says. A development build has none,
/// since it would be made again for each commit.
fn build() -> String {
    println!("cargo::rerun-if-env-changed=PSTRAIN_COMMIT");
    let given = env::var("PSTRAIN_COMMIT").unwrap_or_default();
    if !given.is_empty() {
        return format!("commit {given}");
    }
    if env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return "development build".into();
    }
    let root = env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
    let root = root.join("..");
    // A change of the sources makes the commit one with changes.
    for part in ["cli", "core", "data", "transports", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    if let Some(log) = git(&root, &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={}", root.join(log).display());
    }
    let commit = git(&root, &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    commit.map_or_else(|| "unknown commit".into(), |commit| format!("commit {commit}"))
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let said = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| said.status.success() && !text.is_empty())
}
