//! The command that a failing fault schedule prints reproduces the trial exactly.

use pstrain_tests::trial_of;

use crate::process::finish;

#[test]
fn the_command_of_a_trial_repeats_it_event_by_event() {
    for seed in 0..24 {
        let trial = trial_of(seed);
        let run = trial.run.run();
        let trace: String = run.trace.iter().map(|byte| format!("{byte:02x}")).collect();
        let flags: Vec<String> = trial
            .settings
            .iter()
            .flat_map(|(key, value)| [format!("--{key}"), value.clone()])
            .collect();
        let mut arguments = vec!["simulate", "--json"];
        arguments.extend(flags.iter().map(String::as_str));
        // The exit code is not checked: a run that could not reach its budget has its own code.
        let report = finish(&arguments).json();
        assert_eq!(report["trace_sha256"], trace, "{trial}");
        assert_eq!(report["events"], run.happened, "{trial}");
    }
}
