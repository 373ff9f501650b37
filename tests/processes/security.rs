//! Access to a run: TLS, shared keys, certificates and identities, and the refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::books::{called, events};
use crate::cluster::{Left, SLOW, Server};
use crate::lab::Lab;
use crate::process::{Ended, Process, finish};

const JOB: [&str; 6] = ["--data", "synthetic:2000", "--model", "mlp:16", "--epochs", "3"];

/// Starts workers 1 and 2, each with its own flags.
fn workers(server: &Server, first: &[&str], second: &[&str]) -> Vec<Process> {
    let worker = |id, flags: &[&str]| server.worker(&[&["--id", id], flags].concat());
    vec![worker("1", first), worker("2", second)]
}

#[test]
fn tls_and_shared_keys_do_not_change_the_parameters() {
    let lab = Lab::with_nodes();
    let run = |server: Server, first: &[&str], second: &[&str]| {
        let workers = workers(&server, first, second);
        let Left { summary, .. } = server.finish(workers);
        summary["params_sha256"].as_str().unwrap().to_owned()
    };
    let plain = run(Server::tcp(&[&JOB]), &[], &[]);
    let [first, second] = ["worker-1", "worker-2"].map(|name| lab.at(name));
    let (first, second) = (["--tls", &first], ["--tls", &second]);
    let own = lab.at("server");
    let tls = ["--tls", &own];
    assert_eq!(run(Server::tcp(&[&JOB, &tls]), &first, &second), plain);
    assert_eq!(run(Server::unix(&[&JOB, &tls]), &first, &second), plain);
    let key = lab.at("key");
    let psk = ["--psk", &key];
    assert_eq!(run(Server::tcp(&[&JOB, &psk]), &psk, &psk), plain);
    // Messages of more than 64 KiB.
    let large = [&JOB[..2], &["--model", "mlp:512", "--epochs", "1"]].concat();
    let plain = run(Server::tcp(&[&large]), &[], &[]);
    assert_eq!(run(Server::tcp(&[&large, &tls]), &first, &second), plain);
    assert_eq!(run(Server::tcp(&[&large, &psk]), &psk, &psk), plain);
}

#[test]
fn outsiders_are_refused_and_members_cannot_impersonate_each_other() {
    let (lab, other) = (Lab::with_nodes(), Lab::with_nodes());
    let (own, client) = (lab.at("server"), lab.at("client"));
    let server = Server::tcp(&[&JOB, &["--tls", &own]]).for_clients(&["--tls", &client]);
    let revoked = lab.node("revoked", &["--worker", "1"]);
    finish(&["cert", "revoke", &lab.at("ca"), &format!("{revoked}/node.pem")]).with_code(0);
    // The server reloads the list without a restart.
    fs::copy(lab.place("ca/revoked.pem"), lab.place("server/revoked.pem")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let expired = lab.expired("expired", "pstrain:worker:1");
    let (first, second) = (lab.at("worker-1"), lab.at("worker-2"));
    let stranger = other.at("worker-1");
    let mixed = lab.node("mixed", &["--worker"]);
    fs::copy(other.place("worker-1/node.pem"), lab.place("mixed/node.pem")).unwrap();
    fs::copy(other.place("worker-1/node.key"), lab.place("mixed/node.key")).unwrap();
    let refused = |flags: &[&str], words: &[&str]| {
        server.worker(&[flags, &["--lease", "100ms"]].concat()).wait().refused(1, words);
    };
    refused(&["--tls", &stranger], &["another CA", "ca.pem"]);
    refused(&["--tls", &mixed], &["refuses this side's certificate", "another CA"]);
    refused(&["--tls", &expired], &["refuses this side's certificate", "has expired (make"]);
    let later = lab.valid_from(3000, "later", "pstrain:worker:1");
    refused(
        &["--tls", &later],
        &["refuses this side's certificate", "not valid yet (is the clock"],
    );
    refused(&["--tls", &revoked], &["refuses this side's certificate", "revoked"]);
    refused(&["--psk", &lab.at("key")], &["does not speak Noise"]);
    refused(&[], &["TLS"]);
    refused(&["--tls", &second, "--id", "1"], &["pstrain:worker:2", "may not be worker 1"]);
    refused(&["--tls", &client], &["pstrain:client", "may be no worker"]);
    refused(&["--tls", &own], &["pstrain:server", "may be no worker"]);
    let status = |flags: &[&str]| finish(&[&["status", &server.address], flags].concat());
    status(&["--tls", &first]).refused(2, &["pstrain:worker:1", "--client"]);
    let stop = ["control", &server.address, "stop", "--tls", &first];
    finish(&stop).refused(2, &["pstrain:worker:1", "--client"]);
    status(&["--tls", &stranger]).refused(2, &["another CA"]);
    status(&[]).refused(2, &["TLS"]);
    let order = ["control", &server.address, "--tls", &first, "set", "consistency", "asp"];
    finish(&order).refused(2, &["pstrain:worker:1", "--client"]);
    status(&["--tls", &own]).with_code(0);
    assert_eq!(server.status()["updates"], 0);
    // Valid members get the worker slots that their certificates name.
    let workers = vec![server.worker(&["--tls", &second]), server.worker(&["--tls", &first])];
    let said = server.process.wait_to_say("turned away 127.0.0.1");
    assert!(!said.contains("panicked"), "{said}");
    let left = server.finish(workers);
    // Only authenticated connections reached the node.
    let events = events(&left.out);
    let of_tls = |event: &&serde_json::Value| event["why"].to_string().contains("certificate says");
    let refused = called(&events, "refused").count();
    assert_eq!(called(&events, "refused").filter(of_tls).count(), refused);
    // Three workers without the right identity, one status and two orders.
    assert_eq!(refused, 6);
}

#[test]
fn a_damaged_or_foreign_revocation_list_admits_no_revoked_certificate() {
    let (lab, other) = (Lab::with_nodes(), Lab::with_nodes());
    let revoked = lab.node("revoked", &["--worker", "1"]);
    finish(&["cert", "revoke", &lab.at("ca"), &format!("{revoked}/node.pem")]).with_code(0);
    finish(&["cert", "revoke", &other.at("ca"), &other.at("worker-1/node.pem")]).with_code(0);
    let list = fs::read(lab.place("ca/revoked.pem")).unwrap();
    let mut damaged = list.clone();
    let middle = list.len() / 2;
    damaged[middle] = if list[middle] == b'A' { b'B' } else { b'A' };
    let foreign = fs::read(other.place("ca/revoked.pem")).unwrap();
    let (own, place) = (lab.at("server"), lab.place("server/revoked.pem"));
    let tls = ["--tls", &own];
    for wrong in [&[][..], b"junk", &foreign, &damaged] {
        fs::write(&place, wrong).unwrap();
        let start = [&["server", "--listen", "127.0.0.1:0"], &JOB[..], &tls].concat();
        finish(&start).refused(2, &["revoked.pem: ", "from the folder of the CA again"]);
    }
    fs::write(&place, &list).unwrap();
    let server = Server::tcp(&[&JOB, &tls]).for_clients(&["--tls", &lab.at("client")]);
    let stays_out = |why: &str| {
        // A server checks its list at most once a second, and only when a connection arrives.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        server.worker(&["--tls", &revoked]).wait().refused(1, &["revoked"]);
        server.process.wait_to_say(&format!("revoked.pem: {why}"));
    };
    fs::write(&place, []).unwrap();
    stays_out("it holds no list of revoked certificates");
    fs::write(&place, &foreign).unwrap();
    stays_out("its list is damaged, or of another CA");
    fs::remove_file(&place).unwrap();
    stays_out("it is gone; the list before stays in force");
    let workers = ["worker-1", "worker-2"].map(|name| server.worker(&["--tls", &lab.at(name)]));
    server.finish(workers.into());
}

#[test]
fn a_servers_certificate_must_match_the_dialled_name() {
    let lab = Lab::with_nodes();
    let (other, first) = (lab.node("other", &["--server", "elsewhere"]), lab.at("worker-1"));
    let server = Server::tcp(&[&JOB, &["--tls", &other]]);
    let worker = server.worker(&["--tls", &first]).wait();
    worker.refused(1, &["another name", "elsewhere", "127.0.0.1"]);
    // A server refuses to start with a worker's certificate, as coordinator or joining.
    for which in [&["--workers", "2"][..], &["--join", "--coordinator", &server.address]] {
        let args = [&["server", "--listen", "127.0.0.1:0", "--tls", &first], which].concat();
        finish(&args).refused(2, &["pstrain:worker:1", "may be no server", "--server"]);
    }
    // A server with a revoked certificate is refused.
    finish(&["cert", "revoke", &lab.at("ca"), &lab.at("server/node.pem")]).with_code(0);
    fs::copy(lab.place("ca/revoked.pem"), lab.place("worker-1/revoked.pem")).unwrap();
    let server = Server::tcp(&[&JOB, &["--tls", &lab.at("server")]]);
    server.worker(&["--tls", &first]).wait().refused(1, &["revoked"]);
}

#[test]
fn clients_with_another_shared_key_are_refused() {
    let (lab, other) = (Lab::new(), Lab::new());
    let (key, wrong) = (lab.at("key"), other.at("key"));
    let server = Server::tcp(&[&SLOW, &["--psk", &key]]).for_clients(&["--psk", &key]);
    let worker = server.worker(&["--psk", &wrong]).wait();
    worker.refused(1, &["another shared key", "the same file with --psk", "5 attempts in a row"]);
    let said = server.process.wait_to_say("does not hold the shared key");
    assert!(said.contains("--psk"), "{said}");
    assert_eq!(server.status()["updates"], 0);
}

#[test]
fn plain_text_between_machines_requires_insecure() {
    let lab = Lab::new();
    let words = ["plain text is for one machine only", "--tls FOLDER", "--psk", "--insecure"];
    finish(&["server", "--listen", "0.0.0.0:0"]).refused(2, &words);
    for args in [["worker", "--server", "192.0.2.1:7070"], ["status", "192.0.2.1:7070", "--json"]] {
        finish(&args).refused(2, &words);
    }
    let order = ["control", "192.0.2.1:7070", "set", "consistency", "asp"];
    finish(&order).refused(2, &words);
    let server = Process::start(&["server", "--listen", "0.0.0.0:0", "--insecure"]);
    server.wait_to_say("warning: --insecure");
    let key = lab.at("key");
    let server = Process::start(&["server", "--listen", "0.0.0.0:0", "--psk", &key]);
    assert!(server.wait_to_say("listening on").contains("with a shared key"));
    finish(&["worker", "--server", "127.0.0.1:1", "--psk", &key, "--insecure"])
        .refused(2, &["--psk", "--insecure"]);
}

#[test]
fn keys_readable_by_other_users_are_refused() {
    let lab = Lab::with_nodes();
    for file in ["ca/ca.key", "server/node.key", "key"] {
        let mode = fs::metadata(lab.place(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let open = |file: &str| {
        fs::set_permissions(lab.place(file), fs::Permissions::from_mode(0o640)).unwrap();
        lab.at(file)
    };
    let (own, key) = (lab.at("server"), open("server/node.key"));
    finish(&["server", "--tls", &own]).refused(2, &[&key, "others can read it", "0640"]);
    let key = open("key");
    finish(&["server", "--psk", &key]).refused(2, &[&key, "others can read it", "chmod 600"]);
    finish(&["server", "--group-readable-key"]).refused(2, &["--group-readable-key", "no key"]);
    let short = lab.at("short");
    fs::write(&short, "abcd\n").unwrap();
    fs::set_permissions(lab.place("short"), fs::Permissions::from_mode(0o600)).unwrap();
    finish(&["server", "--psk", &short]).refused(2, &[&short, "64 hexadecimal digits"]);
    let empty = lab.at("none");
    finish(&["server", "--tls", &empty]).refused(2, &["none/ca.pem", "No such file"]);
    // Existing files are not replaced.
    finish(&["cert", "ca", &lab.at("ca")]).refused(2, &["ca.key", "exists"]);
    finish(&["cert", "node", &lab.at("none"), &lab.at("n"), "--client"])
        .refused(2, &["ca.key", "pstrain cert ca"]);
    finish(&["cert", "node", &lab.at("ca"), &lab.at("n")]).refused(2, &["--server", "--worker"]);
}

/// Runs `pstrain` as another user.
fn finish_as_other_user(args: &[&str]) -> Ended {
    let setpriv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    Process::start_under(&setpriv, args).wait()
}

#[test]
#[cfg_attr(not(other_user), ignore = "needs root, setpriv and a build that others can read")]
fn the_unix_socket_and_the_key_of_another_user_are_refused_with_the_reason() {
    let server = Server::unix(&[&SLOW]);
    let path = server.address.trim_start_matches("unix:");
    let open = |path: &str, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    open(path.trim_end_matches("/socket"), 0o755).unwrap();
    open(path, 0o755).unwrap();
    let ended = finish_as_other_user(&["status", &server.address]);
    ended.refused(2, &["Permission denied", "another user", "run both as one user"]);
    open(path, 0o777).unwrap();
    let ended = finish_as_other_user(&["status", &server.address]);
    ended.refused(2, &["closed by the peer without a word", "run both as one user"]);
    server.process.wait_to_say("it is of user 65534");
    // The file's group may read a key only with an explicit flag.
    let lab = Lab::new();
    let key = lab.at("key");
    open(key.trim_end_matches("/key"), 0o755).unwrap();
    open(&key, 0o440).unwrap();
    std::os::unix::fs::chown(&key, Some(0), Some(65534)).unwrap();
    let args = ["status", "127.0.0.1:1", "--psk", &key];
    let ended = finish_as_other_user(&args);
    ended.refused(2, &[&key, "its group can read it (mode 0440)", "--group-readable-key"]);
    let ended = finish_as_other_user(&[&args[..], &["--group-readable-key"]].concat());
    ended.refused(2, &["Connection refused"]);
}
