//! `pstrain push` changes the parameters of a running job bit-exactly, as one version on all
//! servers, and the records contain it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::books::{called, check_alike, check_books, events};
use crate::cluster::{ENDLESS, Left, SLOW, Server, number, path};
use crate::group::others;
use crate::process::finish;

fn pull(server: &Server, keys: &str, to: &Path) -> Value {
    let pull = ["pull", &server.address, "--keys", keys, "-o", path(to), "--json"];
    finish(&pull).with_code(0).json()
}

fn push(server: &Server, keys: &str, from: &Path, more: &[&str]) -> Value {
    let push = ["push", &server.address, "--keys", keys, "--from", path(from), "--json"];
    finish(&[&push[..], more].concat()).with_code(0).json()
}

/// Returns the lines of a file that hold a value.
fn values(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
}

#[test]
fn pulled_values_are_pushed_back_bit_for_bit_with_any_number_of_servers() {
    let folder = TempDir::new().unwrap();
    let [before, given, after] = ["before", "given", "after"].map(|name| folder.path().join(name));
    let job = ["--epochs", "2", "--workers", "2", "--data", "synthetic:2000"];
    let alone = Server::tcp(&[&job]);
    let group = Server::tcp(&[&job, &["--servers", "3"]]);
    let processes = others(&group, 3);
    let mut left = Vec::new();
    for server in [alone, group] {
        // No worker trains yet.
        pull(&server, "..", &before);
        let all = values(&before);
        let said = push(&server, "..", &before, &["--set"]);
        assert_eq!(said["version"], json!(1), "{said}");
        assert_eq!((number(&said["begin"]), number(&said["end"])), (0, 2084));
        assert_eq!(number(&said["values"]), all.len() as u64);
        assert_eq!(number(&pull(&server, "..", &after)["version"]), 1);
        assert_eq!(values(&after), all);
        // With `--set`, keys without a line become 0; without it, the values are added.
        fs::write(&given, "# three of many\n690 -0\n700 0.1\n\n1399 1e-45\n").unwrap();
        push(&server, "690..1400", &given, &["--set"]);
        pull(&server, "690..1400", &after);
        let tiny = format!("1399 {}", f32::from_bits(1));
        assert_eq!(values(&after), ["690 -0", "700 0.1", &tiny]);
        let said = push(&server, "600..", &given, &[]);
        assert_eq!((number(&said["version"]), number(&said["end"])), (3, 2084));
        pull(&server, "690..1400", &after);
        let sum = format!("700 {}", 0.1_f32 + 0.1);
        let tiny = format!("1399 {}", f32::from_bits(2));
        assert_eq!(values(&after), ["690 -0", &sum, &tiny]);
        // Keys outside the pushed range keep their values, and training begins with all of them.
        pull(&server, "..690", &after);
        assert_eq!(values(&after), all[..values(&after).len()]);
        let text = ["push", &server.address, "--from", path(&before), "--set"];
        let said = finish(&text).with_code(0).stdout;
        assert!(
            said.starts_with("keys [0, 2084) are those of ") && said.contains("from version 4 on")
        );
        let workers = server.workers(2);
        left.push(server.finish(workers));
    }
    processes.into_iter().for_each(|other| drop(other.wait().with_code(0)));
    let undisturbed = finish(&[&["run", "--json"], &job[..]].concat()).with_code(0).json();
    for Left { out, summary, .. } in &left {
        check_books(out, summary);
        check_alike(out);
        // The last push restored the initial parameters, so training ends like an undisturbed run.
        assert_eq!(summary["params_sha256"], undisturbed["params_sha256"], "{summary}");
        assert_eq!(number(&summary["updates"]), number(&undisturbed["updates"]) + 4);
    }
}

#[test]
fn a_push_during_training_is_one_version_and_the_run_replays() {
    let folder = TempDir::new().unwrap();
    let [ones, before] = ["ones", "before"].map(|name| folder.path().join(name));
    // More values than fit into one message.
    let mut text = String::new();
    (0..290_000).for_each(|key| writeln!(text, "{key} 0.0009765625").unwrap());
    fs::write(&ones, text).unwrap();
    for (rule, servers) in [
        (&["--consistency", "bsp"][..], "1"),
        (&["--consistency", "asp"], "3"),
        (&["--consistency", "auto"], "2"),
        (&["--redundancy", "partial:2"], "1"),
    ] {
        let model = ["--data", "synthetic:1000", "--model", "mlp:2944", "--workers", "2"];
        let how = ["--servers", servers, "--optimizer", "momentum:0.9", "--compute", "50ms"];
        let server = Server::tcp(&[&model, &how, rule, &ENDLESS]);
        let others = others(&server, servers.parse().unwrap());
        let workers = server.workers(2);
        server.wait_for_updates(3);
        let added = number(&push(&server, "..290000", &ones, &[])["version"]);
        server.wait_for_updates(added + 3);
        pull(&server, "1000..280000", &before);
        let set = number(&push(&server, "1000..280000", &before, &["--set"])["version"]);
        assert!(set > added + 3, "{added} and then {set}");
        server.wait_for_updates(set + 3);
        let Left { out, summary, _folder } = server.interrupt(workers);
        others.into_iter().for_each(|other| drop(other.wait()));
        check_books(&out, &summary);
        check_alike(&out);
        let events = events(&out);
        let pushed: Vec<_> = called(&events, "range_pushed").collect();
        let told: Vec<_> = pushed.iter().map(|it| (number(&it["version"]), &it["how"])).collect();
        assert_eq!(told, [(added, &json!("add")), (set, &json!("set"))]);
        assert_eq!(pushed[1]["keys"], json!([1000, 280_000]), "{}", pushed[1]);
        assert_eq!(number(&summary["batches"]["lost"]), 0, "{summary}");
    }
}

#[test]
fn pushed_values_survive_a_restart_and_a_takeover() {
    let folder = TempDir::new().unwrap();
    let (file, kept) = (folder.path().join("values"), folder.path().join("kept"));
    let text: String = (0..40_000).map(|key| format!("{key} {}\n", key % 7)).collect();
    fs::write(&file, text).unwrap();
    let two = ["--workers", "2", "--lease", "2s"];
    for has_standby in [false, true] {
        let log: &[&str] = &["--durability", "log", "--state", path(&kept)];
        let log = if has_standby { &[] } else { log };
        let mut server = Server::tcp(&[&SLOW, &ENDLESS, &two, log]);
        let mut other = None;
        if has_standby {
            let of = ["--standby-of", server.address.as_str()];
            let standby = Server::tcp(&[&SLOW, &ENDLESS, &two, &of]);
            server.wait_for("standby", |status| status["standby"] == standby.address);
            other = Some(standby);
        }
        let workers = server.workers(2);
        server.wait_for_updates(3);
        let added = number(&push(&server, "..50000", &file, &[])["version"]);
        server = match other {
            None => server.replace(&[&["--resume", path(&kept)]]),
            Some(standby) => {
                drop(server);
                standby
            }
        };
        server.wait_for("updates", |status| {
            status["stands_by"] == false && number(&status["updates"]) > added + 3
        });
        let set = number(&push(&server, "..40000", &file, &["--set"])["version"]);
        server.wait_for_updates(set + 3);
        let Left { out, summary, _folder } = server.interrupt(workers);
        let events = events(&out);
        let told = called(&events, "range_pushed").map(|it| number(&it["version"]));
        assert_eq!(told.collect::<Vec<_>>(), [added, set], "{summary}");
        check_alike(&out);
    }
}

#[test]
fn wrong_values_are_refused_with_the_reason_and_change_nothing() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("values");
    let server = Server::unix(&[&SLOW, &ENDLESS, &["--optimizer", "ftrl:1,0.001,0"]]);
    let refused = |keys: &str, text: &str, words: &[&str]| {
        fs::write(&file, text).unwrap();
        let push = ["push", &server.address, "--keys", keys, "--from", path(&file)];
        finish(&push).refused(2, words);
    };
    refused("..", "5 1\n4 1\n", &["values:2: key 4 comes after key 5", "sort the lines"]);
    refused("..", "5 nan\n", &["values:1", "key 5 is not finite", "give a number"]);
    refused("..", "5 one\n", &["values:1", "is not KEY VALUE"]);
    refused("6..9", "5 1\n", &["values:1: key 5 is none of --keys 6..9"]);
    refused(
        "..",
        "1 1\n9999999 1\n",
        &["values:2: there is no key 9999999", "model has keys [0, "],
    );
    refused("0..9999999", "1 1\n", &["there are no keys [0, 9999999)", "the model has keys"]);
    refused("9..3", "1 1\n", &["is no key range"]);
    let gone = folder.path().join("gone");
    finish(&["push", &server.address, "--from", path(&gone)])
        .refused(2, &["cannot read the values"]);
    finish(&["push", &server.address, "--from", "/dev/zero"])
        .refused(2, &["/dev/zero:1", "longer than 4096 bytes"]);
    let link = folder.path().join("link");
    symlink(&file, &link).unwrap();
    let before = fs::read(&file).unwrap();
    finish(&["pull", &server.address, "-o", path(&link)])
        .refused(2, &[path(&link), "is a link to", path(&file)]);
    assert_eq!(fs::read(&file).unwrap(), before);
    finish(&["push", &server.address]).refused(2, &["--from"]);
    finish(&["push", "127.0.0.1:1", "--from", path(&file)])
        .refused(2, &["cannot reach tcp://127.0.0.1:1"]);
    assert_eq!(server.status()["updates"], json!(0));
    // FTRL derives parameters from its own state, so pushed values would be overwritten at the next
    // update; they are accepted before training only.
    fs::write(&file, "0 1\n").unwrap();
    assert_eq!(push(&server, "0..1", &file, &["--set"])["version"], json!(1));
    let workers = server.workers(2);
    server.wait_for_updates(3);
    refused("..", "0 1\n", &["optimizer = ftrl", "push before training begins"]);
    let Left { out, summary, _folder } = server.interrupt(workers);
    check_books(&out, &summary);
    check_alike(&out);
}
