use std::time::Duration;

use pstrain_compute::id::{BatchId, Clock, ServerId, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_data::formats::Numbered;
use pstrain_data::{DataSpec, Dataset, Features, PartitionSpec, Standardisation, SyntheticNslKdd};
use pstrain_policy::job::DataFrom;
use pstrain_wire::{
    Held, LatestEvaluation, LinkFigures, MemberState, MemberStatus, Phase, Recent, RefusedStatus,
    ServerStatus, Status, Successor, TcpFigures, TimeSpent, Wait, WaitReason,
};

mod servers;
mod without_a_server;

use super::verdict::{Cause, Finding};
use super::{ConnectionFlags, WaitsFor};
use crate::args::SecurityArgs;
use crate::figures::span;

const OPEN: SecurityArgs =
    SecurityArgs { tls: None, psk: None, group_readable_key: false, insecure: false };

/// A connection to a server without authentication.
pub(crate) fn way(address: &str) -> ConnectionFlags {
    ConnectionFlags::new(address.into(), &OPEN)
}

/// The findings for a server at an address that tests know.
fn verdict(status: &Status) -> Vec<Finding> {
    super::verdict(status, &way("gw:7070"))
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A worker with ten steps of these parts, to which parameters were sent 1 ms ago.
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
        called_off: 0,
        staleness: 0,
        recent: Recent {
            steps: 10,
            spent: TimeSpent { compute, network, barrier, ..TimeSpent::default() },
            held_by: [held, None, None],
            loss: 0.5,
        },
        link: None,
        reassigned: 0,
        why_left: None,
        unreached: None,
        relayed: Vec::new(),
    }
}

/// A run of `workers` workers with long names and of four servers, after ten million updates.
pub(crate) fn large(workers: u32) -> Status {
    let worker = |number: u32| {
        let tcp = TcpFigures {
            rtt: ms(1234),
            retransmits: 123_456,
            unacknowledged: 123_456_789,
            ..TcpFigures::default()
        };
        MemberStatus {
            name: format!("greenhouse-north-{}.example.org:41234", number + 1),
            state: MemberState::Waiting,
            since: Duration::from_secs(7_200),
            clock: Clock(10_000_000),
            batch: BatchId(240_000_000),
            updates: 10_000_000,
            reassigned: 1_234_567,
            link: Some(LinkFigures { tcp: Some(tcp), ..LinkFigures::default() }),
            ..member(number, [12_345, 67_890, 123_456], Some(1))
        }
    };
    let server = |number: u32| ServerStatus {
        server: ServerId(number),
        of: Some(4),
        address: format!("server-{number}.greenhouse.example.org:7070"),
        keys: KeyRange::new(u64::from(number) * 25_000_000, u64::from(number + 1) * 25_000_000)
            .ok(),
        away: Some(Duration::from_secs(86_400)),
        successor: Successor::Heir,
        standby: Some(format!("standby-{number}.greenhouse.example.org:7070")),
    };
    Status {
        samples: 640_000_000,
        samples_wanted: 1_280_000_000,
        uptime: Duration::from_secs(200_000),
        version: Version(10_000_000),
        epoch: 1234.5,
        wait: Some(Wait {
            reason: WaitReason::Gradients,
            workers: (0..workers).filter(|worker| worker % 7 != 3).map(WorkerId).collect(),
            waited: Duration::from_secs(4_000),
            left: Some(Duration::from_secs(4_000)),
        }),
        evaluated: Some(LatestEvaluation {
            version: Version(9_999_999),
            loss: 0.4,
            metrics: vec![("accuracy".into(), 0.912)],
        }),
        servers: (0..4).map(server).collect(),
        refused: vec![RefusedStatus {
            who: "worker 7".into(),
            from: Some("greenhouse-north-7.example.org".into()),
            why: "its place is taken".into(),
            times: 1_234_567,
            ago: Duration::from_secs(4_000),
        }],
        ..status((0..workers).map(worker).collect())
    }
}

/// The recipe of synthetic rows or of a file.
fn recipe(is_synthetic: bool) -> String {
    let synthetic = SyntheticNslKdd { rows: 4000, seed: 1 };
    let spec = DataSpec {
        schema: synthetic.schema(&Features::default()).unwrap(),
        source: "rows.csv".into(),
        generated: is_synthetic.then(|| synthetic.words().unwrap()),
        evaluation_share: 0.25,
        split_seed: 1,
        partition: PartitionSpec::default(),
        workers: 3,
        minimum_rows: 1,
        standardisation: Standardisation(Vec::new()),
        values: None,
    };
    serde_json::to_string(&spec).unwrap()
}

/// A run that makes progress.
pub(crate) fn status(members: Vec<MemberStatus>) -> Status {
    Status {
        job: "night run".into(),
        consistency: "bsp".into(),
        rule: "a round closes once every worker's gradient has come".into(),
        lease: Duration::from_secs(5),
        data_from: DataFrom::Worker,
        recipe: recipe(true),
        scenario: String::new(),
        processor_wait: None,
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
        history: Vec::new(),
        wait: None,
        members,
        refused: Vec::new(),
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
        "worker 3 (edge-3) holds the others back, who wait 80 % of their time for it: its link \
         (round trip 88.0 ms, 3 segments sent again) takes 90.0 ms of the 100 ms from parameters to \
         gradient (90 %), 4.0 times the median"
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
    // Such an update always costs a round trip between servers.
    assert_ne!(verdict(&after(Duration::from_millis(3)))[0].cause, Cause::Overdue);
    let ended = verdict(&Status { phase: Phase::Ending, ..late });
    assert_eq!(ended[0].cause, Cause::Ending);
    assert!(ended[0].says.contains("server 2 has not sent"), "{}", ended[0].says);
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

/// A worker that has been silent, and in this state, for so many seconds.
fn silent(worker: u32, state: MemberState, seconds: u64) -> MemberStatus {
    let silent = Duration::from_secs(seconds);
    MemberStatus { state, silent, since: silent, ..member(worker, [10, 5, 0], None) }
}

/// Three workers of a run in which none waits for another, as under ASP.
fn asynchronous(third: MemberStatus) -> Status {
    status(vec![member(0, [10, 5, 0], None), member(1, [10, 5, 0], None), third])
}

#[test]
fn a_worker_in_trouble_comes_first_although_no_other_waits_for_it() {
    let lost = MemberStatus { pushes: 5, ..silent(2, MemberState::Lost, 12) };
    let late = MemberStatus { silent: ms(1), ..silent(2, MemberState::Computing, 3) };
    for (third, cause, words) in [
        (
            lost,
            Cause::Lost,
            "worker 3 (edge-3) is lost: it has not been heard for 12.0 s, and its lease is 5.00 s; the \
             others continue without it (5 of 25 gradients were its own, 20 %)",
        ),
        (
            silent(2, MemberState::Computing, 3),
            Cause::Silent,
            "worker 3 (edge-3) is silent: it has not been heard for 3.00 s, and a living worker is heard \
             every 1.00 s; its process is stopped, or its machine or link is down; its lease is \
             over in 2.00 s",
        ),
        (
            silent(2, MemberState::CutOff, 3),
            Cause::CutOff,
            "worker 3 (edge-3) is cut off: its connection is closed, and it has not been heard for \
             3.00 s; its lease is over in 2.00 s",
        ),
        (
            late,
            Cause::Overdue,
            "worker 3 (edge-3) is late: its gradient is not there after 3.00 s, where it usually takes 15.0 \
             ms (200 times as long); it was last heard 1.00 ms ago",
        ),
    ] {
        let findings = verdict(&asynchronous(third));
        assert_eq!((findings[0].cause, findings[0].worker), (cause, Some(WorkerId(2))));
        assert_eq!(findings[0].says, words);
        assert!(findings.iter().all(|finding| !finding.cure.contains("all is well")));
    }
    let lost = verdict(&asynchronous(silent(2, MemberState::Lost, 12)));
    let command = "`pstrain worker --server gw:7070 --id 3`";
    assert!(lost[0].cure.ends_with(command), "{}", lost[0].cure);
}

#[test]
fn a_worker_that_has_left_or_never_came_is_named_with_what_starts_it() {
    for (state, words) in [
        (
            MemberState::Left,
            "worker 3 (edge-3) has left, 40.0 s ago; the others continue without it",
        ),
        (MemberState::Awaited, "worker 3 (edge-3) was never there; the others continue without it"),
    ] {
        let findings = verdict(&asynchronous(MemberStatus { pushes: 0, ..silent(2, state, 40) }));
        assert_eq!((findings[0].cause, findings[0].worker), (Cause::Missing, Some(WorkerId(2))));
        assert_eq!(findings[0].says, words);
    }
    let why_left = Some("its data differ".to_owned());
    let member = MemberStatus { pushes: 0, why_left, ..silent(2, MemberState::Refused, 40) };
    let refusal = RefusedStatus {
        who: "worker 3".into(),
        from: None,
        why: "its data differ".into(),
        times: 1,
        ago: ms(40),
    };
    let findings = verdict(&Status { refused: vec![refusal], ..asynchronous(member) });
    let words = "worker 3 (edge-3) was refused, 40.0 s ago (its data differ); the others continue without it";
    assert_eq!((findings[0].cause, findings[0].says.as_str()), (Cause::Refused, words));
    let refused = findings.iter().filter(|finding| finding.cause == Cause::Refused);
    assert_eq!(refused.count(), 1, "{findings:#?}");
    assert_eq!(
        verdict(&asynchronous(silent(2, MemberState::Finished, 1)))[0].cause,
        Cause::ComputeBound,
        "it has done its part"
    );
}

#[test]
fn the_first_gradient_of_a_worker_is_overdue_by_the_times_of_the_others() {
    let first = MemberStatus { recent: Recent::default(), ..silent(2, MemberState::Computing, 1) };
    let status = asynchronous(first);
    assert_eq!(verdict(&status)[0].cause, Cause::Overdue);
    assert_eq!(WaitsFor::of(&status, &status.members[2]), WaitsFor::Overdue, "the table agrees");
}

#[test]
fn a_compute_process_that_has_never_answered_is_named_after_seconds() {
    let mut spec: DataSpec = serde_json::from_str(&recipe(false)).unwrap();
    spec.schema.kind = Numbered::KIND.into();
    let recipe = serde_json::to_string(&spec).unwrap();
    let after = |seconds| {
        let member = silent(0, MemberState::Computing, seconds);
        let member = MemberStatus { recent: Recent::default(), silent: ms(1), ..member };
        verdict(&Status { recipe: recipe.clone(), ..status(vec![member]) }).remove(0)
    };
    assert_ne!(after(5).cause, Cause::Overdue);
    let found = after(20);
    assert_eq!(found.cause, Cause::Overdue);
    assert!(found.says.contains("its gradient is not there after 20.0 s; it was"), "{found:?}");
    assert!(found.cure.contains("its compute process does not"), "{found:?}");
}

#[test]
fn of_24_workers_the_lost_come_first_then_the_one_that_is_six_times_slower() {
    // BSP, where the others wait for the slow worker; SSP and ASP, where none waits.
    for (barrier, held_by) in [(75, Some(9)), (0, None)] {
        let mut members: Vec<_> = (0..24).map(|id| member(id, [10, 5, barrier], held_by)).collect();
        members[4] = silent(4, MemberState::Lost, 29);
        members[16] = silent(16, MemberState::Lost, 31);
        members[9] = member(9, [85, 5, 0], None);
        let findings = verdict(&status(members));
        let found: Vec<_> =
            findings.iter().map(|it| (it.cause, it.worker.map(|worker| worker.0))).collect();
        let wanted = [(Cause::Lost, Some(16)), (Cause::Lost, Some(4)), (Cause::Machine, Some(9))];
        assert_eq!(found, wanted);
        let slow = &findings[2].says;
        if held_by.is_some() {
            assert!(slow.contains("who wait 83 % of their time for it"), "{slow}");
            assert!(slow.ends_with(", 6.0 times the median"), "{slow}");
        } else {
            let words = "worker 10 (edge-10) is 6.0 times slower than the median of 15.0 ms, and \
                         brings 0.8 % of the gradients: its machine computes 85.0 ms of the 90.0 \
                         ms";
            assert!(slow.starts_with(words), "{slow}");
        }
    }
}

#[test]
fn a_far_slower_link_is_told_from_a_machine_where_no_other_waits() {
    let findings = verdict(&asynchronous(member(2, [10, 90, 0], None)));
    assert_eq!((findings[0].cause, findings[0].worker), (Cause::Link, Some(WorkerId(2))));
    // A busy machine makes some short steps longer, which is not reported.
    let quick = |compute| {
        let spent = TimeSpent { compute, ..TimeSpent::default() };
        move |worker| MemberStatus {
            recent: Recent { steps: 1, spent, ..Recent::default() },
            ..member(worker, [0, 0, 0], None)
        }
    };
    let of = |micros| quick(Duration::from_micros(micros));
    let all = status(vec![of(100)(0), of(100)(1), of(900)(2)]);
    assert_eq!(verdict(&all)[0].cause, Cause::ComputeBound);
}

#[test]
fn the_command_for_a_worker_has_the_flags_that_it_needs() {
    let flags = |security: &SecurityArgs, from, is_synthetic| {
        let missing = silent(2, MemberState::Lost, 12);
        let recipe = recipe(is_synthetic);
        let status = Status { data_from: from, recipe, ..asynchronous(missing) };
        let cure = super::verdict(&status, &ConnectionFlags::new("gw:7070".into(), security))[0]
            .cure
            .clone();
        let (_, flags) = cure.split_once("start it with `pstrain worker --server gw:7070").unwrap();
        flags.to_owned()
    };
    assert_eq!(flags(&OPEN, DataFrom::Worker, true), " --id 3`");
    assert_eq!(flags(&OPEN, DataFrom::Worker, false), " --id 3 --data server`");
    assert_eq!(flags(&OPEN, DataFrom::Server, false), " --id 3`", "it sends them anyway");
    let own = " --id 3` with --data and the path of its own copy of rows.csv";
    assert_eq!(flags(&OPEN, DataFrom::Own, false), own);
    let psk = SecurityArgs { psk: Some("my key".into()), group_readable_key: true, ..OPEN };
    let shared = " --psk 'my key' --group-readable-key --id 3 --data server`";
    assert_eq!(flags(&psk, DataFrom::Worker, false), shared);
    let tls = SecurityArgs { tls: Some("of-client".into()), ..OPEN };
    assert_eq!(flags(&tls, DataFrom::Worker, true), " --id 3` with the --tls folder of worker 3");
    let both = " --id 3` with the --tls folder of worker 3, and --data and the path of its own \
                copy of rows.csv";
    assert_eq!(flags(&tls, DataFrom::Own, false), both);
    let plain = SecurityArgs { insecure: true, ..OPEN };
    assert_eq!(flags(&plain, DataFrom::Worker, true), " --insecure --id 3`");
}

#[test]
fn settings_that_no_running_job_takes_are_advised_for_the_next_run_only() {
    let reason = WaitReason::Gradients;
    let waited = Duration::from_secs(3);
    let wait = |reason| Wait { reason, workers: vec![WorkerId(2)], waited, left: None };
    let of = |third, reason| {
        let status = Status { wait: Some(wait(reason)), ..asynchronous(third) };
        verdict(&status)[0].cure.clone()
    };
    for (cure, setting) in [
        (of(silent(2, MemberState::Computing, 3), reason), "lease"),
        (of(silent(2, MemberState::Awaited, 3), WaitReason::Workers), "min-workers"),
    ] {
        let (before, _) = cure.split_once(setting).unwrap_or_else(|| panic!("{cure}"));
        assert!(before.contains("next run"), "{cure}");
    }
    let late = MemberStatus { silent: ms(1), ..silent(2, MemberState::Computing, 3) };
    assert!(!of(late, reason).contains("redundancy"));
}

#[test]
fn a_refused_worker_is_named_for_as_long_as_the_run_waits_for_workers() {
    let refused = RefusedStatus {
        who: "worker edge-2".into(),
        from: None,
        why: "the worker's data are not the job's".into(),
        times: 1,
        ago: Duration::from_secs(35),
    };
    let after = |waited| {
        let waited = Duration::from_secs(waited);
        let reason = WaitReason::Workers;
        let wait = Wait { reason, workers: vec![WorkerId(1)], waited, left: None };
        let of = vec![member(0, [0, 0, 0], None), silent(1, MemberState::Awaited, 40)];
        let (wait, phase) = (Some(wait), Phase::Gathering);
        let findings =
            verdict(&Status { refused: vec![refused.clone()], wait, phase, ..status(of) });
        findings.iter().map(|finding| finding.cause).collect::<Vec<_>>()
    };
    assert_eq!(after(40), [Cause::Missing, Cause::Refused]);
    assert_eq!(after(30), [Cause::Missing], "that was before");
}

#[test]
fn a_refused_worker_is_named_with_its_host_and_the_reason_while_it_tries_on() {
    let refused = |ago| RefusedStatus {
        who: "worker edge-7".into(),
        from: Some("10.0.0.3".into()),
        why: "the run is over".into(),
        times: 9,
        ago: Duration::from_secs(ago),
    };
    let found = |ago| {
        let calm = asynchronous(member(2, [10, 5, 0], None));
        verdict(&Status { refused: vec![refused(ago)], ..calm })
    };
    let words = "worker edge-7 at 10.0.0.3 was refused 9 times, 2.00 s ago: the run is over";
    assert_eq!((found(2)[0].cause, found(2)[0].says.as_str()), (Cause::Refused, words));
    assert_eq!(found(100)[0].cause, Cause::ComputeBound);
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
fn bytes_without_acknowledgement_are_under_way_only_after_the_latest_one() {
    let tcp = TcpFigures { unacknowledged: 8000, ..TcpFigures::default() };
    let link = Some(LinkFigures { tcp: Some(tcp), ..LinkFigures::default() });
    let since = |since| MemberStatus { since, link, ..member(0, [990, 10, 0], None) };
    let of = |member: MemberStatus| WaitsFor::of(&status(vec![member.clone()]), &member);
    assert_eq!(of(since(ms(100))), WaitsFor::Compute, "its gradient may acknowledge them");
    assert_eq!(of(since(ms(300))), WaitsFor::Parameters);
}

#[test]
fn more_under_way_is_advised_where_the_mode_allows_it() {
    let all = || vec![member(0, [10, 5, 85], Some(1)), member(1, [5, 95, 0], None)];
    for (consistency, is_advised) in
        [("bsp", false), ("asp", true), ("asp, 2 in flight", true), ("ssp:0", false)]
    {
        let status = Status { consistency: consistency.into(), ..status(all()) };
        let Finding { cause, cure, .. } = &verdict(&status)[0];
        assert_eq!((*cause, cure.contains("in-flight")), (Cause::Link, is_advised), "{cure}");
    }
}

#[test]
fn spans_have_three_digits() {
    let texts =
        [0, 12_300, 4_560_000, 78_900_000, 4_560_000_000, 61_000_000_000, 1_800_000_000_000]
            .map(|nanos| span(Duration::from_nanos(nanos)));
    assert_eq!(texts, ["0 s", "12.3 us", "4.56 ms", "78.9 ms", "4.56 s", "61.0 s", "30 min"]);
}

#[test]
fn where_processes_wait_for_a_processor_no_link_is_blamed() {
    let linked = |member: MemberStatus, is_local| MemberStatus {
        link: Some(LinkFigures { is_local, ..LinkFigures::default() }),
        ..member
    };
    let crowded =
        |members: Vec<MemberStatus>| Status { processor_wait: Some(0.63), ..status(members) };
    let held = |is_local| {
        vec![
            linked(member(0, [10, 5, 85], Some(1)), is_local),
            linked(member(1, [10, 90, 0], None), is_local),
        ]
    };
    let findings = verdict(&crowded(held(true)));
    assert_eq!((findings[0].cause, findings[0].worker), (Cause::Processor, Some(WorkerId(1))));
    assert_eq!(findings[0].name.as_deref(), Some("edge-2"));
    let words = "to pass messages on within this machine takes 90.0 ms of the 100 ms from \
                 parameters to gradient (90 %), 6.7 times the median, and processes here wait for \
                 a processor 63 % of the time";
    assert!(findings[0].says.ends_with(words), "{}", findings[0].says);
    assert!(findings[0].cure.starts_with("no link is to blame"), "{}", findings[0].cure);
    // A real link, a modelled one, and a machine with processors to spare.
    assert_eq!(verdict(&crowded(held(false)))[0].cause, Cause::Link);
    let scenario = r#"{"links":"all.delay=5ms"}"#.into();
    assert_eq!(verdict(&Status { scenario, ..crowded(held(true)) })[0].cause, Cause::Link);
    let idle = Status { processor_wait: Some(0.05), ..status(held(true)) };
    assert_eq!(verdict(&idle)[0].cause, Cause::Link);
    // It is one cause, however many workers it slows.
    let slow = (7..10).map(|id| linked(member(id, [10, 190, 0], None), true));
    let members = (0..7).map(|id| linked(member(id, [10, 5, 0], None), true)).chain(slow);
    let findings = verdict(&crowded(members.collect()));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].cause, Cause::Processor);
    // Nor are more workers of use where computing takes longest.
    let busy = |compute| linked(member(0, [compute, 100 - compute, 0], None), true);
    for compute in [20, 80] {
        assert_eq!(verdict(&crowded(vec![busy(compute)]))[0].cause, Cause::Processor);
    }
}
