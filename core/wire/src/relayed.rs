//! Messages between two workers that reach each other only by way of their meeting point.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::encoded_piece::EncodedPiece;
use crate::payload::{Content, Parts, Payload};
use crate::peers::{Activate, Inherit, Missed, Piece};
use crate::received::Received;
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::id::WorkerId;

/// Worker to meeting point: a message for another member of its group. Meeting point to worker: a
/// message of another member.
#[derive(Clone, Debug, PartialEq)]
pub struct Relayed {
    /// The group.
    pub generation: u64,
    /// The other member.
    pub other: WorkerId,
    /// The message.
    pub message: MemberMessage,
}

/// A message between two members of a group, by any route.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberMessage {
    /// Values of a reduction.
    Piece(Piece),
    /// Values of a filtered gradient.
    EncodedPiece(EncodedPiece),
    /// Late gradients are left out of an update.
    Activate(Activate),
    /// An update that the receiver has missed.
    Missed(Missed),
    /// A part of the state of training.
    Inherit(Inherit),
}

impl MemberMessage {
    fn payload(&self) -> Payload<'_> {
        match self {
            Self::Piece(piece) => Parts::payload(piece),
            Self::EncodedPiece(piece) => piece.payload(),
            Self::Activate(activate) => Parts::payload(activate),
            Self::Missed(missed) => Parts::payload(missed),
            Self::Inherit(part) => Parts::payload(part),
        }
    }

    /// Size of its values, or of its part of a state, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.payload().len() as u64
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Kind {
    Piece,
    EncodedPiece,
    Activate,
    Missed,
    Inherit,
}

impl Parts for Relayed {
    const CONTENT: Option<Content> = Some(Content::Relayed);

    fn append_control(&self, bytes: &mut Vec<u8>) {
        let mut control = Vec::new();
        let kind = match &self.message {
            MemberMessage::Piece(piece) => {
                piece.append_control(&mut control);
                Kind::Piece
            }
            MemberMessage::EncodedPiece(piece) => {
                piece.append_control(&mut control);
                Kind::EncodedPiece
            }
            MemberMessage::Activate(activate) => {
                activate.append_control(&mut control);
                Kind::Activate
            }
            MemberMessage::Missed(missed) => {
                missed.append_control(&mut control);
                Kind::Missed
            }
            MemberMessage::Inherit(part) => {
                part.append_control(&mut control);
                Kind::Inherit
            }
        };
        codec::append(&(self.generation, self.other, kind, control), bytes);
    }

    fn payload(&self) -> Payload<'_> {
        self.message.payload()
    }

    fn of_parts(control: &[u8], payload: Received, most_values: usize) -> Result<Self, Malformed> {
        let (generation, other, kind, control): (_, _, _, Vec<u8>) = codec::read(control)?;
        let message = match kind {
            Kind::Piece => MemberMessage::Piece(Parts::of_parts(&control, payload, most_values)?),
            Kind::EncodedPiece => {
                MemberMessage::EncodedPiece(Parts::of_parts(&control, payload, most_values)?)
            }
            Kind::Activate => {
                MemberMessage::Activate(Parts::of_parts(&control, payload, most_values)?)
            }
            Kind::Missed => MemberMessage::Missed(Parts::of_parts(&control, payload, most_values)?),
            Kind::Inherit => {
                MemberMessage::Inherit(Parts::of_parts(&control, payload, most_values)?)
            }
        };
        Ok(Self { generation, other, message })
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;

    use super::*;
    use crate::peers::{MOST_INHERIT_BYTES, PieceHeader};
    use crate::{Decoder, EncodedPieceHeader, Limits, Message, encode};
    use pstrain_compute::filter::Encoded;
    use pstrain_compute::id::Version;

    fn received(message: &Message, limits: Limits) -> Option<Message> {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).append_to(&mut bytes);
        let mut decoder = Decoder::new(limits);
        decoder.feed(&bytes);
        decoder.next().ok().flatten()
    }

    #[test]
    fn values_and_parts_of_a_state_of_any_length_are_relayed() {
        let header = PieceHeader { version: Version(5), piece: 2, answers: true };
        let values = Arc::new(vec![0.5, f32::MIN, 3.0]);
        let piece = MemberMessage::Piece(Piece { header, values: Arc::clone(&values) });
        let missed = MemberMessage::Missed(Missed { version: Version(7), done: None, values });
        let activate = MemberMessage::Activate(Activate { version: Version(5) });
        let state = vec![9; MOST_INHERIT_BYTES as usize - 1];
        let part = Inherit::parts(Version(5), &state).next().map(MemberMessage::Inherit).unwrap();
        let header = EncodedPieceHeader { version: Version(5), piece: 2, factor: 0.25 };
        let values = Arc::new(Encoded::of_values(&[0.0, 0.5, 0.0, 0.0, -1.5, 0.0]));
        let encoded = MemberMessage::EncodedPiece(EncodedPiece { header, values });
        for message in [piece, encoded, activate, missed, part] {
            let message = Message::Relayed(Relayed { generation: 7, other: WorkerId(3), message });
            for limits in [Limits::of_member(3), Limits::of_meeting(3)] {
                assert_eq!(received(&message, limits).as_ref(), Some(&message));
            }
        }
    }
}
