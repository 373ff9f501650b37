//! Workers without a server that prove to each other who they are: by certificates, or by a shared
//! key.

use std::fs;

use serde_json::Value;

use crate::books::{called, events};
use crate::cluster::{ENDLESS, Left, PACED, Server, free_address, number, path, undisturbed};
use crate::lab::Lab;
use crate::peers::{RING, all_without_a_server, departures, peer};
use crate::process::{Process, eventually, finish};

const SHORT: [&str; 6] = ["--epochs", "1", "--data", "synthetic:2000", "--workers", "3"];

/// The folder of worker `id` of `lab`.
fn folder(lab: &Lab, id: u32) -> String {
    lab.at(&format!("worker-{id}"))
}

/// Starts worker `id` of `lab` with its own certificate.
fn certified(lab: &Lab, server: &Server, id: u32, more: &[&str]) -> Process {
    peer(server, id, &[&["--tls", &folder(lab, id)], more].concat())
}

/// Starts worker `id` with the certificate in `folder`, which others reach at `listen`.
fn listening(server: &Server, id: u32, folder: &str, listen: &str) -> Process {
    server.worker(&["--id", &id.to_string(), "--tls", folder, "--listen", listen])
}

/// A meeting point of `lab` with these flags.
fn meeting(lab: &Lab, parts: &[&[&str]]) -> Server {
    let own = lab.at("server");
    let tls: &[&str] = &["--tls", &own];
    Server::tcp(&[&[tls], parts].concat()).for_clients(&["--tls", &lab.at("client")])
}

/// Why the second worker does not reach the first.
fn unreached(status: &Value) -> Option<String> {
    status["workers"][1]["unreached"]["why"].as_str().map(str::to_owned)
}

#[test]
fn certificates_and_shared_keys_do_not_change_the_parameters() {
    let lab = Lab::with_nodes();
    for architecture in all_without_a_server() {
        let job = [&["--architecture", &architecture], &SHORT[..]].concat();
        let server = meeting(&lab, &[&job]);
        let workers = (1..=3).map(|id| certified(&lab, &server, id, &[])).collect();
        let Left { summary, .. } = server.finish(workers);
        assert_eq!(summary["ended"], "the budget is used up", "{architecture}: {summary}");
        assert!(departures(&summary).is_empty(), "{architecture}: {summary}");
        if architecture != "gossip:ad-psgd" {
            let one = undisturbed(&[&job]);
            assert_eq!(summary["params_sha256"], one["params_sha256"], "{architecture}");
        }
    }
    let one = undisturbed(&[&RING, &SHORT]);
    let psk = ["--psk", &lab.at("key")];
    let server = Server::tcp(&[&RING, &SHORT, &psk]);
    let workers = (1..=3).map(|id| peer(&server, id, &psk)).collect();
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], one["params_sha256"], "with a shared key");
    let server = Server::unix(&[&RING, &SHORT, &["--tls", &lab.at("server")]]);
    let sockets = server.out.parent().unwrap();
    let worker = |id: u32| {
        let listen = format!("unix:{}", path(&sockets.join(format!("worker-{id}"))));
        listening(&server, id, &folder(&lab, id), &listen)
    };
    let workers = (1..=3).map(worker).collect();
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], one["params_sha256"], "over unix");
    // The first two exchange messages by way of the meeting point, and dial the third.
    let server = meeting(&lab, &[&RING, &SHORT]);
    let hidden = |id: u32| listening(&server, id, &folder(&lab, id), "none");
    let workers = vec![hidden(1), hidden(2), certified(&lab, &server, 3, &[])];
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], one["params_sha256"], "by way of the meeting point");
}

/// Workers of another CA at the meeting point and at the listener of a worker, and a worker whose
/// listener is taken for a meeting point.
#[test]
fn strangers_with_certificates_are_refused_by_name_and_change_nothing() {
    let (lab, other) = (Lab::with_nodes(), Lab::with_nodes());
    let server = meeting(&lab, &[&PACED, &RING, &ENDLESS, &["--workers", "3"]]);
    let first = free_address();
    let workers = vec![
        listening(&server, 1, &folder(&lab, 1), &first),
        certified(&lab, &server, 2, &[]),
        certified(&lab, &server, 3, &[]),
    ];
    server.wait_for_updates(3);
    let stranger = ["--tls", &folder(&other, 2), "--listen", "127.0.0.1:0"];
    server.worker(&stranger).wait().refused(1, &["its certificate is of another CA", "ca.pem"]);
    // The listener of a worker is no meeting point, whichever certificate the dialler has.
    for role in ["worker-2", "client"] {
        let status = finish(&["status", &first, "--tls", &lab.at(role)]);
        status.refused(2, &["its certificate is not for a server", "pstrain cert node"]);
    }
    // The workers of another job are led to the first worker. In the end they take certificates of
    // both CAs.
    for why in ["its certificate is of another CA", "it refuses this side's certificate"] {
        let job = ["--workers", "2", "--lease", "2s"];
        let led = meeting(&other, &[&PACED, &RING, &ENDLESS, &job]);
        let strangers = vec![
            certified(&other, &led, 1, &["--advertise", &first]),
            certified(&other, &led, 2, &[]),
        ];
        let said = eventually("complaint", || unreached(&led.status()));
        assert!(said.starts_with(why) && said.contains("another CA"), "{said}");
        led.interrupt(strangers);
        let both = [&lab, &other].map(|lab| fs::read_to_string(lab.place("ca/ca.pem")).unwrap());
        fs::write(other.place("worker-2/ca.pem"), both.concat()).unwrap();
    }
    let said = workers[0].wait_to_say("turned away 127.0.0.1: its certificate is of another CA");
    assert!(!said.contains("panicked"), "{said}");
    let before = number(&server.status()["updates"]);
    server.wait_for_updates(before + 20);
    let Left { out, summary, _folder } = server.interrupt(workers);
    assert!(departures(&summary).is_empty(), "{summary}");
    assert_eq!(called(&events(&out), "regrouped").count(), 0, "the group was disturbed");
}

/// Workers at an address at which the certificate is not theirs, or was revoked.
#[test]
fn a_worker_whose_certificate_another_does_not_take_is_named_and_the_run_goes_on() {
    let lab = Lab::with_nodes();
    let third = free_address();
    let job = ["--architecture", "all-reduce:all-to-all", "--workers", "3", "--lease", "2s"];
    let job = [&PACED[..], &job].concat();
    let one = undisturbed(&[&job]);
    let named = |server: Server, workers: [Process; 3], words: &str| {
        let said = eventually("complaint", || unreached(&server.status()));
        assert!(said.contains(words), "{said} instead of {words}");
        let Left { summary, .. } = server.finish(workers.into());
        assert!(departures(&summary).is_empty(), "{summary}");
        assert_eq!(summary["params_sha256"], one["params_sha256"], "{summary}");
    };
    let (numbered, any) = (folder(&lab, 3), lab.node("any", &["--worker"]));
    for (own, is_third, words) in [
        (&numbered, true, "pstrain:worker:3 answers at its address"),
        (&any, true, "worker 3 answers at the address of worker 1"),
        (&numbered, false, "pstrain:server answers at its address"),
    ] {
        let server = meeting(&lab, &[&job]);
        // The third worker is at the address of the first, or the meeting point is.
        let address = if is_third { &third } else { &server.address };
        let workers = [
            certified(&lab, &server, 1, &["--advertise", address]),
            certified(&lab, &server, 2, &[]),
            listening(&server, 3, own, &third),
        ];
        named(server, workers, words);
    }
    // The list of one worker has the certificate of another.
    let list = |of: u32, revoked: u32| {
        finish(&["cert", "revoke", &lab.at("ca"), &format!("{}/node.pem", folder(&lab, revoked))])
            .with_code(0);
        let to = lab.place(&format!("worker-{of}/revoked.pem"));
        fs::rename(lab.place("ca/revoked.pem"), &to).unwrap();
        fs::remove_file(lab.place("ca/revoked.txt")).unwrap();
        to
    };
    for (of, revoked, words) in [
        (2, 1, "its certificate was revoked"),
        (1, 2, "it refuses this side's certificate and says that it was revoked"),
    ] {
        let revoked = list(of, revoked);
        let server = meeting(&lab, &[&job]);
        let workers = [1, 2, 3].map(|id| certified(&lab, &server, id, &[]));
        named(server, workers, words);
        fs::remove_file(revoked).unwrap();
    }
}
