//! Location of real data sets, which are not part of the project.

use std::path::{Path, PathBuf};

/// Returns the folder of the data set `name`: in `$PSTRAIN_DATA`, or in `../shared/data` next to
/// the workspace.
///
/// # Panics
///
/// If there is none. A `cfg` of the build script ignores the tests that need it in that case.
#[must_use]
pub fn real_data(name: &str) -> PathBuf {
    let near = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("PSTRAIN_DATA").map_or_else(near, PathBuf::from).join(name);
    assert!(folder.is_dir(), "no {}: set PSTRAIN_DATA", folder.display());
    folder
}
