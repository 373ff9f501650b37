//! What is added up while it is coming, against the same update made at once.

use super::*;

const KEYS: usize = 20 * BLOCK + 7;

/// A gradient under way: so many of its values have come.
#[derive(Clone, Debug)]
struct Coming {
    given: Given,
    body: Option<u64>,
    come: usize,
}

impl Coming {
    fn new(worker: u32, samples: u32) -> Self {
        let value = |key: usize| ((key * 31 + worker as usize * 17) % 101) as f32 * 0.37 - 11.3;
        let values: Vec<f32> = (0..KEYS).map(value).collect();
        let given = Given { samples, ..given(worker, 0, &values) };
        Self { given, body: Some(10 + u64::from(worker)), come: 0 }
    }

    fn gradient(&self) -> Gradient<'_> {
        let gradient = self.given.gradient();
        let (body, values) = (self.body.map(BodyId), &gradient.values[..self.come]);
        Gradient { body, values, ..gradient }
    }
}

/// What becomes of one of the gradients after a part of it was added up.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It comes as it began.
    Whole,
    /// Its connection is cut, and it comes once more: not quite the same.
    Anew,
    /// It is shortened before it counts, or merged with another.
    Changed,
    /// It does not become part of the update.
    Lost,
    /// It says that it is of more examples than it said at first.
    Heavier,
    /// The mode changes before the update.
    Switched(StalenessSpec),
}

const FATES: [Fate; 7] = [
    Fate::Whole,
    Fate::Anew,
    Fate::Changed,
    Fate::Lost,
    Fate::Heavier,
    Fate::Switched(StalenessSpec::Inverse),
    Fate::Switched(StalenessSpec::DELAY_ADAPTIVE),
];

fn update_of(aggregator: &mut Aggregator, coming: &[Coming], clips: bool) -> Vec<u32> {
    let mut parameters = Arc::new(vec![0.25; KEYS]);
    let gradients = coming.iter().map(Coming::gradient);
    if clips {
        aggregator.combine(gradients, &parameters, Closing::Everything);
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut parameters);
        aggregator.apply(parameters, Version(0));
    } else {
        aggregator.update(gradients, &mut parameters, Closing::Everything, Version(0));
    }
    parameters.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn whatever_comes_of_it_the_update_is_the_one_that_is_made_at_once(
        sizes in prop::collection::vec(1..100_u32, 1..=WORKERS as usize),
        pieces in prop::collection::vec((0..WORKERS as usize, 0..=KEYS), 1..30),
        all_came: bool,
        aggregation in prop::sample::select(vec![Aggregation::Mean, Aggregation::Sum, Aggregation::Median]),
        clips: bool,
        fate in prop::sample::select(FATES.to_vec()),
        whose in 0..WORKERS as usize,
    ) {
        let update = UpdateSpec { clip_norm: clips.then_some(2.0), ..UPDATE };
        let mode = Mode::of(ConsistencySpec::Bsp);
        let new = || Aggregator::new(aggregation, &update, &mode, WORKERS, KEYS).unwrap();
        let (mut ahead, mut at_once) = (new(), new());
        let mut coming: Vec<Coming> =
            (0..).zip(&sizes).map(|(worker, &samples)| Coming::new(worker, samples)).collect();
        let workers = coming.len();
        for (worker, keys) in pieces {
            let one = &mut coming[worker % workers];
            one.come = one.come.max(keys);
            ahead.add_ahead(coming.iter().map(Coming::gradient));
        }
        if all_came {
            coming.iter_mut().for_each(|one| one.come = KEYS);
            ahead.add_ahead(coming.iter().map(Coming::gradient));
        }
        let come = coming.iter().map(|one| one.come).min().unwrap_or(0);
        let whole = if come < KEYS { come - come % BLOCK } else { come };
        let adds = workers > 1 && aggregation != Aggregation::Median;
        prop_assert_eq!(ahead.keys_ahead(), if adds { whole } else { 0 });
        coming.iter_mut().for_each(|one| one.come = KEYS);
        let one = &mut coming[whose % workers];
        match fate {
            Fate::Whole => {}
            Fate::Anew => {
                one.body = Some(99);
                one.given.values[0] += 1.0;
            }
            Fate::Changed => {
                one.body = None;
                one.given.values.iter_mut().for_each(|value| *value *= 0.5);
            }
            Fate::Lost if workers > 1 => drop(coming.remove(whose % workers)),
            Fate::Lost => {}
            Fate::Heavier => one.given.samples += 1,
            Fate::Switched(staleness) => {
                let mode = Mode { staleness, ..mode };
                ahead.set_mode(&mode);
                at_once.set_mode(&mode);
            }
        }
        let expected = update_of(&mut at_once, &coming, clips);
        prop_assert!(update_of(&mut ahead, &coming, clips) == expected);
        prop_assert_eq!(format!("{:?}", &ahead), format!("{:?}", &at_once));
        // Nothing of it is left for the next.
        coming.iter_mut().for_each(|one| one.given.values[KEYS - 1] -= 3.0);
        let expected = update_of(&mut at_once, &coming, clips);
        prop_assert!(update_of(&mut ahead, &coming, clips) == expected);
    }
}

#[test]
fn only_rounds_of_sums_with_known_factors_are_added_up_before_they_are_closed() {
    let adds = |aggregation, mode: &Mode| {
        let mut aggregator = Aggregator::new(aggregation, &UPDATE, mode, WORKERS, KEYS).unwrap();
        let coming = [0, 1, 2].map(|worker| Coming { come: KEYS, ..Coming::new(worker, 4) });
        aggregator.add_ahead(coming.iter().map(Coming::gradient));
        aggregator.keys_ahead() > 0
    };
    let bsp = Mode::of(ConsistencySpec::Bsp);
    assert!(adds(Aggregation::Mean, &bsp) && adds(Aggregation::Sum, &bsp));
    assert!(!adds(Aggregation::Median, &bsp));
    for consistency in [ConsistencySpec::Asp, ConsistencySpec::KSync { workers: 3 }, MALENIA] {
        assert!(!adds(Aggregation::Mean, &Mode::of(consistency)));
    }
    for rule in &RULES[1..] {
        assert!(!adds(Aggregation::Mean, &Mode { staleness: *rule, ..bsp }), "{rule}");
    }
    let share = Mode { participation: ParticipationSpec::Share, ..bsp };
    assert!(!adds(Aggregation::Mean, &share));
}
