//! Thousands of random fault schedules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pstrain_tests::trial_of;

#[test]
fn whatever_befalls_them_the_invariants_hold_and_the_run_ends() {
    let n: u64 = std::env::var("PSTRAIN_SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(1000);
    let mut bad = 0;
    for seed in 0..n {
        let trial = trial_of(seed);
        if catch_unwind(AssertUnwindSafe(|| trial.run.run())).is_err() {
            eprintln!("seed {seed}: {trial}");
            bad += 1;
            if bad > 5 { panic!(); }
        }
    }
}
