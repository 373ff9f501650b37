//! A guard against writing output files through symbolic links.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// Fails if `path` is a link through which another file would be overwritten. A link to a device or
/// a pipe is allowed: no data is lost there.
pub(crate) fn refuse_link(path: &Path) -> anyhow::Result<()> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
    let keeps_nothing = fs::metadata(path).is_ok_and(|there| !there.is_file());
    // /dev/stdout may be redirected to a file.
    if is_link && !keeps_nothing && !path.starts_with("/dev") {
        let target =
            fs::read_link(path).with_context(|| format!("cannot read {}", path.display()))?;
        bail!(
            "{} is a link to {}, which would be overwritten; remove the link, or name another \
             place",
            path.display(),
            target.display()
        );
    }
    Ok(())
}
