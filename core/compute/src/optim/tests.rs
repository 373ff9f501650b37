use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::id::Version;
use crate::saved::{Archive, Saved};

const PLAIN: UpdateSpec = UpdateSpec::sgd(0.1);

const START: [f32; 3] = [0.5, -1.25, 2.0];

const GRADIENTS: [[f32; 3]; 5] =
    [[0.1, -0.4, 0.0], [-0.3, 0.2, 1.5], [0.05, 0.6, -2.0], [0.7, 0.0, 0.25], [-0.2, -0.1, 3.0]];

/// Applies all `GRADIENTS` to `START`, one update each.
fn after_five_steps(spec: &UpdateSpec) -> [f32; 3] {
    let mut updater = Updater::new(spec, 3).unwrap();
    let mut params = START;
    for (version, gradient) in GRADIENTS.iter().enumerate() {
        updater.apply(&mut params, gradient, Version(version as u64));
    }
    params
}

// The expected values follow PyTorch's documented rules (torch.optim 2.x: dampening 0, AdaGrad
// without decay and with an initial accumulator of 0, no AMSGrad; clip_grad_norm_). A Python script
// with one line per rule computed them in double precision.
fn close(found: [f32; 3], expected: [f64; 3]) {
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference <= 1e-6 * expected.abs(), "{found}, not {expected}");
    }
}

#[test]
fn sgd_steps_as_pytorch_does() {
    close(after_five_steps(&PLAIN), [0.465, -1.28, 1.725]);
}

#[test]
fn momentum_steps_as_pytorch_does() {
    let spec = UpdateSpec { optimizer: OptimizerSpec::MOMENTUM, ..PLAIN };
    close(after_five_steps(&spec), [0.435669, -1.307576, 1.67865]);
}

#[test]
fn nesterov_steps_as_pytorch_does() {
    let spec = UpdateSpec { optimizer: OptimizerSpec::NESTEROV, ..PLAIN };
    close(after_five_steps(&spec), [0.4071021, -1.3318184, 1.435785]);
}

#[test]
fn adagrad_steps_as_pytorch_does() {
    let spec = UpdateSpec { optimizer: OptimizerSpec::ADAGRAD, ..PLAIN };
    close(after_five_steps(&spec), [0.41345896589357, -1.2616544085591126, 1.8933844403037292]);
}

#[test]
fn adam_steps_as_pytorch_does() {
    let spec = UpdateSpec { optimizer: OptimizerSpec::ADAM, ..PLAIN };
    close(after_five_steps(&spec), [0.4119732149659724, -1.2136887582253153, 1.9123168405762323]);
}

#[test]
fn adamw_steps_as_pytorch_does() {
    let optimizer = OptimizerSpec::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let spec = UpdateSpec { optimizer, ..PLAIN };
    let adam = UpdateSpec { optimizer: OptimizerSpec::ADAM, ..PLAIN };
    assert_eq!(after_five_steps(&spec), after_five_steps(&adam), "without decay");
    let spec = UpdateSpec { weight_decay: 0.1, ..spec };
    close(after_five_steps(&spec), [0.3898227322402519, -1.1560639170408884, 1.8160989825241696]);
}

#[test]
fn a_gradient_is_clipped_to_its_norm() {
    let spec = UpdateSpec { clip_norm: Some(0.5), ..PLAIN };
    close(after_five_steps(&spec), [0.4547631895176482, -1.2291832474277296, 1.9325838513789457]);
    let loose = UpdateSpec { clip_norm: Some(4.0), ..PLAIN };
    assert_eq!(after_five_steps(&loose), after_five_steps(&PLAIN));
}

#[test]
fn every_value_counts_towards_the_norm() {
    for length in [1_u16, 7, 8, 9, 40] {
        let gradient: Vec<f32> = (1..=length).map(|value| f32::from(value) * 1e20).collect();
        let mut params = vec![0.0; gradient.len()];
        let spec = UpdateSpec { learning_rate: 1.0, clip_norm: Some(2.0), ..PLAIN };
        Updater::new(&spec, params.len()).unwrap().apply(&mut params, &gradient, Version(0));
        let norm = params.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        assert!((norm - 2.0).abs() < 1e-6, "norm {norm} of {length} values");
    }
}

#[test]
fn weight_decay_goes_into_the_gradient() {
    let spec = UpdateSpec { weight_decay: 0.1, ..PLAIN };
    close(after_five_steps(&spec), [0.44079753485, -1.218525701975, 1.62770524980]);
}

#[test]
fn clipping_comes_before_decay_and_the_rate_follows_the_version() {
    let spec = UpdateSpec {
        optimizer: OptimizerSpec::ADAM,
        learning_rate: 0.1,
        schedule: Schedule::Inverse { decay: 0.5 },
        weight_decay: 0.1,
        clip_norm: Some(0.5),
        clip_contribution: None,
        proximal: Proximal::None,
        functions: Functions::NONE,
    };
    close(after_five_steps(&spec), [0.30763248565206014, -1.0339081838989896, 1.775103246403814]);
}

#[test]
fn parameters_without_gradient_stay_where_they_are() {
    for optimizer in [
        OptimizerSpec::Sgd,
        OptimizerSpec::MOMENTUM,
        OptimizerSpec::NESTEROV,
        OptimizerSpec::ADAGRAD,
        OptimizerSpec::ADAM,
        OptimizerSpec::Ftrl { beta: 1.0, l1: 0.5, l2: 0.25 },
    ] {
        let mut updater = Updater::new(&UpdateSpec { optimizer, ..PLAIN }, 3).unwrap();
        let mut params = START;
        for version in 0..3 {
            updater.apply(&mut params, &[0.0; 3], Version(version));
        }
        assert_eq!(params, START, "{optimizer:?}");
    }
}

/// McMahan et al. 2013, algorithm 1, written as in the paper, in the same order of operations.
#[test]
fn ftrl_is_the_papers_algorithm_bit_for_bit() {
    let (alpha, beta, l1, l2) = (0.1_f32, 1.0_f32, 0.3_f32, 0.05_f32);
    let optimizer = OptimizerSpec::Ftrl { beta, l1, l2 };
    let mut updater = Updater::new(&UpdateSpec { optimizer, ..PLAIN }, 3).unwrap();
    let (mut params, mut z, mut n, mut w) = ([0.0; 3], [0.0_f32; 3], [0.0_f32; 3], [0.0_f32; 3]);
    for (version, gradient) in GRADIENTS.iter().enumerate() {
        updater.apply(&mut params, gradient, Version(version as u64));
        for i in 0..3 {
            let g = gradient[i];
            let sigma = ((n[i] + g * g).sqrt() - n[i].sqrt()) / alpha;
            z[i] += g - sigma * w[i];
            n[i] += g * g;
            w[i] = if z[i].abs() <= l1 {
                0.0
            } else {
                -(z[i] - l1.copysign(z[i])) / ((beta + n[i].sqrt()) / alpha + l2)
            };
        }
        assert_eq!(params.map(f32::to_bits), w.map(f32::to_bits), "after step {version}");
    }
    assert!(params.contains(&0.0) && params != [0.0; 3], "{params:?}");
}

#[test]
fn ftrl_goes_on_from_where_the_parameters_begin() {
    // Even a strong penalty does not move a parameter without a gradient, and a small gradient
    // moves a parameter by little.
    let optimizer = OptimizerSpec::Ftrl { beta: 1.0, l1: 0.5, l2: 2.0 };
    let mut updater = Updater::new(&UpdateSpec { optimizer, ..PLAIN }, 3).unwrap();
    let mut params = START;
    updater.apply(&mut params, &[1e-4, 0.0, -1e-4], Version(0));
    for (now, before) in params.iter().zip(START) {
        assert!((now - before).abs() < 1e-3, "{now} {before}");
    }
    assert!(params[0] < START[0] && params[1] == START[1] && params[2] > START[2]);
}

#[test]
fn a_proximal_step_follows_the_optimisers_at_its_rate() {
    // SGD at 0.1, by hand: 0.5 - 0.1 * 1 = 0.4 and so on.
    let after = |proximal| {
        let mut updater = Updater::new(&UpdateSpec { proximal, ..PLAIN }, 3).unwrap();
        let mut params = START;
        updater.apply(&mut params, &[1.0, -2.0, 19.5], Version(0));
        params
    };
    close(after(Proximal::None), [0.4, -1.05, 0.05]);
    close(after(Proximal::L1 { lambda: 1.0 }), [0.3, -0.95, 0.0]);
    close(after(Proximal::L2 { lambda: 10.0 }), [0.2, -0.525, 0.025]);
    close(after(Proximal::Box { low: -1.0, high: 0.25 }), [0.25, -1.0, 0.05]);
}

/// The minimum of `(p - 2)^2 / 2 + lambda |p|` is the soft threshold of 2.
#[test]
fn a_penalty_on_magnitudes_is_minimised() {
    for (lambda, least) in [(0.5, 1.5), (3.0, 0.0)] {
        let spec = UpdateSpec { proximal: Proximal::L1 { lambda }, ..PLAIN };
        let mut updater = Updater::new(&spec, 1).unwrap();
        let mut params = [-1.0_f32];
        for version in 0..500 {
            let gradient = [params[0] - 2.0];
            updater.apply(&mut params, &gradient, Version(version));
        }
        assert!((params[0] - least).abs() < 1e-5, "{params:?} for {lambda}");
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let cases = [
        (UpdateSpec { learning_rate: 0.0, ..PLAIN }, "learning rate 0: must be finite and above 0"),
        (
            UpdateSpec { learning_rate: f32::NAN, ..PLAIN },
            "learning rate NaN: must be finite and above 0",
        ),
        (
            UpdateSpec { weight_decay: -0.5, ..PLAIN },
            "weight decay -0.5: must be finite and at least 0",
        ),
        (
            UpdateSpec { clip_norm: Some(f32::INFINITY), ..PLAIN },
            "clip norm inf: must be finite and above 0",
        ),
        (
            UpdateSpec {
                optimizer: OptimizerSpec::FTRL,
                schedule: Schedule::Inverse { decay: 0.5 },
                ..PLAIN
            },
            "optimizer ftrl sets the rate of each parameter by itself: schedule must be constant",
        ),
        (
            UpdateSpec { proximal: Proximal::Box { low: 1.0, high: 0.5 }, ..PLAIN },
            "proximal box to 0.5: must be finite and not below where it begins",
        ),
        (
            UpdateSpec { schedule: Schedule::Cosine { updates: 1, floor: 0.25 }, ..PLAIN },
            "schedule floor 0.25: must be from 0 to the learning rate",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(Updater::new(&spec, 3).unwrap_err().to_string(), expected);
    }
}

#[test]
fn numbers_of_words_out_of_range_are_refused_by_name() {
    let adam = |beta1, beta2, epsilon| OptimizerSpec::Adam { beta1, beta2, epsilon };
    let optimizer = |optimizer| UpdateSpec { optimizer, ..PLAIN };
    let schedule = |schedule| UpdateSpec { schedule, ..PLAIN };
    let (share, positive) = ("at least 0 and below 1", "finite and above 0");
    let (not_negative, count) = ("finite and at least 0", "1 to 2^64 - 1");
    for (spec, number, allowed) in [
        (optimizer(OptimizerSpec::Momentum { momentum: 1.0 }), "momentum:1: MU", share),
        (optimizer(OptimizerSpec::Nesterov { momentum: -0.1 }), "nesterov:-0.1: MU", share),
        (optimizer(OptimizerSpec::AdaGrad { epsilon: 0.0 }), "adagrad:0: EPSILON", positive),
        (optimizer(adam(1.5, 0.9, 1.0)), "adam:1.5,0.9,1: BETA1", share),
        (optimizer(adam(0.9, f32::NAN, 1.0)), "adam:0.9,NaN,1: BETA2", share),
        (optimizer(adam(0.9, 0.9, -1.0)), "adam:0.9,0.9,-1: EPSILON", positive),
        (
            optimizer(OptimizerSpec::Ftrl { beta: -1.0, l1: 0.0, l2: 0.0 }),
            "ftrl:-1,0,0: BETA",
            not_negative,
        ),
        (
            UpdateSpec { proximal: Proximal::L1 { lambda: 0.0 }, ..PLAIN },
            "proximal = l1:0: LAMBDA",
            positive,
        ),
        (schedule(Schedule::Step { every: 0, factor: 0.5 }), "step:0,0.5: EVERY", count),
        (schedule(Schedule::Step { every: 1, factor: 0.0 }), "step:1,0: FACTOR", positive),
        (schedule(Schedule::Cosine { updates: 0, floor: 0.0 }), "cosine:0,0: UPDATES", count),
        (schedule(Schedule::Inverse { decay: -1.0 }), "schedule = inverse:-1: DECAY", not_negative),
    ] {
        let error = Updater::new(&spec, 3).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{number} must be {allowed}")), "{error}");
        assert!(error.contains(" = "), "the setting is named: {error}");
    }
}

#[test]
fn optimisers_have_the_usual_numbers() {
    for (word, usual) in [
        ("momentum", OptimizerSpec::MOMENTUM),
        ("nesterov", OptimizerSpec::NESTEROV),
        ("adagrad", OptimizerSpec::ADAGRAD),
        ("adam", OptimizerSpec::ADAM),
        ("ftrl", OptimizerSpec::FTRL),
    ] {
        assert_eq!(word.parse(), Ok(usual));
    }
    let ftrl = OptimizerSpec::Ftrl { beta: 1.0, l1: 2.0, l2: 0.5 };
    assert_eq!("ftrl:1,2,0.5".parse(), Ok(ftrl));
    assert_eq!("momentum:0.5".parse(), Ok(OptimizerSpec::Momentum { momentum: 0.5 }));
    assert_eq!("step:100,0.5".parse(), Ok(Schedule::Step { every: 100, factor: 0.5 }));
    assert_eq!("l1:0.01".parse(), Ok(Proximal::L1 { lambda: 0.01 }));
    assert_eq!("box:-1,2.5".parse(), Ok(Proximal::Box { low: -1.0, high: 2.5 }));
    for wrong in ["sgdd", "adam:0.9", "ftrl:1"] {
        let error = wrong.parse::<OptimizerSpec>().unwrap_err().to_string();
        assert!(error.contains(": use sgd, momentum[:MU], "), "{error}");
    }
    assert!("step:1".parse::<Schedule>().unwrap_err().to_string().contains(": use constant, "));
    assert!("l3:1".parse::<Proximal>().unwrap_err().to_string().contains(": use none, "));
}

#[test]
fn one_that_was_saved_goes_on_to_the_same_bits() {
    for optimizer in [
        OptimizerSpec::Sgd,
        OptimizerSpec::MOMENTUM,
        OptimizerSpec::NESTEROV,
        OptimizerSpec::ADAGRAD,
        OptimizerSpec::ADAM,
        OptimizerSpec::Ftrl { beta: 1.0, l1: 0.5, l2: 0.25 },
    ] {
        let spec = UpdateSpec { optimizer, ..PLAIN };
        let mut updater = Updater::new(&spec, 3).unwrap();
        let mut params = START;
        for version in 0..3 {
            updater.apply(&mut params, &[0.5, -1.0, 2.0], Version(version));
        }
        let mut saved = Saved::default();
        updater.archive(&mut Archive::save(&mut saved, 3)).unwrap();
        let mut other = Updater::new(&spec, 3).unwrap();
        let mut archive = Archive::restore(&saved, 3);
        other.archive(&mut archive).unwrap();
        archive.finish().unwrap();
        let mut again = params;
        updater.apply(&mut params, &[1.0, 0.25, -3.0], Version(3));
        other.apply(&mut again, &[1.0, 0.25, -3.0], Version(3));
        assert_eq!(params.map(f32::to_bits), again.map(f32::to_bits), "{optimizer:?}");
    }
}
