//! Wire format: each encoded range decodes to its values, and malformed bytes are refused.

use super::*;

fn random_form(random: &mut Random) -> Form {
    let small = |random: &mut Random| (random.bits() as u32) >> random.below(32);
    let keys = match random.below(3) {
        0 => KeyForm::All,
        1 => KeyForm::Gaps(small(random)),
        _ => KeyForm::Bitmap(small(random)),
    };
    let values = match random.below(6) {
        0 => ValueForm::Single,
        1 => ValueForm::Half,
        2 => ValueForm::Brain,
        3 => ValueForm::Multiples {
            bits: random.below(10) as u8,
            block: small(random),
            first: small(random),
        },
        4 => ValueForm::SignBits { block: small(random), first: small(random) },
        _ => ValueForm::Pieces(
            (0..random.below(4))
                .map(|_| PieceForm {
                    values: small(random),
                    rank: random.below(4) as u8,
                    columns: small(random),
                    first: small(random),
                })
                .collect(),
        ),
    };
    Form { keys, values, state: [0, small(random)][random.below(2) as usize] }
}

proptest! {
    #[test]
    fn every_range_by_itself_is_that_range_of_the_whole(
        seed: u64,
        values in 8..700_usize,
        cuts in proptest::collection::vec(0.0..1.0_f64, 0..5),
    ) {
        let given = gradient(&mut Stream::new(seed).rng(), values);
        let mut ends: Vec<u64> = cuts.iter().map(|cut| (cut * values as f64) as u64).collect();
        ends.extend([0, values as u64]);
        ends.sort_unstable();
        for chain in CHAINS {
            let mut filter_chain = filter_chain(chain, ErrorFeedback::Auto, values);
            let sent = filter_chain.filter(given.clone(), Sequence(1), task(0), None, &[]);
            for ends in ends.windows(2) {
                let Ok(range) = KeyRange::new(ends[0], ends[1]) else { continue };
                let whole = &sent.gradient[range.indices()];
                if let Some(encoded) = sent.encode(range) {
                    let read = encoded.decode(whole.len()).unwrap();
                    prop_assert_eq!(bits(&read), bits(whole), "{} {}", chain, range);
                    prop_assert!(encoded.bytes.len() < 4 * whole.len());
                }
            }
        }
    }

    #[test]
    fn random_bytes_are_a_gradient_or_an_error(seed: u64, keys in 0..300_usize) {
        let mut random = Stream::new(seed).rng();
        for _ in 0..200 {
            let form = random_form(&mut random);
            let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.bits() as u8).collect();
            if let Ok(read) = decode(&form, &bytes, keys) {
                prop_assert_eq!(read.len(), keys);
            }
        }
    }

    #[test]
    fn bytes_that_were_changed_are_a_gradient_or_an_error(seed: u64, keys in 20..300_usize) {
        let mut random = Stream::new(seed).rng();
        let given = gradient(&mut random, keys);
        let range = KeyRange::new(0, keys as u64).unwrap();
        for chain in CHAINS {
            let sent = filter_chain(chain, ErrorFeedback::Auto, keys).filter(
                given.clone(),
                Sequence(1),
                task(0),
                None,
                &[],
            );
            let Some(mut encoded) = sent.encode(range) else { continue };
            for _ in 0..10 {
                match random.below(3) {
                    0 => encoded.bytes.truncate(random.below(encoded.bytes.len() as u64) as usize),
                    1 => encoded.bytes.push(random.bits() as u8),
                    _ => {}
                }
                let place = random.below(encoded.bytes.len().max(1) as u64) as usize;
                if let Some(byte) = encoded.bytes.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
                let others = keys + random.below(3) as usize - 1;
                if let Ok(read) = encoded.decode(others) {
                    prop_assert_eq!(read.len(), others);
                }
                if encoded.bytes.is_empty() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_byte_too_many_or_too_few_is_malformed() {
    let given = gradient(&mut Stream::new(2).rng(), 100);
    let range = KeyRange::new(0, 100).unwrap();
    for chain in CHAINS {
        let sent = filter_chain(chain, ErrorFeedback::Auto, 100).filter(
            given.clone(),
            Sequence(1),
            task(0),
            None,
            &[],
        );
        let Some(mut encoded) = sent.encode(range) else { continue };
        encoded.bytes.push(0);
        assert!(encoded.decode(100).is_err(), "{chain}");
        encoded.bytes.truncate(encoded.bytes.len() - 2);
        assert!(encoded.decode(100).is_err(), "{chain}");
    }
}

proptest! {
    #[test]
    fn state_passes_all_filters_as_it_is(
        seed: u64,
        parameters in 1..300_usize,
        state in 1..40_usize,
        cut in 0.0..1.0_f64,
    ) {
        let all = parameters + state;
        let mut layout = Layout::new();
        layout.push("w".into(), vec![parameters]);
        layout.push_as(
            Role::State { combine: Combine::Mean, whole: false },
            "mean".into(),
            vec![state],
        );
        let cut = 1 + (cut * (all - 1) as f64) as u64;
        for chain in CHAINS {
            let chain_of = |layout: &Layout| {
                let filters = Filters {
                    chain: Filters::read_chain(chain).unwrap(),
                    ..Filters::default()
                };
                FilterChain::of(&filters, Stream::new(7), WorkerId(0), layout).unwrap()
            };
            let (mut with, mut without) =
                (chain_of(&layout), chain_of(&Layout::of([("w", &[parameters as u32])])));
            let mut random = Stream::new(seed).rng();
            // The second gradient has the residual of the first.
            for number in 1..3 {
                let given = gradient(&mut random, all);
                let alone = given[..parameters].to_vec();
                let number = Sequence(number);
                let sent = with.filter(given.clone(), number, task(0), None, &[]);
                let other = without.filter(alone, number, task(0), None, &[]);
                prop_assert_eq!(bits(&sent.gradient[..parameters]), bits(&other.gradient));
                prop_assert_eq!(bits(&sent.gradient[parameters..]), bits(&given[parameters..]));
                for (begin, end) in [(0, cut), (cut, all as u64)] {
                    let Ok(range) = KeyRange::new(begin, end) else { continue };
                    let Some(encoded) = sent.encode(range) else { continue };
                    let read = encoded.decode(range.len() as usize).unwrap();
                    prop_assert_eq!(bits(&read), bits(&sent.gradient[range.indices()]));
                }
            }
        }
    }
}

#[test]
fn lengths_that_overflow_are_malformed() {
    let piece = PieceForm { values: u32::MAX, rank: 255, columns: u32::MAX, first: u32::MAX - 1 };
    for values in [
        ValueForm::Pieces(vec![piece; 3]),
        ValueForm::Multiples { bits: 8, block: 1, first: 0 },
        ValueForm::SignBits { block: u32::MAX, first: u32::MAX - 1 },
    ] {
        for keys in [KeyForm::All, KeyForm::Gaps(u32::MAX), KeyForm::Bitmap(u32::MAX)] {
            let form = Form { keys, values: values.clone(), state: 0 };
            for count in [0, 1, u32::MAX as usize, usize::MAX] {
                assert!(decode(&form, &[1, 2, 3], count).is_err(), "{form:?} {count}");
            }
        }
    }
}
