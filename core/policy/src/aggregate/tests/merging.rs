//! Gradients merged while they wait, compared with gradients that reach the update one by one.

use super::*;

impl Run {
    /// Makes the same update from gradients merged on arrival, as a server does.
    pub(super) fn update_merged(&mut self, gradients: &[Given]) {
        let merging = self.aggregator.merging();
        let mut waiting: Vec<Given> = Vec::new();
        for given in gradients {
            let mut next = given.clone();
            let first = waiting.iter_mut().find(|first| first.worker == next.worker);
            match (merging, first) {
                (Merging::Apart, _) | (_, None) => {}
                (Merging::Sum, Some(first)) => {
                    let mut sum = first.values.clone();
                    let (kept, added) = (first.gradient(), next.gradient());
                    self.aggregator.merge(&mut sum, &kept, &added, &self.parameters);
                    self.blockwise.merge(&mut sum.clone(), &kept, &added, &self.parameters);
                    self.told.merge(&mut sum.clone(), &kept, &added, &self.parameters);
                    (first.values, first.base) = (sum, None);
                    (next.values, next.base) = (Vec::new(), None);
                }
                (Merging::Latest, Some(first)) => {
                    first.values = core::mem::take(&mut next.values);
                    first.base = next.base.take();
                }
            }
            waiting.push(next);
        }
        let vectors = waiting.iter().filter(|given| !given.values.is_empty()).count();
        assert!(vectors <= WORKERS as usize || merging == Merging::Apart, "{vectors}");
        self.update(&waiting);
    }
}

/// Rounds with any number of gradients per worker, each in the order of workers.
pub(super) fn rounds() -> impl Strategy<Value = Vec<Vec<Given>>> {
    let one = (0..WORKERS, 1..100_u32, 0..4_u64, prop::array::uniform2(-9.0_f32..9.0));
    prop::collection::vec(prop::collection::vec(one, 1..20), 1..6).prop_map(|rounds| {
        let mut clocks = [0; WORKERS as usize];
        let round = |round: Vec<(u32, u32, u64, [f32; 2])>| {
            let mut round: Vec<Given> = round
                .into_iter()
                .map(|(worker, samples, staleness, values)| {
                    let clock = clocks[worker as usize];
                    clocks[worker as usize] += 1;
                    let base = Some(vec![0.1 * staleness as f32; 2]);
                    Given {
                        samples,
                        size: samples,
                        staleness,
                        base,
                        ..given(worker, clock, &values)
                    }
                })
                .collect();
            round.sort_by_key(|given| given.worker);
            round
        };
        rounds.into_iter().map(round).collect()
    })
}

proptest! {
    #[test]
    fn gradients_merged_as_they_come_make_the_same_update_to_the_bit(
        rounds in rounds(),
        rule in prop::sample::select(&RULES[..]),
        by in 0..5_usize,
        sum: bool,
    ) {
        let mode = match by {
            0 => staleness(rule),
            1 => Mode { staleness: rule, ..participation(ParticipationSpec::Share) },
            2 => Mode { staleness: rule, ..participation(ParticipationSpec::Incremental) },
            3 => Mode { staleness: rule, ..Mode::of(MALENIA) },
            _ => Mode { staleness: rule, ..Mode::of(ConsistencySpec::Ringleader) },
        };
        prop_assume!(mode.validate().is_ok());
        let aggregation = if sum { Aggregation::Sum } else { Aggregation::Mean };
        let new = || Run::with(aggregation, &UPDATE, &mode, &[0.3, -0.2]).rows(&[5, 1, 7, 2, 2]);
        let (mut one_by_one, mut merged) = (new(), new());
        for round in &rounds {
            one_by_one.update(round);
            merged.update_merged(round);
            prop_assert_eq!(one_by_one.bits(), merged.bits(), "{}", mode);
            // Without the reset, large steps would hide the differences of later rounds.
            for run in [&mut one_by_one, &mut merged] {
                run.parameters = vec![0.3, -0.2];
            }
        }
    }

    #[test]
    fn merged_gradients_count_what_they_count_apart(
        rounds in rounds(),
        rule in prop::sample::select(&RULES[..5]),
        sum: bool,
    ) {
        let aggregation = if sum { Aggregation::Sum } else { Aggregation::Mean };
        let mut run = Run::with(aggregation, &UPDATE, &staleness(rule), &[0.0; 2]);
        for round in &rounds {
            run.parameters = vec![0.0; 2];
            run.update(round);
            let all: f64 = round.iter().map(|given| f64::from(given.samples)).sum();
            let times = if sum { round.len() as f64 } else { 1.0 };
            let step = |key: usize| -> f64 {
                let term = |given: &Given| {
                    let weight = times * f64::from(given.samples) / all;
                    weight * rule.factor(given.staleness) * f64::from(given.values[key])
                };
                round.iter().map(term).sum()
            };
            assert_close(&run.parameters, &[-step(0), -step(1)], 1e-4);
        }
    }
}
