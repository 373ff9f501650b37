//! Values of other members.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Stage;
use crate::node::Outbox;
use crate::node::peer::{Joined, Peer, joined};
use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_policy::collective::{Content, Rank};
use pstrain_wire::peers::{Piece, PieceHeader};
use pstrain_wire::{EncodedPiece, EncodedPieceHeader};

impl Peer {
    /// Values have come from a member.
    pub(in crate::node::peer) fn on_piece(
        &mut self,
        now: Time,
        from: Rank,
        piece: Piece,
        out: &mut Outbox,
    ) {
        let Joined { training, .. } = joined(&mut self.member);
        training.receives((piece.values.len() * size_of::<f32>()) as u64);
        if training.pairs.is_some() {
            return self.on_exchange(now, from, piece, out);
        }
        let Piece { header: PieceHeader { version, piece, .. }, values } = piece;
        self.on_content(now, from, (version, piece, Content::Values(values)), out);
    }

    /// Values of a filtered gradient have come from a member.
    pub(in crate::node::peer) fn on_encoded_piece(
        &mut self,
        now: Time,
        from: Rank,
        EncodedPiece { header, values }: EncodedPiece,
        out: &mut Outbox,
    ) {
        let Joined { training, .. } = joined(&mut self.member);
        training.receives(values.bytes.len() as u64);
        if training.pairs.is_some() {
            let why = "it sent a filtered gradient, and workers average parameters";
            return self.give_up_on(now, from, why, out);
        }
        let EncodedPieceHeader { version, piece, factor } = header;
        self.on_content(now, from, (version, piece, Content::Encoded(factor, values)), out);
    }

    /// A piece of the update of a version has come from a member.
    fn on_content(
        &mut self,
        now: Time,
        from: Rank,
        (version, piece, content): (Version, u32, Content),
        out: &mut Outbox,
    ) {
        let Joined { training, .. } = joined(&mut self.member);
        let current = training.version();
        // A member is one update ahead of its neighbors at most. It waits for late neighbors.
        let is_due = if current < training.together {
            version == training.together
        } else {
            version == current || version == current.next()
        };
        if !is_due {
            return;
        }
        let mut outgoing = Vec::new();
        let received = match &mut training.stage {
            Stage::Stepping(step) if version == current => {
                step.combining.receive(from, piece, content, &mut outgoing).map(|()| {
                    step.unsent.extend(outgoing);
                })
            }
            _ => {
                let begun = training.ahead.take_if(|(begun, _)| *begun == version);
                let new = || (version, training.combining(&training.place, version));
                let begun = begun.unwrap_or_else(new);
                let (_, ahead) = training.ahead.insert(begun);
                ahead.receive(from, piece, content, &mut outgoing)
            }
        };
        match received {
            Ok(()) => self.go_on(now, out),
            Err(error) => self.give_up_on(now, from, &error.to_string(), out),
        }
    }
}
