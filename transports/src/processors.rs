//! How long threads and processes wait for a processor, as far as Linux tells.

use std::fs;

/// Returns the share of the time in which threads of this process had work to do and waited for a
/// processor, from 0 to 1: since the start of each thread that lives. None where
/// `/proc/self/task/*/schedstat` does not tell.
#[must_use]
pub fn waiting_share() -> Option<f64> {
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    let times = threads
        .filter_map(|thread| schedule(&fs::read_to_string(thread.path().join("schedstat")).ok()?));
    let (ran, waited) = times.fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
    (ran + waited > 0).then(|| waited as f64 / (ran + waited) as f64)
}

/// Returns how long a thread ran and how long it waited for a processor, in nanoseconds.
fn schedule(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Returns the larger of two shares: this process's, and the share of the last ten seconds in which
/// some process of this machine waited (pressure stall information).
pub(crate) fn waiting_share_here() -> Option<f64> {
    let machine = fs::read_to_string("/proc/pressure/cpu").ok();
    let machine = machine.and_then(|text| pressure(&text));
    [machine, waiting_share()].into_iter().flatten().max_by(f64::total_cmp)
}

/// Returns the share of the last ten seconds in which some process waited.
fn pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    Some(percent.parse::<f64>().ok()? / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read_as_shares() {
        assert_eq!(schedule("2500 7500 12\n"), Some((2500, 7500)));
        assert_eq!(schedule("2500\n"), None);
        let words = "some avg10=16.50 avg60=44.71 avg300=29.65 total=156756342\nfull avg10=1.00\n";
        assert_eq!(pressure(words), Some(0.165));
        assert_eq!(pressure("full avg10=1.00"), None);
        assert!(waiting_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
