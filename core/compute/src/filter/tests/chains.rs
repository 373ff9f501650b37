//! The effect of each filter on a gradient.

use super::*;

fn once(chain: &str, gradient: &[f32]) -> Vec<f32> {
    let mut filter_chain = filter_chain(chain, ErrorFeedback::Off, gradient.len());
    filter_chain.filter(gradient.to_vec(), Sequence(1), task(0), None, &[]).gradient.to_vec()
}

#[test]
fn chains_are_read_as_they_are_written() {
    for chain in CHAINS {
        assert_eq!(filters(chain, ErrorFeedback::Auto).to_string(), chain);
    }
    assert_eq!(Filters::read_chain(" top-k:0.1  fp16, ").unwrap().len(), 2);
    assert_eq!(filters("none", ErrorFeedback::Auto), Filters::default());
    assert_eq!(Filters::default().to_string(), "none");
    assert_eq!(filters("qsgd,", ErrorFeedback::Auto).to_string(), "qsgd:7");
    let error = Filters::read_chain("top-k:0.1,fp8").unwrap_err().to_string();
    assert!(error.contains("\"fp8\"") && error.contains("bf16"), "{error}");
}

#[test]
fn what_does_not_go_together_is_refused_with_what_does() {
    for (chain, words) in [
        ("fp16,top-k:0.1", "top-k:0.1 cannot come after fp16"),
        ("fp16,int8", "at most one"),
        ("top-k:0", "above 0 and up to 1"),
        ("top-k:1.5", "above 0"),
        ("random-k:NaN", "above 0"),
        ("significant:-1", "at least 0"),
        ("qsgd:128", "1 to 127"),
        ("powersgd:0", "1 to 64"),
        ("top-k:0.1,powersgd:1", "whole matrices"),
        ("zero-skip,zero-skip,zero-skip,zero-skip,zero-skip,zero-skip,zero-skip,fp16,fp16", "9"),
    ] {
        let error = match Filters::read_chain(chain) {
            Ok(_) => filters(chain, ErrorFeedback::Auto).validate().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(words), "{chain}: {error}");
    }
    let chain = alloc::vec![FilterSpec::TopK { share: 0.0 }];
    let error = Filters { chain, ..Filters::default() }.validate().unwrap_err().to_string();
    assert_eq!(error, "filters: top-k:0: SHARE must be above 0 and up to 1");
    let error = filters("zero-skip", ErrorFeedback::On).validate().unwrap_err().to_string();
    assert!(error.contains("leave it at auto"), "{error}");
}

#[test]
fn error_is_fed_back_where_the_mean_would_be_wrong() {
    for (chain, feeds_back) in [
        ("zero-skip", false),
        ("random-k:0.1,int8", false),
        ("fp16", false),
        ("qsgd", false),
        ("significant:0.1", true),
        ("random-skip:0.5,one-bit", true),
        ("powersgd:1", true),
    ] {
        assert_eq!(filters(chain, ErrorFeedback::Auto).feeds_back(), feeds_back, "{chain}");
    }
}

#[test]
fn top_k_takes_the_largest_and_of_equal_ones_the_first() {
    let gradient = [1.0, -3.0, 2.0, 3.0, -2.0, 0.0, 0.5, 2.0];
    assert_eq!(once("top-k:0.25", &gradient), [0.0, -3.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(once("top-k:0.375", &gradient), [0.0, -3.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(once("top-k:1", &gradient), gradient);
    assert_eq!(once("significant:2", &gradient), [0.0, -3.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn filters_are_applied_in_the_order_of_the_chain() {
    let gradient: Vec<f32> = (0..100).map(|key| key as f32).collect();
    // Half of the ten largest values, or the ten largest of a random half.
    let sent = |chain| once(chain, &gradient).iter().filter(|value| **value != 0.0).count();
    assert_eq!(sent("top-k:0.1,random-k:0.5"), 5);
    assert_eq!(sent("random-k:0.5,top-k:0.1"), 10);
    let of_largest = once("top-k:0.1,random-k:0.5", &gradient);
    assert_eq!(of_largest[..90], [0.0; 90]);
    assert!(of_largest[90..].iter().all(|value| *value == 0.0 || *value >= 180.0));
}

#[test]
fn a_gradient_that_is_not_finite_travels_as_it_is_and_changes_nothing() {
    for chain in CHAINS {
        let mut random = Stream::new(1).rng();
        let good = gradient(&mut random, 60);
        let mut fed = filter_chain(chain, ErrorFeedback::Auto, 60);
        fed.filter(good.clone(), Sequence(1), task(0), None, &[]);
        let before = fed.residual().to_vec();
        let mut bad = good;
        bad[31] = f32::NAN;
        let sent = fed.filter(bad.clone(), Sequence(2), task(1), None, &[]);
        assert_eq!(bits(&sent.gradient), bits(&bad), "{chain}");
        assert_eq!(sent.encode(KeyRange::new(0, 60).unwrap()), None);
        assert_eq!(fed.residual(), before, "{chain}");
    }
}

#[test]
fn what_is_beyond_sixteen_bits_goes_as_their_largest() {
    let given = [1e6, -1e6, f32::MAX, 65504.0, 1e-9, -0.0];
    let half = once("fp16", &given);
    assert_eq!(half, [65504.0, -65504.0, 65504.0, 65504.0, 0.0, 0.0]);
    let brain = once("bf16", &given);
    assert!(brain.iter().all(|value| value.is_finite()));
    assert!((brain[0] - 1e6).abs() <= 1e6 / 256.0 && brain[4] != 0.0);
}

#[test]
fn one_bit_is_the_mean_of_either_sign() {
    let sent = once("one-bit", &[1.0, -2.0, 3.0, -4.0, 0.0, 0.0, -6.0]);
    assert_eq!(sent, [1.0, -4.0, 1.0, -4.0, 1.0, 1.0, -4.0]);
}

#[test]
fn a_matrix_of_low_rank_is_found_and_vectors_travel_as_they_are() {
    let mut random = Stream::new(4).rng();
    let columns = 7;
    let mut draw =
        |count: usize| -> Vec<f32> { (0..count).map(|_| random.unit() as f32 - 0.5).collect() };
    let (rows, row, bias) = (draw(20), draw(columns), draw(5));
    let mut gradient: Vec<f32> = Vec::new();
    for factor in &rows {
        gradient.extend(row.iter().map(|value| factor * value));
    }
    gradient.extend(&bias);
    for chain in ["powersgd:1", "powersgd:3"] {
        let sent = once(chain, &gradient);
        for (sent, given) in sent.iter().zip(&gradient) {
            assert!((sent - given).abs() < 1e-6, "{chain}: {sent} {given}");
        }
        assert_eq!(bits(&sent[140..]), bits(&bias));
    }
}

/// Checks that the mean of many draws is the gradient, within five standard errors at each key.
#[test]
fn unbiased_filters_are_right_in_the_mean() {
    const DRAWS: u64 = 20_000;
    for chain in [
        "random-skip:0.3",
        "random-k:0.2",
        "int8",
        "qsgd:1",
        "qsgd:4",
        "random-k:0.5,int8",
        "zero-skip,random-skip:0.5,qsgd:2",
    ] {
        let mut random = Stream::new(8).fork("mean", 0).rng();
        let given: Vec<f32> = (0..40).map(|_| (random.unit() * 2.0 - 1.0) as f32).collect();
        let mut filter_chain = filter_chain(chain, ErrorFeedback::Off, given.len());
        let mut sums = vec![(0.0_f64, 0.0_f64); given.len()];
        for draw in 0..DRAWS {
            let sent =
                filter_chain.filter(given.clone(), Sequence(draw + 1), task(draw), None, &[]);
            for (sum, &value) in sums.iter_mut().zip(sent.gradient.iter()) {
                *sum = (sum.0 + f64::from(value), sum.1 + f64::from(value) * f64::from(value));
            }
        }
        for (key, ((sum, squares), given)) in sums.iter().zip(&given).enumerate() {
            let draws = DRAWS as f64;
            let mean = sum / draws;
            let error = ((squares / draws - mean * mean).max(0.0) / draws).sqrt();
            let off = (mean - f64::from(*given)).abs();
            assert!(off <= 5.0 * error + 1e-7, "{chain}: key {key} is off by {off} ({error})");
        }
    }
}

/// A fair coin instead of the fractional one would be off by up to half a step.
#[test]
fn the_coin_of_int8_falls_as_often_as_the_value_is_near() {
    let mut given = vec![0.25_f32; 256];
    given[0] = 127.0;
    let mut filter_chain = filter_chain("int8", ErrorFeedback::Off, 256);
    let ones: f32 = (0..200)
        .map(|draw| {
            let sent =
                filter_chain.filter(given.clone(), Sequence(draw + 1), task(draw), None, &[]);
            sent.gradient[1..].iter().sum::<f32>()
        })
        .sum();
    let share = ones / (200.0 * 255.0);
    assert!((share - 0.25).abs() < 0.01, "{share}");
}

proptest! {
    #[test]
    fn a_filter_without_loss_gives_the_gradient_back(seed: u64, values in 1..400_usize) {
        let given = gradient(&mut Stream::new(seed).rng(), values);
        for chain in ["zero-skip", "top-k:1", "random-k:1", "random-skip:1", "significant:0"] {
            prop_assert_eq!(bits(&once(chain, &given)), bits(&given), "{}", chain);
        }
    }

    #[test]
    fn values_are_within_the_bounds_of_their_form(seed: u64, values in 1..700_usize) {
        let given = gradient(&mut Stream::new(seed).rng(), values);
        for (chain, relative, least) in [("fp16", 1.0 / 2048.0, 3e-8), ("bf16", 1.0 / 256.0, 0.0)] {
            for (sent, given) in once(chain, &given).iter().zip(&given) {
                prop_assert!((sent - given).abs() <= given.abs() * relative + least, "{}", chain);
            }
        }
        let sent = once("int8", &given);
        for (sent, given) in sent.chunks(256).zip(given.chunks(256)) {
            let most = given.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            for (sent, given) in sent.iter().zip(given) {
                prop_assert!((sent - given).abs() <= most / 127.0 * 1.000_001);
            }
        }
    }

    #[test]
    fn what_is_drawn_depends_on_worker_and_task_alone(seed: u64, batch in 0..50_u64) {
        let given = gradient(&mut Stream::new(seed).rng(), 200);
        for chain in ["random-k:0.1", "random-skip:0.2,int8", "qsgd:1"] {
            let mut early = filter_chain(chain, ErrorFeedback::Off, 200);
            let mut late = filter_chain(chain, ErrorFeedback::Off, 200);
            for number in 0..3 {
                late.filter(given.clone(), Sequence(number + 1), task(number + 100), None, &[]);
            }
            let early = early.filter(given.clone(), Sequence(1), task(batch), None, &[]);
            let late = late.filter(given.clone(), Sequence(4), task(batch), None, &[]);
            prop_assert_eq!(bits(&early.gradient), bits(&late.gradient), "{}", chain);
        }
    }
}
