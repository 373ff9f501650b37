//! Servers and standbys that a run waits for.

use super::*;

/// A run that waits for the second of its three servers.
fn without_a_server(successor: Successor, address: &str) -> Status {
    let server = |server, address: &str, away| ServerStatus {
        server: ServerId(server),
        of: Some(3),
        address: address.into(),
        keys: KeyRange::new(u64::from(server) * 100, u64::from(server) * 100 + 100).ok(),
        away,
        successor,
        standby: None,
    };
    let waited = Duration::from_secs(8);
    let wait = Wait {
        reason: WaitReason::Server(ServerId(1)),
        workers: Vec::new(),
        waited,
        left: Some(Duration::from_secs(52)),
    };
    Status {
        wait: Some(wait),
        servers: vec![
            server(0, "", None),
            server(1, address, Some(waited)),
            server(2, "node3:7072", None),
        ],
        ..status(vec![silent(0, MemberState::CutOff, 8), silent(1, MemberState::Waiting, 0)])
    }
}

#[test]
fn of_a_server_that_is_away_it_says_what_can_still_be_done_and_only_that() {
    let command = "`pstrain server --shard 2/3 --coordinator gw:7070";
    let new = verdict(&without_a_server(Successor::Any, ""));
    assert_eq!(new.len(), 1, "that workers come and go follows from it: {new:?}");
    assert_eq!(new[0].cause, Cause::Missing);
    assert!(new[0].says.ends_with("; the run ends in 52.0 s without it"), "{}", new[0].says);
    assert!(new[0].cure.starts_with(&format!("start it with {command}`")), "{}", new[0].cure);

    let heir = &verdict(&without_a_server(Successor::Heir, "node2:7071"))[0];
    let words = "server 2 at node2:7071 is not there, since 8.00 s, and it alone has keys [100, \
                 200); the run ends in 52.0 s without it";
    assert_eq!(heir.says, words);
    assert!(!heir.cure.contains("start it"), "another process is refused: {}", heir.cure);
    let resumed = format!("only {command} --resume DIR` with its --state folder");
    assert!(heir.cure.contains(&resumed), "{}", heir.cure);

    let checkpoint = &verdict(&without_a_server(Successor::Checkpoint, "node2:7071"))[0];
    assert!(checkpoint.cure.ends_with("go back to the last checkpoint"), "{}", checkpoint.cure);
}

#[test]
fn a_silent_standby_comes_first_and_no_worker_is_blamed_for_it() {
    let late = |worker| MemberStatus { silent: ms(1), ..silent(worker, MemberState::Computing, 3) };
    let wait = Wait {
        reason: WaitReason::StandbySilent,
        workers: Vec::new(),
        waited: Duration::from_secs(3),
        left: Some(Duration::from_secs(2)),
    };
    let status = Status {
        standby: Some("gw2:7070".into()),
        wait: Some(wait),
        ..status(vec![late(0), late(1)])
    };
    let findings = verdict(&status);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].cause, findings[0].worker), (Cause::Silent, None));
    let words = "the run waits for the standby at gw2:7070: it has been silent for 3.00 s; in 2.00 \
                 s the server asks the workers to continue without it, if it stays silent";
    assert_eq!(findings[0].says, words);
    assert_eq!(WaitsFor::of(&status, &status.members[0]), WaitsFor::Standby);
}

#[test]
fn of_a_primary_that_is_gone_it_advises_nothing_that_begins_another_run() {
    let wait = Wait {
        reason: WaitReason::Primary,
        workers: Vec::new(),
        waited: Duration::from_secs(5),
        left: None,
    };
    let of = vec![silent(0, MemberState::CutOff, 5)];
    let findings = verdict(&Status { wait: Some(wait), ..status(of) });
    assert_eq!(findings[0].cause, Cause::Missing);
    let cure = &findings[0].cure;
    assert!(!cure.contains("start it again"), "{cure}");
    assert!(cure.contains("begins another run"), "{cure}");
}
