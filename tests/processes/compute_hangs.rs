//! Compute processes that hang or take long to start again, in runs of short gradients.

use std::fs;

use tempfile::TempDir;

use super::cluster::path;
use super::compute::{APART, linear};
use super::process::{eventually, finish};

/// Short gradients are computed in the worker's message loop, which heartbeats must not wait for.
#[test]
fn a_process_that_is_late_for_once_or_slow_to_start_again_costs_no_lease() {
    let folder = TempDir::new().unwrap();
    let flag = folder.path().join("flag");
    let once = |what: &str| {
        format!(
            "import os, time\n        \
             if m['id'] == 60 and not os.path.exists({flag:?}):\n            \
             open({flag:?}, 'w').close()\n            {what}"
        )
    };
    for (name, what) in [("late", "time.sleep(3)"), ("again", "os._exit(3)")] {
        let Some(process) = linear(&folder, name, &once(what), "pass") else { return };
        let process = format!("if [ -e {} ]; then sleep 3; fi; {process}", path(&flag));
        let job = ["--lease", "1s", "--workers", "2", "--batch-size", "4", "--epochs", "8"];
        let ran = finish(&[&["run", "--process", &process], &job[..]].concat()).with_code(0);
        assert!(fs::remove_file(&flag).is_ok(), "{name}: {}", ran.stderr);
        assert!(!ran.stderr.contains("is lost"), "{name}: {}", ran.stderr);
    }
}

#[test]
fn a_process_that_hangs_ends_with_the_run() {
    let folder = TempDir::new().unwrap();
    let flag = folder.path().join("flag");
    let hangs = format!(
        "import os, time\n        if m['id'] == 20 and not os.path.exists({flag:?}):\n            \
         open({flag:?}, 'w').write(str(os.getpid()))\n            time.sleep(1000)"
    );
    let Some(process) = linear(&folder, "hangs", &hangs, "pass") else { return };
    let job = [&APART[..], &["--workers", "2", "--batch-size", "4", "--epochs", "8"]].concat();
    finish(&[&["run", "--process", &process], &job[..]].concat()).with_code(0);
    let hung = fs::read_to_string(&flag).unwrap();
    eventually("end of the process that hung", || {
        let gone = fs::read_to_string(format!("/proc/{hung}/stat"));
        gone.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
}
