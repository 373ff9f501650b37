//! Random messages of every kind, with fields of every size. Use it to test codecs and hostile
//! input.

mod encoded;
mod evaluations;
mod group;
mod peers;

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::decided::{Decided, DropReason};
use pstrain_compute::filter::{Encoded, Form, KeyForm, ValueForm};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{
    BatchId, Clock, Incarnation, PartId, Sequence, ServerId, Term, Version, WorkerId,
};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Random;
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_policy::job::{DataFrom, Job};
use pstrain_wire::client::{Begun, Control, PullStatus};
use pstrain_wire::holders::Unreached;
use pstrain_wire::keys::{Keys, KeysHeader, KeysKnown};
use pstrain_wire::range::{PartDue, PullRange, RangeOf, RangePart};
use pstrain_wire::replica::{
    Combined, CombinedHeader, Deposed, Elector, Electorate, Entry, EntryHeader, EntryKind, Follow,
    Kept, Shape, Stage, Standby, State, StateHeader, Vote, VoteRequest,
};
use pstrain_wire::worker::{
    Bye, CalledOff, Departure, End, EndReason, ExampleRows, ExamplesChunk, Heartbeat, Hello,
    Parameters, ParametersHeader, Pull, PullExamples, Push, PushHeader, Ready, Resume, Welcome,
};
use pstrain_wire::{
    Endpoint, Held, Kind, LatestEvaluation, LinkFigures, MOST_HOLDERS, MemberState, MemberStatus,
    Message, Moment, Phase, Recent, Refusal, RefusedStatus, ServerStatus, Status, Successor,
    TcpFigures, TimeSpent, Wait, WaitReason, encode,
};

use crate::toy::Toy;

/// Number of message kinds.
pub const KINDS: u64 = Kind::ALL.len() as u64;

/// Returns the bytes of `message` on the wire.
#[must_use]
pub fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).append_to(&mut bytes);
    bytes
}

/// Generator of messages.
#[derive(Debug)]
pub struct Messages {
    rng: Random,
    job: Job,
    most: u64,
}

impl Messages {
    /// Messages drawn from `rng`, with lists and texts of at most `most` items.
    #[must_use]
    pub fn new(rng: Random, most: u64) -> Self {
        Self { rng, job: Toy::new(3, 12).job, most }
    }

    /// Returns a message of any kind.
    pub fn any(&mut self) -> Message {
        let kind = self.rng.below(KINDS) + 1;
        self.of_kind(kind)
    }

    /// Returns a message of the kind with this number, 1 to [`KINDS`].
    pub fn of_kind(&mut self, kind: u64) -> Message {
        match kind {
            1 => Message::Hello(self.hello()),
            2 => Message::Welcome(Box::new(self.welcome())),
            3 => Message::Refused(self.refusal()),
            4 => Message::PullExamples(PullExamples {
                part: PartId(self.number() as u32),
                from: self.number(),
            }),
            5 => Message::Examples(ExamplesChunk {
                rows: ExampleRows { from: self.number(), total: self.number() },
                packed: self.bytes(),
            }),
            6 => Message::Ready(Ready {
                rows: (0..3).map(|part| (PartId(part), self.number())).collect(),
                train: self.fingerprint(),
            }),
            7 => Message::Pull(self.pull()),
            8 => Message::Push(self.push()),
            9 => Message::Parameters(self.parameters()),
            10 => Message::Ack(self.decided()),
            11 => {
                let incarnation = self.coin().then(|| Incarnation(self.number()));
                let called_off = self.coin().then(|| CalledOff {
                    sequence: Sequence(self.number()),
                    base: Version(self.number()),
                    compute_ns: self.number(),
                });
                Message::Heartbeat(Heartbeat { incarnation, called_off })
            }
            12 => Message::End(End { reason: self.reason() }),
            13 => Message::Bye(Bye {
                incarnation: Incarnation(self.number()),
                why: self.coin().then(|| String::from("its disk is gone")),
            }),
            14 => Message::PullStatus(PullStatus { protocol_max: self.rng.bits() as u8 }),
            15 => Message::Status(Box::new(self.status())),
            16 => Message::Control(Control {
                protocol_max: self.rng.bits() as u8,
                key: self.text(),
                value: self.text(),
            }),
            18..=25 | 34..=39 | 43 | 51..=52 | 56 => self.of_group(kind),
            26..=33 | 46 => self.of_replicas(kind),
            49 | 50 | 57..=74 => self.of_peers(kind),
            40 => Message::UseKeys(self.keys_header()),
            41 => Message::KeysKnown(KeysKnown { digest: self.digest(), known: self.coin() }),
            42 => Message::Keys(self.key_list()),
            44 => Message::PullRange(PullRange {
                protocol_max: self.rng.bits() as u8,
                keys: self.coin().then(|| self.keys()),
                values: self.coin(),
            }),
            45 => {
                let (keys, total) = (self.keys(), self.number());
                let (values, wanted) = (self.values(), self.coin());
                Message::RangeOf(RangeOf::new(
                    Version(self.number()),
                    (keys, total),
                    &values,
                    wanted,
                ))
            }
            47 => Message::PartDue(PartDue { part: self.keys(), keys: self.keys() }),
            48 => Message::RangePart(self.range_part()),
            53 | 54 => self.of_evaluations(kind),
            55 => Message::Description(self.text()),
            _ => Message::Controlled(match self.coin() {
                true => Ok(Begun { version: Version(self.number()), mode: self.text() }),
                false => Err(self.text()),
            }),
        }
    }

    /// Returns a number of any magnitude: all bit lengths are equally likely.
    fn number(&mut self) -> u64 {
        let bits = self.rng.below(65) as u32;
        if bits == 0 { 0 } else { self.rng.bits() >> (64 - bits) }
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    fn coin(&mut self) -> bool {
        self.rng.below(2) == 0
    }

    fn count(&mut self) -> usize {
        self.rng.below(self.most + 1) as usize
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 6] = ['a', 'Z', '0', ' ', 'ü', '→'];
        (0..self.count()).map(|_| LETTERS[self.rng.below(6) as usize]).collect()
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.count()).map(|_| self.rng.bits() as u8).collect()
    }

    /// Returns values of any bit pattern, also infinities, subnormal numbers and every NaN.
    fn values(&mut self) -> Arc<Vec<f32>> {
        Arc::new((0..self.count()).map(|_| f32::from_bits(self.rng.bits() as u32)).collect())
    }

    fn span(&mut self) -> Duration {
        Duration::from_nanos(self.number())
    }

    fn keys(&mut self) -> KeyRange {
        let begin = self.number() / 2;
        let end = begin + 1 + self.number() / 4;
        KeyRange::new(begin, end).unwrap_or_else(|error| unreachable!("{error}"))
    }

    fn range_part(&mut self) -> RangePart {
        let keys = self.keys();
        RangePart::new(keys, &self.values())
    }

    fn key_list(&mut self) -> Keys {
        let forms = [KeyForm::All, KeyForm::Gaps(self.small()), KeyForm::Bitmap(self.small())];
        let form = forms[self.rng.below(3) as usize];
        Keys { header: self.keys_header(), form, bytes: self.bytes() }
    }

    fn keys_header(&mut self) -> KeysHeader {
        KeysHeader {
            place: self.keys(),
            total: self.number(),
            digest: self.digest(),
            curved: self.coin(),
        }
    }

    fn fingerprint(&mut self) -> Option<Fingerprint> {
        self.coin().then(|| {
            let class_counts = (0..self.count()).map(|_| self.number()).collect();
            Fingerprint { rows: self.number(), class_counts, digest: self.digest() }
        })
    }

    fn unreached(&mut self) -> Unreached {
        Unreached { server: ServerId(self.small()), why: self.text() }
    }

    fn unreached_node(&mut self) -> pstrain_wire::Unreached {
        let (number, address, why) = (self.small(), self.text(), self.text());
        let node = match self.coin() {
            true => Endpoint::Server(ServerId(number)),
            false => Endpoint::Worker(WorkerId(number)),
        };
        pstrain_wire::Unreached { node, address, why }
    }

    fn hello(&mut self) -> Hello {
        Hello {
            protocol_min: self.rng.bits() as u8,
            protocol_max: self.rng.bits() as u8,
            build: self.text(),
            name: self.text(),
            worker: self.coin().then(|| WorkerId(self.small())),
            resume: self.coin().then(|| Resume {
                worker: WorkerId(self.small()),
                incarnation: Incarnation(self.number()),
                run: self.number(),
                allowed: Sequence(self.number()),
                decided: Sequence(self.number()),
            }),
            wants_examples: self.coin(),
            term: Term(self.number()),
            unreached: self.coin().then(|| self.unreached()),
        }
    }

    fn welcome(&mut self) -> Welcome {
        let mut job = self.job.clone();
        job.name = self.text();
        job.seed = self.number();
        job.data.recipe = self.text();
        Welcome {
            protocol: self.rng.bits() as u8,
            run: self.number(),
            worker: WorkerId(self.small()),
            incarnation: Incarnation(self.number()),
            resumed: self.coin(),
            examples_from_server: self.coin(),
            holders: self.holders(),
            job,
            digest: self.digest(),
            term: Term(self.number()),
            standby: self.coin().then(|| self.text()),
        }
    }

    fn electorate(&mut self) -> Electorate {
        (0..self.count()).map(|_| self.elector()).collect()
    }

    fn elector(&mut self) -> Elector {
        match self.coin() {
            true => Elector::Coordinator,
            false => Elector::Worker(WorkerId(self.small()), Incarnation(self.number())),
        }
    }

    fn stage(&mut self) -> Stage {
        [Stage::Asks, Stage::Binds, Stage::Releases][self.rng.below(3) as usize]
    }

    /// Returns a message between a server and its standby, or between either and a worker.
    fn of_replicas(&mut self, kind: u64) -> Message {
        match kind {
            26 => Message::Follow(Follow {
                protocol: self.rng.bits() as u8,
                build: self.text(),
                id: self.number(),
                digest: self.digest(),
                address: self.text(),
                kept: self.coin().then(|| (self.number(), self.number())),
                term: Term(self.number()),
            }),
            27 => Message::State(State {
                header: StateHeader {
                    server: ServerId(self.small()),
                    run: self.number(),
                    term: Term(self.number()),
                    entry: self.number(),
                    at: Time::from_nanos(self.number()),
                    from: self.number(),
                    total: self.number(),
                },
                bytes: self.bytes(),
            }),
            28 => Message::Entry(Entry {
                header: EntryHeader {
                    number: self.number(),
                    term: Term(self.number()),
                    settled: self.number(),
                    last: self.number(),
                    sent: Time::from_nanos(self.number()),
                    kind: match self.rng.below(4) {
                        0 => EntryKind::Input,
                        3 => EntryKind::Bare(self.shape()),
                        1 => EntryKind::Electorate(self.electorate()),
                        _ => EntryKind::Paired(self.electorate()),
                    },
                },
                input: Arc::new(self.bytes()),
            }),
            29 => Message::Kept(Kept { entries: self.number() }),
            30 => Message::VoteRequest(VoteRequest {
                run: self.number(),
                server: ServerId(self.small()),
                term: Term(self.number()),
                kept: Term(self.number()),
                id: self.number(),
                stage: self.stage(),
            }),
            31 => Message::Vote(Vote {
                elector: self.elector(),
                before: (0..self.small() % 4).map(|_| Incarnation(self.number())).collect(),
                term: Term(self.number()),
                stage: self.stage(),
                granted: self.coin(),
            }),
            46 => {
                let (keys, values) = (self.keys(), self.values());
                let header = CombinedHeader { version: Version(self.number()), keys };
                Message::Combined(Combined { header, values })
            }
            32 => Message::Standby(Standby { address: self.coin().then(|| self.text()) }),
            _ => Message::Deposed(Deposed { run: self.number(), term: Term(self.number()) }),
        }
    }

    fn shape(&mut self) -> Option<Shape> {
        let form = self.form(7);
        self.coin().then(|| Shape { form, bytes: self.number() })
    }

    fn digest(&mut self) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.fill_with(|| self.rng.bits() as u8);
        digest
    }

    fn refusal(&mut self) -> Refusal {
        let worker = WorkerId(self.small());
        match self.rng.below(17) {
            0 => Refusal::Protocol { theirs: (1, self.rng.bits() as u8), ours: 1 },
            1 => Refusal::Build { worker: self.text(), server: self.text() },
            2 => Refusal::NoRows,
            3 => Refusal::UnknownWorker { worker, workers: self.small() },
            4 => Refusal::WorkerTaken { worker, owner: self.text() },
            5 => Refusal::Full { workers: self.small() },
            6 => Refusal::Over,
            7 => Refusal::Data { difference: self.text() },
            8 => Refusal::Fenced { incarnation: Incarnation(self.number()) },
            9 => Refusal::Keys { given: self.keys(), values: self.number(), wanted: self.keys() },
            10 => {
                let (count, sequence) = (self.small(), Sequence(self.number()));
                Refusal::NotFinite { count, sequence, key: self.number() }
            }
            12 => Refusal::ServersMissing { server: ServerId(self.small()), servers: self.small() },
            13 => Refusal::Server { what: self.text() },
            11 => Refusal::Unexpected { what: self.text() },
            14 => Refusal::Standby { leader: self.text() },
            15 => Refusal::ServerMoved { server: ServerId(self.small()) },
            _ => Refusal::Frame { what: self.text() },
        }
    }

    fn task(&mut self) -> Task {
        let part = PartId(self.number() as u32);
        Task { part, batch: BatchId(self.number()), examples: self.number() as u32 }
    }

    fn pull(&mut self) -> Pull {
        let incarnation = Incarnation(self.number());
        Pull { incarnation, keys: self.keys(), allowed: Sequence(self.number()) }
    }

    fn push(&mut self) -> Push {
        let header = PushHeader {
            incarnation: Incarnation(self.number()),
            sequence: Sequence(self.number()),
            base: Version(self.number()),
            task: self.task(),
            samples: self.small(),
            loss: f32::from_bits(self.rng.bits() as u32),
            compute_ns: self.number(),
            keys: self.keys(),
            pull: self.coin(),
            allowed: Sequence(self.number()),
        };
        if self.coin() {
            return Push::new(header, self.values());
        }
        self.encoded(header)
    }

    /// Returns a push whose encoded bytes were changed, or one with a random form and bytes, often
    /// with at most `most` keys.
    pub fn hostile_push(&mut self, most: u64) -> Message {
        let mut push = self.push();
        if let Some(encoded) = push.encoded.as_mut().map(Arc::make_mut) {
            let place = self.rng.below(encoded.bytes.len().max(1) as u64) as usize;
            if let Some(byte) = encoded.bytes.get_mut(place) {
                *byte ^= 1 << self.rng.below(8);
            }
            return Message::Push(push);
        }
        let begin = self.number() / 2;
        let keys = if self.coin() { 1 + self.rng.below(most) } else { 1 + self.number() / 4 };
        push.header.keys = KeyRange::new(begin, begin + keys).unwrap_or(push.header.keys);
        let (form, count) = (self.form(keys), self.rng.below(64));
        let bytes = (0..count).map(|_| if self.coin() { 0 } else { self.rng.bits() as u8 });
        let bytes = bytes.collect();
        push.encoded = Some(Arc::new(Encoded { form, bytes }));
        Message::Push(push)
    }

    fn parameters(&mut self) -> Parameters {
        let header = ParametersHeader {
            version: Version(self.number()),
            keys: self.keys(),
            sequence: Sequence(self.number()),
            task: self.task(),
            ahead: self.number() as u32,
            decided: self.coin().then(|| self.decided()),
        };
        match self.coin() {
            true => Parameters { header, values: self.values(), changes: None },
            false => {
                let (keys, values) = (KeyForm::Gaps(self.small()), ValueForm::Single);
                let form = Form { keys, values, state: 0 };
                let changes = Some(Arc::new(Encoded { form, bytes: self.bytes() }));
                Parameters { header, values: Arc::default(), changes }
            }
        }
    }

    fn decided(&mut self) -> Decided {
        let reasons = [DropReason::Redundant, DropReason::NotFinite, DropReason::Over];
        let reason = reasons[usize::from(self.coin()) + usize::from(self.coin())];
        let mut decided = None;
        for _ in 0..self.count() {
            let dropped = self.coin().then_some(reason);
            decided = Some(Decided::after(decided, Sequence(0), dropped));
        }
        Decided::after(decided, Sequence(self.number()), self.coin().then_some(reason))
    }

    fn departure(&mut self) -> Departure {
        match self.rng.below(4) {
            0 => Departure::Left,
            1 => Departure::Lost,
            2 => Departure::Refused,
            _ => Departure::Replaced,
        }
    }

    fn reason(&mut self) -> EndReason {
        match self.rng.below(10) {
            5 => EndReason::ServerLost(ServerId(self.small())),
            6 => EndReason::ParametersLost(Version(self.number())),
            7 => EndReason::Apart(WorkerId(self.small())),
            8 => EndReason::TargetReached,
            9 => EndReason::NoImprovement,
            0 => EndReason::BudgetReached,
            1 => EndReason::Stopped,
            2 => EndReason::WorkerLost(WorkerId(self.small()), self.departure()),
            3 => EndReason::TooFewWorkers { present: self.small(), needed: self.small() },
            _ => EndReason::Diverged(Version(self.number())),
        }
    }

    fn recent(&mut self) -> Recent {
        let spent = TimeSpent {
            compute: self.span(),
            called_off: self.span(),
            network: self.span(),
            barrier: self.span(),
        };
        let held = |random: &mut Self| Held { by: WorkerId(random.small()), waited: random.span() };
        let held_by = [(); MOST_HOLDERS].map(|()| self.coin().then(|| held(self)));
        Recent { steps: self.small(), spent, held_by, loss: self.rng.unit() }
    }

    fn link(&mut self) -> LinkFigures {
        LinkFigures {
            received: self.number(),
            sent: self.number(),
            queued: self.number(),
            tcp: self.coin().then(|| TcpFigures {
                rtt: self.span(),
                rtt_deviation: self.span(),
                retransmits: self.small(),
                unacknowledged: self.number(),
            }),
            is_local: self.coin(),
        }
    }

    fn status(&mut self) -> Status {
        let members = (0..self.count()).map(|worker| MemberStatus {
            worker: WorkerId(worker as u32),
            name: self.text(),
            state: MemberState::CutOff,
            since: self.span(),
            silent: self.span(),
            clock: Clock(self.number()),
            batch: BatchId(self.number()),
            updates: self.number(),
            pushes: self.number(),
            dropped: self.number(),
            called_off: self.number(),
            staleness: self.number(),
            recent: self.recent(),
            link: self.coin().then(|| self.link()),
            reassigned: self.number(),
            why_left: self.coin().then(|| self.text()),
            unreached: self.coin().then(|| (self.unreached_node(), self.span())),
            relayed: (0..self.count()).map(|_| WorkerId(self.small())).collect(),
        });
        let members = members.collect();
        Status {
            job: self.text(),
            consistency: self.text(),
            rule: self.text(),
            lease: self.span(),
            data_from: DataFrom::Own,
            recipe: self.text(),
            ordered: self.coin().then(|| self.text()),
            phase: Phase::Draining,
            uptime: self.span(),
            version: Version(self.number()),
            samples: self.number(),
            samples_wanted: self.number(),
            scenario: self.text(),
            processor_wait: self.coin().then(|| self.rng.unit()),
            epoch: self.rng.unit(),
            loss: self.coin().then(|| self.rng.unit()),
            evaluated: self.coin().then(|| LatestEvaluation {
                version: Version(self.number()),
                metrics: vec![(self.text(), self.rng.unit())],
                loss: self.rng.unit(),
            }),
            history: (0..self.count())
                .map(|_| Moment {
                    at: self.span(),
                    loss: self.coin().then(|| self.rng.unit()),
                    metric: self.coin().then(|| self.rng.unit()),
                })
                .collect(),
            wait: self.coin().then(|| Wait {
                reason: WaitReason::StandbySilent,
                workers: (0..self.count()).map(|worker| WorkerId(worker as u32)).collect(),
                waited: self.span(),
                left: self.coin().then(|| self.span()),
            }),
            standby: self.coin().then(|| self.text()),
            leader: self.coin().then(|| self.text()),
            servers: (0..self.count())
                .map(|server| ServerStatus {
                    server: ServerId(server as u32),
                    address: self.text(),
                    keys: self.coin().then(|| self.keys()),
                    away: self.coin().then(|| self.span()),
                    of: self.coin().then(|| self.small()),
                    successor: Successor::Checkpoint,
                    standby: self.coin().then(|| self.text()),
                })
                .collect(),
            members,
            refused: (0..self.count())
                .map(|_| RefusedStatus {
                    who: self.text(),
                    from: self.coin().then(|| self.text()),
                    why: self.text(),
                    times: self.number(),
                    ago: self.span(),
                })
                .collect(),
        }
    }
}
