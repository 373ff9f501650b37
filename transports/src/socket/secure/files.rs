//! Reading what must be secret, or may not be changed by others.

use std::fs;
use std::path::Path;

use super::SecurityError;

/// The text of `path`, which has no secret in it.
pub(super) fn read(path: &Path) -> Result<String, SecurityError> {
    fs::read_to_string(path).map_err(|error| SecurityError(format!("{}: {error}", path.display())))
}

/// The text of `path`, which others than [its reader](is_secret) may not be able to read.
pub(super) fn read_secret(path: &Path) -> Result<String, SecurityError> {
    use std::os::unix::fs::MetadataExt;
    let text = read(path)?;
    let (mode, owner) = fs::metadata(path).map_or((0, 0), |file| (file.mode() & 0o777, file.uid()));
    if !is_secret(mode, owner, rustix::process::geteuid().as_raw()) {
        return Err(SecurityError(format!(
            "{}: others can read it (mode {mode:04o}), so it may be secret no more; make a new one, \
             or if nobody else has ever been on this machine: chmod 600 {0}",
            path.display()
        )));
    }
    Ok(text)
}

/// Whether a file with the permissions `mode` is for its owner alone; or, if that is root, also for a group
/// to which it hands the file over so that user `reader` can read it, as Kubernetes and systemd do.
const fn is_secret(mode: u32, owner: u32, reader: u32) -> bool {
    let handed_over = owner == 0 && reader != 0;
    mode & (if handed_over { 0o037 } else { 0o077 }) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_owners_alone_unless_root_hands_it_to_a_group() {
        let (root, user) = (0, 1000);
        assert!(is_secret(0o600, user, user) && is_secret(0o400, root, root));
        assert!(is_secret(0o440, root, user) && is_secret(0o640, root, user));
        for (mode, owner, reader) in
            [(0o640, user, user), (0o440, root, root), (0o660, root, user), (0o604, root, user)]
        {
            assert!(!is_secret(mode, owner, reader), "{mode:o} of {owner} for {reader}");
        }
    }
}
