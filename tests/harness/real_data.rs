//! Real data sets, which are not part of the project.

use std::path::{Path, PathBuf};

/// The folder of the data set `name`: in `$PSTRAIN_DATA`, or in `../shared/data` next to the
/// workspace.
///
/// # Panics
///
/// If there is none. Tests that need it are ignored then, by a `cfg` of the build script.
#[must_use]
pub fn real_data(name: &str) -> PathBuf {
    let near = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("PSTRAIN_DATA").map_or_else(near, PathBuf::from).join(name);
    assert!(folder.is_dir(), "no {}: set PSTRAIN_DATA", folder.display());
    folder
}
