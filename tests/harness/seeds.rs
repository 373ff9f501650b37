//! Seeds of random schedules: a fixed share of each test's seeds, then fresh ones for a time. Use
//! it in every test of random schedules.
//!
//! | variable | runs |
//! |---|---|
//! | none | the first 24th of each test's seeds, at least 30 |
//! | `PSTRAIN_SEEDS=FACTOR` | `FACTOR` times each test's seeds: 1 is all of them |
//! | `PSTRAIN_FRESH=SECONDS` | after the fixed seeds, fresh random ones for so long in each test |
//! | `PSTRAIN_SEED=SEED` | this seed alone |
//!
//! A seed that fails prints the command that repeats it.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_transports::WallClock;

/// By default one in so many of a test's seeds runs,
const USUAL_SHARE: u64 = 24;
/// but at least so many, or all.
const USUAL_LEAST: u64 = 30;

/// The seeds that one test ran; its minimum counts are scaled to them.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// Fixed seeds that ran.
    fixed: u64,
    /// Fixed seeds of the whole test.
    whole: u64,
    /// True if `PSTRAIN_SEED` named a single seed, which need not show everything that can come up.
    alone: bool,
}

/// Runs `check` on the seeds of this test, `whole` of them in full, and describes the first one
/// that fails.
///
/// # Panics
///
/// If `check` panics, after printing `describe` and the command that repeats the seed.
#[expect(clippy::print_stderr, reason = "the reader of a failure repeats it")]
pub fn for_seeds(whole: u64, describe: impl Fn(u64) -> String, mut check: impl FnMut(u64)) -> Ran {
    // The test runner names the thread after the test, unless all tests run on the main thread.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
    let mut run = |seed| {
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("seed {seed}: {}", describe(seed));
            eprintln!(
                "replay: PSTRAIN_SEED={seed} cargo test -p pstrain-tests --test suites {test}"
            );
            resume_unwind(failure);
        }
    };
    if let Some(seed) = number("PSTRAIN_SEED") {
        run(seed);
        return Ran { fixed: 1, whole, alone: true };
    }
    let fixed = match number::<f64>("PSTRAIN_SEEDS") {
        Some(factor) => (whole as f64 * factor).ceil() as u64,
        None => (whole / USUAL_SHARE).max(whole.min(USUAL_LEAST)),
    };
    (0..fixed).for_each(&mut run);
    let until = Time::ZERO + Duration::from_secs(number("PSTRAIN_FRESH").unwrap_or(0));
    let clock = WallClock::start();
    while clock.now() < until {
        run(getrandom::u64().unwrap_or_else(|error| panic!("no fresh seed: {error}")));
    }
    Ran { fixed, whole, alone: false }
}

impl Ran {
    /// Asserts that `found` is above `least`, scaled to the fixed seeds that ran.
    ///
    /// # Panics
    ///
    /// If it is not: the test checked too little.
    #[track_caller]
    pub fn expect_above(self, least: u64, found: u64, of: &str) {
        let Self { fixed, whole, alone } = self;
        let enough = u128::from(found) * u128::from(whole) > u128::from(least) * u128::from(fixed);
        assert!(alone || enough, "only {found} {of} in {fixed} of {whole} seeds");
    }

    /// Asserts that each of `words` came up.
    ///
    /// # Panics
    ///
    /// If one did not: the test checked too little.
    #[track_caller]
    pub fn expect_each<W: AsRef<str>>(
        self,
        words: impl IntoIterator<Item = W>,
        came_up: impl Fn(&str) -> bool,
    ) {
        let missing = |word: &W| !came_up(word.as_ref());
        let missing: Vec<_> = words.into_iter().filter(missing).collect();
        let names: Vec<_> = missing.iter().map(AsRef::as_ref).collect();
        assert!(self.alone || names.is_empty(), "{names:?} never came up in {self:?}");
    }
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
