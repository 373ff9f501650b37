//! Settings: their sources, precedence and error messages.

use std::fs;
use std::path::{Path, PathBuf};

use pstrain_transports::WallClock;

use crate::cluster::path;
use crate::process::{Ended, Process, finish};

/// Writes a job file into `folder`.
fn job_file(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("job.toml");
    fs::write(&file, text).unwrap();
    file
}

fn with_environment(args: &[&str], variables: &[(&str, &str)]) -> Ended {
    Process::start_with(args, variables).wait()
}

#[test]
fn flags_overrule_the_environment_and_the_environment_overrules_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file =
        job_file(folder.path(), "workers = 3\nepochs = 7\nlearning-rate = 0.5\nwork = \"speed\"\n");
    let file = path(&file);
    let args = ["run", "--job", file, "--epochs", "8", "--learning-rate", "0.25", "--print-job"];
    let variables = [
        ("PSTRAIN_JOB_LEARNING_RATE", "0.125"),
        ("PSTRAIN_JOB_CLIP_NORM", "5"),
        ("PSTRAIN_JOB_WORKERS", "4"),
    ];
    let printed = with_environment(&args, &variables).with_code(0).stdout;
    for line in [
        "workers = 4  # PSTRAIN_JOB_WORKERS",
        &format!("work = \"speed\"  # {file}"),
        "epochs = 8  # flag",
        "learning-rate = 0.25  # flag",
        "clip-norm = 5  # PSTRAIN_JOB_CLIP_NORM",
        "batch-size = 64  # default",
        "consistency = \"bsp\"  # default",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "no {line:?} in\n{printed}");
    }

    // The printed job is itself a valid job file of the same job.
    let folder = tempfile::tempdir().unwrap();
    let again = job_file(folder.path(), &printed);
    let args = ["server", "--job", path(&again), "--print-job"];
    let again = finish(&args).with_code(0).stdout;
    let values = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
    assert_eq!(values(&again), values(&printed));
}

#[test]
fn a_setting_gives_the_same_run_by_flag_file_or_variable() {
    let folder = tempfile::tempdir().unwrap();
    let file = job_file(folder.path(), "data = \"synthetic:400\"\nepochs = 2\nseed = 4\n");
    let by_file = finish(&["run", "--json", "--job", path(&file)]).with_code(0).json();
    let args = ["run", "--json", "--data", "synthetic:400", "--epochs", "2", "--seed", "4"];
    let by_flag = finish(&args).with_code(0).json();
    let variables = [("PSTRAIN_JOB_SEED", "4"), ("PSTRAIN_JOB_EPOCHS", "2")];
    let args = ["run", "--json", "--data", "synthetic:400"];
    let by_variable = with_environment(&args, &variables).with_code(0).json();
    assert_eq!(by_file["params_sha256"], by_flag["params_sha256"]);
    assert_eq!(by_file["params_sha256"], by_variable["params_sha256"]);
}

#[test]
fn a_list_of_layers_is_the_model_of_these_layers() {
    let folder = tempfile::tempdir().unwrap();
    let file = job_file(folder.path(), "model = [\"linear4\", \"relu\"]\nepochs = 1");
    let digest = |args: &[&str]| {
        let summary = finish(&[&["run", "--json"], args].concat()).with_code(0).json();
        summary["params_sha256"].clone()
    };
    let wanted = digest(&["--model", "mlp:4", "--activation", "relu", "--epochs", "1"]);
    assert_eq!(digest(&["--job", path(&file)]), wanted);
}

#[test]
fn unknown_names_are_refused_with_the_nearest_known_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str, words: &[&str]| {
        let file = job_file(folder.path(), text);
        finish(&["run", "--job", path(&file)]).refused(2, &[&["job.toml"], words].concat());
    };
    file("wrokers = 2", &["\"wrokers\"", "did you mean \"workers\"?"]);
    file("batch_size = 2", &["\"batch_size\"", "did you mean \"batch-size\"?"]);
    file("zzz = 2", &["\"zzz\"", "pstrain run --help"]);
    file("workers = = 2", &["no job file", "line 1, column 11"]);
    file("model = [2]", &["model may hold texts only"]);
    file("workers = [2]", &["workers is of type array", "a number or a text"]);
    file("workers = 2\nworkers = 3", &["no job file", "line 2", "duplicate key"]);
    file("epochs = \"ten\"", &["epochs = \"ten\"", "must be a number such as 10"]);
    finish(&["run", "--job", "none.toml"]).refused(2, &["job file none.toml", "No such file"]);
    finish(&["run", "--wrokers", "2"]).refused(2, &["--wrokers", "--workers"]);
    finish(&["run", "--num-workers", "2"]).refused(2, &["--num-workers", "'--workers'"]);
    finish(&["simulate", "--rounds=2"]).refused(2, &["--rounds", "'--epochs'"]);
    with_environment(&["run"], &[("PSTRAIN_JOB_EPOCH", "2")])
        .refused(2, &["PSTRAIN_JOB_EPOCH", "did you mean \"epochs\"?"]);
    with_environment(&["run"], &[("PSTRAIN_JOB_EPOCHS", "two")])
        .refused(2, &["PSTRAIN_JOB_EPOCHS=two", "must be a number such as 10"]);
}

#[test]
fn flags_have_short_names_that_files_and_variables_refuse_with_the_key() {
    let long = ["--learning-rate", "--batch-size", "--optimizer", "--weight-decay"];
    let short = ["--lr", "--batch", "--opt", "--wd"];
    let values = ["0.25", "32", "adam", "0.5"];
    let printed = |flags: [&str; 4]| {
        let pairs = flags.iter().zip(values).flat_map(|(flag, value)| [*flag, value]);
        finish(&[&["run", "--print-job"], &pairs.collect::<Vec<_>>()[..]].concat()).with_code(0)
    };
    assert_eq!(printed(short).stdout, printed(long).stdout);
    let folder = tempfile::tempdir().unwrap();
    for (name, key) in short.iter().zip(long) {
        let (name, key) = (name.trim_start_matches('-'), key.trim_start_matches('-'));
        let file = job_file(folder.path(), &format!("{name} = 1\n"));
        let meant = format!("did you mean {key:?}?");
        finish(&["run", "--job", path(&file)]).refused(2, &["job.toml", &meant]);
        let variable = format!("PSTRAIN_JOB_{}", name.to_uppercase());
        with_environment(&["run"], &[(&variable, "1")]).refused(2, &[&variable, &meant]);
    }
}

#[test]
fn terms_of_other_programs_are_answered_with_the_equivalent_term() {
    for (flag, value, meant) in [
        ("--consistency", "sync", "bsp"),
        ("--consistency", "async", "asp"),
        ("--consistency", "BSP", "bsp"),
        ("--consistency", "ssp", "ssp:3"),
        ("--consistency", "ssp=4", "ssp:4"),
        ("--switch", "async@10", "asp@10"),
        ("--optimizer", "Adam", "adam"),
        ("--model", "64x32", "mlp:64,32"),
        ("--model", "mlp:64x32", "mlp:64,32"),
        ("--partition", "IID", "iid"),
        ("--batch-size", "ALL", "all"),
        ("--filters", "top_k:0.1,FP16", "top-k:0.1,fp16"),
    ] {
        let ended = finish(&["run", "--data", "synthetic:100", flag, value]).with_code(2);
        assert_eq!(ended.stderr, format!("pstrain: {flag} {value}: did you mean {meant:?}?\n"));
    }
    for (link, meant) in [("all.latency=5ms", "delay"), ("1.bandwidth=1mbit", "rate")] {
        let words = [&format!("did you mean {meant}?")[..]];
        finish(&["run", "--data", "synthetic:100", "--link", link]).refused(2, &words);
    }
    let folder = tempfile::tempdir().unwrap();
    for (key, meant) in [("latency", "link"), ("lr", "learning-rate")] {
        let file = job_file(folder.path(), &format!("{key} = 1"));
        let words = [&format!("did you mean {meant:?}?")[..]];
        finish(&["run", "--job", path(&file)]).refused(2, &words);
    }
    let words = ["--data NSL-KDD", "path to your copy", "synthetic"];
    finish(&["run", "--data", "NSL-KDD"]).refused(2, &words);
}

#[test]
fn wrong_values_are_refused_with_the_allowed_ones() {
    for (flag, value, words) in [
        ("--consistency", "tsp", &["--consistency tsp", "bsp", "ssp:SLACK"][..]),
        ("--consistency", "ssp:-1", &["--consistency ssp:-1", "ssp:SLACK"]),
        ("--transport", "udp", &["--transport", "memory, unix, tcp"]),
        ("--model", "cnn", &["--model cnn", "softmax", "mlp:WIDTH[,WIDTH...]"]),
        ("--model", "mlp:0", &["WIDTH must be 1 to"]),
        ("--activation", "gelu", &["--activation gelu", "relu or tanh"]),
        ("--optimizer", "lion", &["--optimizer lion", "adam[:BETA1,BETA2[,EPSILON]]"]),
        ("--optimizer", "momentum:1.5", &["momentum", "1.5"]),
        ("--schedule", "step:10", &["--schedule step:10", "step:EVERY,FACTOR"]),
        ("--aggregation", "mode", &["--aggregation mode", "mean, sum, median, trimmed:B"]),
        ("--aggregation", "median", &["aggregation = median", "at least 3 workers"]),
        ("--aggregation", "krum:1", &["aggregation = krum:1", "at least 5 workers"]),
        ("--clip-contribution", "0", &["clip contribution", "0"]),
        ("--staleness", "old", &["--staleness old", "dc-adaptive[:LAMBDA,MEMORY]"]),
        ("--staleness", "dc:-1", &["--staleness dc:-1", "at least 0"]),
        ("--max-staleness", "-1", &["--max-staleness -1", "none"]),
        ("--participation", "fair", &["--participation fair", "plain, share or incremental"]),
        ("--in-flight", "0", &["in-flight = 0", "1 to 256"]),
        ("--in-flight", "many", &["--in-flight many", "auto"]),
        ("--partition", "random", &["--partition random", "paper-non-iid"]),
        ("--recipe", "kdd", &["--recipe kdd", "nsl-kdd-93"]),
        ("--on-worker-loss", "pray", &["--on-worker-loss pray", "continue, wait, stop"]),
        ("--epochs", "2.5", &["--epochs 2.5", "whole number", "10"]),
        ("--epochs", "0", &["epochs = 0", "1 or more"]),
        ("--batch-size", "0", &["batch-size = 0", "1 or more"]),
        ("--workers", "0", &["workers = 0", "at least one"]),
        ("--workers", "-1", &["--workers -1", "not negative"]),
        ("--min-workers", "3", &["min-workers = 3", "1 to the 2 workers"]),
        ("--min-workers", "all", &["--min-workers all", "auto"]),
        ("--lease", "5", &["--lease 5", "5s"]),
        ("--lease", "5ms", &["lease = 5ms", "100ms"]),
        ("--learning-rate", "fast", &["--learning-rate fast", "a number such as 0.1"]),
        ("--learning-rate", "NaN", &["learning rate NaN", "finite and above 0"]),
        ("--learning-rate", "inf", &["learning rate inf", "finite and above 0"]),
        ("--learning-rate", "-0.1", &["learning rate -0.1", "finite and above 0"]),
        ("--clip-norm", "-1", &["clip", "-1"]),
        ("--weight-decay", "-1", &["weight decay", "-1"]),
    ] {
        finish(&["run", "--data", "synthetic:100", flag, value]).refused(2, words);
    }
}

#[test]
fn a_learning_rate_that_diverges_ends_the_run_at_once_with_advice() {
    for rate in ["1e5", "1e30"] {
        let clock = WallClock::start();
        let args = ["run", "--data", "synthetic:2000", "--json", "--learning-rate", rate];
        let ended = finish(&args).with_code(1);
        assert!(clock.now().as_secs_f64() < 4.0, "took {}", clock.now());
        for word in ["not finite", "smaller learning-rate", "clip-norm"] {
            assert!(ended.stderr.contains(word), "nothing of {word:?}: {}", ended.stderr);
        }
        // The summary up to the divergence is printed as JSON, which has no NaN.
        assert!(ended.json()["loss"].is_null() || ended.json()["loss"].is_number());
    }
}

/// Workers may dial a server as soon as it listens.
#[test]
fn a_server_refuses_a_wrong_setting_before_it_listens() {
    for wrong in [["--consistency", "sometimes"], ["--filters", "most"]] {
        let args = [&["server", "--listen", "127.0.0.1:0"], &wrong[..]].concat();
        let refused = finish(&args).with_code(2);
        assert!(!refused.stderr.contains("listening"), "{}", refused.stderr);
        assert!(refused.stderr.contains(wrong[1]), "{}", refused.stderr);
    }
}
