//! Messages between servers, and between workers and servers that do not coordinate.

use pstrain_compute::id::{
    CheckpointId, Clock, Incarnation, Sequence, ServerId, Version, WorkerId,
};
use pstrain_compute::params::{KeyMap, Move};
use pstrain_compute::sum::ExactSum;
use pstrain_compute::time::Time;
use pstrain_policy::aggregate::Found;
use pstrain_policy::rules::Closing;
use pstrain_wire::Message;
use pstrain_wire::checkpoint::{GoBack, OnDisk, Written};
use pstrain_wire::decision::{Contribution, Decision};
use pstrain_wire::group::{
    Arrived, Attach, Attached, Begin, Decisions, Enlist, Enlisted, Exchanged, Fault, Followed,
    Leave, Mapped, Measured, Place, Portion, PortionHeader, Slice, SliceHeader, Taken, Traffic,
};
use pstrain_wire::holders::Holders;

use super::Messages;

impl Messages {
    pub(super) fn of_group(&mut self, kind: u64) -> Message {
        match kind {
            18 => Message::Enlist(Enlist {
                protocol: self.rng.bits() as u8,
                build: self.text(),
                place: self.place(),
                address: self.text(),
                standby: self.coin().then(|| self.text()),
                followed: self.coin().then(|| (self.number(), self.number())),
                on_disk: self.coin().then(|| self.on_disk()),
            }),
            19 => Message::Enlisted(Box::new(Enlisted {
                standby: self.coin().then(|| self.text()),
                origin: self.coin().then(|| self.number()),
                run: self.number(),
                server: ServerId(self.small()),
                job: self.job.clone(),
                digest: self.digest(),
            })),
            20 => Message::Decisions(Decisions {
                first: self.number(),
                decisions: (0..self.count()).map(|_| self.decision()).collect(),
            }),
            21 => Message::Followed(Followed { decisions: self.number() }),
            22 => Message::Arrived(Arrived {
                worker: WorkerId(self.small()),
                incarnation: Incarnation(self.number()),
                sequence: Sequence(self.number()),
                base: Version(self.number()),
                squares: self.coin().then(|| self.sum()),
                fault: self.coin().then(|| Fault { key: self.number(), has_diverged: self.coin() }),
            }),
            23 => Message::Slice(Slice {
                header: SliceHeader { version: Version(self.number()), keys: self.keys() },
                values: self.values(),
            }),
            24 => Message::Attach(Attach {
                protocol: self.rng.bits() as u8,
                run: self.number(),
                worker: WorkerId(self.small()),
                incarnation: Incarnation(self.number()),
                map: self.number(),
            }),
            25 => Message::Attached(Attached { map: self.number(), keys: self.keys() }),
            34 => Message::Holders(self.holders()),
            35 => Message::Mapped(Mapped { map: self.number() }),
            36 => Message::Begin(Begin {
                followed: self.number(),
                slots: (0..self.count())
                    .map(|_| (Incarnation(self.number()), Sequence(self.number())))
                    .collect(),
            }),
            37 => Message::Portion(Portion {
                header: PortionHeader {
                    cut: self.number(),
                    keys: self.keys(),
                    piece: self.small(),
                    pieces: self.small(),
                },
                bytes: self.bytes(),
            }),
            38 => Message::Taken(Taken { cut: self.number() }),
            43 => Message::Measured(Measured {
                decision: self.number(),
                sums: (0..self.count()).map(|_| self.sum()).collect(),
            }),
            56 => Message::Traffic(Traffic {
                workers: (0..self.count()).map(|_| self.exchanged()).collect(),
            }),
            51 => Message::Written(Written { number: self.number() }),
            52 => Message::GoBack(GoBack { checkpoint: self.checkpoint() }),
            _ => Message::Leave(Leave),
        }
    }

    fn exchanged(&mut self) -> Exchanged {
        Exchanged {
            pushed: self.number(),
            unfiltered: self.number(),
            keyed: self.number(),
            given: self.number(),
        }
    }

    fn checkpoint(&mut self) -> CheckpointId {
        CheckpointId { run: self.number(), number: self.number() }
    }

    fn on_disk(&mut self) -> OnDisk {
        OnDisk {
            origin: self.coin().then(|| self.number()),
            checkpoints: (0..self.count()).map(|_| self.checkpoint()).collect(),
            at: self.coin().then(|| self.checkpoint()),
        }
    }

    pub(super) fn holders(&mut self) -> Holders {
        Holders { map: self.map(), addresses: (0..self.count()).map(|_| self.text()).collect() }
    }

    fn map(&mut self) -> KeyMap {
        let servers = 1 + self.rng.below(4) as u32;
        let map = KeyMap::even(servers, 5 + self.number() / 2);
        let map = map.unwrap_or_default();
        map.joined(ServerId(servers)).filter(|_| self.coin()).unwrap_or(map)
    }

    fn sum(&mut self) -> ExactSum {
        let values: Vec<f32> = (0..self.count()).map(|_| self.number() as f32 - 7.0).collect();
        ExactSum::of_squares(&values)
    }

    fn a_move(&mut self) -> Move {
        let (from, to) = (ServerId(self.small()), ServerId(self.small()));
        Move { keys: self.keys(), from, to }
    }

    fn place(&mut self) -> Place {
        let server = ServerId(self.small());
        match self.rng.below(3) {
            0 => Place::First { server, servers: self.small() },
            1 => Place::Given { server },
            _ => Place::Wanted,
        }
    }

    fn decision(&mut self) -> Decision {
        let worker = WorkerId(self.small());
        let version = Version(self.number());
        match self.rng.below(18) {
            0 => Decision::Admit { worker, incarnation: Incarnation(self.number()) },
            1 => Decision::Forget { worker },
            2 => Decision::Rows { worker, rows: self.number() },
            3 => Decision::Give { worker, headers: vec![self.parameters().header] },
            4 => Decision::Gather {
                contribution: Contribution {
                    worker,
                    incarnation: Incarnation(self.number()),
                    sequence: Sequence(self.number()),
                    task: self.task(),
                    clock: Clock(self.number()),
                    base: version,
                    samples: self.small(),
                    granted: Time::from_nanos(self.number()),
                },
                factor: self.coin().then_some(0.25),
            },
            5 => Decision::Drop { worker, sequence: Sequence(self.number()) },
            6 => Decision::Merge { version },
            7 => Decision::Close {
                closing: Closing::Everything,
                oldest: self.coin().then(|| Clock(self.number())),
                version,
                weights: self.coin().then(|| vec![0.5; self.count()]),
            },
            9 => Decision::Seen { version },
            8 => Decision::Mode(Box::new(self.job.mode)),
            10 => Decision::Cut { moves: (0..self.count()).map(|_| self.a_move()).collect() },
            11 => Decision::Stay,
            12 => Decision::Map(self.map()),
            13 if self.coin() => Decision::Found(Found::Scale(0.75)),
            13 => {
                let places = (0..self.count()).map(|_| self.small());
                Decision::Found(Found::Nearest(places.collect()))
            }
            14 => Decision::Checkpoint { number: self.number(), oldest: self.number() },
            15 => Decision::Initial(self.range_part()),
            16 => Decision::Pause,
            _ => Decision::Show { version, keys: self.keys() },
        }
    }
}
