//! The decoder under hostile bytes: it returns an error or a message, never panics, and holds no
//! more memory than its input accounts for.

use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAlloc, PeakMemAllocTrait};
use proptest::prelude::*;
use pstrain_compute::rng::{Random, Stream};
use pstrain_tests::{KINDS, Messages, OPEN, frame, within};
use pstrain_wire::{CHECKSUM_BYTES, Decoder, FrameError, HEADER_BYTES, Limits, Message, PROTOCOL};

#[global_allocator]
static MEMORY: &PeakMemAlloc<System> = &INSTRUMENTED_SYSTEM;
/// The allocator counts for the whole process, so the tests of this file take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Memory that the decoder may hold in addition to what its input accounts for. A list in a control
/// part is allocated by its stated length, up to the 1 MiB at which serde stops trusting it. A text
/// in the list item that is being read (the name of a worker in a status) is allocated up to the 64
/// KiB that the codec grants a small control part.
const BELIEVED_BYTES: usize = 1024 * 1024 + 64 * 1024;
/// Most bytes of memory per byte of input: the growth of the buffer (a factor of 2), and fields
/// that take more bytes in memory than on the wire.
const GROWTH: usize = 32;
const CASES: u64 = 1_000_000;

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts of the decoder's results.
#[derive(Debug, Default)]
struct Tally {
    messages: u64,
    malformed: u64,
    refused: u64,
    unfinished: u64,
}

/// Feeds `bytes` in random pieces until the end or an error, and bounds the memory that takes.
fn decode(rng: &mut Random, limits: Limits, bytes: &[u8], tally: &mut Tally) {
    MEMORY.reset_peak_memory();
    let mut decoder = Decoder::new(limits);
    let mut rest = bytes;
    loop {
        match decoder.next() {
            Ok(Some(_)) => tally.messages += 1,
            Ok(None) if rest.is_empty() => {
                tally.unfinished += u64::from(decoder.is_mid_frame());
                break;
            }
            Ok(None) => {
                let cut = 1 + rng.below(rest.len() as u64) as usize;
                decoder.feed(&rest[..cut]);
                rest = &rest[cut..];
            }
            Err(error) => {
                assert_eq!(decoder.next(), Err(error), "an error is the last word");
                match error {
                    FrameError::Malformed(_) => tally.malformed += 1,
                    _ => tally.refused += 1,
                }
                break;
            }
        }
    }
    let (held, allowed) = (MEMORY.get_peak_memory(), GROWTH * bytes.len() + BELIEVED_BYTES);
    assert!(held <= allowed, "{held} bytes held for {} given: {bytes:02x?}", bytes.len());
}

/// Applies a random change, such as a bad line or an attacker makes.
fn mutate(rng: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = |rng: &mut Random, bytes: &[u8]| rng.below(bytes.len().max(1) as u64) as usize;
    match rng.below(6) {
        0 => {
            for _ in 0..=rng.below(4) {
                let at = at(rng, bytes);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
        1 => bytes.truncate(at(rng, bytes)),
        2 => {
            let (begin, from) = (at(rng, bytes), at(rng, other));
            bytes.splice(begin.., other[from.min(other.len())..].iter().copied());
        }
        3 => {
            // A false length in the header.
            let field = 8 + 4 * rng.below(2) as usize;
            let length = (rng.bits() as u32) >> rng.below(32);
            if let Some(word) = bytes.get_mut(field..field + 4) {
                word.copy_from_slice(&length.to_le_bytes());
            }
        }
        4 => {
            // Bytes in the control part that announce a long list, text or number.
            let at = HEADER_BYTES + rng.below(24) as usize;
            if let Some(word) = bytes.get_mut(at..at + 5) {
                word[0] = 251 + rng.below(3) as u8;
                word[1..].copy_from_slice(&((rng.bits() as u32) >> rng.below(32)).to_le_bytes());
            }
        }
        _ => {
            let (begin, count) = (at(rng, bytes), rng.below(20));
            let noise: Vec<u8> = (0..count).map(|_| rng.bits() as u8).collect();
            bytes.splice(begin..begin, noise);
        }
    }
}

/// Makes the header and checksum of `bytes` consistent again, except for the mutated fields, so
/// that these get past the checks of the frame.
fn repair(rng: &mut Random, bytes: &mut [u8]) {
    let Some((header, rest)) = bytes.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let Some((body, checksum)) = rest.split_last_chunk_mut::<CHECKSUM_BYTES>() else { return };
    header[..5].copy_from_slice(&[b'P', b'S', b'T', b'R', PROTOCOL.version]);
    header[5] = 1 + header[5].wrapping_sub(1) % KINDS as u8;
    header[6..8].copy_from_slice(&PROTOCOL.layout.to_le_bytes());
    let stated = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let control = if rng.below(4) == 0 { body.len() } else { stated.min(body.len()) };
    header[8..12].copy_from_slice(&(control as u32).to_le_bytes());
    let payload = body.len() - control;
    header[12..16].copy_from_slice(&(payload as u32).to_le_bytes());
    *checksum = crc32c::crc32c_append(crc32c::crc32c(header), body).to_le_bytes();
}

/// The form and the number of keys that a push states are arbitrary; the decoded gradient has the
/// model's size at most.
#[test]
fn hostile_forms_of_a_gradient_take_no_more_than_the_model() {
    const VALUES: usize = 3000;
    within(Duration::from_secs(300), || {
        let _turn = turn();
        let mut messages = Messages::new(Stream::new(21).fork("messages", 0).rng(), 12);
        let limits = Limits::of_worker(VALUES);
        let (mut read, mut malformed) = (0, 0);
        for _ in 0..CASES / 4 {
            let bytes = frame(&messages.hostile_push(VALUES as u64));
            MEMORY.reset_peak_memory();
            let mut decoder = Decoder::new(limits);
            decoder.feed(&bytes);
            match decoder.next() {
                Ok(Some(Message::Push(push))) => {
                    assert!(push.gradient.len() <= VALUES);
                    read += 1;
                }
                Err(FrameError::Malformed(_)) => malformed += 1,
                other => panic!("{other:?}"),
            }
            // The values, the chosen keys, and the gradient that they are written to.
            let allowed = GROWTH * bytes.len() + 3 * size_of::<f32>() * VALUES + 4096;
            let held = MEMORY.get_peak_memory();
            assert!(held <= allowed, "{held} bytes held for {} given", bytes.len());
        }
        assert!(read > 1000 && malformed > 1000, "{read} read, {malformed} malformed");
    });
}

#[test]
fn a_million_hostile_frames_neither_panic_nor_take_memory() {
    within(Duration::from_secs(300), || {
        let _turn = turn();
        let stream = Stream::new(20).fork("hostile", 0);
        let mut rng = stream.rng();
        let mut messages = Messages::new(stream.fork("messages", 0).rng(), 12);
        let pool = (0..3000).map(|case| {
            let (number, message) = (1 + case % KINDS, messages.of_kind(1 + case % KINDS));
            assert_eq!(message.kind() as u64, number, "no random message has this number");
            assert!(message.kind().content().is_some() || message.payload().is_empty());
            frame(&message)
        });
        let pool: Vec<Vec<u8>> = pool.collect();
        let all = [Limits::UNAUTHENTICATED, Limits::DIALER, Limits::of_worker(12), OPEN];
        let mut tally = Tally::default();
        let mut bytes = Vec::new();
        for _ in 0..CASES {
            let pick = |rng: &mut Random| rng.below(pool.len() as u64) as usize;
            let (one, other) = (pick(&mut rng), pick(&mut rng));
            bytes.clone_from(&pool[one]);
            if rng.below(50) == 0 {
                bytes.iter_mut().for_each(|byte| *byte = rng.bits() as u8);
            }
            for _ in 0..=rng.below(3) {
                mutate(&mut rng, &mut bytes, &pool[other]);
            }
            if rng.below(2) == 0 {
                repair(&mut rng, &mut bytes);
            }
            let limits = all[rng.below(4) as usize];
            decode(&mut rng, limits, &bytes, &mut tally);
        }
        // The cases prove something only if they reach every result.
        let least = CASES / 50;
        assert!(tally.messages > least && tally.malformed > least, "{tally:?}");
        assert!(tally.refused > least && tally.unfinished > least, "{tally:?}");
    });
}

/// Strategy for a few arbitrary messages.
fn messages(most: u64) -> impl Strategy<Value = Vec<Message>> {
    (any::<u64>(), 1..6_usize).prop_map(move |(seed, count)| {
        let mut messages = Messages::new(Stream::new(seed).rng(), most);
        (0..count).map(|_| messages.any()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_message_survives_arbitrary_cuts(
        messages in messages(40),
        cuts in proptest::collection::vec(1..200_usize, 1..40),
    ) {
        let _turn = turn();
        let bytes: Vec<u8> = messages.iter().flat_map(frame).collect();
        let mut decoder = Decoder::new(OPEN);
        let mut found = Vec::new();
        let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            decoder.feed(now);
            rest = later;
            while let Some(message) = decoder.next().unwrap() {
                found.push(message);
            }
        }
        prop_assert!(!decoder.is_mid_frame());
        // Compare as bytes, since a NaN is not equal to itself.
        prop_assert_eq!(found.len(), messages.len());
        prop_assert_eq!(found.iter().flat_map(frame).collect::<Vec<u8>>(), bytes);
    }

    #[test]
    fn one_flipped_bit_is_never_taken_for_a_message(
        messages in messages(20),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let _turn = turn();
        let mut bytes = frame(&messages[0]);
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut decoder = Decoder::new(OPEN);
        decoder.feed(&bytes);
        // A changed length may also wait for bytes that do not come.
        prop_assert!(!matches!(decoder.next(), Ok(Some(_))), "bit {bit} of byte {at}");
    }
}
