//! Tests of the aggregator: each rule against the case it reduces to, and against its definition
//! computed in double precision.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::consistency::ConsistencySpec;
use crate::rules::{ParticipationSpec, StalenessSpec};
use pstrain_compute::optim::OptimizerSpec;

mod merging;
mod state;

const UPDATE: UpdateSpec = UpdateSpec::sgd(1.0);

const WORKERS: u32 = 5;

const MALENIA: ConsistencySpec = ConsistencySpec::Malenia { gradients: 5 };

const RULES: [StalenessSpec; 11] = [
    StalenessSpec::Plain,
    StalenessSpec::Inverse,
    StalenessSpec::InversePlusOne,
    StalenessSpec::POLYNOMIAL,
    StalenessSpec::HINGE,
    StalenessSpec::DynSgd,
    StalenessSpec::MIXING,
    StalenessSpec::MIXING_HINGE,
    StalenessSpec::DELAY,
    StalenessSpec::DELAY_ADAPTIVE,
    StalenessSpec::GapAware,
];

/// A gradient with one or two values.
#[derive(Clone, Debug)]
struct Given {
    worker: u32,
    clock: u64,
    samples: u32,
    size: u32,
    staleness: u64,
    base: Option<Vec<f32>>,
    values: Vec<f32>,
}

impl Given {
    /// The same gradient with all values 0.
    fn bare(&self) -> Self {
        Self { values: vec![0.0; self.values.len()], ..self.clone() }
    }

    fn gradient(&self) -> Gradient<'_> {
        Gradient {
            worker: WorkerId(self.worker),
            part: PartId(self.worker),
            clock: Clock(self.clock),
            samples: self.samples,
            size: self.size,
            staleness: self.staleness,
            base: self.base.as_deref(),
            keys: None,
            values: &self.values,
        }
    }
}

fn given(worker: u32, clock: u64, values: &[f32]) -> Given {
    Given { worker, clock, samples: 1, size: 0, staleness: 0, base: None, values: values.to_vec() }
}

/// An aggregator with the parameters that it updates, one that does the same block by block, and
/// one that receives the first one's combined gradient where that suffices.
#[derive(Debug)]
struct Run {
    aggregator: Aggregator,
    blockwise: Aggregator,
    told: Aggregator,
    parameters: Vec<f32>,
    version: Version,
}

impl Run {
    fn new(mode: &Mode, parameters: &[f32]) -> Self {
        Self::with(Aggregation::Mean, &UPDATE, mode, parameters)
    }

    fn with(
        aggregation: Aggregation,
        update: &UpdateSpec,
        mode: &Mode,
        parameters: &[f32],
    ) -> Self {
        mode.validate().unwrap();
        let new = || Aggregator::new(aggregation, update, mode, WORKERS, parameters.len()).unwrap();
        let parameters = parameters.to_vec();
        Self { aggregator: new(), blockwise: new(), told: new(), parameters, version: Version(0) }
    }

    fn rows(mut self, rows: &[u64]) -> Self {
        for (worker, rows) in (0..).zip(rows) {
            self.aggregator.set_rows(WorkerId(worker), *rows);
            self.blockwise.set_rows(WorkerId(worker), *rows);
            self.told.set_rows(WorkerId(worker), *rows);
        }
        self
    }

    fn set_mode(&mut self, mode: &Mode) {
        self.aggregator.set_mode(mode);
        self.blockwise.set_mode(mode);
        self.told.set_mode(mode);
    }

    fn update(&mut self, gradients: &[Given]) {
        self.close(gradients, Closing::Everything);
    }

    fn close(&mut self, gradients: &[Given], closing: Closing) {
        let bare: Vec<Given> = gradients.iter().map(Given::bare).collect();
        let gradients = gradients.iter().map(Given::gradient);
        let before = Arc::new(self.parameters.clone());
        self.aggregator.combine(gradients.clone(), &self.parameters, closing);
        let mut as_told = self.parameters.clone();
        if self.told.needs_only_combined() {
            self.told.note(bare.iter().map(Given::gradient), &self.parameters, closing);
            self.told.give(self.aggregator.combined());
        } else {
            self.told.combine(gradients.clone(), &self.parameters, closing);
        }
        self.told.apply(&mut as_told, self.version);
        self.aggregator.apply(&mut self.parameters, self.version);
        let mut after = before.clone();
        // In every other update the parameters are unshared.
        let _other = self.version.0.is_multiple_of(2).then_some(before);
        self.blockwise.update(gradients, &mut after, closing, self.version);
        assert_eq!(bits(&after), self.bits(), "block by block");
        assert_eq!(bits(&as_told), self.bits(), "as it was told");
        assert_eq!(format!("{:?}", self.told), format!("{:?}", self.aggregator));
        assert_eq!(self.blockwise.memory_bytes(), self.aggregator.memory_bytes());
        self.version = self.version.next();
    }

    fn bits(&self) -> Vec<u32> {
        bits(&self.parameters)
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn staleness(staleness: StalenessSpec) -> Mode {
    Mode { staleness, ..Mode::default() }
}

fn participation(participation: ParticipationSpec) -> Mode {
    Mode { participation, ..Mode::default() }
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference <= tolerance * expected.abs().max(1.0), "{found}, not {expected}");
    }
}

proptest! {
    /// Mini-batches of different sizes.
    #[test]
    fn a_sum_of_sized_mini_batches_is_so_many_times_their_mean(
        gradients in prop::collection::vec((1_u32..100, -9_i8..9), 1..5),
        equal: bool,
    ) {
        let size = |size: u32| if equal { 12 } else { size };
        let sized = |(worker, (own, value)): (u32, &(u32, i8))| Given {
            samples: size(*own),
            size: size(*own),
            ..given(worker, 0, &[f32::from(*value)])
        };
        let sized: Vec<Given> = (0..).zip(&gradients).map(sized).collect();
        let update = |aggregation, gradients: &[Given]| {
            let mut run = Run::with(aggregation, &UPDATE, &Mode::default(), &[0.0]);
            run.update(gradients);
            run
        };
        let mean = update(Aggregation::Mean, &sized);
        // Over the union of the mini-batches.
        let all: f64 = sized.iter().map(|given| f64::from(given.samples)).sum();
        let sum = |given: &Given| f64::from(given.values[0]) * f64::from(given.samples);
        assert_close(&mean.parameters, &[-sized.iter().map(sum).sum::<f64>() / all], 1e-5);
        let sum = update(Aggregation::Sum, &sized);
        let times = f64::from(mean.parameters[0]) * sized.len() as f64;
        assert_close(&sum.parameters, &[times], 1e-5);
        if equal {
            let plain: Vec<Given> =
                sized.iter().map(|given| Given { size: 0, ..given.clone() }).collect();
            prop_assert_eq!(sum.bits(), update(Aggregation::Sum, &plain).bits());
        }
    }
}

#[test]
fn means_weigh_by_examples_and_sums_do_not() {
    let gradients = [
        Given { samples: 3, ..given(0, 0, &[4.0, 0.0]) },
        Given { samples: 1, ..given(1, 0, &[0.0, 16.0]) },
    ];
    for (aggregation, expected) in
        [(Aggregation::Mean, [-3.0, -4.0]), (Aggregation::Sum, [-4.0, -16.0])]
    {
        let mut run = Run::with(aggregation, &UPDATE, &Mode::default(), &[0.0; 2]);
        run.update(&gradients);
        assert_eq!(run.parameters, expected, "{aggregation}");
    }
}

#[test]
fn each_update_is_made_of_its_own_gradients_only() {
    let mut run = Run::new(&Mode::default(), &[1.0, 1.0]);
    run.update(&[given(0, 0, &[8.0, 8.0]), given(1, 0, &[1.0, 1.0])]);
    run.parameters = vec![1.0, 1.0];
    run.update(&[given(0, 1, &[3.0, 4.0])]);
    assert_eq!(run.parameters, [-2.0, -3.0]);
}

#[test]
fn fresh_gradients_make_plain_steps_to_the_bit_under_every_rule() {
    let momentum = UpdateSpec { optimizer: OptimizerSpec::MOMENTUM, ..UPDATE };
    let start = [0.3_f32, -1.7, 2.9];
    let mut plain = Run::with(Aggregation::Mean, &momentum, &Mode::default(), &start);
    let mut runs =
        RULES.map(|rule| Run::with(Aggregation::Mean, &momentum, &staleness(rule), &start));
    for step in 0_u16..40 {
        // A lone worker: its gradients are always fresh.
        let values: Vec<f32> =
            (1_u16..4).map(|key| libm::sinf(f32::from(step * key) * 0.7 + 0.1)).collect();
        plain.update(&[given(0, step.into(), &values)]);
        for run in &mut runs {
            let base = Some(run.parameters.clone());
            run.update(&[Given { base, ..given(0, step.into(), &values) }]);
            assert_eq!(run.bits(), plain.bits(), "{:?}", run.aggregator.settings.mode);
        }
    }
}

#[test]
fn factors_scale_each_gradient_of_a_round() {
    let mut run = Run::new(&staleness(StalenessSpec::InversePlusOne), &[0.0]);
    run.update(&[given(0, 0, &[2.0]), Given { staleness: 3, ..given(1, 0, &[8.0]) }]);
    assert_eq!(run.parameters, [-(2.0 / 2.0 + 8.0 / 4.0 / 2.0)]);
}

#[test]
fn compensation_without_lambda_is_none_to_the_bit() {
    for rule in [
        StalenessSpec::Delay { lambda: 0.0 },
        StalenessSpec::DelayAdaptive { lambda: 0.0, memory: 0.9 },
    ] {
        let (mut run, mut plain) =
            (Run::new(&staleness(rule), &[0.1]), Run::new(&Mode::default(), &[0.1]));
        for value in [0.3_f32, -0.7, 1e-20, 12.5] {
            let base = Some(vec![5.0]);
            run.update(&[Given { staleness: 4, base, ..given(0, 0, &[value]) }]);
            plain.update(&[given(0, 0, &[value])]);
            assert_eq!(run.bits(), plain.bits(), "{rule}");
        }
    }
}

#[test]
fn compensation_on_a_parabola_makes_a_stale_gradient_fresh() {
    // The gradient of h x^2 / 2 is h x; with lambda g^2 = h the term is the second derivative's.
    let (h, then, now) = (0.5_f32, 2.0_f32, 1.25_f32);
    let g = h * then;
    let rule = StalenessSpec::Delay { lambda: f64::from(h / (g * g)) };
    let mut run = Run::new(&staleness(rule), &[now]);
    run.update(&[Given { staleness: 1, base: Some(vec![then]), ..given(0, 0, &[g]) }]);
    assert_close(&run.parameters, &[f64::from(now - h * now)], 1e-6);
}

#[test]
fn adaptive_compensation_divides_by_the_root_of_the_mean_square() {
    let rule = StalenessSpec::DelayAdaptive { lambda: 0.1, memory: 0.5 };
    let mut run = Run::new(&staleness(rule), &[1.0]);
    run.update(&[Given { staleness: 1, base: Some(vec![0.5]), ..given(0, 0, &[2.0]) }]);
    let first = 2.0 + 0.1 / (2.0_f64 + 1e-7).sqrt() * 4.0 * 0.5;
    assert_close(&run.parameters, &[1.0 - first], 1e-6);
    run.parameters = vec![1.0];
    run.update(&[Given { staleness: 1, base: Some(vec![0.5]), ..given(0, 1, &[1.0]) }]);
    let second = 1.0 + 0.1 / (0.5 * 2.0 + 0.5_f64 + 1e-7).sqrt() * 0.5;
    assert_close(&run.parameters, &[1.0 - second], 1e-6);
}

#[test]
fn mixing_goes_part_of_the_way_to_the_model_that_a_worker_trained() {
    // The worker was sent 5, trained a model of 3, and sends 5 - 3. Meanwhile another brought the
    // parameters to 1.
    let (now, then, model) = (1.0_f32, 5.0_f32, 3.0_f32);
    let update = UpdateSpec { learning_rate: 0.5, ..UPDATE };
    for (rule, factor) in [("mixing:0", 1.0), ("mixing:1", 0.25), ("mixing-hinge:2,1", 0.2)] {
        let mode = staleness(rule.parse().unwrap());
        let mut run = Run::with(Aggregation::Mean, &update, &mode, &[now]);
        run.update(&[Given {
            staleness: 3,
            base: Some(vec![then]),
            ..given(0, 0, &[then - model])
        }]);
        let part = 0.5 * factor;
        assert_eq!(run.parameters, [(1.0 - part) * now + part * model], "{rule}");
    }
}

#[test]
fn a_gap_of_a_usual_step_halves_a_gradient() {
    let update = UpdateSpec { learning_rate: 0.5, ..UPDATE };
    let mode = staleness(StalenessSpec::GapAware);
    let mut run = Run::with(Aggregation::Mean, &update, &mode, &[0.0, 0.0]);
    // Steps of 3 and 1 in units of the rate, so that the means of their squares are 9 and 1.
    for clock in 0..5 {
        let base = Some(run.parameters.clone());
        run.update(&[Given { base, ..given(0, clock, &[3.0, 1.0]) }]);
    }
    let now = run.parameters.clone();
    // One parameter has moved by a usual step since, the other by three.
    let base = vec![now[0] + 1.5, now[1] - 1.5];
    run.update(&[Given { staleness: 7, base: Some(base), ..given(1, 0, &[4.0, 4.0]) }]);
    let expected = [f64::from(now[0]) - 0.5 * 4.0 / 2.0, f64::from(now[1]) - 0.5 * 4.0 / 4.0];
    assert_close(&run.parameters, &expected, 1e-4);
}

#[test]
fn an_incremental_step_is_the_mean_of_the_latest_gradients_by_rows() {
    let mode = participation(ParticipationSpec::Incremental);
    let mut run = Run::new(&mode, &[0.0]).rows(&[1, 3]);
    run.update(&[given(0, 0, &[8.0])]); // no other worker is known yet
    assert_eq!(run.parameters, [-8.0]);
    run.update(&[given(1, 0, &[4.0])]);
    assert_eq!(run.parameters, [-8.0 - (8.0 + 3.0 * 4.0) / 4.0]);
    run.update(&[given(1, 1, &[-4.0])]);
    assert_eq!(run.parameters, [-13.0 - (8.0 - 3.0 * 4.0) / 4.0]);
    assert_eq!(run.aggregator.memory_bytes(), 2 * 4 + 8);
}

#[test]
fn the_latest_gradient_of_a_worker_that_has_left_is_forgotten() {
    let mode = participation(ParticipationSpec::Incremental);
    let mut run = Run::new(&mode, &[0.0]);
    let mut clock = 0;
    let mut turn = |run: &mut Run, worker| {
        clock += 1;
        run.update(&[given(worker, clock, &[if worker == 0 { 1024.0 } else { 1.0 }])]);
    };
    for worker in [0, 1, 2].repeat(10) {
        turn(&mut run, worker);
    }
    let mut step = 0.0;
    for worker in [1, 2].repeat(100) {
        let before = run.parameters[0];
        turn(&mut run, worker);
        step = before - run.parameters[0];
    }
    assert_eq!(step, 1.0, "of the two that are left");
    let before = run.parameters[0];
    turn(&mut run, 0);
    assert_eq!(before - run.parameters[0], 342.0, "of all three");
}

#[test]
fn workers_count_by_their_rows_with_the_mean_of_their_gradients() {
    // Rows 1 and 3: a quarter of the first's mean of 2 and 4, three quarters of the second's 8.
    let round = [
        Given { samples: 3, ..given(0, 0, &[2.0]) },
        Given { samples: 1, ..given(0, 1, &[6.0]) },
        Given { samples: 2, ..given(1, 0, &[8.0]) },
    ];
    for (aggregation, times) in [(Aggregation::Mean, 1.0), (Aggregation::Sum, 2.0)] {
        let mut run = Run::with(aggregation, &UPDATE, &Mode::of(MALENIA), &[0.0]).rows(&[1, 3]);
        run.update(&round);
        assert_eq!(run.parameters, [-times * (3.0 / 4.0 + 8.0 * 3.0 / 4.0)]);
    }
}

#[test]
fn a_table_begins_anew_with_each_whole_round_and_averages_what_comes_between() {
    let mut run = Run::new(&Mode::of(ConsistencySpec::Ringleader), &[0.0]).rows(&[1, 3]);
    run.update(&[given(0, 0, &[4.0]), given(1, 0, &[8.0])]);
    assert_eq!(run.parameters, [-7.0]);
    run.close(&[Given { samples: 3, ..given(0, 1, &[16.0]) }], Closing::Latest);
    assert_eq!(run.parameters, [-7.0 - (13.0 + 3.0 * 8.0) / 4.0]);
    run.parameters = vec![0.0];
    run.update(&[given(0, 2, &[1.0]), given(1, 1, &[1.0])]);
    assert_eq!(run.parameters, [-1.0], "of the new table alone");
}

#[test]
fn a_change_of_mode_forgets_tables_and_keeps_momentum_and_shares() {
    let momentum = UpdateSpec { optimizer: OptimizerSpec::MOMENTUM, ..UPDATE };
    let mode = participation(ParticipationSpec::Incremental);
    let mut run = Run::with(Aggregation::Mean, &momentum, &mode, &[0.0]);
    for clock in 0..8 {
        for worker in [0, 0, 0, 1] {
            run.update(&[given(worker, clock, &[0.0])]);
        }
    }
    run.update(&[given(0, 9, &[1.0])]);
    assert!(run.aggregator.memory_bytes() > 0);
    run.set_mode(&participation(ParticipationSpec::Share));
    assert_eq!(run.aggregator.memory_bytes(), 0);
    let before = run.parameters[0];
    run.update(&[given(1, 9, &[1.0])]);
    // Half the data and a fourth of the gradients: about 2; and the momentum of the half before.
    let step = before - run.parameters[0];
    assert!((2.2..2.8).contains(&step), "{step}");
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let mode = Mode {
        staleness: StalenessSpec::DynSgd,
        participation: ParticipationSpec::Incremental,
        ..Mode::default()
    };
    assert!(mode.validate().unwrap_err().to_string().contains("choose one of them"));
    for (staleness, participation) in [
        (StalenessSpec::DynSgd, ParticipationSpec::Plain),
        (StalenessSpec::Plain, ParticipationSpec::Share),
        (StalenessSpec::Inverse, ParticipationSpec::Incremental),
    ] {
        for consistency in [MALENIA, ConsistencySpec::Ringleader] {
            let mode = Mode { staleness, participation, ..Mode::of(consistency) };
            assert!(mode.validate().unwrap_err().to_string().contains("weighs workers"));
        }
    }
    for in_flight in [0, 257] {
        let mode = Mode { in_flight: Some(in_flight), ..Mode::default() };
        assert!(mode.validate().unwrap_err().to_string().contains("must be 1 to 256"));
    }
    let mode = staleness(StalenessSpec::Delay { lambda: f64::NAN });
    assert!(mode.validate().unwrap_err().to_string().contains("staleness = dc:NaN"));
}

/// Gradients of a few workers, each with its clocks in order.
fn arrivals() -> impl Strategy<Value = Vec<Given>> {
    let one = (0..WORKERS, 1..100_u32, prop::array::uniform2(-10.0_f32..10.0));
    prop::collection::vec(one, 1..80).prop_map(|arrivals| {
        let mut clocks = [0; 5];
        let next = arrivals.into_iter().map(|(worker, samples, values)| {
            let clock = clocks[worker as usize];
            clocks[worker as usize] += 1;
            Given { samples, ..given(worker, clock, &values) }
        });
        next.collect()
    })
}

proptest! {
    #[test]
    fn dynsgd_has_moved_by_the_mean_of_what_came_of_each_iteration(
        arrivals in arrivals(),
        per_update in 1..4_usize,
    ) {
        let mut run = Run::new(&staleness(StalenessSpec::DynSgd), &[0.0; 2]);
        for gradients in arrivals.chunks(per_update) {
            run.update(gradients);
        }
        let mut sums: BTreeMap<u64, (f64, [f64; 2])> = BTreeMap::new();
        // A gradient further behind than the kept iterations counts for the oldest kept.
        let lead = arrivals.iter().map(|given| given.clock).max().unwrap_or_default();
        prop_assume!(lead < MOST_OPEN_ITERATIONS as u64);
        for Given { clock, samples, values, .. } in &arrivals {
            let (all, sum) = sums.entry(*clock).or_default();
            *all += f64::from(*samples);
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum += f64::from(*samples) * f64::from(*value);
            }
        }
        for (key, found) in run.parameters.iter().enumerate() {
            let expected: f64 = sums.values().map(|(all, sum)| sum[key] / all).sum();
            prop_assert!((f64::from(*found) + expected).abs() < 1e-3, "{} {}", found, expected);
        }
    }

    #[test]
    fn a_lone_worker_in_a_table_is_plain_descent(
        values in prop::collection::vec(prop::array::uniform2(-1e3_f32..1e3), 1..50),
        rows in 1..1_000_000_u64,
    ) {
        let mode = participation(ParticipationSpec::Incremental);
        let mut run = Run::new(&mode, &[1.0; 2]).rows(&[rows]);
        let mut plain = Run::new(&Mode::default(), &[1.0; 2]);
        for (clock, values) in (0..).zip(&values) {
            run.update(&[given(0, clock, values)]);
            plain.update(&[given(0, clock, values)]);
            prop_assert_eq!(&run.parameters, &plain.parameters);
        }
    }

    #[test]
    fn a_table_holds_the_latest_of_each_worker(
        arrivals in arrivals(),
        rows in prop::array::uniform5(1..1000_u64),
    ) {
        let mode = participation(ParticipationSpec::Incremental);
        let mut run = Run::new(&mode, &[0.0; 2]).rows(&rows);
        let mut latest: BTreeMap<u32, Vec<f32>> = BTreeMap::new();
        for arrival in &arrivals {
            run.parameters = vec![0.0; 2];
            run.update(core::slice::from_ref(arrival));
            latest.insert(arrival.worker, arrival.values.clone());
            let all: u64 = latest.keys().map(|worker| rows[*worker as usize]).sum();
            let step = |key: usize| -> f64 {
                let terms = latest.iter().map(|(worker, values)| {
                    rows[*worker as usize] as f64 * f64::from(values[key])
                });
                terms.sum::<f64>() / all as f64
            };
            assert_close(&run.parameters, &[-step(0), -step(1)], 1e-6);
        }
    }

    #[test]
    fn rounds_of_one_gradient_each_and_equal_rows_are_plain_rounds(
        values in prop::collection::vec(-1e3_f32..1e3, 1..9),
        rows in 1..100_000_u64,
        samples in 1..1000_u32,
        sum: bool,
    ) {
        let aggregation = if sum { Aggregation::Sum } else { Aggregation::Mean };
        let round: Vec<Given> = (0..)
            .zip(&values)
            .map(|(worker, value)| Given { samples, ..given(worker, 0, &[*value]) })
            .collect();
        let rows = vec![rows; values.len()];
        let mut plain = Run::with(aggregation, &UPDATE, &Mode::default(), &[1.0]);
        plain.update(&round);
        let malenia = Mode::of(MALENIA);
        let mut by_worker = Run::with(aggregation, &UPDATE, &malenia, &[1.0]).rows(&rows);
        by_worker.update(&round);
        prop_assert_eq!(by_worker.bits(), plain.bits());
        if !sum {
            let mut ringleader =
                Run::new(&Mode::of(ConsistencySpec::Ringleader), &[1.0]).rows(&rows);
            ringleader.update(&round);
            assert_close(&ringleader.parameters, &[plain.parameters[0].into()], 1e-3);
        }
    }

    #[test]
    fn corrections_keep_the_sign_and_never_more_than_double(
        g in -1e3_f32..1e3,
        now in -1e3_f32..1e3,
        then in -1e3_f32..1e3,
        rule in prop::sample::select(&RULES[8..]),
    ) {
        let mut run = Run::new(&staleness(rule), &[now]);
        run.update(&[given(0, 0, &[0.5])]); // so that a usual step is known
        run.parameters = vec![now];
        run.update(&[Given { staleness: 3, base: Some(vec![then]), ..given(1, 0, &[g]) }]);
        let most = if rule == StalenessSpec::GapAware { 1.0 } else { 2.0 };
        let combined = run.aggregator.combined.values[0];
        prop_assert!(combined * g >= 0.0 && combined.abs() <= most * g.abs(), "{combined} of {g}");
    }
}

/// After the change, a step equals the step under the new mode from the start.
#[test]
fn momentum_is_scaled_when_updates_are_sums_of_another_number_of_gradients() {
    let optimizers = [
        OptimizerSpec::MOMENTUM,
        OptimizerSpec::NESTEROV,
        OptimizerSpec::ADAM,
        OptimizerSpec::ADAGRAD,
    ];
    let of = |consistency: &str| Mode::of(consistency.parse().unwrap());
    let number = |mode: &Mode| match mode.consistency {
        ConsistencySpec::Asp => 1,
        ConsistencySpec::KAsync { workers } => workers,
        _ => WORKERS,
    };
    let rounds = |run: &mut Run, mode: &Mode, rounds: u64| {
        for clock in 0..rounds {
            let round = (0..number(mode)).map(|worker| given(worker, clock, &[0.25, -1.0]));
            run.update(&round.collect::<Vec<_>>());
        }
    };
    for optimizer in optimizers {
        let update = UpdateSpec { optimizer, ..UPDATE };
        for (first, then) in [("bsp", "asp"), ("asp", "bsp"), ("k-async:2", "ssp:0")] {
            let (first, then) = (of(first), of(then));
            let with = |mode| Run::with(Aggregation::Sum, &update, mode, &[0.0, 0.0]);
            let (mut changed, mut same) = (with(&first), with(&then));
            rounds(&mut changed, &first, 30);
            changed.set_mode(&then);
            rounds(&mut same, &then, 30);
            let before = [changed.parameters.clone(), same.parameters.clone()];
            rounds(&mut changed, &then, 1);
            rounds(&mut same, &then, 1);
            let steps = |run: &Run, before: &[f32]| -> Vec<f32> {
                run.parameters.iter().zip(before).map(|(after, before)| after - before).collect()
            };
            let steps = [steps(&changed, &before[0]), steps(&same, &before[1])];
            for (changed, same) in steps[0].iter().zip(&steps[1]) {
                let steps = [*changed, *same];
                let off = (steps[0] - steps[1]).abs() / steps[1].abs();
                assert!(off < 1e-3, "{optimizer:?} {first} {then}: {steps:?}");
            }
        }
    }
}
