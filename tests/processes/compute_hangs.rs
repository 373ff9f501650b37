//! Compute processes that hang or take long to start again, in runs of short gradients.

use std::fs;

use rustix::process::Signal;
use tempfile::TempDir;

use super::cluster::{Server, names, path};
use super::compute::{APART, linear};
use super::process::{eventually, finish, random_runs};

/// An answer by hand, of which the first half comes before `{what}`.
fn halves(what: &str) -> String {
    format!(
        "answer = json.dumps({{'id': m['id'], 'loss': 0, 'values': 3}}).encode() + b'\\n'; \
         half = len(answer) + 5; answer += bytes(12); \
         o.write(answer[:half]); o.flush(); {what}; o.write(answer[half:]); o.flush(); continue"
    )
}

/// Short gradients are computed in the worker's message loop, which heartbeats must not wait for,
/// whatever a process does and at whatever byte.
#[test]
fn a_process_that_is_late_for_once_or_slow_to_start_again_costs_no_lease() {
    let folder = TempDir::new().unwrap();
    let flag = folder.path().join("flag");
    let once = |what: &str| {
        format!(
            "import os, time, signal\n        \
             if m['id'] == 60 and not os.path.exists({flag:?}):\n            \
             open({flag:?}, 'w').close()\n            {what}"
        )
    };
    let stops = "if os.fork() == 0: time.sleep(3); os.kill(os.getppid(), signal.SIGCONT); \
                 os._exit(0)";
    let faults = [
        ("late", "time.sleep(3)".into()),
        ("again", "os._exit(3)".into()),
        ("half", halves("time.sleep(3)")),
        ("stopped", format!("{stops}\n            {}", halves("os.kill(os.getpid(), 19)"))),
        ("cut", halves("os._exit(3)")),
        // The child holds the output of the process open.
        ("forked", "if os.fork() == 0: time.sleep(1000)\n            os._exit(3)".into()),
    ];
    for (name, what) in faults {
        let Some(process) = linear(&folder, name, &once(&what), "pass") else { return };
        let process = format!("if [ -e {} ]; then sleep 3; fi; {process}", path(&flag));
        let job = ["--lease", "1s", "--workers", "2", "--batch-size", "4", "--epochs", "8"];
        let ran = finish(&[&["run", "--process", &process], &job[..]].concat()).with_code(0);
        assert!(fs::remove_file(&flag).is_ok(), "{name}: {}", ran.stderr);
        assert!(!ran.stderr.contains("is lost"), "{name}: {}", ran.stderr);
    }
}

/// A worker whose process has stopped in the middle of an answer heeds its signals.
#[test]
fn a_worker_is_ended_by_a_signal_while_its_process_hangs_and_leaves_no_child_of_it() {
    let folder = TempDir::new().unwrap();
    let child = folder.path().join("child");
    let hangs = format!(
        "import os, time\n        if m['id'] == 20:\n            \
         child = os.fork()\n            if child == 0: time.sleep(1000)\n            \
         open({child:?}, 'w').write(str(child))\n            {}",
        halves("time.sleep(1000)")
    );
    let Some(process) = linear(&folder, "hangs", &hangs, "pass") else { return };
    let job = ["--lease", "1s", "--workers", "1", "--batch-size", "4", "--epochs", "8"];
    for signals in [1, 2] {
        let _absent = fs::remove_file(&child);
        let server = Server::tcp(&[&["--process", &process], &job[..]]);
        let worker = server.worker(&["--process", &process]);
        let child = eventually("child", || {
            fs::read_to_string(&child).ok().filter(|child| !child.is_empty())
        });
        for _ in 0..signals {
            worker.signal(Signal::TERM);
        }
        worker.wait();
        gone(&child);
    }
}

/// Waits until a process has ended.
fn gone(process: &str) {
    eventually("end of the process", || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
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
    gone(&fs::read_to_string(&flag).unwrap());
}

/// Writes an answer with a fault at a random byte, one time in four.
const CHAOS: &str = r#"
import os, random, signal, time
dice = random.Random(SEED + 1000 * len(os.listdir(FOLDER)) + os.getpid())
def child(what):
    if os.fork() == 0:
        open(FOLDER + "/" + str(os.getpid()), "w").close()
        what()
        os._exit(0)
def lies_down():
    child(lambda: (time.sleep(dice.random() * 2), os.kill(os.getppid(), signal.SIGCONT)))
    os.kill(os.getpid(), signal.SIGSTOP)
def drips(data):
    for byte in data: o.write(bytes([byte])); o.flush()
def write(data):
    half = dice.randrange(len(data) + 1)
    fault = dice.randrange(32)
    if fault == 0: return o.write(b"junk\n")
    o.write(data[:half]); o.flush()
    if fault == 1: time.sleep(dice.random() * 2)
    if fault == 2: os.kill(os.getpid(), signal.SIGKILL)
    if fault == 3: os._exit(dice.randrange(3))
    if fault == 4: child(lambda: time.sleep(1000)); os._exit(1)
    if fault == 5: lies_down()
    if fault == 6: return drips(data[half:])
    if fault == 7: child(lambda: time.sleep(1000))
    o.write(data[half:])
"#;

#[test]
fn processes_with_faults_at_random_bytes_end_at_the_bits_of_sound_ones_and_leave_no_child() {
    let folder = TempDir::new().unwrap();
    let Some(sound) = linear(&folder, "sound", "pass", "pass") else { return };
    let script = fs::read_to_string(folder.path().join("sound.py")).unwrap();
    let job = ["--workers", "2", "--batch-size", "20", "--epochs", "6", "--lease", "1s", "--json"];
    let restarts = ["--process-restarts", "1000"];
    let run = |process: &str| {
        let run = [&["run", "--process", process], &job[..], &restarts].concat();
        let ran = finish(&run).with_code(0);
        assert!(!ran.stderr.contains("is lost"), "{}", ran.stderr);
        ran.json()["params_sha256"].clone()
    };
    let wanted = run(&sound);
    for seed in 0..random_runs() {
        let children = TempDir::new().unwrap();
        let chaos = CHAOS.replace("FOLDER", &format!("{:?}", children.path()));
        let chaos = chaos.replace("SEED", &format!("{}", 100_000 * seed));
        let (first, rest) = script.split_once("\ndef say").unwrap();
        // Only gradients: a process that fails before it has described itself is not started again.
        let say = rest.replace("o.write(json", "(write if 'loss' in message else o.write)(json");
        let file = folder.path().join("chaos.py");
        fs::write(&file, format!("{first}\n{chaos}\ndef say{say}")).unwrap();
        assert_eq!(run(&format!("exec python3 {}", path(&file))), wanted, "seed {seed}");
        names(children.path()).iter().for_each(|child| gone(child));
    }
}
