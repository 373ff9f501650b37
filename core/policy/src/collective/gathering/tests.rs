use alloc::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use pstrain_compute::filter::{FilterChain, Filters, Form, KeyForm, PieceForm, ValueForm};
use pstrain_compute::id::{BatchId, Sequence, WorkerId};
use pstrain_compute::optim::UpdateSpec;
use pstrain_compute::params::Layout;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;

const CHAINS: [&str; 7] =
    ["zero-skip", "top-k:0.1", "random-k:0.3", "fp16", "int8", "one-bit", "top-k:0.2,int8"];

/// The values of a piece.
const MOST: usize = 300;

/// The filtered gradient of a rank.
fn filtered(chain: &str, rank: Rank, len: usize, seed: u64) -> Filtered {
    let chain = Filters::read_chain(chain).unwrap();
    let filters = Filters { chain, ..Filters::default() };
    let mut layout = Layout::new();
    layout.push("values".into(), vec![len]);
    let (update, worker, seed) = (UpdateSpec::sgd(0.1), WorkerId(rank), Stream::new(seed));
    let mut rng = seed.fork("vector", rank.into()).rng();
    let gradient = (0..len).map(|_| (rng.unit() as f32 - 0.5) * 8.0).collect();
    let mut chain = FilterChain::new((&filters, None), &update, seed, worker, &layout).unwrap();
    chain.filter(gradient, Sequence(1), Task::own(worker, BatchId(0)), None, &[])
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The sums at all ranks, whose pieces arrive in an order drawn from `seed`.
fn gathered(parts: &[Option<(Filtered, f32)>], len: usize, seed: u64) -> Vec<Vec<f32>> {
    let ranks = parts.len() as u32;
    let mut ends: Vec<Gathering> =
        (0..ranks).map(|rank| Gathering::of_pieces(rank, ranks, len, MOST)).collect();
    let mut waiting: Vec<Rank> = (0..ranks).collect();
    let mut links: BTreeMap<(Rank, Rank), VecDeque<Outgoing>> = BTreeMap::new();
    let mut rng = Stream::new(seed).fork("order", 0).rng();
    loop {
        links.retain(|_, queue| !queue.is_empty());
        let choices = waiting.len() + links.len();
        if choices == 0 {
            break;
        }
        let choice = rng.below(choices as u64) as usize;
        if choice < waiting.len() {
            let rank = waiting.swap_remove(choice);
            let mut out = Vec::new();
            match &parts[rank as usize] {
                Some((own, factor)) => ends[rank as usize].begin(own, *factor, &mut out),
                None => ends[rank as usize].begin_without(&mut out),
            }
            for outgoing in out {
                links.entry((rank, outgoing.to)).or_default().push_back(outgoing);
            }
            continue;
        }
        let place = links.keys().nth(choice - waiting.len()).copied();
        let (from, to) = place.expect("the link has a piece");
        let Some(Outgoing { piece, content: Content::Encoded(factor, values), .. }) =
            links.get_mut(&(from, to)).and_then(VecDeque::pop_front)
        else {
            panic!("an all-gather sends encoded values")
        };
        ends[to as usize].receive(from, piece, factor, values).unwrap();
    }
    ends.into_iter().map(Gathering::into_sum).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_ranks_have_the_sum_in_the_order_of_the_ranks_whatever_the_order_of_messages(
        has_part in proptest::collection::vec(any::<bool>(), 1..10),
        chain in prop::sample::select(&CHAINS[..]),
        len in prop::sample::select(vec![1_usize, 7, 65, 299, 300, 301, 1000, 10_000]),
        seed: u64,
    ) {
        let part = |(rank, has_part): (Rank, &bool)| {
            has_part.then(|| (filtered(chain, rank, len, seed), 0.1 + rank as f32 / 7.0))
        };
        let parts: Vec<_> = (0..).zip(&has_part).map(part).collect();
        let mut wanted = vec![0.0_f32; len];
        for (own, factor) in parts.iter().flatten() {
            wanted.iter_mut().zip(&*own.gradient).for_each(|(sum, value)| *sum += factor * value);
        }
        for sum in gathered(&parts, len, seed) {
            prop_assert_eq!(bits(&sum), bits(&wanted), "{}", chain);
        }
    }
}

#[test]
fn a_rank_sends_the_bytes_of_its_filtered_gradient_to_each_other_one() {
    let (len, ranks) = (40_000, 5);
    let own = filtered("top-k:0.01", 2, len, 1);
    let mut out = Vec::new();
    Gathering::new(2, ranks, len).begin(&own, 1.0, &mut out);
    let sent: u64 = out.iter().map(|outgoing| outgoing.content.bytes()).sum();
    // 400 values, and a byte or two for the gap before each key.
    assert!((4 * 400 * 5..4 * 400 * 6).contains(&sent), "{sent}");
    out.clear();
    Gathering::new(2, ranks, len).begin_without(&mut out);
    assert!(!out.is_empty() && out.iter().all(|outgoing| outgoing.content.bytes() == 0));
}

#[test]
fn values_that_do_not_belong_to_the_all_gather_are_refused() {
    let mut gathering = Gathering::new(1, 3, 30);
    let whole = Encoded::of_all(&[1.0; 30]);
    let mut receive = |from, piece, values: &Encoded| {
        gathering.receive(from, piece, 0.5, Arc::new(values.clone()))
    };
    let unexpected = Err(ReductionError::Unexpected { piece: 0 });
    let malformed = Err(ReductionError::Malformed { piece: 0 });
    assert_eq!(receive(0, 1, &whole), Err(ReductionError::Piece { piece: 1, pieces: 1 }));
    assert_eq!(receive(1, 0, &whole), unexpected, "the rank's own values");
    assert_eq!(receive(3, 0, &whole), unexpected, "there is no such rank");
    // Of the rank whose turn it is, and of a later one.
    for from in [0, 2] {
        assert_eq!(receive(from, 0, &Encoded::of_all(&[1.0; 29])), malformed);
        let form = Form { keys: KeyForm::Gaps(9), values: ValueForm::Half, state: 0 };
        assert_eq!(receive(from, 0, &Encoded { form, bytes: vec![255; 29] }), malformed);
        let form = Form { keys: KeyForm::All, values: ValueForm::Single, state: 3 };
        assert_eq!(receive(from, 0, &Encoded { form, bytes: vec![0; 120] }), malformed);
        // A matrix whose factors are longer than its values.
        let piece = PieceForm { values: 30, rank: 255, columns: 30, first: 0 };
        let values = ValueForm::Pieces(vec![piece]);
        let form = Form { keys: KeyForm::All, values, state: 0 };
        let long = Encoded { form, bytes: vec![0; 4 * 255 * (1 + 30)] };
        assert_eq!(long.add_to(&mut [0.0; 30], 1.0), Ok(()));
        assert_eq!(receive(from, 0, &long), malformed);
    }
    for from in [2, 0] {
        assert_eq!(receive(from, 0, &whole), Ok(()));
        assert_eq!(receive(from, 0, &whole), unexpected, "again");
    }
    assert!(!gathering.is_done());
    gathering.begin_without(&mut Vec::new());
    assert!(gathering.into_sum().iter().all(|sum| *sum == 1.0));
}

#[test]
fn a_factor_that_is_not_finite_is_refused() {
    let malformed = Err(ReductionError::Malformed { piece: 0 });
    let mut gathering = Gathering::new(1, 3, 30);
    for factor in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let whole = Arc::new(Encoded::of_all(&[1.0; 30]));
        assert_eq!(gathering.receive(0, 0, factor, whole), malformed, "{factor}");
    }
}
