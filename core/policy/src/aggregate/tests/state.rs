//! State besides the parameters, compared with its definition, and with a run that has none.

use super::merging::rounds;
use super::*;
use pstrain_compute::params::{Combine, StateRun};

impl Run {
    /// Makes the last key state.
    fn with_state(self, combine: Combine) -> Self {
        let Self { aggregator, blockwise, told, parameters, version } = self;
        let last = parameters.len() - 1;
        let [aggregator, blockwise, told] =
            [aggregator, blockwise, told].map(|it| it.with_state([run(last, combine)].into_iter()));
        Self { aggregator, blockwise, told, parameters, version }
    }
}

fn run(key: usize, combine: Combine) -> StateRun {
    StateRun { keys: key..key + 1, combine, whole: false }
}

/// The same gradient without the last key.
fn without_state(given: &Given) -> Given {
    let head = |values: &Vec<f32>| values[..values.len() - 1].to_vec();
    Given { values: head(&given.values), base: given.base.as_ref().map(head), ..given.clone() }
}

/// The change of the state in an update of `round`, whose gradients count if `counts`.
fn change(round: &[Given], combine: Combine) -> f64 {
    let first = round.first().map(|given| given.worker);
    let counted = round.iter().filter(|given| match combine {
        Combine::Mean => true,
        Combine::First => Some(given.worker) == first,
    });
    let changes: Vec<f64> = counted.map(|given| f64::from(given.values[1])).collect();
    changes.iter().sum::<f64>() / changes.len() as f64
}

fn mode(by: usize, rule: StalenessSpec) -> Mode {
    match by {
        0 => staleness(rule),
        1 => Mode { staleness: rule, ..participation(ParticipationSpec::Share) },
        2 => Mode { staleness: rule, ..Mode::of(MALENIA) },
        3 => Mode { staleness: rule, ..Mode::of(ConsistencySpec::Ringleader) },
        _ => Mode { staleness: rule, ..participation(ParticipationSpec::Incremental) },
    }
}

proptest! {
    #[test]
    fn state_changes_by_the_mean_and_parameters_as_without_state(
        rounds in rounds(),
        rule in prop::sample::select(&RULES[..]),
        by in 0..5_usize,
        first: bool,
        clips: bool,
        merges: bool,
    ) {
        let (mode, combine) = (mode(by, rule), [Combine::Mean, Combine::First][usize::from(first)]);
        prop_assume!(mode.validate().is_ok());
        let update = UpdateSpec {
            optimizer: OptimizerSpec::MOMENTUM,
            weight_decay: 0.5,
            clip_norm: clips.then_some(3.0),
            ..UPDATE
        };
        let rows = [5, 1, 7, 2, 2];
        let new = |values: &[f32]| Run::with(Aggregation::Mean, &update, &mode, values).rows(&rows);
        let (mut run, mut without) = (new(&[0.3, 0.0]).with_state(combine), new(&[0.3]));
        for round in &rounds {
            let before = f64::from(run.parameters[1]);
            let bare: Vec<Given> = round.iter().map(without_state).collect();
            if merges {
                run.update_merged(round);
            } else {
                run.update(round);
            }
            without.update(&bare);
            prop_assert_eq!(run.parameters[0].to_bits(), without.parameters[0].to_bits());
            // Under an incremental rule the latest gradient of a worker alone counts.
            if by < 4 {
                assert_close(&run.parameters[1..], &[before + change(round, combine)], 1e-5);
            }
            run.parameters = vec![0.3, run.parameters[1]];
            without.parameters = vec![0.3];
        }
    }
}

#[test]
fn a_robust_rule_is_not_led_astray_by_state() {
    for aggregation in [
        Aggregation::Median,
        Aggregation::Trimmed { each: 1 },
        Aggregation::Krum { faulty: 1, chosen: 1 },
    ] {
        let mut run = Run::with(aggregation, &UPDATE, &Mode::default(), &[0.0, 0.0])
            .with_state(Combine::Mean);
        // The third worker is wrong in its state alone: its gradient is in the middle.
        let values = [[1.0, 1.0], [1.1, 1.0], [1.2, 1.0], [1.3, 1.0], [9.0, 1e30]];
        let round: Vec<Given> =
            (0..).zip(values).map(|(worker, values)| given(worker, 0, &values)).collect();
        run.update(&round);
        assert!((-1.3..=-1.0).contains(&run.parameters[0]), "{aggregation}");
        assert_close(&run.parameters[1..], &[1.0], 1e-6);
    }
}

#[test]
fn counters_are_those_of_the_first_part_and_stay_whole() {
    let whole = StateRun { whole: true, ..run(1, Combine::First) };
    for (aggregation, wanted) in [(Aggregation::Mean, 7.0), (Aggregation::Median, 6.0)] {
        let new = Aggregator::new(aggregation, &UPDATE, &Mode::default(), WORKERS, 2).unwrap();
        let mut aggregator = new.with_state([whole.clone()].into_iter());
        let round = [given(1, 0, &[1.0, 7.0]), given(3, 0, &[1.0, 4.0])];
        let mut parameters = Arc::new(vec![0.0; 2]);
        let gradients = round.iter().map(Given::gradient);
        aggregator.update(gradients, &mut parameters, Closing::Everything, Version(0));
        assert_eq!(parameters[1], wanted, "{aggregation}");
    }
}

#[test]
fn a_sum_of_shared_gradients_changes_state_as_a_server_does() {
    let count = 5;
    let runs = [run(1, Combine::Mean), StateRun { whole: true, ..run(2, Combine::First) }];
    let new = || {
        let new = Aggregator::new(Aggregation::Mean, &UPDATE, &Mode::default(), WORKERS, 3);
        new.unwrap().with_state(runs.iter().cloned())
    };
    let round: Vec<Given> = (0..count)
        .map(|worker| given(worker, 0, &[0.1 * worker as f32, 1.0 / (3.0 + worker as f32), 1.0]))
        .collect();
    let mut wanted = Arc::new(vec![0.3, 0.7, 4.0]);
    let gradients = round.iter().map(Given::gradient);
    new().update(gradients, &mut wanted, Closing::Everything, Version(0));
    // Equal mini-batches, then unequal ones, then sums of gradients.
    for factors in [[0.2; 5], [0.1, 0.3, 0.2, 0.3, 0.1], [1.0; 5]] {
        let mut sum = vec![0.0; 3];
        for (place, (given, factor)) in round.iter().zip(factors).enumerate() {
            let mut gradient = given.values.clone();
            new().share_state(&mut gradient, factor, (place, round.len()));
            sum.iter_mut().zip(&gradient).for_each(|(sum, value)| *sum += factor * value);
        }
        let mut found = vec![0.3, 0.7, 4.0];
        let mut without = new();
        without.begin(Version(0));
        let _memory = without.give_whole(sum);
        without.apply(&mut found, Version(0));
        assert_close(&found[1..], &[f64::from(wanted[1]), 5.0], 1e-6);
        if factors == [0.2; 5] {
            assert_eq!(found, **wanted, "the same bits");
        }
    }
    // One of them comes late.
    let mut sum = vec![3.0, 0.8, 1.0];
    new().correct(&mut sum, 1.5, (4, 5));
    assert_eq!(sum, [4.5, 1.0, 1.0]);
}

#[test]
fn tensors_of_a_group_have_their_own_rate_and_decay() {
    let layout = Layout::of([("a.w", &[1500]), ("a.b", &[3]), ("c", &[2])]);
    let own = KeyRange::new(10, 1505).unwrap();
    let groups = ["a.b:rate=0.5,weight-decay=0", "c:rate=0"].map(|text| text.parse().unwrap());
    let update = UpdateSpec { weight_decay: 0.25, ..UpdateSpec::sgd(0.125) };
    let keys = own.len() as usize;
    let new = || Aggregator::new(Aggregation::Mean, &update, &Mode::default(), 1, keys).unwrap();
    let mut aggregator = new().with_groups(&groups, &layout, own);
    let given = given(0, 0, &vec![2.0; keys]);
    let mut parameters = Arc::new(vec![1.0; keys]);
    let gradients = core::iter::once(given.gradient());
    aggregator.update(gradients, &mut parameters, Closing::Everything, Version(0));
    let wanted = [(1490, 1.0 - 0.125 * 2.25), (3, 1.0 - 0.0625 * 2.0), (2, 1.0)];
    let wanted: Vec<f32> =
        wanted.into_iter().flat_map(|(count, value)| vec![value; count]).collect();
    assert_eq!(*parameters, wanted);
}
