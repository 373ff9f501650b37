//! The name of the wire protocol changes with the encoding of any message.

use pstrain_compute::rng::Stream;
use pstrain_tests::{KINDS, Messages, frame};
use pstrain_wire::{Decoder, FrameError, HEADER_BYTES, Limits, PROTOCOL, Protocol, crc32c};

/// Messages of each kind that are encoded: enough for every variant of their fields.
const OF_EACH: u64 = 64;

#[test]
fn the_layout_of_the_protocol_is_that_of_its_messages() {
    let mut encoded = Vec::new();
    for kind in 1..=KINDS {
        let rng = Stream::new(1).fork("protocol", kind).rng();
        let mut messages = Messages::new(rng, 4);
        // Without the header, which names the protocol, and the checksum over it.
        for _ in 0..OF_EACH {
            let frame = frame(&messages.of_kind(kind));
            encoded.extend_from_slice(&frame[HEADER_BYTES..frame.len() - 4]);
        }
    }
    let layout = crc32c(&encoded) as u16;
    assert_eq!(
        format!("{:#06x}", PROTOCOL.layout),
        format!("{layout:#06x}"),
        "messages are encoded in another way: write the right side as the layout of PROTOCOL"
    );
}

#[test]
fn a_frame_of_another_protocol_of_the_same_release_is_named_with_both() {
    let limits = Limits { control: u32::MAX, payload: u32::MAX };
    let mut frame = frame(&Messages::new(Stream::new(1).rng(), 4).of_kind(1));
    let theirs = Protocol { layout: !PROTOCOL.layout, ..PROTOCOL };
    frame[6..8].copy_from_slice(&theirs.layout.to_le_bytes());
    let mut decoder = Decoder::new(limits);
    decoder.feed(&frame);
    let error = decoder.next().unwrap_err();
    assert_eq!(error, FrameError::Version(theirs));
    let text = error.to_string();
    assert!(text.contains(&format!("protocol {theirs}, this side {PROTOCOL};")), "{text}");
}
