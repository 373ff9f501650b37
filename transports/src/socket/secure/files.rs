//! Reading what must be secret, or may not be changed by others.

use std::fs;
use std::path::Path;

use super::SecurityError;

/// The text of `path`, which has no secret in it.
pub(super) fn read(path: &Path) -> Result<String, SecurityError> {
    fs::read_to_string(path).map_err(|error| SecurityError(format!("{}: {error}", path.display())))
}

/// The text of `path`, which nobody but its owner may be able to read.
pub(super) fn read_secret(path: &Path) -> Result<String, SecurityError> {
    use std::os::unix::fs::PermissionsExt;
    let text = read(path)?;
    let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        return Err(SecurityError(format!(
            "{}: others can read it (mode {mode:04o}), so it may be secret no more; make a new one, \
             or if nobody else has ever been on this machine: chmod 600 {0}",
            path.display()
        )));
    }
    Ok(text)
}
