use std::time::Duration;

use pstrain_core::id::{BatchId, Clock, ServerId, Version, WorkerId};
use pstrain_core::protocol::{
    Held, LinkFigures, MemberState, MemberStatus, Phase, Recent, Status, TcpFigures, TimeSpent,
    Wait, WaitReason,
};

use super::verdict::Cause;
use super::{WaitsFor, span, verdict};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A worker with ten steps of these parts, that was given parameters `since` ago.
pub(crate) fn member(worker: u32, parts: [u64; 3], held_by: Option<u32>) -> MemberStatus {
    let [compute, network, barrier] = parts.map(|part| ms(10 * part));
    let held = held_by.map(|by| Held { by: WorkerId(by), waited: barrier });
    MemberStatus {
        worker: WorkerId(worker),
        name: format!("edge-{}", worker + 1),
        state: MemberState::Computing,
        since: ms(1),
        silent: ms(1),
        clock: Clock(10),
        batch: BatchId(10),
        updates: 10,
        pushes: 10,
        dropped: 0,
        staleness: 0,
        recent: Recent {
            steps: 10,
            spent: TimeSpent { compute, network, barrier },
            held_by: [held, None, None],
            loss: 0.5,
        },
        link: None,
        reassigned: 0,
        unreached: None,
    }
}

/// A run that goes on.
pub(crate) fn status(members: Vec<MemberStatus>) -> Status {
    Status {
        job: "night run".into(),
        consistency: "bsp".into(),
        rule: "nobody goes on before every worker's gradient of the round has come".into(),
        lease: Duration::from_secs(5),
        ordered: None,
        standby: None,
        leader: None,
        servers: Vec::new(),
        phase: Phase::Training,
        uptime: Duration::from_secs(60),
        version: Version(10),
        samples: 640,
        samples_wanted: 64_000,
        epoch: 0.1,
        loss: Some(0.5),
        evaluated: None,
        wait: None,
        members,
    }
}

#[test]
fn a_slow_link_is_blamed_with_its_share_and_its_round_trip() {
    let mut third = member(2, [10, 90, 0], None);
    let tcp = TcpFigures { rtt: ms(88), retransmits: 3, ..TcpFigures::default() };
    third.link = Some(LinkFigures { tcp: Some(tcp), ..LinkFigures::default() });
    let all = [member(0, [10, 5, 85], Some(2)), member(1, [20, 5, 75], Some(2)), third];
    let findings = verdict(&status(all.into()));
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].cause, findings[0].worker), (Cause::Link, Some(WorkerId(2))));
    assert_eq!(
        findings[0].says,
        "worker 3 holds the others back, who wait 80 % of their time for it: its link (round trip \
         88.0 ms, 3 segments sent again) takes 90.0 ms of the 100 ms from parameters to gradient (90 %)"
    );
}

#[test]
fn a_slow_machine_is_blamed_for_computing() {
    let all = [member(0, [10, 5, 85], Some(1)), member(1, [95, 5, 0], None)];
    let findings = verdict(&status(all.into()));
    assert_eq!((findings[0].cause, findings[0].worker), (Cause::Machine, Some(WorkerId(1))));
}

#[test]
fn where_nobody_waits_it_says_what_the_time_goes_to() {
    let all = [member(0, [10, 90, 0], None), member(1, [20, 80, 0], None)];
    assert_eq!(verdict(&status(all.into()))[0].cause, Cause::NetworkBound);
    let all = [member(0, [90, 10, 0], None), member(1, [90, 10, 5], Some(0))];
    assert_eq!(verdict(&status(all.into()))[0].cause, Cause::ComputeBound);
    let nobody = MemberStatus { recent: Recent::default(), ..member(0, [0, 0, 0], None) };
    assert_eq!(verdict(&status(vec![nobody]))[0].cause, Cause::TooEarly);
}

#[test]
fn a_server_that_does_not_say_its_part_is_named() {
    let waiting = MemberStatus { state: MemberState::Waiting, ..member(0, [10, 5, 85], None) };
    let reason = WaitReason::Part(ServerId(1));
    let after = |waited| Status {
        wait: Some(Wait { reason, workers: Vec::new(), waited, left: None }),
        ..status(vec![waiting.clone()])
    };
    let late = after(Duration::from_secs(3));
    let findings = verdict(&late);
    assert_eq!((findings[0].cause, findings[0].worker), (Cause::Overdue, None));
    assert!(findings[0].says.starts_with("server 2 is asked"), "{}", findings[0].says);
    assert_eq!(WaitsFor::of(&late, &waiting), WaitsFor::Server { server: ServerId(1) });
    // A turn between servers is what such an update costs.
    assert_ne!(verdict(&after(Duration::from_millis(3)))[0].cause, Cause::Overdue);
}

#[test]
fn what_stops_the_run_now_comes_before_what_slows_it() {
    let waiting = |worker| MemberStatus {
        state: MemberState::Waiting,
        ..member(worker, [10, 5, 85], Some(2))
    };
    let wait = Wait {
        reason: WaitReason::Gradients,
        workers: vec![WorkerId(2)],
        waited: Duration::from_secs(3),
        left: None,
    };
    let with = |third: MemberStatus| Status {
        wait: Some(wait.clone()),
        ..status(vec![waiting(0), waiting(1), third])
    };
    let third = || member(2, [10, 90, 0], None);
    let late = MemberStatus { since: Duration::from_secs(3), ..third() };
    let silent = MemberStatus { silent: Duration::from_secs(3), ..late.clone() };
    let cut = MemberStatus { state: MemberState::CutOff, ..silent.clone() };
    let lost = MemberStatus { state: MemberState::Lost, ..silent.clone() };
    for (third, cause) in [
        (third(), Cause::Link),
        (late, Cause::Overdue),
        (silent, Cause::Silent),
        (cut, Cause::CutOff),
        (lost, Cause::Missing),
    ] {
        let status = with(third);
        let findings = verdict(&status);
        assert_eq!((findings[0].cause, findings[0].worker), (cause, Some(WorkerId(2))));
        let barrier = WaitsFor::Barrier { workers: vec![WorkerId(2)] };
        assert_eq!(WaitsFor::of(&status, &status.members[0]), barrier);
    }
}

#[test]
fn a_mini_batch_is_where_the_usual_times_put_it() {
    let at = |since| {
        let member = MemberStatus { since, ..member(0, [50, 40, 0], None) };
        WaitsFor::of(&status(vec![member.clone()]), &member)
    };
    assert_eq!(at(ms(10)), WaitsFor::Parameters);
    assert_eq!(at(ms(30)), WaitsFor::Compute);
    assert_eq!(at(ms(80)), WaitsFor::Gradient);
    assert_eq!(at(ms(2000)), WaitsFor::Overdue);
}

#[test]
fn spans_have_three_digits() {
    let texts =
        [0, 12_300, 4_560_000, 78_900_000, 4_560_000_000, 61_000_000_000, 1_800_000_000_000]
            .map(|nanos| span(Duration::from_nanos(nanos)));
    assert_eq!(texts, ["0 s", "12.3 us", "4.56 ms", "78.9 ms", "4.56 s", "61.0 s", "30 min"]);
}
