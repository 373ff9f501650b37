//! Helper of build scripts: tells tests, as `cfg`s, which optional resources this machine has.
//! Tests that need a missing one are ignored, and the test runner shows them so.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prints the `cfg`s `nsl_kdd`, `a9a` and `cifar10` (real data sets), `namespaces` (network
/// namespaces can be made) and `other_user` (a build can be run as another user).
pub(crate) fn tell() {
    // Real data sets are in $PSTRAIN_DATA, or next to the workspace.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
    let near = manifest.join("../../shared/data");
    let data = env::var_os("PSTRAIN_DATA").map_or(near, PathBuf::from);
    println!("cargo::rerun-if-env-changed=PSTRAIN_DATA");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", manifest.join("../tests/machine.rs").display());
    flag("nsl_kdd", has_file(&data.join("nsl-kdd"), "KDDTrain+.txt"));
    flag("a9a", has_file(&data.join("a9a"), "a9a"));
    flag("cifar10", has_file(&data.join("cifar10"), "test_batch.bin"));
    flag("namespaces", makes_namespaces());
    flag("other_user", runs_as_other_user());
}

fn flag(name: &str, is_set: bool) {
    println!("cargo::rustc-check-cfg=cfg({name})");
    if is_set {
        println!("cargo::rustc-cfg={name}");
    }
}

/// True if `folder` has a file of this name, plain or compressed.
fn has_file(folder: &Path, name: &str) -> bool {
    ["", ".gz", ".xz", ".zst"].iter().any(|end| folder.join(format!("{name}{end}")).is_file())
}

/// True if this user may make network namespaces, and has `ip` to name them.
fn makes_namespaces() -> bool {
    works("ip", &["netns", "list"]) && works("unshare", &["--net", "true"])
}

/// True if this user may run commands as user 65534, and that user can execute a build.
fn runs_as_other_user() -> bool {
    let Ok(built) = env::var("OUT_DIR") else { return false };
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    works("setpriv", &[&user[..], &["test", "-x", &built]].concat())
}

fn works(command: &str, args: &[&str]) -> bool {
    let mut command = Command::new(command);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
