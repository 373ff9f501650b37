//! Sparse models with real processes, on files in LIBSVM format.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use pstrain_tests::real_data;
use serde_json::Value;

use crate::books::{check_alike, check_books};
use crate::cluster::{Server, number, path, real};
use crate::process::finish;

const MODEL: [&str; 6] =
    ["--model", "logistic", "--proximal", "l1:0.001", "--learning-rate", "0.5"];

/// Writes rows of 50 features into two files; returns them as a data source.
fn files(folder: &Path) -> String {
    let mut rows = [String::new(), String::new()];
    for row in 0..600_u32 {
        let own: Vec<u32> =
            (0..5).map(|draw| (row * 7 + draw * row % 11) % (3 + draw * 12)).collect();
        let mut features: Vec<u32> = own.iter().map(|feature| feature % 50 + 1).collect();
        features.sort_unstable();
        features.dedup();
        let label = if features.iter().sum::<u32>() % 3 == 0 { "+1" } else { "-1" };
        let text = &mut rows[row as usize % 2];
        write!(text, "{label}").unwrap();
        features.iter().for_each(|feature| write!(text, " {feature}:0.5").unwrap());
        text.push('\n');
    }
    let [one, other] = ["one", "other"].map(|name| folder.join(name));
    fs::write(&one, &rows[0]).unwrap();
    fs::write(&other, &rows[1]).unwrap();
    format!("libsvm:{},{}", path(&one), path(&other))
}

fn run(data: &str, more: &[&str]) -> Value {
    run_for("3", data, more)
}

fn run_for(epochs: &str, data: &str, more: &[&str]) -> Value {
    let run = ["run", "--json", "--data", data, "--epochs", epochs, "--workers", "3"];
    finish(&[&run[..], &MODEL, more].concat()).with_code(0).json()
}

#[test]
fn working_sets_and_numbers_of_servers_change_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let data = files(folder.path());
    let one = run(&data, &[]);
    let objective = real(&one["loss"]);
    assert!(real(&one["objective"]) > objective && number(&one["non_zeros"]) > 0, "{one}");
    for more in [
        &["--servers", "2"][..],
        &["--servers", "4", "--transport", "tcp"],
        &["--pull-filter", "changed", "--filters", "zero-skip"],
        &["--key-caching", "off", "--servers", "3"],
        &["--hash-features", "100000", "--servers", "4", "--transport", "unix"],
    ] {
        let out = folder.path().join("out");
        let other = run(&data, &[more, &["--out", path(&out), "--overwrite"]].concat());
        if more[0] == "--hash-features" {
            assert_eq!(other["non_zeros"], one["non_zeros"], "{more:?}");
        } else {
            assert_eq!(other["params_sha256"], one["params_sha256"], "{more:?}");
        }
        check_books(&out, &other);
        check_alike(&out);
    }
}

#[test]
fn without_a_server_a_sparse_model_ends_at_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let data = files(folder.path());
    let server = run(&data, &[]);
    for architecture in ["all-reduce:all-to-all", "all-reduce:all-gather"] {
        let peers = run(&data, &["--architecture", architecture]);
        assert_eq!(peers["params_sha256"], server["params_sha256"], "{architecture}");
        assert_eq!(peers["objective"], server["objective"], "{architecture}");
    }
}

/// Runs with blocks are identical over several servers and in virtual time, and replay.
#[test]
fn blocks_of_keys_give_the_same_run_on_any_number_of_servers_and_in_virtual_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = files(folder.path());
    let blocks = ["--blocks", "6", "--batch-size", "all", "--optimizer", "diagonal"];
    let one = run_for("18", &data, &blocks);
    assert_eq!((number(&one["updates"]), number(&one["samples"])), (18, 8_100));
    assert!(number(&one["non_zeros"]) > 0, "{one}");
    let out = folder.path().join("out");
    let kept = ["--out", path(&out), "--overwrite"];
    for more in [
        &["--servers", "2", "--transport", "tcp"][..],
        &["--servers", "4", "--transport", "unix", "--filters", "zero-skip"],
    ] {
        let other = run_for("18", &data, &[&blocks[..], more, &kept].concat());
        assert_eq!(other["params_sha256"], one["params_sha256"], "{more:?}");
        check_books(&out, &other);
        check_alike(&out);
    }
    for consistency in ["bsp", "delay:3"] {
        let simulate = ["simulate", "--json", "--data", &data, "--workers", "3", "--epochs", "18"];
        let time = ["--link", "all.delay=1ms", "--compute", "lognormal:4ms,0.5", "--consistency"];
        let whole = [&simulate[..], &MODEL, &blocks, &time, &[consistency], &kept].concat();
        let run = finish(&whole).with_code(0).json();
        let is_one = run["params_sha256"] == one["params_sha256"];
        assert_eq!(is_one, consistency == "bsp", "{run}");
        check_alike(&out);
    }
}

#[test]
fn workers_with_and_without_their_own_files_train_identically() {
    let folder = tempfile::tempdir().unwrap();
    let data = files(folder.path());
    let one = run(&data, &[]);
    let job = ["--data", &data, "--epochs", "3", "--workers", "3"];
    let server = Server::tcp(&[&job, &MODEL]);
    let mut workers = vec![server.worker(&["--data", "server"])];
    workers.extend((0..2).map(|_| server.worker(&["--data", &data])));
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
}

#[test]
fn incompatible_settings_of_sparse_models_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = files(folder.path());
    let refused = |data: &str, more: &[&str], words: &[&str]| {
        finish(&[&["run", "--data", data], more].concat()).refused(2, words);
    };
    let logistic = ["--model", "logistic"];
    let with = |more: &[&'static str]| [&logistic[..], more].concat();
    refused(&data, &[], &["sparse rows, which only model = linear and model = logistic read"]);
    refused("synthetic:100", &logistic, &["model = logistic reads sparse rows of two classes"]);
    let (two, one) = (folder.path().join("numbered"), folder.path().join("alike"));
    fs::write(&two, "1 1:1\n2 2:1\n1 1:1\n2 2:1\n".repeat(9)).unwrap();
    let two = format!("libsvm:{}", path(&two));
    let job = ["run", "--json", "--data", &two, "--batch-size", "4", "--epochs", "9"];
    let trained = finish(&[&job[..], &logistic].concat()).with_code(0).json();
    assert_eq!(real(&trained["accuracy"]), 1.0);
    let dense = ["have dense rows; use model = linear with loss = logistic"];
    refused(&format!("{two},rows=dense"), &logistic, &dense);
    fs::write(&one, "1 1:1\n1 2:1\n").unwrap();
    refused(
        &format!("libsvm:{}", path(&one)),
        &logistic,
        &["alike: all labels are 1; two classes"],
    );
    refused(
        &data,
        &with(&["--aggregation", "median", "--workers", "3"]),
        &["needs a value for every key"],
    );
    let ringleader = with(&["--consistency", "ringleader"]);
    refused(&data, &ringleader, &["consistency = ringleader", "leave it away"]);
    refused(&data, &with(&["--filters", "kkt"]), &["kkt", "proximal = l1:LAMBDA"]);
    refused(&data, &with(&["--pull-filter", "some"]), &["changed[:DELTA]"]);
    refused(&data, &with(&["--blocks", "0"]), &["COUNT[:random|:sequence]"]);
    refused(
        &data,
        &with(&["--blocks", "4", "--consistency", "asp"]),
        &["consistency = bsp or delay"],
    );
    refused("synthetic:100", &["--blocks", "4"], &["blocks = 4 needs model = logistic"]);
    refused("synthetic:100", &["--hash-features", "9"], &["hash-features", "none"]);
    let bad: PathBuf = folder.path().join("bad");
    fs::write(&bad, "+1 1:1\n-1 2:1 x\n").unwrap();
    refused(&format!("libsvm:{}", path(&bad)), &logistic, &["bad:2:8", "NUMBER:VALUE"]);
}

#[test]
#[cfg_attr(not(a9a), ignore = "needs a9a: set PSTRAIN_DATA")]
fn a9a_is_learnt_nearly_as_well_as_by_libsvm() {
    let file = real_data("a9a").join("a9a.xz");
    let found = run(&format!("libsvm:{}", path(&file)), &["--servers", "2"]);
    // LIBSVM's own logistic regression reaches 85 % on its test file.
    assert!(real(&found["accuracy"]) > 0.835, "{found}");
    let rows: u64 = (0..3).map(|worker| number(&found["workers"][worker]["rows"])).sum();
    assert_eq!(rows, 32_561 - 32_561 / 4);
}

#[test]
fn a_standby_has_the_bits_of_a_sparse_model_with_either_replication() {
    let folder = tempfile::tempdir().unwrap();
    let data = files(folder.path());
    let blocks = ["--blocks", "4", "--batch-size", "all", "--optimizer", "diagonal"];
    let [latent, calm] = ["delay=1ms", "standby.delay=1ms"];
    for (more, saves) in [(&[][..], true), (&["--hash-features", "5000"], false), (&blocks, true)] {
        let run = |link: &str, faults: &[&str]| {
            let job = ["simulate", "--json", "--data", &data, "--epochs", "6", "--workers", "3"];
            let links = ["--compute", "4ms", "--link", latent, "--link", link];
            finish(&[&job[..], &MODEL, more, &links, faults].concat()).with_code(0).json()
        };
        let one = run("down.delay=1ms", &[]);
        let [told, pushed] =
            ["updates", "pushes"].map(|way| run(&format!("{calm} standby.replicate={way}"), &[]));
        let moment = format!("server.crash@{:.3}s", real(&one["time_s"]) / 2.0);
        let survived = run(calm, &["--faults", &moment, "--on-worker-loss", "wait"]);
        assert_eq!(number(&survived["failover"]["takeovers"]), 1, "{survived}");
        for run in [&told, &pushed, &survived] {
            assert_eq!(run["params_sha256"], one["params_sha256"], "{more:?}");
        }
        let bytes = |run: &Value| number(&run["failover"]["down_bytes"]);
        assert_eq!(bytes(&told) < bytes(&pushed), saves, "{more:?}: {told} {pushed}");
    }
}
