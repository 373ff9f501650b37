use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::collective::Rank;
use pstrain_compute::rng::{Random, Stream};

/// Faults of the network.
#[derive(Clone, Copy, Debug)]
struct Network {
    loses: bool,
    duplicates: bool,
    reorders: bool,
}

const PERFECT: Network = Network { loses: false, duplicates: false, reorders: false };

/// Packets on their way from a sender to a receiver.
#[derive(Default)]
struct Link(Vec<Packet>);

impl Link {
    /// The next packet that arrives, if it is not lost.
    fn arrives(&mut self, network: Network, random: &mut Random) -> Option<Packet> {
        let most = if network.reorders { self.0.len() as u64 } else { 1 };
        let packet = self.0.remove(random.below(most) as usize);
        if network.duplicates && random.below(5) == 0 {
            self.0.push(packet.clone());
        }
        (!network.loses || random.below(5) > 0).then_some(packet)
    }
}

/// All workers' vectors, one after the other.
type Vectors = Vec<Vec<Vec<f32>>>;

fn vectors(ranks: u32, count: u64, len: usize, random: &mut Random) -> Vectors {
    let mut value = || {
        let scale = libm::ldexpf(1.0, random.below(60) as i32 - 40);
        if random.below(6) == 0 { 0.0 } else { (random.unit() as f32 - 0.5) * scale }
    };
    let mut vector = || (0..len).map(|_| value()).collect();
    (0..ranks).map(|_| (0..count).map(|_| vector()).collect()).collect()
}

/// The result of an aggregation.
struct Run {
    /// The sums of each rank's vectors.
    sums: Vectors,
    /// The packets that each rank sent.
    sent: Vec<u64>,
}

/// Lets all ranks sum their vectors, one after the other, each at its own pace.
fn aggregate(layout: Layout, vectors: &Vectors, network: Network, random: &mut Random) -> Run {
    let ranks = vectors.len() as u32;
    let mut aggregator = Aggregator::new(layout, ranks);
    let mut workers: Vec<Streaming> =
        (0..ranks).map(|_| Streaming::new(layout, ranks, 0)).collect();
    let mut up: Vec<Link> = vectors.iter().map(|_| Link::default()).collect();
    let mut down: Vec<Link> = vectors.iter().map(|_| Link::default()).collect();
    let mut run =
        Run { sums: vectors.iter().map(|_| Vec::new()).collect(), sent: vec![0; vectors.len()] };
    for (worker, own) in workers.iter_mut().zip(vectors) {
        worker.begin(own[0].clone(), 1.0);
    }
    let mut steps = 0;
    while run.sums.iter().any(|sums| sums.len() < vectors[0].len()) {
        steps += 1;
        assert!(steps < 1_000_000, "the aggregation does not end");
        let rank = random.below(ranks.into()) as usize;
        let sent = workers[rank].packets();
        let before = up[rank].0.len();
        up[rank].0.extend(sent);
        run.sent[rank] += (up[rank].0.len() - before) as u64;
        match random.below(2) {
            0 if !up[rank].0.is_empty() => {
                let Some(packet) = up[rank].arrives(network, random) else { continue };
                match aggregator.take(rank as Rank, packet).unwrap() {
                    Answer::Nothing => {}
                    Answer::All(sum) => down.iter_mut().for_each(|it| it.0.push(sum.clone())),
                    Answer::Sender(sum) => down[rank].0.push(sum),
                }
            }
            1 if !down[rank].0.is_empty() => {
                let Some(sum) = down[rank].arrives(network, random) else { continue };
                workers[rank].receive(&sum).unwrap();
            }
            _ if network.loses && random.below(10) == 0 => workers[rank].repeat(),
            _ => {}
        }
        let done = run.sums[rank].len();
        if workers[rank].is_done() && done < vectors[0].len() {
            let next = Streaming::new(layout, ranks, done as u64 + 1);
            run.sums[rank].push(core::mem::replace(&mut workers[rank], next).into_values());
            if let Some(values) = vectors[rank].get(done + 1) {
                workers[rank].begin(values.clone(), 1.0);
            }
        }
    }
    run
}

/// The sums as integers say, chunk by chunk.
fn expected(layout: Layout, vectors: &[&[f32]]) -> Vec<f32> {
    let ranks = vectors.len() as u32;
    let mut sums = vec![0.0; layout.vector_len()];
    for slot in 0..layout.slots() {
        for turn in 0..layout.turns(slot) {
            let chunk = layout.chunk(slot, turn);
            let of = |vector: &&[f32]| Exponent::of(&vector[chunk.clone()]);
            let exponent = vectors.iter().map(of).max().unwrap();
            let mut integers = vec![0_i32; chunk.len()];
            for vector in vectors {
                let own = exponent.to_integers(&vector[chunk.clone()], ranks);
                for (sum, integer) in integers.iter_mut().zip(own) {
                    *sum = sum.checked_add(integer).expect("the sum fits");
                }
            }
            for (key, sum) in chunk.zip(exponent.to_values(&integers, ranks)) {
                sums[key] = sum;
            }
        }
    }
    sums
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn check(seed: u64, network: Network) {
    let mut random = Stream::new(seed).fork("in-network", 0).rng();
    let ranks = 2 + random.below(6) as u32;
    let len = 1 + random.below(40) as usize;
    let layout = Layout::new(len, 1 + random.below(6) as u32, 1 + random.below(9) as u32);
    let vectors = vectors(ranks, 3, len, &mut random);
    let run = aggregate(layout, &vectors, network, &mut random);
    for place in 0..3 {
        let all: Vec<&[f32]> = vectors.iter().map(|own| own[place].as_slice()).collect();
        let wanted = expected(layout, &all);
        for sums in &run.sums {
            assert_eq!(bits(&sums[place]), bits(&wanted), "{network:?} {layout:?} {ranks}");
        }
    }
}

/// Loss, duplication and reordering in all combinations, 10,000 schedules in all.
#[test]
fn sums_are_exact_and_each_packet_counts_once_whatever_the_network_does() {
    for seed in 0..10_000 {
        let [loses, duplicates, reorders] = [1, 2, 4].map(|bit| seed & bit > 0);
        check(seed, Network { loses, duplicates, reorders });
    }
}

#[test]
fn without_loss_a_worker_sends_each_chunk_once_and_an_exponent_for_each_slot() {
    for seed in 0..100 {
        let mut random = Stream::new(seed).fork("packets", 0).rng();
        let (len, values) = (1 + random.below(100) as usize, 1 + random.below(9) as u32);
        let layout = Layout::new(len, 1 + random.below(6) as u32, values);
        let vectors = vectors(3, 2, len, &mut random);
        let run = aggregate(layout, &vectors, PERFECT, &mut random);
        let wanted = 2 * (len.div_ceil(values as usize) as u64 + u64::from(layout.slots()));
        assert_eq!(run.sent, [wanted; 3]);
    }
}

#[test]
fn the_chunks_of_all_turns_are_the_vector() {
    for (len, slots, values) in [(1, 1, 1), (1, 9, 9), (10, 3, 3), (100, 7, 4), (64, 4, 16)] {
        let layout = Layout::new(len, slots, values);
        let turns = (0..layout.slots())
            .flat_map(|slot| (0..layout.turns(slot)).map(move |turn| (slot, turn)));
        let mut chunks: Vec<_> = turns.map(|(slot, turn)| layout.chunk(slot, turn)).collect();
        chunks.retain(|chunk| !chunk.is_empty());
        chunks.sort_unstable_by_key(|chunk| chunk.start);
        assert_eq!(chunks.iter().map(ExactSizeIterator::len).sum::<usize>(), len);
        assert!(chunks.windows(2).all(|two| two[0].end == two[1].start), "{chunks:?}");
        assert!(chunks.iter().all(|chunk| chunk.len() <= values as usize));
    }
}

proptest! {
    #[test]
    fn a_sum_differs_from_the_real_one_by_the_bound_of_its_exponent(
        columns in prop::collection::vec(-1e30_f32..1e30, 1..40),
        power in -120_i32..20,
    ) {
        let values: Vec<f32> = columns.iter().map(|value| libm::ldexpf(*value, power)).collect();
        let ranks = values.len() as u32;
        let each = values.iter().map(core::slice::from_ref);
        let exponent = each.clone().map(Exponent::of).max().unwrap();
        let integers: i32 = each.map(|value| exponent.to_integers(value, ranks)[0]).sum();
        let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let got = f64::from(exponent.to_values(&[integers], ranks).next().unwrap());
        // N / (2 f) with a power of two of at most twice the greatest value, and the rounding of
        // the result to single precision.
        let ranks = f64::from(ranks);
        let bound = ranks * ranks * 2.0 * f64::from(most) / 2.0 / (2_147_483_648.0 - ranks);
        prop_assert!((got - sum).abs() <= bound + got.abs() * 1e-7, "{got} {sum} {bound}");
    }
}

#[test]
fn zeros_stay_zeros_and_a_value_that_is_not_finite_is_seen_by_all() {
    let layout = Layout::new(4, 2, 2);
    let mut random = Stream::new(1).rng();
    let run = |first: f32, random: &mut Random| {
        let vectors = vec![vec![vec![first, 0.0, 0.0, 0.0]], vec![vec![0.0, 1.0, 0.0, -0.0]]];
        aggregate(layout, &vectors, PERFECT, random).sums
    };
    assert_eq!(run(0.5, &mut random), vec![vec![vec![0.5, 1.0, 0.0, 0.0]]; 2]);
    for bad in [f32::NAN, f32::INFINITY] {
        for sums in run(bad, &mut random) {
            assert!(sums[0][0].is_nan() && sums[0][2..] == [0.0, 0.0]);
        }
    }
}

#[test]
fn the_greatest_and_the_smallest_values_keep_their_sums() {
    for value in [f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), 1.0, 0.75, 3.0] {
        for ranks in [1, 2, 7, 1000] {
            let exponent = Exponent::of(&[value, -value]);
            let integers = exponent.to_integers(&[value, -value], ranks);
            let sums: Vec<i32> =
                integers.iter().map(|it| it.checked_mul(ranks as i32).unwrap()).collect();
            let wanted = f64::from(value) * f64::from(ranks);
            for (sum, sign) in exponent.to_values(&sums, ranks).zip([1.0, -1.0]) {
                let sum = f64::from(sum) * sign;
                let is_near = (sum - wanted).abs() <= wanted * 1e-5 || wanted > f64::from(f32::MAX);
                assert!(is_near, "{value} x {ranks}: {sum}, not {wanted}");
            }
        }
    }
}

#[test]
fn packets_that_a_worker_had_not_to_send_are_refused() {
    let mut aggregator = Aggregator::new(Layout::new(10, 2, 3), 2);
    let packet = |slot, turn, len: usize| Packet {
        slot,
        turn,
        next: Exponent::ZERO,
        values: Arc::new(vec![1; len]),
    };
    let mut take = |from, packet: Packet| aggregator.take(from, packet);
    assert_eq!(take(0, packet(2, 0, 0)), Err(PacketError::Slot { slot: 2, slots: 2 }));
    let wrong = PacketError::Length { slot: 0, turn: 0, wanted: 0, given: 1 };
    assert_eq!(take(0, packet(0, 0, 1)), Err(wrong));
    let wrong = PacketError::Length { slot: 1, turn: 2, wanted: 1, given: 3 };
    assert_eq!(take(0, packet(1, 2, 3)), Err(wrong));
    for turn in 1..3 {
        let chunk = Layout::new(10, 2, 3).chunk(0, turn);
        let early = PacketError::Early { slot: 0, turn };
        assert_eq!(take(0, packet(0, turn, chunk.len())), Err(early));
    }
    assert_eq!(take(0, packet(0, 0, 0)), Ok(Answer::Nothing));
    assert_eq!(take(0, packet(0, 0, 0)), Ok(Answer::Nothing));
    assert_eq!(take(0, packet(0, 1, 3)), Err(PacketError::Early { slot: 0, turn: 1 }));
    assert_eq!(take(1, packet(0, 0, 0)), Ok(Answer::All(packet(0, 0, 0))));
    assert_eq!(take(0, packet(0, 0, 0)), Ok(Answer::Sender(packet(0, 0, 0))));
    assert_eq!(take(0, packet(0, 1, 3)), Ok(Answer::Nothing));
    assert_eq!(take(1, packet(0, 0, 0)), Ok(Answer::Sender(packet(0, 0, 0))));
}
