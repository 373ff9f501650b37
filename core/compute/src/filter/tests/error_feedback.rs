//! Error feedback: no gradient is lost or counted twice, whichever pushes are dropped.

use super::*;

/// A worker with several pushes in flight, and a server that accepts some and drops others.
struct World {
    chain: &'static str,
    feedback: ErrorFeedback,
    filter_chain: FilterChain,
    random: Random,
    values: usize,
    next: u64,
    /// Pushes without a verdict: sequence number, gradient, decoded gradient.
    waiting: Vec<(u64, Vec<f32>, Vec<f32>)>,
    decided: Option<Decided>,
    /// Sums over accepted pushes: of the gradients, and of the decoded gradients.
    computed: Vec<f64>,
    applied: Vec<f64>,
    /// The sum of the residuals of dead incarnations.
    lost: Vec<f64>,
    /// The sum of the magnitudes of all gradients and decoded gradients: rounding errors are
    /// proportional to it.
    magnitude: f64,
}

impl World {
    fn new(chain: &'static str, feedback: ErrorFeedback, seed: u64) -> Self {
        let values = 60;
        Self {
            chain,
            feedback,
            filter_chain: filter_chain(chain, feedback, values),
            random: Stream::new(seed).rng(),
            values,
            next: 1,
            waiting: Vec::new(),
            decided: None,
            computed: vec![0.0; values],
            applied: vec![0.0; values],
            lost: vec![0.0; values],
            magnitude: 1.0,
        }
    }

    fn push(&mut self) {
        let given = gradient(&mut self.random, self.values);
        let given: Vec<f32> = given.iter().map(|value| value.min(4.0)).collect();
        let sent = self.filter_chain.filter(
            given.clone(),
            Sequence(self.next),
            task(self.next),
            None,
            &[],
        );
        let sent = sent.gradient.to_vec();
        let both = given.iter().chain(&sent);
        self.magnitude += both.map(|value| f64::from(value.abs())).sum::<f64>();
        self.waiting.push((self.next, given, sent));
        self.next += 1;
    }

    /// The server decides the oldest push; the worker may be notified later.
    fn decide(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let (sequence, given, sent) = self.waiting.remove(0);
        let dropped = (self.random.below(3) == 0).then_some(DropReason::Stale);
        self.decided = Some(Decided::after(self.decided, Sequence(sequence), dropped));
        if dropped.is_none() {
            for (key, (given, sent)) in given.iter().zip(&sent).enumerate() {
                self.computed[key] += f64::from(*given);
                self.applied[key] += f64::from(*sent);
            }
        }
    }

    fn tell(&mut self) {
        if let Some(decided) = &self.decided {
            self.filter_chain.decided(decided);
        }
    }

    /// The worker dies and a new incarnation replaces it; its pushes in flight are dropped.
    fn die(&mut self) {
        for (sequence, _, _) in self.waiting.drain(..) {
            let lost = Some(DropReason::Over);
            self.decided = Some(Decided::after(self.decided, Sequence(sequence), lost));
        }
        self.tell();
        for (lost, carried) in self.lost.iter_mut().zip(self.filter_chain.residual()) {
            *lost += f64::from(*carried);
        }
        self.filter_chain = filter_chain(self.chain, self.feedback, self.values);
        (self.next, self.decided) = (1, None);
    }

    /// Checks that decoded gradients, residual and lost residuals add up to the gradients, over
    /// accepted pushes.
    fn check(&mut self, what: &str) {
        while !self.waiting.is_empty() {
            self.decide();
        }
        self.tell();
        let residual = self.filter_chain.residual();
        for key in 0..self.values {
            let carried = residual.get(key).copied().map_or(0.0, f64::from);
            let off = self.applied[key] + carried + self.lost[key] - self.computed[key];
            assert!(off.abs() <= 1e-6 * self.magnitude, "{what}: key {key} is off by {off}");
        }
    }
}

proptest! {
    #[test]
    fn applied_and_carried_is_computed_whatever_is_dropped(
        seed: u64,
        steps in proptest::collection::vec(0..16_u8, 1..60),
    ) {
        for chain in CHAINS.iter().filter(|chain| **chain != "zero-skip") {
            let mut world = World::new(chain, ErrorFeedback::On, seed);
            for step in &steps {
                match step {
                    0..7 => world.push(),
                    7..11 => world.decide(),
                    11..15 => world.tell(),
                    _ => world.die(),
                }
            }
            world.check(chain);
        }
    }

    /// With one push at a time, a dropped push leaves no trace, bit for bit.
    #[test]
    fn without_others_under_way_a_dropped_push_leaves_no_trace(
        seed: u64,
        drops in proptest::collection::vec(any::<bool>(), 1..20),
    ) {
        for chain in CHAINS {
            let mut with = filter_chain(chain, ErrorFeedback::Auto, 60);
            let mut without = filter_chain(chain, ErrorFeedback::Auto, 60);
            let mut decided = None;
            for (number, &dropped) in (1..).zip(&drops) {
                let given = gradient(&mut Stream::new(seed).fork("given", number).rng(), 60);
                let sent = with.filter(given.clone(), Sequence(number), task(number), None, &[]);
                let reason = dropped.then_some(DropReason::Redundant);
                let after = Decided::after(decided, Sequence(number), reason);
                with.decided(&after);
                decided = Some(after);
                if !dropped {
                    let alone = without.filter(given, Sequence(number), task(number), None, &[]);
                    prop_assert_eq!(bits(&sent.gradient), bits(&alone.gradient), "{}", chain);
                }
                prop_assert_eq!(bits(with.residual()), bits(without.residual()), "{}", chain);
            }
        }
    }

    /// If all keys are kept, there is never a residual, whichever pushes are dropped.
    #[test]
    fn a_filter_without_loss_carries_nothing(seed: u64, steps in proptest::collection::vec(0..4_u8, 1..40)) {
        let mut world = World::new("top-k:1", ErrorFeedback::On, seed);
        for step in steps {
            match step {
                0 | 1 => world.push(),
                2 => world.decide(),
                _ => world.tell(),
            }
            prop_assert!(world.filter_chain.residual().iter().all(|value| *value == 0.0));
        }
    }
}

#[test]
fn all_of_a_long_window_is_heard_of_at_once() {
    let mut decided = None;
    for number in 1..=257_u64 {
        let dropped = (number % 3 == 0).then_some(DropReason::Stale);
        decided = Some(Decided::after(decided, Sequence(number), dropped));
    }
    let decided = decided.unwrap();
    for number in 1..=257_u64 {
        assert_eq!(decided.drops(Sequence(number)), number % 3 == 0, "{number}");
    }
    assert!(!decided.drops(Sequence(258)) && !decided.drops(Sequence(300)));
}

#[test]
fn a_dropped_gradient_that_is_not_finite_is_not_carried() {
    let mut filter_chain = filter_chain("top-k:0.1666", ErrorFeedback::Auto, 60);
    for number in 1..=3_u64 {
        let value = if number == 2 { f32::NAN } else { 1.0 };
        filter_chain.filter(vec![value; 60], Sequence(number), task(number), None, &[]);
    }
    let decided = Decided::after(None, Sequence(1), None);
    filter_chain.decided(&Decided::after(Some(decided), Sequence(2), Some(DropReason::NotFinite)));
    let residual = filter_chain.residual();
    assert!(!residual.is_empty() && residual.iter().all(|value| value.is_finite()), "{residual:?}");
}

#[test]
fn what_is_carried_is_bounded_and_gets_through() {
    // Ten of sixty values are sent per step: each gets its turn.
    let mut filter_chain = filter_chain("top-k:0.1666", ErrorFeedback::Auto, 60);
    let given: Vec<f32> = (0..60).map(|key| 1.0 + key as f32 / 60.0).collect();
    let mut sums = vec![0.0_f64; 60];
    for number in 1..=600 {
        let sent = filter_chain.filter(given.clone(), Sequence(number), task(number), None, &[]);
        filter_chain.decided(&Decided::after(None, Sequence(number), None));
        sums.iter_mut().zip(sent.gradient.iter()).for_each(|(sum, sent)| *sum += f64::from(*sent));
    }
    for (sum, given) in sums.iter().zip(&given) {
        assert!((sum / 600.0 - f64::from(*given)).abs() < 0.05, "{sum} {given}");
    }
    assert!(filter_chain.carried() < 200.0);
}

#[test]
fn what_is_carried_over_a_change_of_the_rate_makes_the_step_it_would_have_made() {
    let schedule = Schedule::Step { every: 7, factor: 0.1 };
    for (chain, drops) in [("top-k:0.1", 0), ("one-bit", 0), ("top-k:0.1", 3), ("one-bit", 3)] {
        let mut filter_chain = filter_chain(chain, ErrorFeedback::On, 60).at(0.5, schedule);
        let mut random = Stream::new(4).rng();
        let (mut made, mut owed) = (vec![0.0_f64; 60], vec![0.0_f64; 60]);
        let mut decided = None;
        for number in 1..=40 {
            filter_chain.turn_to(Version(number));
            let rate = f64::from(schedule.rate(0.5, Version(number)));
            let given = gradient(&mut random, 60);
            let sent =
                filter_chain.filter(given.clone(), Sequence(number), task(number), None, &[]);
            let dropped = (drops > 0 && number % drops == 0).then_some(DropReason::Stale);
            decided = Some(Decided::after(decided, Sequence(number), dropped));
            // The worker receives two verdicts at once.
            if number % 2 == 0 {
                decided.iter().for_each(|decided| filter_chain.decided(decided));
            }
            if dropped.is_none() {
                let values = given.iter().zip(sent.gradient.iter());
                for ((owed, made), (given, sent)) in owed.iter_mut().zip(&mut made).zip(values) {
                    *owed += rate * f64::from(*given);
                    *made += rate * f64::from(*sent);
                }
            }
        }
        let rate = f64::from(filter_chain.residual_rate());
        for ((made, owed), carried) in made.iter().zip(&owed).zip(filter_chain.residual()) {
            let off = made + rate * f64::from(*carried) - owed;
            assert!(off.abs() < 1e-4, "{chain}: off by {off} of {owed}");
        }
    }
}
