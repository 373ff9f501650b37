//! The byte format of a server's inputs, for journal, standby and replay: a server is a function of
//! its inputs in order, with their times.
//!
//! The module does not know who stores or sends the bytes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{DialFault, Evaluated, ExactPoint, Input};
use pstrain_compute::codec;
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PeerId, Version};
use pstrain_compute::time::Time;
use pstrain_wire::identity::Identity;
use pstrain_wire::{FrameError, Tail, decode_whole, encode};

/// The header of an encoded message, or a complete encoded input.
#[derive(Serialize, Deserialize)]
enum Entry {
    Start,
    Connected(PeerId, Identity),
    Dialled(PeerId, Identity),
    DialFailed(String, DialFault),
    /// The message's frame follows.
    Message(PeerId),
    Receiving(PeerId),
    Garbage(PeerId, FrameError),
    Disconnected(PeerId, String),
    Evaluated(Box<Kept>),
    /// The frame of the part follows.
    Initial,
    Drain,
    Overslept,
    Wake,
    Unevaluated(Version, String),
    WorkersDown,
    Extend(u32),
}

/// An evaluation with all digits of its time.
#[derive(Serialize, Deserialize)]
struct Kept {
    point: ExactPoint,
    evaluation: Evaluation,
}

/// The bytes do not encode an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The entry is not valid.
    #[error("an input that this release does not know")]
    Entry,
    /// The frame of the message is not valid.
    #[error("a message: {0}")]
    Message(FrameError),
}

/// Appends a server's input, which happened at `now`, to `head`; returns the rest of a message's
/// frame. Returns none and appends nothing if the input is not one of a server.
pub fn encode_input<'a>(now: Time, input: &'a Input, head: &mut Vec<u8>) -> Option<Tail<'a>> {
    let entry = match input {
        Input::Start => Entry::Start,
        Input::Connected(peer, identity) => Entry::Connected(*peer, *identity),
        Input::Dialled(peer, identity) => Entry::Dialled(*peer, *identity),
        Input::DialFailed { why, fault } => Entry::DialFailed(why.clone(), *fault),
        Input::Message(peer, _) => Entry::Message(*peer),
        Input::Receiving(peer) => Entry::Receiving(*peer),
        Input::Garbage(peer, error) => Entry::Garbage(*peer, *error),
        Input::Disconnected { peer, why } => Entry::Disconnected(*peer, why.clone()),
        Input::Evaluated(Evaluated { point, evaluation }) => Entry::Evaluated(Box::new(Kept {
            point: (*point).into(),
            evaluation: evaluation.clone(),
        })),
        Input::Unevaluated { version, why } => Entry::Unevaluated(*version, why.clone()),
        Input::Initial(_) => Entry::Initial,
        Input::Drain => Entry::Drain,
        Input::Overslept => Entry::Overslept,
        Input::WorkersDown => Entry::WorkersDown,
        Input::Extend(epochs) => Entry::Extend(*epochs),
        Input::Wake => Entry::Wake,
        // A worker's inputs, and those of checkpoints, which a record of the inputs does not need.
        Input::Prepared(_)
        | Input::ComputedRange(_)
        | Input::Computed(_)
        | Input::ComputeFailed(_)
        | Input::EvaluatedHere(..)
        | Input::Checkpoint(_)
        | Input::Written(_) => return None,
    };
    let begin = head.len();
    head.extend_from_slice(&[0; LENGTH]);
    codec::append(&(now, entry), head);
    let length = (head.len() - begin - LENGTH) as u32;
    head[begin..begin + LENGTH].copy_from_slice(&length.to_le_bytes());
    Some(match input {
        Input::Message(_, message) | Input::Initial(message) => encode(message, head),
        _ => Tail::NONE,
    })
}

/// Size of the length field of an entry, in bytes.
const LENGTH: usize = size_of::<u32>();

/// Decodes an input that [`encode_input`] encoded, and the time it happened at.
///
/// # Errors
/// [`InputError`] if the bytes do not encode an input.
pub fn decode_input(bytes: &[u8]) -> Result<(Time, Input), InputError> {
    let entry = bytes
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
    let (entry, frame) = entry.ok_or(InputError::Entry)?;
    let (now, entry) = codec::read(entry).map_err(|_malformed| InputError::Entry)?;
    let input = match entry {
        Entry::Message(peer) => {
            let message = decode_whole(frame).map_err(InputError::Message)?;
            return Ok((now, Input::Message(peer, message)));
        }
        Entry::Initial => {
            let message = decode_whole(frame).map_err(InputError::Message)?;
            return Ok((now, Input::Initial(message)));
        }
        _ if !frame.is_empty() => return Err(InputError::Entry),
        Entry::Start => Input::Start,
        Entry::Connected(peer, identity) => Input::Connected(peer, identity),
        Entry::Dialled(peer, identity) => Input::Dialled(peer, identity),
        Entry::DialFailed(why, fault) => Input::DialFailed { why, fault },
        Entry::Receiving(peer) => Input::Receiving(peer),
        Entry::Garbage(peer, error) => Input::Garbage(peer, error),
        Entry::Disconnected(peer, why) => Input::Disconnected { peer, why },
        Entry::Evaluated(kept) => {
            let Kept { point, evaluation } = *kept;
            Input::Evaluated(Evaluated { point: point.into(), evaluation })
        }
        Entry::Drain => Input::Drain,
        Entry::Overslept => Input::Overslept,
        Entry::WorkersDown => Input::WorkersDown,
        Entry::Extend(epochs) => Input::Extend(epochs),
        Entry::Wake => Input::Wake,
        Entry::Unevaluated(version, why) => Input::Unevaluated { version, why },
    };
    Ok((now, input))
}
