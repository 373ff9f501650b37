//! Fuzz target of the decoder: arbitrary bytes, in arbitrary pieces, under several limits. It must
//! not panic, an error is final, and a decoded message survives another round trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pstrain_wire::{Decoder, HEADER_BYTES, Limits, Message, PROTOCOL, encode};

const OPEN: Limits = Limits { control: 1 << 20, payload: 1 << 20 };

/// CRC-32C, bit by bit: slow, short, and independent of the implementation under test.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg())
        })
    })
}

fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).append_to(&mut bytes);
    bytes
}

/// Returns a frame with a valid header and checksum, whose kind, control part and payload come from
/// `bytes`.
fn dressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (&[kind, share], body) = bytes.split_first_chunk()?;
    let control = body.len() * usize::from(share) / 255;
    let mut frame = b"PSTR".to_vec();
    frame.extend([PROTOCOL.version, kind % 64]);
    frame.extend(PROTOCOL.layout.to_le_bytes());
    frame.extend((control as u32).to_le_bytes());
    frame.extend(((body.len() - control) as u32).to_le_bytes());
    assert_eq!(frame.len(), HEADER_BYTES);
    frame.extend(body);
    frame.extend(crc32c(&frame).to_le_bytes());
    Some(frame)
}

fn run(limits: Limits, piece: usize, bytes: &[u8]) {
    let mut decoder = Decoder::new(limits);
    for bytes in bytes.chunks(piece) {
        decoder.feed(bytes);
        loop {
            match decoder.next() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let once = frame(&message);
                    let mut again = Decoder::new(OPEN);
                    again.feed(&once);
                    let again = again.next().expect("what was encoded decodes");
                    assert_eq!(frame(&again.expect("all of it is there")), once);
                }
                Err(error) => {
                    assert_eq!(decoder.next(), Err(error));
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[mode, piece], bytes)) = bytes.split_first_chunk() else { return };
    let all = [Limits::UNAUTHENTICATED, Limits::DIALER, Limits::of_worker(10), OPEN];
    let limits = all[usize::from(mode % 4)];
    let piece = usize::from(piece) + 1;
    if mode & 4 == 0 {
        run(limits, piece, bytes);
    } else if let Some(bytes) = dressed(bytes) {
        run(limits, piece, &bytes);
    }
});
