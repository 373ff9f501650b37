//! Commands that do not train: version, help, data, completions, calibrate, crowd, bench.

use std::io::Read;
use std::process::{Command, Stdio};

use pstrain_wire::PROTOCOL;

use crate::cluster::{Server, number, path, real};
use crate::process::finish;

#[test]
fn the_version_names_release_protocol_and_target() {
    let version = finish(&["--version"]).with_code(0).stdout;
    let wanted = format!("pstrain {} (protocol {PROTOCOL}, ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&wanted), "{version}");
    assert!(version.contains("linux") || version.contains('-'), "{version}");
}

#[test]
fn help_lists_settings_with_defaults_and_exit_codes() {
    let help = finish(&["--help"]).with_code(0).stdout;
    assert!(help.contains("Exit codes:") && help.contains("130"), "{help}");
    let help = finish(&["run", "--help"]).with_code(0).stdout;
    let headings = ["Run:", "Model:", "Optimisation:", "Consistency:", "Network:", "Data:"];
    let more = ["Stragglers and faults:", "Durability:", "Output:"];
    for word in ["--learning-rate", "auto: 0.1", "ssp:SLACK", "--lr", "PSTRAIN_JOB_LEARNING_RATE"]
        .into_iter()
        .chain(headings)
        .chain(more)
    {
        assert!(help.contains(word), "nothing of {word:?}:\n{help}");
    }
    let short = finish(&["run", "-h"]).with_code(0).stdout;
    assert!(!short.contains("ssp:SLACK") && short.contains("[bsp]"), "{short}");
    assert!(short.lines().count() < 120, "{short}");
}

#[cfg(feature = "shell")]
#[test]
fn completions_exist_for_the_usual_shells() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef"), ("fish", "complete -c")] {
        let script = finish(&["completions", shell]).with_code(0).stdout;
        assert!(script.contains(mark) && script.contains("learning-rate"), "{shell}");
    }
    finish(&["completions", "csh"]).refused(2, &["csh", "bash"]);
}

#[cfg(feature = "shell")]
#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man");
    finish(&["man", "--out", path(&out)]).with_code(0);
    for page in ["pstrain.1", "pstrain-run.1", "pstrain-server.1", "pstrain-data-split.1"] {
        let text = std::fs::read_to_string(out.join(page)).expect(page);
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    finish(&["man", "--out", path(&file)]).refused(2, &["cannot write", path(&file)]);
}

#[test]
fn short_help_in_a_pipe_has_the_width_of_results() {
    for command in [&["run"][..], &["server"], &["worker"], &["why"], &["experiment", "run"]] {
        let help = finish(&[command, &["-h"]].concat()).with_code(0).stdout;
        // The synopsis is not folded.
        let lines = help.lines().filter(|line| !line.contains("pstrain "));
        for line in lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn data_info_describes_the_shipped_data() {
    let table = finish(&["data", "info", "nsl-kdd"]).with_code(0).stdout;
    for word in ["125,973 rows", "Normal", "neptune", "protocol_type", "src_bytes"] {
        assert!(table.contains(word), "nothing of {word:?}:\n{table}");
    }
    let info = finish(&["data", "info", "synthetic:3000", "--json"]).with_code(0).json();
    assert_eq!(number(&info["rows"]), 3000);
    let classes = info["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 5);
    let rows: u64 = classes.iter().map(|class| number(&class["count"])).sum();
    assert_eq!(rows, 3000);
    finish(&["data", "info", "none.csv"]).refused(2, &["none.csv", "No such file"]);
}

#[test]
fn a_first_line_of_numbers_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("rows.csv");
    std::fs::write(&table, "1,2,x\n3,4,y\n".to_owned() + &"5,6,x\n7,9,y\n".repeat(40)).unwrap();
    let data = format!("csv:{}", path(&table));
    let run = ["run", "--data", &data, "--model", "softmax", "--epochs", "1"];
    for command in [&["data", "info", &data][..], &run] {
        let said = finish(command).with_code(0).stderr;
        let words = "rows.csv: its first line names the columns, but 2 of 3 names are numbers";
        assert_eq!(said.matches(words).count(), 1, "{said}");
        assert!(said.contains("pstrain: warning: "), "{said}");
    }
}

#[test]
fn odd_values_of_a_table_are_said_wherever_rows_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, kinds: [&str; 4]| {
        let row = |row: usize| format!("{},{}.5,s{}\n", kinds[row % 4], row * 7 % 40, row % 2);
        let rows: String = (0..80).map(row).collect();
        std::fs::write(folder.path().join(name), format!("kind,x,state\n{rows}")).unwrap();
        format!("csv:{}", path(&folder.path().join(name)))
    };
    let train = write("train.csv", ["0", "1", "2", "3+"]);
    let test = write("test.csv", ["0.0", "1.0", "2.0", "4+"]);
    let out = folder.path().join("out");
    let job = ["--model", "softmax", "--epochs", "1", "--evaluation-data", &test, "--workers", "1"];
    let guessed = "train.csv: column kind: 60 of 80 values are numbers, but one is \"3+\": its 4";
    let unknown = "test.csv: column kind: 20 of 80 texts (25.0 %) are unknown to the job, such as \
                   \"4+\" in line 5";
    let check = |said: &str, all: &[&str]| {
        for words in all {
            assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
        }
        assert_eq!(said.matches("warning: ").count(), all.len(), "{said}");
    };
    check(&finish(&["data", "info", &train]).with_code(0).stderr, &[guessed]);
    let run = [&["run", "--data", &train, "--out", path(&out)][..], &job].concat();
    check(&finish(&run).with_code(0).stderr, &[guessed, unknown]);
    let eval = ["eval", "--model", path(&out), "--data", &test];
    check(&finish(&eval).with_code(0).stderr, &[unknown]);
    // Where each worker has rows of its own, those of the evaluation decide the columns.
    let unknown = unknown.replace("test.csv", "train.csv").replace("4+", "3+");
    let guessed = guessed.replace("train.csv", "test.csv").replace("3+", "4+");
    let server = Server::tcp(&[&["--partition", "local"], &job]);
    let worker = server.worker(&["--data", &train]);
    worker.wait_to_say(&unknown);
    server.process.wait_to_say(&guessed);
    server.finish(vec![worker]);
}

#[test]
fn data_split_shows_the_rows_of_each_worker() {
    let args = ["data", "split", "--partition", "dirichlet:0.1", "--workers", "4"];
    let args = [&args[..], &["--data", "synthetic:4000"]].concat();
    let table = finish(&args).with_code(0).stdout;
    let rows = "drawn so that each worker has 64 rows or more";
    for word in ["3,000 training rows, 1,000 for evaluation", "dirichlet:0.1", rows, "U2R"] {
        assert!(table.contains(word), "nothing of {word:?}:\n{table}");
    }
    let skew = finish(&[&args[..], &["--json"]].concat()).with_code(0).json();
    let workers = skew["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 4);
    let rows: Vec<u64> = workers.iter().map(|worker| number(&worker["rows"])).collect();
    assert_eq!(rows.iter().sum::<u64>(), 3000);
    assert!(rows.iter().all(|&rows| rows >= 64), "less than a mini-batch: {rows:?}");
    let batch = [&args[..], &["--batch-size", "200", "--json"]].concat();
    let batch = finish(&batch).with_code(0).json();
    let all = batch["workers"].as_array().unwrap();
    assert!(all.iter().all(|worker| number(&worker["rows"]) >= 200), "{batch}");
    let even = [&args[..], &["--partition", "iid"]].concat();
    finish(&even).refused(2, &["--partition"]);
    let args = ["data", "split", "--workers", "4", "--data", "synthetic:4000", "--json"];
    let even = finish(&args).with_code(0).json();
    assert!(real(&even["mean_l1"]) < 0.1 && real(&skew["mean_l1"]) > 0.5, "{even} {skew}");
}

#[test]
fn synthetic_data_are_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, seed: &str| {
        let file = folder.path().join(name);
        let args = ["data", "synth", "--rows", "500", "--seed", seed, "--out", path(&file)];
        finish(&args).with_code(0);
        std::fs::read_to_string(&file).unwrap()
    };
    let first = make("a.csv", "3");
    assert_eq!(first, make("b.csv", "3"));
    assert_ne!(first, make("c.csv", "4"));
    let there = folder.path().join("a.csv");
    finish(&["data", "synth", "--rows", "9", "--out", path(&there), "--overwrite"]).with_code(0);
    assert_eq!(std::fs::read_to_string(&there).unwrap().lines().count(), 9);
    let nowhere = folder.path().join("none/a.csv");
    finish(&["data", "synth", "--out", path(&nowhere)]).refused(2, &[path(&nowhere), "No such"]);
    finish(&["data", "synth", "--out", "/dev/full", "--overwrite"])
        .refused(2, &["cannot write /dev/full", "No space left"]);
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    for args in [
        &["data", "info", "synthetic:1000"][..],
        #[cfg(feature = "shell")]
        &["completions", "bash"],
        &["run", "--help"],
        &["run", "--data", "synthetic:400", "--epochs", "1"],
        &["run", "--data", "synthetic:400", "--epochs", "1", "--json"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pstrain"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take()); // before it has printed anything
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{args:?}: {said}");
    }
}

#[test]
fn calibrate_measures_the_reference_step() {
    let found = finish(&["calibrate", "--json"]).with_code(0).json();
    assert_eq!(number(&found["matrix_product"]["size"]), 512);
    let steps = &found["reference_steps"];
    assert_eq!((number(&steps["steps"]), number(&steps["batch_size"])), (1000, 128));
    for work in [&found["matrix_product"], steps] {
        let (best, median) = (real(&work["best_s"]), real(&work["median_s"]));
        assert!(0.0 < best && best <= median, "{found}");
        assert!(number(&work["repetitions"]) >= 5, "{found}");
    }
    let step = real(&found["reference_step_s"]);
    assert!((step - real(&steps["best_s"]) / 1000.0).abs() < 1e-12, "{found}");

    let table = finish(&["calibrate"]).with_code(0).stdout;
    for word in ["matrix product 512 x 512 x 512", "1000 SGD steps", "reference step", "divide"] {
        assert!(table.contains(word), "nothing of {word:?}:\n{table}");
    }
}

#[test]
fn a_crowd_without_a_server_reports_the_failed_connection() {
    let nobody = "127.0.0.1:1";
    let words = ["crowd", nobody, "--workers", "2", "--busy", "1", "--pushes", "10"];
    let said = finish(&words).with_code(2).stderr;
    assert!(said.contains("a worker cannot connect") && said.contains(nobody), "{said}");
    let words = ["crowd", nobody, "--workers", "2", "--busy", "1", "--pushes", "0"];
    let said = finish(&words).with_code(2).stderr;
    assert!(said.contains("--pushes") && said.contains("1..=1000000"), "{said}");
}

#[test]
fn bench_step_reports_the_time_of_a_step() {
    let found = finish(&["bench", "step", "--json"]).with_code(0).json();
    let figures = found["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 4);
    for figure in figures {
        let of = |key: &str| real(&figure[key]);
        assert_eq!(figure["part"], "step");
        assert!(0.0 < of("least") && of("least") <= of("median"), "{figure}");
        assert!(of("median") <= of("greatest") && real(&figure["rate"]["per_s"]) > 0.0, "{figure}");
    }
    let table = finish(&["bench", "step"]).with_code(0).stdout;
    for word in ["step of 93-21-5, batch 32", "median", "range", "samples"] {
        assert!(table.contains(word), "nothing of {word:?}:\n{table}");
    }
    let said = finish(&["bench", "steps"]).with_code(2).stderr;
    assert!(said.contains("transport") && said.contains("simulate"), "{said}");
}
