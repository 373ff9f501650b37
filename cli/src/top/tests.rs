use std::time::Duration;

use pstrain_compute::id::{Version, WorkerId};
use pstrain_wire::{
    LatestEvaluation, LinkFigures, MemberState, MemberStatus, Status, TcpFigures, Wait, WaitReason,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::{MOST_POINTS, Top, draw, ends};
use crate::why::tests::{member, status, way};

fn drawn(top: &Top, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(top, frame)).unwrap();
    let screen = terminal.backend().to_string();
    let lines = screen.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// A run of three workers, the third with a slow link.
fn run_of_three() -> Status {
    let waiting = |worker, parts| MemberStatus {
        state: MemberState::Waiting,
        since: Duration::from_millis(55),
        ..member(worker, parts, Some(2))
    };
    let mut third = member(2, [10, 90, 0], None);
    let tcp =
        TcpFigures { rtt: Duration::from_millis(88), retransmits: 3, ..TcpFigures::default() };
    third.link = Some(LinkFigures { tcp: Some(tcp), ..LinkFigures::default() });
    let wait = Wait {
        reason: WaitReason::Gradients,
        workers: vec![WorkerId(2)],
        waited: Duration::from_millis(55),
        left: None,
    };
    let metrics = vec![(String::from("accuracy"), 0.9), (String::from("macro_f1"), 0.7)];
    let evaluated = LatestEvaluation { version: Version(10), loss: 0.4, metrics };
    Status {
        wait: Some(wait),
        evaluated: Some(evaluated),
        ..status(vec![waiting(0, [10, 5, 85]), waiting(1, [20, 5, 75]), third])
    }
}

#[test]
fn a_run_is_drawn_with_its_curve_its_workers_and_its_cause() {
    let mut top = Top::new(way("edge-gw:7070"), run_of_three());
    for step in 1..=10 {
        let later = Status {
            uptime: Duration::from_secs(60 + step),
            version: Version(10 + 9 * step),
            loss: Some(0.5 - 0.02 * step as f64),
            ..run_of_three()
        };
        top.update(Ok(later));
    }
    assert_eq!(drawn(&top, 130, 18), include_str!("run.txt").trim_end());
}

#[test]
fn a_server_that_is_gone_is_said_to_be_and_the_rest_stays() {
    let mut top = Top::new(way("edge-gw:7070"), run_of_three());
    top.update(Err("cannot reach edge-gw:7070: refused; is a server running there?".into()));
    let screen = drawn(&top, 130, 18);
    assert!(screen.contains("cannot reach edge-gw:7070: refused"), "{screen}");
    assert!(screen.contains("edge-3"), "{screen}");
    top.update(Ok(run_of_three()));
    assert!(!drawn(&top, 130, 18).contains("cannot reach"));
}

#[test]
fn all_workers_in_trouble_are_named_not_only_the_first() {
    let silent = |worker, state| MemberStatus {
        state,
        silent: Duration::from_secs(3),
        ..member(worker, [10, 5, 0], None)
    };
    let lost = silent(0, MemberState::Lost);
    let members = vec![lost, silent(1, MemberState::Computing), member(2, [10, 5, 0], None)];
    let screen = drawn(&Top::new(way("edge-gw:7070"), status(members)), 130, 18);
    for words in ["worker 1 is lost: ", "edge-gw:7070 --id 1`", "worker 2 is silent: "] {
        assert!(screen.contains(words), "nothing of {words:?}:\n{screen}");
    }
}

#[test]
fn every_size_can_be_drawn() {
    let top = Top::new(way("edge-gw:7070"), run_of_three());
    for width in [1, 2, 7, 40, 300] {
        for height in [1, 2, 5, 9, 60] {
            drawn(&top, width, height);
        }
    }
}

#[test]
fn curves_are_bounded() {
    let mut top = Top::new(way("here"), run_of_three());
    (0..2 * MOST_POINTS).for_each(|_| top.update(Ok(run_of_three())));
    assert_eq!(top.losses.len(), MOST_POINTS);
    assert_eq!(top.rate, None, "no time has passed");
}

#[test]
fn q_escape_and_control_c_end_it() {
    assert!(ends(KeyCode::Char('q'), KeyModifiers::NONE));
    assert!(ends(KeyCode::Esc, KeyModifiers::NONE));
    assert!(ends(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(!ends(KeyCode::Char('c'), KeyModifiers::NONE));
}
