//! Words of a command line that a message offers.

use super::SecurityArgs;

/// Quotes a word for a shell, if needed.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl SecurityArgs {
    /// The flags that are the same for all processes, each after a space.
    pub(crate) fn shared_flags(&self) -> String {
        let mut flags = String::new();
        if let Some(file) = &self.psk {
            flags += &format!(" --psk {}", quoted(&file.display().to_string()));
            if self.group_readable_key {
                flags += " --group-readable-key";
            }
        }
        if self.insecure {
            flags += " --insecure";
        }
        flags
    }

    /// The flags of this process, each after a space.
    pub(crate) fn flags(&self) -> String {
        let Some(folder) = &self.tls else { return self.shared_flags() };
        let readable = if self.group_readable_key { " --group-readable-key" } else { "" };
        format!(" --tls {}{readable}", quoted(&folder.display().to_string()))
    }
}
