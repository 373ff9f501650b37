//! `--json`: each command prints one JSON object on stdout and nothing else, and messages on stderr
//! are JSON objects, too.

use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{PACED, Server, number, path, real, shard_of};
use crate::process::{Ended, finish};

/// Checks that all messages are JSON objects, each on a line; returns them.
#[track_caller]
fn messages(ended: &Ended) -> Vec<Value> {
    let line = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(message["message"].is_string() && message["level"].is_string(), "{message}");
        message
    };
    ended.stderr.lines().map(line).collect()
}

/// Runs a command with `--json`, which must end with code 0.
#[track_caller]
fn object(args: &[&str]) -> Value {
    let ended = finish(&[args, &["--json"]].concat()).with_code(0);
    messages(&ended);
    ended.json()
}

#[test]
fn data_and_jobs_are_objects() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rows.csv");
    let written = object(&["data", "synth", "--rows", "300", "-o", path(&file)]);
    assert_eq!((number(&written["rows"]), &written["out"]), (300, &path(&file).into()));
    let table = folder.path().join("table.csv");
    std::fs::write(&table, "a,label\n1,x\n2,y\n3,x\n").unwrap();
    let table = format!("csv:{}", path(&table));
    let profile = object(&["data", "profile", &table]);
    assert_eq!(number(&profile["rows"]), 3);
    assert_eq!(number(&object(&["data", "info", &table])["rows"]), 3);
    let split = object(&["data", "split", "--data", "synthetic:400"]);
    assert_eq!(split["workers"].as_array().unwrap().len(), 2);
    let job = object(&["run", "--lr", "0.5", "--print-job"]);
    assert_eq!(job["learning-rate"]["value"], "0.5");
    assert_eq!(job["learning-rate"]["from"], "flag");
    assert_eq!(job["epochs"]["from"], "default");
    assert!(object(&["server", "--print-job"])["model"]["value"].is_string());
}

#[cfg(feature = "cert")]
#[test]
fn keys_and_certificates_are_objects() {
    let folder = TempDir::new().unwrap();
    let of = |name: &str| path(&folder.path().join(name)).to_owned();
    let (ca, node) = (of("ca"), of("node"));
    assert_eq!(object(&["cert", "ca", &ca])["made"], "ca");
    let made = object(&["cert", "node", &ca, &node, "--worker", "2"]);
    assert_eq!((&made["made"], number(&made["days"])), (&"node".into(), 365));
    assert!(made["identity"].as_str().unwrap().contains('2'), "{made}");
    let revoked = object(&["cert", "revoke", &ca, &format!("{node}/node.pem")]);
    assert!(revoked["list"].as_str().unwrap().ends_with("revoked.pem"), "{revoked}");
    assert_eq!(object(&["cert", "psk", &of("psk")])["file"], of("psk").as_str());
}

#[cfg(feature = "pictures")]
#[test]
fn experiments_are_objects() {
    let list = object(&["experiment", "list"]);
    let listed = list["experiments"].as_array().unwrap();
    assert!(listed.len() > 5, "{list}");
    for it in listed {
        assert_eq!(number(&it["runs"]), number(&it["cells"]) * number(&it["repetitions"]));
    }
    let name = listed[0]["experiment"].as_str().unwrap();
    assert_eq!(object(&["experiment", "show", name])["name"], name);
}

#[test]
fn a_run_its_nodes_and_its_clients_are_objects() {
    let job = ["--epochs", "3", "--workers", "1", "--servers", "2", "--lease", "2s"];
    let server = Server::tcp(&[&PACED, &job]);
    let address = server.address.clone();
    let (shard, _) = shard_of(&address, (2, 2), "127.0.0.1:0", &["--json", "--log", "json"]);
    let worker = server.worker(&["--json", "--log", "json"]);
    server.wait_for_updates(3);
    assert_eq!(number(&object(&["status", &address])["workers"][0]["id"]), 1);
    assert!(object(&["why", &address])["verdict"].is_array());
    assert!(number(&object(&["pull", &address])["total"]) > 0);
    let set = object(&["control", &address, "set", "staleness", "inverse"]);
    assert_eq!(set["key"], "staleness");
    let ended = worker.wait().with_code(0);
    messages(&ended);
    let done = ended.json();
    assert_eq!((number(&done["worker"]), &done["ended"]), (1, &"the budget is used up".into()));
    let ended = shard.wait().with_code(0);
    messages(&ended);
    assert_eq!(number(&ended.json()["server"]), 2);
    let left = server.finish(Vec::new());
    let model = left.out.join("model.safetensors");
    let evaluated = object(&["eval", "--model", path(&model), "--data", "synthetic:500"]);
    assert_eq!(number(&evaluated["examples"]), 500);
    assert_eq!(object(&["replay", path(&left.out)])["identical"], true);
    for command in ["run", "simulate"] {
        let short = ["--data", "synthetic:400", "--epochs", "1", "--compute", "1ms"];
        let short = [&short[..], &["--link", "all.delay=0ms"]].concat();
        assert_eq!(real(&object(&[&[command], &short[..]].concat())["epochs"]), 1.0);
    }
}

#[test]
fn an_error_is_an_object_on_stderr_with_the_exit_code() {
    for (args, code, words) in [
        (&["status", "127.0.0.1:1"][..], 2, "is a server running there?"),
        (&["run", "--epochs", "ten"], 2, "must be a number"),
        (&["run", "--num-workers", "3"], 2, "--workers"),
        (&["data", "info", "none.csv"], 2, "No such file"),
        (&["experiment", "show", "none"], 2, "none"),
        (&["replay", "none"], 2, "none"),
        (&["eval", "--model", "none", "--data", "synthetic:9"], 2, "none"),
    ] {
        let ended = finish(&[args, &["--json"]].concat()).with_code(code);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        let last = messages(&ended).pop().unwrap();
        assert_eq!((&last["level"], number(&last["fields"]["exit_code"])), (&"error".into(), 2));
        assert!(last["message"].as_str().unwrap().contains(words), "{last}");
    }
}
