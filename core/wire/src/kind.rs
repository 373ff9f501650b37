//! Message kinds: their numbers, and how a message is split into control part and payload.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::group::{Decisions, Portion, Slice};
use crate::keys::Keys;
use crate::message::Message;
use crate::range::{RangeOf, RangePart};
use crate::received::Received;
use crate::replica::{Combined, Entry, State};
use crate::worker::{ExamplesChunk, Parameters, ParametersHeader, Push, PushHeader};
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::filter::{self, Encoded, Form};

/// Numbers the kinds of messages: one table for both directions.
macro_rules! kinds {
    ($($kind:ident = $number:literal),+ $(,)?) => {
        /// The kind of message that a frame carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each is documented at the variant of Message it numbers")]
        pub enum Kind { $($kind = $number),+ }

        impl Kind {
            /// Returns the kind with this number.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)+ _ => None }
            }
        }

        impl Message {
            /// Returns the kind of this message.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),+ }
            }
        }
    };
}

kinds! {
    Hello = 1,
    Welcome = 2,
    Refused = 3,
    PullExamples = 4,
    Examples = 5,
    Ready = 6,
    Pull = 7,
    Push = 8,
    Parameters = 9,
    Ack = 10,
    Heartbeat = 11,
    End = 12,
    Bye = 13,
    PullStatus = 14,
    Status = 15,
    Control = 16,
    Controlled = 17,
    Enlist = 18,
    Enlisted = 19,
    Decisions = 20,
    Followed = 21,
    Arrived = 22,
    Slice = 23,
    Attach = 24,
    Attached = 25,
    Follow = 26,
    State = 27,
    Entry = 28,
    Kept = 29,
    VoteRequest = 30,
    Vote = 31,
    Standby = 32,
    Deposed = 33,
    Holders = 34,
    Mapped = 35,
    Begin = 36,
    Portion = 37,
    Taken = 38,
    Leave = 39,
    UseKeys = 40,
    KeysKnown = 41,
    Keys = 42,
    Measured = 43,
    PullRange = 44,
    RangeOf = 45,
    Combined = 46,
    PushRange = 47,
    PartDue = 48,
    RangePart = 49,
    RangePushed = 50,
    Written = 51,
    GoBack = 52,
}

impl Message {
    /// Appends the encoded control part to `bytes`.
    pub(super) fn append_control(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Hello(fields) => codec::append(fields, bytes),
            Self::Welcome(fields) => codec::append(fields, bytes),
            Self::Refused(fields) => codec::append(fields, bytes),
            Self::PullExamples(fields) => codec::append(fields, bytes),
            Self::Examples(chunk) => codec::append(&chunk.rows, bytes),
            Self::Ready(fields) => codec::append(fields, bytes),
            Self::Pull(fields) => codec::append(fields, bytes),
            Self::Push(push) => {
                let form = push.encoded.as_ref().map(|encoded| &encoded.form);
                codec::append(&(push.header, form), bytes);
            }
            Self::Parameters(parameters) => {
                let form = parameters.changes.as_ref().map(|changes| &changes.form);
                codec::append(&(parameters.header, form), bytes);
            }
            Self::Ack(fields) => codec::append(fields, bytes),
            Self::Heartbeat(fields) => codec::append(fields, bytes),
            Self::End(fields) => codec::append(fields, bytes),
            Self::Bye(fields) => codec::append(fields, bytes),
            Self::PullStatus(fields) => codec::append(fields, bytes),
            Self::Status(fields) => codec::append(fields, bytes),
            Self::Control(fields) => codec::append(fields, bytes),
            Self::Controlled(fields) => codec::append(fields, bytes),
            Self::Enlist(fields) => codec::append(fields, bytes),
            Self::Enlisted(fields) => codec::append(fields, bytes),
            Self::Decisions(fields) => fields.append(bytes),
            Self::Followed(fields) => codec::append(fields, bytes),
            Self::Arrived(fields) => codec::append(fields, bytes),
            Self::Measured(fields) => codec::append(fields, bytes),
            Self::Slice(slice) => codec::append(&slice.header, bytes),
            Self::Attach(fields) => codec::append(fields, bytes),
            Self::Attached(fields) => codec::append(fields, bytes),
            Self::Follow(fields) => codec::append(fields, bytes),
            Self::State(state) => codec::append(&state.header, bytes),
            Self::Entry(entry) => codec::append(&entry.header, bytes),
            Self::Combined(combined) => codec::append(&combined.header, bytes),
            Self::Kept(fields) => codec::append(fields, bytes),
            Self::VoteRequest(fields) => codec::append(fields, bytes),
            Self::Vote(fields) => codec::append(fields, bytes),
            Self::Standby(fields) => codec::append(fields, bytes),
            Self::Deposed(fields) => codec::append(fields, bytes),
            Self::Holders(fields) => codec::append(fields, bytes),
            Self::Mapped(fields) => codec::append(fields, bytes),
            Self::Begin(fields) => codec::append(fields, bytes),
            Self::Portion(portion) => codec::append(&portion.header, bytes),
            Self::Taken(fields) => codec::append(fields, bytes),
            Self::Leave(fields) => codec::append(fields, bytes),
            Self::Written(fields) => codec::append(fields, bytes),
            Self::GoBack(fields) => codec::append(fields, bytes),
            Self::UseKeys(fields) => codec::append(fields, bytes),
            Self::KeysKnown(fields) => codec::append(fields, bytes),
            Self::Keys(keys) => codec::append(&(keys.header, keys.form), bytes),
            Self::PullRange(fields) => codec::append(fields, bytes),
            Self::RangeOf(range) => codec::append(&range.header, bytes),
            Self::PushRange(fields) => codec::append(fields, bytes),
            Self::PartDue(fields) => codec::append(fields, bytes),
            Self::RangePart(part) => codec::append(&(part.keys, &part.encoded.form), bytes),
            Self::RangePushed(fields) => codec::append(fields, bytes),
        }
    }

    /// Assembles a message of a kind with payload. For other kinds it returns `payload` unused.
    fn of_payload(
        kind: Kind,
        control: &[u8],
        payload: Received,
        most_values: usize,
    ) -> Result<Result<Self, Received>, Malformed> {
        Ok(Ok(match kind {
            Kind::Push => Self::Push(read_push(control, payload, most_values)?),
            Kind::Parameters => Self::Parameters(read_parameters(control, payload)?),
            Kind::Examples => {
                let packed = payload.into_bytes();
                Self::Examples(ExamplesChunk { rows: codec::read(control)?, packed })
            }
            Kind::Slice => {
                let values = values(payload)?;
                Self::Slice(Slice { header: codec::read(control)?, values })
            }
            Kind::Portion => {
                let bytes = payload.into_bytes();
                Self::Portion(Portion { header: codec::read(control)?, bytes })
            }
            Kind::State => {
                let bytes = payload.into_bytes();
                Self::State(State { header: codec::read(control)?, bytes })
            }
            Kind::Keys => {
                let (header, form) = codec::read(control)?;
                Self::Keys(Keys { header, form, bytes: payload.into_bytes() })
            }
            Kind::RangeOf => {
                let bytes = payload.into_bytes();
                Self::RangeOf(RangeOf { header: codec::read(control)?, bytes })
            }
            Kind::RangePart => {
                let (keys, form) = codec::read(control)?;
                let encoded = Encoded { form, bytes: payload.into_bytes() };
                Self::RangePart(RangePart { keys, encoded })
            }
            Kind::Entry => {
                let input = Arc::new(payload.into_bytes());
                Self::Entry(Entry { header: codec::read(control)?, input })
            }
            Kind::Combined => {
                let values = values(payload)?;
                Self::Combined(Combined { header: codec::read(control)?, values })
            }
            _ => return Ok(Err(payload)),
        }))
    }

    /// Assembles a message from its parts. A payload is malformed if the kind has none, and so is
    /// an encoded gradient of more than `most_values` values.
    pub(super) fn from_parts(
        kind: Kind,
        control: &[u8],
        payload: Received,
        most_values: usize,
    ) -> Result<Self, Malformed> {
        match Self::of_payload(kind, control, payload, most_values)? {
            Ok(message) => return Ok(message),
            Err(payload) if !payload.is_empty() => return Err(Malformed),
            Err(_nothing) => {}
        }
        Ok(match kind {
            Kind::Hello => Self::Hello(codec::read(control)?),
            Kind::Welcome => Self::Welcome(codec::read(control)?),
            Kind::Refused => Self::Refused(codec::read(control)?),
            Kind::PullExamples => Self::PullExamples(codec::read(control)?),
            Kind::Ready => Self::Ready(codec::read(control)?),
            Kind::Pull => Self::Pull(codec::read(control)?),
            Kind::Ack => Self::Ack(codec::read(control)?),
            Kind::Heartbeat => Self::Heartbeat(codec::read(control)?),
            Kind::End => Self::End(codec::read(control)?),
            Kind::Bye => Self::Bye(codec::read(control)?),
            Kind::PullStatus => Self::PullStatus(codec::read(control)?),
            Kind::Status => Self::Status(codec::read(control)?),
            Kind::Control => Self::Control(codec::read(control)?),
            Kind::Controlled => Self::Controlled(codec::read(control)?),
            Kind::Enlist => Self::Enlist(codec::read(control)?),
            Kind::Enlisted => Self::Enlisted(codec::read(control)?),
            Kind::Decisions => Self::Decisions(Decisions::read(control)?),
            Kind::Followed => Self::Followed(codec::read(control)?),
            Kind::Arrived => Self::Arrived(codec::read(control)?),
            Kind::Measured => Self::Measured(codec::read(control)?),
            Kind::Attach => Self::Attach(codec::read(control)?),
            Kind::Attached => Self::Attached(codec::read(control)?),
            Kind::Follow => Self::Follow(codec::read(control)?),
            Kind::Kept => Self::Kept(codec::read(control)?),
            Kind::VoteRequest => Self::VoteRequest(codec::read(control)?),
            Kind::Vote => Self::Vote(codec::read(control)?),
            Kind::Standby => Self::Standby(codec::read(control)?),
            Kind::Deposed => Self::Deposed(codec::read(control)?),
            Kind::Holders => Self::Holders(codec::read(control)?),
            Kind::Mapped => Self::Mapped(codec::read(control)?),
            Kind::Begin => Self::Begin(codec::read(control)?),
            Kind::Taken => Self::Taken(codec::read(control)?),
            Kind::Leave => Self::Leave(codec::read(control)?),
            Kind::Written => Self::Written(codec::read(control)?),
            Kind::GoBack => Self::GoBack(codec::read(control)?),
            Kind::PullRange => Self::PullRange(codec::read(control)?),
            Kind::PushRange => Self::PushRange(codec::read(control)?),
            Kind::PartDue => Self::PartDue(codec::read(control)?),
            Kind::RangePushed => Self::RangePushed(codec::read(control)?),
            Kind::UseKeys => Self::UseKeys(codec::read(control)?),
            Kind::KeysKnown => Self::KeysKnown(codec::read(control)?),
            Kind::Push
            | Kind::Parameters
            | Kind::Examples
            | Kind::Slice
            | Kind::Portion
            | Kind::State
            | Kind::Keys
            | Kind::RangeOf
            | Kind::RangePart
            | Kind::Entry
            | Kind::Combined => return Err(Malformed),
        })
    }
}

/// Decodes an encoded gradient here, so that the server sees plain values.
fn read_push(control: &[u8], payload: Received, most_values: usize) -> Result<Push, Malformed> {
    let (header, form): (PushHeader, Option<Form>) = codec::read(control)?;
    let Some(form) = form else {
        let (gradient, seen) = payload.into_values().ok_or(Malformed)?;
        return Ok(Push { seen, ..Push::new(header, gradient) });
    };
    let keys = usize::try_from(header.keys.len()).map_err(|_too_many| Malformed)?;
    // Before decoding: a short payload may stand for any number of values.
    if keys > most_values {
        return Err(Malformed);
    }
    let bytes = payload.into_bytes();
    let gradient = filter::decode(&form, &bytes, keys).map_err(|filter::Malformed| Malformed)?;
    let encoded = Arc::new(Encoded { form, bytes });
    Ok(Push { encoded: Some(encoded), ..Push::new(header, Arc::new(gradient)) })
}

/// Leaves changes encoded: only the node has the parameters that they apply to.
fn read_parameters(control: &[u8], payload: Received) -> Result<Parameters, Malformed> {
    let (header, form): (ParametersHeader, Option<Form>) = codec::read(control)?;
    Ok(match form {
        None => Parameters { header, values: values(payload)?, changes: None },
        Some(form) => {
            let changes = Some(Arc::new(Encoded { form, bytes: payload.into_bytes() }));
            Parameters { header, values: Arc::default(), changes }
        }
    })
}

fn values(payload: Received) -> Result<Arc<Vec<f32>>, Malformed> {
    payload.into_values().map(|(values, _)| values).ok_or(Malformed)
}
