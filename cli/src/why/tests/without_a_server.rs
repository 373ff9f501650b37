//! Advice to workers without a server is what their architecture does not refuse.

use pstrain_policy::architecture::Architecture;

use super::*;

/// The first finding about these workers, under each architecture without a server.
fn findings(members: impl Fn() -> Vec<MemberStatus>) -> Vec<(Architecture, Finding)> {
    let gossip = [Architecture::DPsgd, Architecture::AdPsgd];
    let all = Architecture::replicated().chain(gossip);
    all.map(|architecture| {
        let consistency = architecture.to_string();
        let status = Status { consistency, ..status(members()) };
        (architecture, verdict(&status).swap_remove(0))
    })
    .collect()
}

const NEXT: &str = "; in the next run, architecture = server with consistency = asp or backup:1 \
                    lets no other wait for it";

/// Asserts that the cure is `cure` with what lets fewer workers wait.
#[track_caller]
fn assert_cure(architecture: Architecture, found: &Finding, cure: &str) {
    let gossip = match architecture {
        Architecture::AdPsgd => "",
        _ => ", and gossip:ad-psgd only its neighbors",
    };
    assert_eq!(found.cure, format!("{cure}{NEXT}{gossip}"), "{architecture}");
}

#[test]
fn a_worker_that_the_others_wait_for_is_not_given_less_to_do() {
    let held = |parts| move || vec![member(0, [10, 5, 85], Some(1)), member(1, parts, None)];
    for (architecture, found) in findings(held([95, 5, 0])) {
        assert_eq!(found.cause, Cause::Machine);
        assert_cure(architecture, &found, "look at what else its machine does");
    }
    for (architecture, Finding { cause, cure, .. }) in findings(held([5, 95, 0])) {
        assert_eq!(cause, Cause::Link);
        assert!(cure.starts_with(NEXT.trim_start_matches("; ")), "{architecture}: {cure}");
        assert!(cure.ends_with("need fewer round trips"), "{architecture}: {cure}");
        assert!(!cure.contains("ssp"), "{architecture}: {cure}");
    }
    let slow = || vec![member(0, [10, 5, 0], None), member(1, [95, 5, 0], None)];
    for (architecture, found) in findings(slow) {
        assert_eq!(found.cure, "look at what else its machine does", "{architecture}");
    }
}

#[test]
fn of_a_worker_that_is_overdue_it_names_no_consistency_that_they_refuse() {
    let late = || {
        let late = MemberStatus { silent: ms(1), ..silent(2, MemberState::Computing, 3) };
        vec![member(0, [10, 5, 0], None), member(1, [10, 5, 0], None), late]
    };
    for (architecture, found) in findings(late) {
        assert_eq!(found.cause, Cause::Overdue);
        let machine = "look at its machine: stopped, swapping or busy with something else";
        assert_cure(architecture, &found, machine);
    }
}

#[test]
fn the_command_for_a_worker_has_it_listen_for_the_others() {
    let lost = || vec![member(0, [10, 5, 0], None), silent(1, MemberState::Lost, 12)];
    for (architecture, Finding { cure, .. }) in findings(lost) {
        let command = "`pstrain worker --server gw:7070 --id 2 --listen 0.0.0.0:PORT`";
        assert!(cure.ends_with(command), "{architecture}: {cure}");
    }
    let consistency = Architecture::Ring.to_string();
    let status = Status { consistency, ..status(lost()) };
    let cure = &super::super::verdict(&status, &way("unix:/run/gw"))[0].cure;
    assert!(cure.ends_with("--server unix:/run/gw --id 2 --listen unix:PATH`"), "{cure}");
}
