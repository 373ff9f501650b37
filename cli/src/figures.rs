//! Numbers as people read them: counts, bytes, durations, lists. Programs get exact numbers
//! (`--json`), never these.

use std::time::Duration;

use indicatif::{DecimalBytes, HumanCount};

/// From here on, a duration has whole seconds, minutes or hours.
const LONG: Duration = Duration::from_secs(600);

/// Formats a count with a comma between each three digits.
pub(crate) fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

/// Formats a number of things: `1 tensor`, `4 tensors`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", self::count(count))
}

/// Formats a rate or another count that need not be whole, rounded.
pub(crate) fn rounded(count: f64) -> String {
    // The cast saturates; no count of this program reaches the end.
    self::count(count.round().max(0.0) as u64)
}

/// Formats a number of bytes in a decimal unit of its size.
pub(crate) fn bytes(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}

/// Formats a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Formats a duration with three significant digits, a long one with its two largest units.
pub(crate) fn span(span: Duration) -> String {
    let digits = |value: f64, unit: &str| match value {
        value if value >= 100.0 => format!("{value:.0} {unit}"),
        value if value >= 10.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.2} {unit}"),
    };
    match span.as_secs_f64() {
        0.0 => "0 s".into(),
        seconds if seconds < 1e-3 => digits(seconds * 1e6, "us"),
        seconds if seconds < 1.0 => digits(seconds * 1e3, "ms"),
        seconds if span < LONG => digits(seconds, "s"),
        seconds if seconds < 3600.0 => format!("{:.0} min", seconds / 60.0),
        _ => long(span),
    }
}

/// Formats seconds with a unit that the cells of a column share: with three decimals below 10 s.
pub(crate) fn seconds(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time >= LONG => long(time),
        _ if seconds < 10.0 => format!("{seconds:.3} s"),
        _ => format!("{seconds:.1} s"),
    }
}

/// Formats a duration since or until something: whole seconds from 10 s on.
pub(crate) fn elapsed(span: Duration) -> String {
    let whole = match span.as_secs() {
        0..10 => Duration::from_millis(span.as_millis() as u64),
        _ if span < LONG => Duration::from_secs(span.as_secs()),
        _ => return long(span),
    };
    humantime::format_duration(whole).to_string()
}

/// The two largest units of a duration.
fn long(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours) {
        (0, 0) => format!("{minutes}m {:02}s", seconds % 60),
        (0, _) => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{}d {:02}h", count(days), hours % 24),
    }
}

/// Fewest neighbours that a list shows as a range.
const RANGE: usize = 4;

/// Lists ascending numbers; four or more neighbours as `1 to 24`.
pub(crate) fn list(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| last + 1 == number) => run.push(number),
            _ => runs.push(vec![number]),
        }
    }
    let written = runs.iter().map(|run| match run.as_slice() {
        [first, .., last] if run.len() >= RANGE => format!("{first} to {last}"),
        run => run.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    });
    written.collect::<Vec<_>>().join(", ")
}

/// Returns at most `most` characters of a name: of a longer one, its beginning and its end, which
/// is where names of machines differ.
pub(crate) fn shortened(name: &str, most: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (begin, end) = (kept.div_ceil(2), kept / 2);
    let tail = letters.iter().skip(letters.len() - end);
    letters.iter().take(begin).chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes_are_grouped_and_have_a_unit_of_their_size() {
        let counts = [0, 999, 1000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let counts = [0, 1, 2_000].map(|count| counted(count, "row"));
        assert_eq!(counts, ["0 rows", "1 row", "2,000 rows"]);
        assert_eq!(rounded(593_631.6), "593,632");
        assert_eq!(rounded(f64::NAN), "0");
        let sizes = [12, 400_128, 12_345_678_901].map(bytes);
        assert_eq!(sizes, ["12 B", "400.13 kB", "12.35 GB"]);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let spans = [0.0, 2e-6, 0.0123, 1.5, 599.0, 600.0, 12_345.0, 1e6];
        let spans = spans.map(|seconds| span(Duration::from_secs_f64(seconds)));
        let wanted =
            ["0 s", "2.00 us", "12.3 ms", "1.50 s", "599 s", "10 min", "3h 25m", "11d 13h"];
        assert_eq!(spans, wanted);
        let times = [0.0, 9.8765, 33.33, 754.0, -1.0].map(seconds);
        assert_eq!(times, ["0.000 s", "9.877 s", "33.3 s", "12m 34s", "-1.000 s"]);
        let since = [1_234, 59_900, 90_000, 3_725_000].map(Duration::from_millis).map(elapsed);
        assert_eq!(since, ["1s 234ms", "59s", "1m 30s", "1h 02m"]);
    }

    #[test]
    fn neighbours_are_a_range_and_names_keep_both_ends() {
        assert_eq!(list([]), "");
        assert_eq!(list([1, 2, 3]), "1, 2, 3");
        assert_eq!(list([1, 2, 3, 4, 7, 9, 10, 11, 12]), "1 to 4, 7, 9 to 12");
        assert_eq!(shortened("edge-7", 12), "edge-7");
        assert_eq!(shortened("greenhouse-north-17:4242", 14), "greenho…7:4242");
        assert_eq!(shortened("ab", 1), "…");
    }
}
