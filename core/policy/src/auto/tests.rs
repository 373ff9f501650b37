//! Tests of the controller with workers of known speed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;

/// A worker that computes for `compute` and waits `trip` for an answer; its link carries at most
/// one gradient per `transfer`.
#[derive(Clone, Copy)]
struct Link {
    compute: f64,
    trip: f64,
    transfer: f64,
}

/// A controller and its workers.
struct Bench {
    auto: Auto,
    looks: Snapshots,
    mode: Mode,
    links: Vec<Link>,
    clocks: Vec<f64>,
    chosen: Vec<Choice>,
    pushes: u64,
}

impl Bench {
    fn new(links: &[Link]) -> Self {
        Self {
            auto: Auto::new(2084),
            looks: Snapshots::default(),
            mode: Auto::first(true),
            links: links.to_vec(),
            clocks: alloc::vec![0.0; links.len()],
            chosen: Vec::new(),
            pushes: 0,
        }
    }

    /// Simulates the next `pushes` in order of arrival, with the loss that `loss` returns for the
    /// time.
    fn go(&mut self, pushes: usize, loss: impl Fn(f64) -> f64) {
        self.go_along(pushes, loss, |push| push as f32);
    }

    /// The same with a single parameter, which `course` returns for the number of the push.
    fn go_along(&mut self, pushes: usize, loss: impl Fn(f64) -> f64, course: impl Fn(u64) -> f32) {
        for _ in 0..pushes {
            let (place, _) =
                self.clocks.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            let (worker, link) = (WorkerId(place as u32), self.links[place]);
            let window = f64::from(self.auto.window(worker));
            // A window of w yields w gradients per round trip, unless computation or link is
            // saturated.
            let period = ((link.compute + link.trip) / window).max(link.compute).max(link.transfer);
            self.clocks[place] += period;
            let now = self.clocks[place];
            let seen = Seen {
                worker,
                now: Time::ZERO + Duration::from_secs_f64(now),
                given: Time::ZERO + Duration::from_secs_f64((now - window * period).max(0.0)),
                compute: Duration::from_secs_f64(link.compute),
                loss: loss(now) as f32,
                rows: 100,
                version: Version(self.pushes),
            };
            let parameters = Arc::new(alloc::vec![course(self.pushes)]);
            self.pushes += 1;
            let mut choice = self.auto.pushed(&self.mode, seen);
            if let Some(Choice::Look(look)) = choice {
                let sums = self.looks.look(look, &parameters, parameters.len()).unwrap_or_default();
                choice = self.auto.looked(&self.mode, &sums);
            }
            if let Some(choice) = choice {
                if let Choice::Mode { mode, .. } = &choice {
                    self.mode = *mode;
                }
                self.chosen.push(choice);
            }
        }
    }

    /// The chosen modes.
    fn modes(&self) -> Vec<Mode> {
        let modes = self.chosen.iter().filter_map(|choice| match choice {
            Choice::Mode { mode, .. } => Some(*mode),
            Choice::Window { .. } | Choice::Look(_) => None,
        });
        modes.collect()
    }

    fn windows(&self) -> Vec<u32> {
        (0..self.links.len() as u32).map(|worker| self.auto.window(WorkerId(worker))).collect()
    }
}

fn link(compute: f64, trip: f64) -> Link {
    Link { compute, trip, transfer: 0.0 }
}

#[test]
fn each_worker_gets_as_many_as_keep_it_busy() {
    let mut bench = Bench::new(&[link(4.5, 1.0), link(4.5, 100.0), link(18.0, 20.0)]);
    bench.go(2000, |_| 0.5);
    let windows = bench.windows();
    assert_eq!(windows[0], 2, "{windows:?}");
    assert!((21..=25).contains(&windows[1]), "{windows:?}");
    assert!((2..=3).contains(&windows[2]), "{windows:?}");
    // The first gradient of each worker shows which window it needs.
    let windows = bench.chosen.iter().filter(|choice| matches!(choice, Choice::Window { .. }));
    assert_eq!(windows.count(), 3, "{:?}", bench.chosen);
}

#[test]
fn windows_of_long_gradients_are_bounded_by_their_bytes() {
    let mut bench = Bench::new(&[link(4.5, 1000.0)]);
    bench.auto = Auto::new(1024 * 1024);
    bench.go(500, |_| 0.5);
    assert_eq!(bench.windows(), [8], "32 MiB of 4 MiB each");
}

#[test]
fn workers_with_data_of_their_own_count_by_their_shares_from_their_first_gradient() {
    assert_eq!(Auto::first(true).participation, ParticipationSpec::Share);
    assert_eq!(Auto::first(false).participation, ParticipationSpec::Plain);
    let mut bench = Bench::new(&[link(4.5, 1.0), link(4.5, 100.0)]);
    bench.go(3000, |_| 0.5);
    // A change of mode would be a barrier, at which all workers wait for the slowest.
    assert!(bench.modes().is_empty(), "{:?}", bench.chosen);
}

#[test]
fn a_version_that_diverges_is_gone_back_from_with_smaller_windows_until_nothing_is_left_to_cut() {
    // In step the others would wait for the last.
    let mut bench = Bench::new(&[link(4.5, 20.0), link(4.5, 20.0), link(120.0, 20.0)]);
    assert_eq!(
        bench.auto.diverged(&bench.mode, Version(1)),
        None,
        "there is nothing to go back to"
    );
    bench.go(60, |_| 1.0);
    bench.go(200, |_| 0.5);
    let (before, kept) = (bench.auto.widest(), bench.auto.course.good().unwrap());
    assert_eq!(bench.auto.diverged(&bench.mode, kept), None, "what is kept has diverged itself");
    let choice = bench.auto.diverged(&bench.mode, Version(200));
    let Some(Choice::Mode { restore, mode, .. }) = choice else { panic!("{choice:?}") };
    assert_eq!((restore, mode.in_flight), (Some(kept), Some(before / 2)));
    bench.mode = mode;
    let mut times = 1;
    while let Some(Choice::Mode { mode, .. }) = bench.auto.diverged(&bench.mode, Version(200)) {
        bench.mode = mode;
        times += 1;
    }
    assert!((3..=DIVERGENCES).contains(&times), "{times} times, then {}", bench.mode);
}

#[test]
fn the_windows_of_all_workers_grow_at_once() {
    let mut bench = Bench::new(&[link(4.5, 100.0); 8]);
    bench.go(100, |_| 0.5);
    let windows = bench.windows();
    assert!(windows.iter().all(|window| *window >= 20), "{windows:?}");
}

#[test]
fn a_loss_that_stays_above_that_before_it_went_back_is_not_gone_back_from() {
    let mut bench = Bench::new(&[link(4.5, 20.0), link(4.5, 20.0)]);
    bench.go(4, |_| 1.6);
    bench.go(2000, |_| 0.2);
    while bench.modes().is_empty() {
        bench.go(1, |_| 2.0);
    }
    bench.go(5000, |_| 0.5);
    assert_eq!(bench.modes().len(), 1, "{:?}", bench.chosen);
}

#[test]
fn a_worker_that_comes_late_does_not_hide_that_the_loss_has_climbed() {
    let mut climb = Climb { first: Some(1.6), lowest: Some(1.6), ..Climb::default() };
    let (worker, now, given) = (WorkerId(1), Time::ZERO, Time::ZERO);
    let compute = Duration::from_millis(5);
    let seen = Seen { worker, now, given, compute, loss: 1.6, rows: 100, version: Version(0) };
    climb.joined(100, &seen);
    assert!(climb.climbs(Some(3.3), 1.0), "{climb:?}");
}

#[test]
fn more_under_way_than_a_full_link_carries_is_taken_back() {
    // The link takes 40 ms per gradient; more than three under way only queue.
    let full = Link { compute: 5.0, trip: 100.0, transfer: 40.0 };
    let mut bench = Bench::new(&[full]);
    bench.go(400, |_| 0.5);
    assert!(bench.windows()[0] <= 4, "{:?}", bench.chosen);
}

#[test]
fn a_link_that_degrades_gets_more_and_a_new_worker_begins_with_one() {
    let mut bench = Bench::new(&[link(4.5, 1.0), link(4.5, 1.0)]);
    bench.go(1000, |_| 0.5);
    assert_eq!(bench.windows(), [2, 2]);
    bench.links[1].trip = 100.0;
    bench.go(3000, |_| 0.5);
    assert!(bench.windows()[1] >= 21, "{:?}", bench.windows());
    bench.auto.left(WorkerId(1));
    assert_eq!(bench.windows()[1], 1);
}

#[test]
fn a_climbing_loss_halves_the_windows_and_ends_in_step() {
    let mut bench = Bench::new(&[link(4.5, 100.0), link(4.5, 100.0)]);
    bench.go(4, |_| 2.0);
    bench.go(3000, |_| 0.5);
    let before = bench.windows();
    let begin = bench.clocks[0];
    bench.go(30_000, |now| 0.5 * libm::exp((now - begin) / 500.0));
    assert_eq!(bench.mode.consistency, ConsistencySpec::Bsp, "{:?}", bench.chosen);
    let cuts: Vec<u32> = bench
        .chosen
        .iter()
        .filter_map(|choice| match choice {
            Choice::Mode { mode, .. } => mode.in_flight.filter(|in_flight| *in_flight < before[0]),
            Choice::Window { .. } | Choice::Look(_) => None,
        })
        .collect();
    assert!(cuts.starts_with(&[before[0] / 2, before[0] / 4]), "{cuts:?} from {before:?}");
    assert!(cuts.is_sorted_by(|a, b| a >= b), "{cuts:?} from {before:?}");
}

#[test]
fn a_loss_that_climbs_at_once_after_a_restore_has_the_first_as_its_minimum() {
    let mut bench = Bench::new(&[link(4.5, 20.0), link(4.5, 20.0), link(40.0, 20.0)]);
    bench.go(60, |_| 1.6);
    while bench.modes().is_empty() {
        bench.go(1, |_| 4.0);
    }
    // Each restore leads to a run that has diverged when the slow worker's loss comes.
    bench.go(2000, |_| 4.0);
    assert_eq!(bench.mode.consistency, ConsistencySpec::Bsp, "{:?}", bench.chosen);
}

#[test]
fn a_loss_that_climbs_again_after_windows_of_one_have_grown_ends_in_step() {
    let mut bench = Bench::new(&[link(4.5, 20.0), link(4.5, 20.0), link(120.0, 20.0)]);
    bench.go(60, |_| 1.6);
    while bench.mode.in_flight != Some(1) || bench.modes().is_empty() {
        bench.go(1, |_| 4.0);
    }
    assert_eq!(bench.mode.consistency, ConsistencySpec::Asp, "{:?}", bench.chosen);
    while bench.auto.widest() == 1 {
        bench.go(1, |_| 0.4);
    }
    let cuts = bench.modes().len();
    while bench.modes().len() == cuts {
        bench.go(1, |_| 4.0);
    }
    assert_eq!(bench.mode.consistency, ConsistencySpec::Bsp, "{:?}", bench.chosen);
}

#[test]
fn parameters_are_kept_once_the_loss_has_fallen_or_they_have_lasted() {
    for (loss, pushes, is_kept) in [(1.5, 200, false), (1.5, 2000, true), (1.0, 200, true)] {
        let mut bench = Bench::new(&[link(4.5, 20.0), link(4.5, 20.0)]);
        bench.go(4, |_| 1.6);
        let first = bench.auto.course.good();
        bench.go(pushes, |_| loss);
        assert_eq!(bench.auto.course.good() != first, is_kept, "{loss} {pushes}");
    }
}

#[test]
fn workers_of_one_speed_step_together_instead_of_one_by_one() {
    for (slowest, consistency) in [(4.5, ConsistencySpec::Bsp), (40.0, ConsistencySpec::Asp)] {
        let mut bench = Bench::new(&[link(4.5, 2.0), link(4.5, 2.0), link(slowest, 2.0)]);
        bench.go(100, |_| 1.6);
        while bench.modes().is_empty() {
            bench.go(1, |_| 4.0);
        }
        assert_eq!(bench.mode.consistency, consistency, "{:?}", bench.chosen);
    }
}

#[test]
fn a_loss_that_only_scatters_changes_nothing() {
    let mut bench = Bench::new(&[link(4.5, 1.0), link(4.5, 20.0)]);
    bench.go(20_000, |now| 0.2 + 0.03 * libm::sin(now * 7.0));
    let in_step = bench.chosen.iter().any(|choice| {
        matches!(choice, Choice::Mode { mode, .. } if mode.consistency == ConsistencySpec::Bsp)
    });
    assert!(!in_step && bench.windows()[1] >= 5, "{:?}", bench.chosen);
}

#[test]
fn parameters_that_swing_halve_the_windows_where_the_loss_is_up() {
    for (loss, is_up) in [(0.5, false), (0.65, true)] {
        let mut bench = Bench::new(&[link(4.5, 100.0), link(4.5, 100.0)]);
        bench.go(3000, |_| 0.5);
        let (begin, chosen, widest) = (bench.pushes, bench.chosen.len(), bench.auto.widest());
        // Each look is half a period after the previous one.
        let half = Trajectory::spacing(bench.auto.under_way, true);
        let swings = |push: u64| if ((push - begin) / half).is_multiple_of(2) { 1.0 } else { -1.0 };
        bench.go_along(6 * half as usize, |_| loss, swings);
        let why = bench.chosen[chosen..].iter().find_map(|choice| match choice {
            Choice::Mode { mode, restore: None, why } if mode.in_flight == Some(widest / 2) => {
                Some(why)
            }
            _ => None,
        });
        assert_eq!(why.is_some_and(|why| why.contains("swing")), is_up, "{:?}", bench.chosen);
    }
}

#[test]
fn a_loss_that_climbs_brings_back_parameters_from_before() {
    let mut bench = Bench::new(&[link(4.5, 20.0), link(4.5, 20.0)]);
    bench.go(2000, |_| 0.5);
    let begin = bench.pushes;
    bench.go(300, |_| 2.0);
    let restored = bench.chosen.iter().find_map(|choice| match choice {
        Choice::Mode { restore: Some(version), .. } => Some(version),
        _ => None,
    });
    let version = *restored.expect("the loss climbed");
    // At most three looks and one that was not due yet.
    let spacing = Trajectory::spacing(2 * 6, true);
    assert!(version.0 < begin && version.0 + 4 * spacing > begin, "{version} {begin}");
    let kept = bench.looks.good().expect("it was looked at");
    assert_eq!(*kept.parameters, [kept.version.0 as f32]);
    assert_eq!(kept.version, bench.auto.course.good().expect("it is known"));
}
