//! The memory that is left to this process, so that data are refused before it runs out.

use std::fs;
use std::path::Path;

/// Needs below this number of bytes are not checked.
const SMALL: u64 = 1 << 20;

/// Too little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes that are needed.
    pub needed: u64,
    /// Bytes that are left.
    pub left: u64,
}

/// Checks that `needed` more bytes of memory are left.
pub(crate) fn check(needed: u64) -> Result<(), Shortage> {
    match left() {
        Some(left) if needed >= SMALL && needed > left => Err(Shortage { needed, left }),
        _ => Ok(()),
    }
}

/// The bytes that this process can still allocate: the least of what the machine, its control group
/// and its limits leave. None where Linux does not say.
fn left() -> Option<u64> {
    let machine = read("/proc/meminfo").and_then(|text| {
        Some(kilobytes(&text, "MemAvailable:")? + kilobytes(&text, "SwapFree:").unwrap_or(0))
    });
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let groups = groups.lines().filter_map(in_group);
    let status = read("/proc/self/status").unwrap_or_default();
    let limits = read("/proc/self/limits").unwrap_or_default();
    let limits = [("Max address space", "VmSize:"), ("Max data size", "VmData:")]
        .into_iter()
        .filter_map(|(name, used)| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(limit.saturating_sub(kilobytes(&status, used)?))
        });
    machine.into_iter().chain(groups).chain(limits).min()
}

/// The bytes that a control group leaves, by its line in /proc/self/cgroup; the cache of files does
/// not count, since the kernel drops it.
fn in_group(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?.trim_start_matches('/'));
    // The files of version 2 and of version 1: the limit, the usage, and the cache in memory.stat.
    let (root, [limit, usage, cache]) = match controllers {
        "" => ("/sys/fs/cgroup", ["memory.max", "memory.current", "file "]),
        _ if controllers.split(',').any(|name| name == "memory") => (
            "/sys/fs/cgroup/memory",
            ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache "],
        ),
        _ => return None,
    };
    let folder = Path::new(root).join(group);
    let of = |folder: &Path| -> Option<u64> {
        let number = |name: &str| read(folder.join(name))?.trim().parse::<u64>().ok();
        let statistics = read(folder.join("memory.stat")).unwrap_or_default();
        let cached = statistics.lines().find_map(|line| line.strip_prefix(cache)?.parse().ok());
        let used = number(usage)?.saturating_sub(cached.unwrap_or(0));
        Some(number(limit)?.saturating_sub(used))
    };
    folder.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(of).min()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The bytes in the line of `text` that begins with `name`: `MemAvailable:   12 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let text = "MemTotal:  9 kB\nMemAvailable:   12 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable:"), Some(12 * 1024));
        assert_eq!(kilobytes(text, "SwapFree:"), None);
        assert_eq!(in_group("3:cpuset:/"), None);
        assert_eq!(in_group("damaged"), None);
    }

    #[test]
    fn no_machine_has_all_memory() {
        assert_eq!(check(0), Ok(()));
        if left().is_some() {
            assert_eq!(check(u64::MAX).unwrap_err().needed, u64::MAX);
        }
    }
}
