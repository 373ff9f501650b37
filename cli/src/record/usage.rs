//! The use of the machine by this process, as Linux counts it (proc(5)).

use std::collections::BTreeMap;

use serde::Serialize;

/// Ticks of a second in `/proc/self/stat`.
const TICKS: f64 = 100.0;

/// The use of the machine by this process since its start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProcessUsage {
    /// Processor time of all its threads, in seconds.
    pub(crate) processor_s: f64,
    /// Peak resident memory, as a share of the machine's memory.
    pub(crate) memory_share: f64,
    /// Calls that read files and pipes; sockets are not counted.
    pub(crate) read_calls: u64,
    /// Their bytes.
    pub(crate) read_bytes: u64,
    /// Calls that write files and pipes.
    pub(crate) write_calls: u64,
    /// Their bytes.
    pub(crate) written_bytes: u64,
}

impl ProcessUsage {
    /// The usage so far, if the system tells it.
    pub(crate) fn so_far() -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{file}")).ok();
        let (io, memory, stat) = (read("self/io")?, read("meminfo")?, read("self/stat")?);
        let (io, memory) = (numbers(&io), numbers(&memory));
        let of = |name: &str| io.get(name).map(|value| *value as u64);
        Some(Self {
            processor_s: processor_time(&stat)?,
            memory_share: peak_rss_mib()? * 1024.0 / memory.get("MemTotal")?,
            read_calls: of("syscr")?,
            read_bytes: of("rchar")?,
            write_calls: of("syscw")?,
            written_bytes: of("wchar")?,
        })
    }
}

/// The first number of each line `NAME: NUMBER`, by name.
fn numbers(text: &str) -> BTreeMap<&str, f64> {
    let line = |line| {
        let (name, rest): (&str, &str) = str::split_once(line, ':')?;
        Some((name, rest.split_whitespace().next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The processor time in the text of `stat`, in seconds: fields 14 and 15. The second field is a
/// name in brackets, which may have spaces.
fn processor_time(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS)
}

/// Returns the peak resident memory of this process in MiB, if the system reports it.
pub(crate) fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(numbers(&status).get("VmHWM")? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "71 (a (b) c) S 1 71 71 0 -1 4194560 906 0 1 0 250 75 0 0 20 0 3 0 2289";
        assert_eq!(processor_time(stat), Some(3.25));
        assert_eq!(processor_time("71 (a) S 1"), None);
        let io = numbers("rchar: 12\nsyscr: 3 \nMemTotal:   2048 kB\nName:\tx\n");
        assert_eq!(io, BTreeMap::from([("rchar", 12.0), ("syscr", 3.0), ("MemTotal", 2048.0)]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn usage_grows() {
        let before = ProcessUsage::so_far().unwrap();
        let _text = std::fs::read_to_string("/proc/self/status").unwrap();
        let after = ProcessUsage::so_far().unwrap();
        assert!(after.read_calls > before.read_calls && after.read_bytes > before.read_bytes);
        assert!(after.processor_s >= before.processor_s);
        assert!((0.0..1.0).contains(&after.memory_share) && after.memory_share > 0.0);
    }
}
