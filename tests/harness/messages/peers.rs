//! Random messages of workers without a server.

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::filter::Encoded;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_policy::in_network::Exponent;
use pstrain_policy::lockstep::Done;
use pstrain_wire::peers::{
    Activate, Allow, Complaint, Connection, Contributed, Halt, Halted, Inherit, InheritHeader,
    Meet, Met, Missed, Packet, PacketHeader, Piece, PieceHeader, RankOf, Ranks, Reachable, Reduced,
    Rest, Rested, Save, Show, Snapshot,
};
use pstrain_wire::{EncodedPiece, EncodedPieceHeader, MemberMessage, Message, Relayed};

use super::Messages;

impl Messages {
    pub(super) fn of_peers(&mut self, kind: u64) -> Message {
        let (version, generation) = (Version(self.number()), self.number());
        match kind {
            57 => Message::Reachable(Reachable { address: self.text() }),
            58 => {
                let members = (0..self.count()).map(|_| RankOf {
                    worker: WorkerId(self.small()),
                    address: self.text(),
                    rows: self.number(),
                    version: Version(self.number()),
                    joins: self.coin(),
                    awaits: self.coin().then(|| WorkerId(self.small())),
                });
                let members = members.collect();
                let unreached = (0..self.count()).map(|_| (self.small(), self.small())).collect();
                Message::Ranks(Ranks { generation, version, members, unreached })
            }
            59 => Message::Meet(Meet {
                protocol: self.rng.bits() as u8,
                run: self.number(),
                generation,
                worker: WorkerId(self.small()),
                to: WorkerId(self.small()),
            }),
            60 => {
                let header = PieceHeader { version, piece: self.small(), answers: self.coin() };
                Message::Piece(Piece { header, values: self.values() })
            }
            61 => {
                let done = self.coin().then(Done::default);
                Message::Missed(Missed { version, done, values: self.values() })
            }
            62 => {
                let part = self.coin().then(|| Contributed {
                    base: Version(self.number()),
                    loss: self.rng.unit() as f32,
                    compute: Duration::from_nanos(self.number()),
                    reduce: Duration::from_nanos(self.number()),
                    age: Duration::from_nanos(self.number()),
                    opening: Duration::from_nanos(self.number()),
                    bytes: self.number(),
                    received: self.number(),
                    not_finite: self.coin().then(|| self.number()),
                });
                let done = self.coin().then(Done::default);
                Message::Reduced(Reduced { version, part, done })
            }
            63 => Message::Halt(Halt { generation }),
            64 => {
                let complaints = (0..self.count()).map(|_| Complaint {
                    about: WorkerId(self.small()),
                    connection: Connection::Outgoing,
                    why: self.text(),
                });
                let complaints = complaints.collect();
                let awaits = self.coin().then(|| WorkerId(self.small()));
                Message::Halted(Halted { generation, version, complaints, awaits })
            }
            65 => Message::Snapshot(Snapshot { version, values: self.values() }),
            66 => Message::Met(Met { generation }),
            68 => Message::Save(Save { version }),
            69 => Message::Rest(Rest { number: generation, rests: self.coin() }),
            70 => Message::Rested(Rested { number: generation }),
            72 => Message::Allow(Allow { version }),
            74 => Message::Relayed(self.relayed(generation)),
            49 => Message::Activate(Activate { version }),
            50 => Message::EncodedPiece(self.encoded_piece(version)),
            73 => {
                let (slot, turn, next) =
                    (self.small(), self.number(), Exponent::of(&self.values()));
                let header = PacketHeader { generation, slot, turn, next };
                let values = self.values().iter().map(|value| value.to_bits() as i32).collect();
                Message::Packet(Packet { header, values: Arc::new(values) })
            }
            71 => Message::Show(Show { number: generation }),
            _ => {
                let header = InheritHeader { version, from: self.number(), total: self.number() };
                Message::Inherit(Inherit { header, bytes: self.bytes() })
            }
        }
    }

    fn encoded_piece(&mut self, version: Version) -> EncodedPiece {
        let factor = self.rng.unit() as f32;
        let header = EncodedPieceHeader { version, piece: self.small(), factor };
        let keys = self.small().into();
        let values = Encoded { form: self.form(keys), bytes: self.bytes() };
        EncodedPiece { header, values: Arc::new(values) }
    }

    fn relayed(&mut self, generation: u64) -> Relayed {
        let kind = [60, 61, 67, 75, 76][self.rng.below(5) as usize];
        let message = match self.of_peers(kind) {
            Message::Piece(piece) => MemberMessage::Piece(piece),
            Message::EncodedPiece(piece) => MemberMessage::EncodedPiece(piece),
            Message::Activate(activate) => MemberMessage::Activate(activate),
            Message::Missed(missed) => MemberMessage::Missed(missed),
            Message::Inherit(part) => MemberMessage::Inherit(part),
            other => unreachable!("{other:?} is not of these kinds"),
        };
        Relayed { generation, other: WorkerId(self.small()), message }
    }
}
