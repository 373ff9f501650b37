//! Limits on the size of a frame, checked before any allocation.
//!
//! The largest payload comes from the table of messages: the limit is the largest of all messages
//! that the peer may send.

use crate::message::Kind;
use crate::payload::MOST_CONTROL_BYTES;
use crate::table::Party;

/// The largest control part and payload that a connection accepts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the control part.
    pub control: u32,
    /// Bytes of the payload.
    pub payload: u32,
}

impl Limits {
    /// For a server before the peer's Hello: a handshake and nothing more.
    pub const UNAUTHENTICATED: Self = Self { control: 4 * 1024, payload: 0 };
    /// For a server without a job: the description of a model, which names all tensors.
    pub const DESCRIBER: Self = Self { control: 256 * 1024, payload: 0 };
    /// For a worker or a status client that dialled the peer itself: a job or a long status.
    pub const DIALER: Self = Self { control: MOST_CONTROL_BYTES, payload: 0 };

    /// For a client that requests parameters from a server that it dialled.
    pub const PULLER: Self =
        Self { payload: most_payload(Party::Server, Party::Client, 0), ..Self::DIALER };

    /// For a server that has accepted a worker: gradients of `parameters` values, key lists with a
    /// value for each key, and a fingerprint that counts each of up to 65,536 classes.
    #[must_use]
    pub const fn of_worker(parameters: usize) -> Self {
        let payload = most_payload(Party::Worker, Party::Server, parameters);
        Self { control: 1024 * 1024, payload }
    }

    /// For the meeting point that has accepted a worker: its parameters, and parts of its state.
    #[must_use]
    pub const fn of_member(parameters: usize) -> Self {
        let (of_worker, state) =
            (Self::of_worker(parameters), most_payload(Party::Worker, Party::Meeting, parameters));
        let payload = if of_worker.payload > state { of_worker.payload } else { state };
        Self { payload, ..of_worker }
    }

    /// For a worker that the meeting point has accepted: parts of a state, and values of other
    /// workers.
    #[must_use]
    pub const fn of_meeting(parameters: usize) -> Self {
        let payload = most_payload(Party::Meeting, Party::Worker, parameters);
        Self { payload, ..Self::DIALER }
    }

    /// For the coordinator that has accepted another server: parts of a model with `parameters`
    /// values, portions of a rebalance, and the distances of each pair of workers.
    #[must_use]
    pub const fn of_holder(parameters: usize) -> Self {
        let payload = most_payload(Party::Server, Party::Coordinator, parameters);
        Self { payload, ..Self::DIALER }
    }

    /// For a server that has dialled the coordinator: a job, decisions, and portions of a
    /// rebalance.
    #[must_use]
    pub const fn of_coordinator() -> Self {
        Self { payload: most_payload(Party::Coordinator, Party::Server, 0), ..Self::DIALER }
    }

    /// For a worker that was accepted: parameters, or chunks of examples.
    #[must_use]
    pub const fn of_server(parameters: usize) -> Self {
        let payload = most_payload(Party::Server, Party::Worker, parameters);
        Self { payload, ..Self::DIALER }
    }

    /// For a worker that another has dialled or been dialled by: values of `parameters` keys, and
    /// the form of filtered ones, which names all tensors.
    #[must_use]
    pub const fn of_peer(parameters: usize) -> Self {
        let payload = most_payload(Party::Worker, Party::Worker, parameters);
        Self { payload, ..Self::of_worker(parameters) }
    }

    /// For a standby: the state of the primary in parts, and inputs of the primary, which are
    /// frames of workers or of another server with up to `parameters` values.
    #[must_use]
    pub const fn of_primary(parameters: usize) -> Self {
        let payload = most_payload(Party::Primary, Party::Standby, parameters);
        Self { control: Self::of_worker(parameters).control, payload }
    }

    /// Returns the maximum number of values of a gradient, which may be encoded in fewer bytes.
    pub(super) const fn values(self) -> usize {
        self.payload as usize / size_of::<f32>()
    }
}

/// Returns the maximum payload of all messages that `from` may send to `to`, in bytes, for a model
/// with `parameters` values.
const fn most_payload(from: Party, to: Party, parameters: usize) -> u32 {
    let (mut most, mut at) = (0, 0);
    // A constant cannot use an iterator.
    while at < Kind::ALL.len() {
        let kind = Kind::ALL[at];
        if let Some(content) = kind.content()
            && kind.goes(from, to)
            && content.most_bytes(parameters) > most
        {
            most = content.most_bytes(parameters);
        }
        at += 1;
    }
    most
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::group::Measured;
    use crate::worker::Ready;
    use crate::{Decoder, EncodedPiece, EncodedPieceHeader, Message, encode};
    use pstrain_compute::filter::{Encoded, Form, PieceForm, ValueForm};
    use pstrain_compute::fingerprint::Fingerprint;
    use pstrain_compute::id::{PartId, Version};
    use pstrain_compute::sum::ExactSum;
    use pstrain_policy::job::MOST_SHARDS;
    use pstrain_policy::rules::MOST_COMPARED;

    #[test]
    fn the_distances_of_the_most_workers_are_within_the_limit() {
        let most = MOST_COMPARED as usize;
        // The longest sum is of a small number and a large one.
        let sum =
            ExactSum::of_squares(&[f32::MAX, f32::MIN_POSITIVE * f32::EPSILON, 1e-9, 1e-3, 7.0]);
        let sums = vec![sum; most * (most - 1) / 2];
        let measured = Message::Measured(Measured { decision: u64::MAX, sums });
        let mut bytes = Vec::new();
        encode(&measured, &mut bytes).append_to(&mut bytes);
        let mut decoder = Decoder::new(Limits::of_holder(10));
        decoder.feed(&bytes);
        assert_eq!(decoder.next(), Ok(Some(measured)));
    }

    #[test]
    fn the_form_of_a_filtered_gradient_of_many_tensors_is_within_the_limit() {
        let form = PieceForm { values: 1 << 20, rank: 4, columns: 1 << 10, first: 1 << 9 };
        let form =
            Form { values: ValueForm::Pieces(vec![form; 50_000]), ..Encoded::of_none().form };
        let header = EncodedPieceHeader { version: Version(u64::MAX), piece: 9, factor: 0.5 };
        let values = Arc::new(Encoded { form, bytes: vec![7; 12] });
        let piece = Message::EncodedPiece(EncodedPiece { header, values });
        let mut bytes = Vec::new();
        encode(&piece, &mut bytes).append_to(&mut bytes);
        let mut decoder = Decoder::new(Limits::of_peer(10));
        decoder.feed(&bytes);
        assert_eq!(decoder.next(), Ok(Some(piece)));
    }

    #[test]
    fn the_fingerprint_of_the_most_classes_is_within_the_limit() {
        let class_counts = vec![u64::MAX; usize::from(u16::MAX) + 1];
        let train = Some(Fingerprint { rows: u64::MAX, class_counts, digest: [7; 32] });
        let ready = Message::Ready(Ready {
            rows: (0..MOST_SHARDS).map(|part| (PartId(part), u64::MAX)).collect(),
            train,
        });
        let mut bytes = Vec::new();
        encode(&ready, &mut bytes).append_to(&mut bytes);
        let mut decoder = Decoder::new(Limits::of_worker(10));
        decoder.feed(&bytes);
        assert_eq!(decoder.next(), Ok(Some(ready)));
    }
}
