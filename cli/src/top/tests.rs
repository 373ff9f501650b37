use std::collections::VecDeque;
use std::time::Duration;

use pstrain_compute::id::{Version, WorkerId};
use pstrain_wire::{
    LatestEvaluation, LinkFigures, MemberState, MemberStatus, Moment, Phase, Status, TcpFigures,
    Wait, WaitReason,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::{GLANCE, MOST_POINTS, Top, draw, ends, until_next};
use crate::why::tests::{large, member, status, way};

fn drawn(top: &mut Top, width: u16, height: u16) -> String {
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
        top.update(later);
    }
    assert_eq!(drawn(&mut top, 130, 18), include_str!("run.txt").trim_end());
}

#[test]
fn a_server_that_is_gone_is_said_to_be_and_the_rest_stays() {
    let mut top = Top::new(way("edge-gw:7070"), run_of_three());
    top.missed(
        "cannot reach edge-gw:7070: refused; is a server running there?".into(),
        Duration::ZERO,
    );
    let screen = drawn(&mut top, 130, 18);
    assert!(screen.contains("cannot reach edge-gw:7070: refused"), "{screen}");
    assert!(screen.contains("edge-3"), "{screen}");
    top.update(run_of_three());
    assert!(!drawn(&mut top, 130, 18).contains("cannot reach"));
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
    let screen = drawn(&mut Top::new(way("edge-gw:7070"), status(members)), 130, 18);
    for words in
        ["worker 1 (edge-1) is lost: ", "edge-gw:7070 --id 1`", "worker 2 (edge-2) is silent: "]
    {
        assert!(screen.contains(words), "nothing of {words:?}:\n{screen}");
    }
}

#[test]
fn every_size_can_be_drawn() {
    let mut top = Top::new(way("edge-gw:7070"), run_of_three());
    for width in [1, 2, 7, 40, 300] {
        for height in [1, 2, 5, 9, 16, 60] {
            drawn(&mut top, width, height);
        }
    }
}

#[test]
fn curves_are_bounded() {
    let mut top = Top::new(way("here"), run_of_three());
    (0..2 * MOST_POINTS).for_each(|_| top.update(run_of_three()));
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

/// A run with `workers` workers and curves of 100 points.
fn long_run(workers: u32) -> Top {
    let mut top = Top::new(way("edge-gw:7070"), Status { wait: None, ..large(workers) });
    for step in 0..100_u32 {
        let loss = 0.9 - 0.005 * f64::from(step);
        let evaluated = LatestEvaluation {
            version: Version(9_999_999),
            loss,
            metrics: vec![("accuracy".into(), 1.0 - loss)],
        };
        top.update(Status {
            uptime: Duration::from_secs(200_000 + 60 * u64::from(step)),
            loss: Some(loss),
            evaluated: Some(evaluated),
            wait: None,
            ..large(workers)
        });
    }
    top
}

#[test]
fn all_sizes_of_terminals_and_runs_have_their_workers_counted() {
    for (width, height) in [(80, 24), (200, 60)] {
        for workers in [2, 24, 1000] {
            let mut top = long_run(workers);
            let screen = drawn(&mut top, width, height);
            let lines: Vec<&str> = screen.lines().collect();
            // Findings, which name workers too, come below the line that counts them.
            let end = lines.iter().position(|line| line.contains(" workers: ")).unwrap();
            let table = &lines[..end];
            let rows = table.iter().filter(|line| line.contains("north-")).count();
            let rows = rows.max(table.iter().filter(|line| line.contains(":41234")).count());
            let more = workers as usize - rows;
            assert_eq!(rows, top.page.min(workers as usize), "{screen}");
            assert!(rows >= (workers as usize).min(usize::from(height) / 8), "{screen}");
            if more > 0 {
                let more = crate::figures::count(more as u64);
                assert!(screen.contains(&format!("{more} more; ")), "{screen}");
            }
            let all = crate::figures::count(u64::from(workers));
            assert!(screen.contains(&format!("{all} workers: {all} waiting")), "{screen}");
            for words in ["up for 2d 07h", "0.9000", "0.4050", "10.00 %", "59.50 %", "q quits"] {
                assert!(screen.contains(words), "nothing of {words:?} in\n{screen}");
            }
            assert!(lines.len() == usize::from(height), "the last line has the keys:\n{screen}");
        }
    }
}

#[test]
fn the_curve_takes_the_lines_that_workers_do_not_need() {
    let lines = |workers, height| {
        let screen = drawn(&mut long_run(workers), 120, height);
        screen.lines().filter(|line| line.contains('│') || line.contains('┤')).count()
    };
    assert!(lines(24, 60) > lines(24, 24), "a high terminal");
    assert!(lines(2, 60) > 2 * lines(1000, 60), "few workers");
}

#[test]
fn keys_scroll_and_stop_at_the_ends() {
    let mut top = long_run(24);
    let first = |top: &mut Top| {
        let screen = drawn(top, 80, 24);
        let row = screen.lines().find(|line| line.contains(":41234")).unwrap().to_owned();
        row.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(first(&mut top), 1);
    let page = top.page;
    for (key, wanted) in [
        (KeyCode::Up, 1),
        (KeyCode::Down, 2),
        (KeyCode::Down, 3),
        (KeyCode::Up, 2),
        (KeyCode::PageDown, 2 + page),
        (KeyCode::PageUp, 2),
        (KeyCode::End, 25 - page),
        (KeyCode::Down, 25 - page),
        (KeyCode::Home, 1),
    ] {
        assert!(top.press(key));
        assert_eq!(first(&mut top), wanted, "after {key:?}");
    }
    assert!(!top.press(KeyCode::Char('x')));
    top.press(KeyCode::End);
    assert!(drawn(&mut top, 80, 24).contains(&format!("{} above", 24 - page)));
    // A larger terminal shows more of them, and leaves no line empty.
    drawn(&mut top, 200, 60);
    assert_eq!(top.first, 24_usize.saturating_sub(top.page));
}

#[test]
fn a_key_sorts_by_each_column_and_the_order_is_shown() {
    let mut top = Top::new(way("edge-gw:7070"), run_of_three());
    let first = |top: &mut Top| {
        let screen = drawn(top, 130, 24);
        let at = screen.lines().position(|line| line.starts_with("worker")).unwrap();
        screen.lines().nth(at + 1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    let mut seen = Vec::new();
    for _ in 0..12 {
        seen.push((top.sort.name(), first(&mut top)));
        let screen = drawn(&mut top, 80, 24);
        assert!(screen.contains(&format!("s sorts: {}, ", top.sort.name())), "{screen}");
        top.press(KeyCode::Char('s'));
    }
    assert_eq!(top.sort.name(), "worker", "it begins again");
    for (column, worker) in [("worker", "1"), ("since", "1"), ("network", "3"), ("rtt", "3")] {
        assert!(seen.contains(&(column, worker.to_owned())), "{column}: {seen:?}");
    }
    assert!(seen.contains(&("barrier", "1".to_owned())) && seen.contains(&("state", "1".into())));
    top.press(KeyCode::Char('r'));
    assert_eq!(first(&mut top), "3");
    assert!(drawn(&mut top, 80, 24).contains("s sorts: worker, last to first"));
}

#[test]
fn numbers_in_names_are_sorted_as_numbers() {
    let names = ["edge-10", "edge-2", "edge-9b", "edge", "10", "9"];
    let members = (0..).zip(names).map(|(worker, name)| MemberStatus {
        name: name.into(),
        ..member(worker, [1, 1, 1], None)
    });
    let mut top = Top::new(way("edge-gw:7070"), status(members.collect()));
    top.press(KeyCode::Char('s'));
    assert_eq!(top.sort.name(), "name");
    let screen = drawn(&mut top, 130, 24);
    let at = screen.lines().position(|line| line.starts_with("worker")).unwrap();
    let shown = screen.lines().skip(at + 1).take(names.len());
    let shown: Vec<_> = shown.map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(shown, ["9", "10", "edge", "edge-2", "edge-9b", "edge-10"], "{screen}");
}

#[test]
fn the_result_stays_when_the_run_has_ended() {
    let mut top = Top::new(way("edge-gw:7070"), run_of_three());
    let quality = "accuracy 90.00 %, loss 0.4000 at update 10; loss 0.5000 now";
    let progress = "10 updates, 640 of 64,000 samples, epoch 0.10, 1m";
    assert_eq!(top.result(), [format!("night run: {quality}"), format!("training: {progress}")]);
    let second = Duration::from_secs(1);
    assert!(!top.is_over());
    let gone = || String::from("cannot reach edge-gw:7070: refused");
    top.missed(gone(), second);
    assert!(!top.is_over(), "it may come back");
    assert!(top.result()[1].starts_with("the server is gone; as it answered last: 10 updates"));
    top.missed(gone(), top.status.lease);
    assert!(top.is_over() && !top.has_ended(), "it does not come back");
    assert!(top.result()[1].starts_with("the server is gone; as it answered last: 10 updates"));
    // Since it answered it can have reached its end.
    let nearly = Status {
        uptime: Duration::from_secs(61),
        samples: 60_000,
        evaluated: None,
        loss: None,
        ..run_of_three()
    };
    top.update(nearly.clone());
    assert!(!top.is_over(), "it answers");
    top.missed(gone(), second);
    assert!(top.is_over(), "{:?}", top.rate);
    for phase in [Phase::Draining, Phase::Ending] {
        top.update(Status { phase, ..nearly.clone() });
        assert!(!top.is_over(), "it answers");
        top.missed(gone(), Duration::ZERO);
        assert!(top.is_over());
    }
    let [quality, progress] = top.result();
    assert_eq!(quality, "night run: not evaluated yet");
    assert!(progress.starts_with("the run is over: 10 updates"), "{progress}");
}

#[test]
fn requests_come_closer_to_each_other_towards_the_end() {
    let at = |seconds, samples| Status {
        uptime: Duration::from_secs(seconds),
        samples,
        samples_wanted: 1000,
        ..run_of_three()
    };
    assert_eq!(until_next(None, &at(1, 10)), Duration::MAX);
    assert_eq!(until_next(Some(&at(1, 0)), &at(2, 200)), Duration::from_secs(1));
    assert_eq!(until_next(Some(&at(1, 0)), &at(2, 999)), GLANCE);
    assert_eq!(until_next(Some(&at(1, 999)), &at(2, 1000)), GLANCE);
    assert_eq!(until_next(Some(&at(1, 200)), &at(2, 200)), Duration::MAX, "it stands still");
}

#[test]
fn the_curves_begin_with_the_history_of_the_run() {
    let moment = |step: u64| Moment {
        at: Duration::from_secs(step),
        loss: Some(1.0 / step as f64),
        metric: (step > 1).then_some(0.1 * step as f64),
    };
    let status = Status { history: (1..=5).map(moment).collect(), ..run_of_three() };
    let top = Top::new(way("edge-gw:7070"), status);
    let times = |curve: &VecDeque<(f64, f64)>| curve.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(times(&top.losses)[..5], [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(times(&top.metrics)[..4], [2.0, 3.0, 4.0, 5.0]);
    assert!(times(&top.losses).is_sorted() && top.losses.len() == 6, "{:?}", top.losses);
}
