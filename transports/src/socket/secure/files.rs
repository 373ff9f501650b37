//! Reading of secret files, and checks of their permissions.

use std::fs;
use std::path::Path;

use super::{KeyAccess, SecurityError};

/// Returns the text of `path`, which is not secret.
pub(super) fn read(path: &Path) -> Result<String, SecurityError> {
    fs::read_to_string(path).map_err(|error| SecurityError(format!("{}: {error}", path.display())))
}

impl KeyAccess {
    /// True if a file of `owner` with permissions `mode` is secret enough for user `reader`.
    const fn allows(self, mode: u32, owner: u32, reader: u32) -> bool {
        let others = match self {
            Self::RootsGroup if owner == 0 && reader != 0 => 0o037,
            Self::Owner | Self::RootsGroup => 0o077,
        };
        mode & others == 0
    }
}

/// Returns the text of the key file `path`.
///
/// # Errors
/// [`SecurityError`] if the file cannot be read, or if users can read it that `access` does not
/// allow.
pub(super) fn read_secret(path: &Path, access: KeyAccess) -> Result<String, SecurityError> {
    use std::os::unix::fs::MetadataExt;
    let text = read(path)?;
    let (mode, owner) = fs::metadata(path).map_or((0, 0), |file| (file.mode() & 0o777, file.uid()));
    let reader = rustix::process::geteuid().as_raw();
    if access.allows(mode, owner, reader) {
        return Ok(text);
    }
    let file = path.display();
    Err(SecurityError(if KeyAccess::RootsGroup.allows(mode, owner, reader) {
        format!(
            "{file}: it is root's, and its group can read it (mode {mode:04o}); chmod 400 and \
             chown it to the user of this process, or allow that with --group-readable-key if root \
             hands the key over in this way (Kubernetes, systemd)"
        )
    } else {
        format!(
            "{file}: others can read it (mode {mode:04o}), so it may be secret no more; make a new \
             one, or if nobody else has ever been on this machine: chmod 600 {file}"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_owners_alone_unless_root_may_hand_it_to_a_group() {
        let (root, user) = (0, 1000);
        for access in [KeyAccess::Owner, KeyAccess::RootsGroup] {
            assert!(access.allows(0o600, user, user) && access.allows(0o400, root, root));
            for (mode, owner, reader) in
                [(0o640, user, user), (0o440, root, root), (0o660, root, user), (0o604, root, user)]
            {
                let is_allowed = access.allows(mode, owner, reader);
                assert!(!is_allowed, "{access:?}: {mode:o} of {owner} for {reader}");
            }
        }
        for mode in [0o440, 0o640] {
            assert!(KeyAccess::RootsGroup.allows(mode, root, user), "{mode:o}");
            assert!(!KeyAccess::Owner.allows(mode, root, user), "{mode:o}");
        }
    }
}
