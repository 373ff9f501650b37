//! Filtered gradients between workers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::payload::{Content, Parts, Payload};
use crate::received::Received;
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::filter::{Encoded, Form};
use pstrain_compute::id::Version;

/// Worker to worker: a piece of a filtered gradient, for an all-gather.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedPiece {
    /// Everything but the values.
    pub header: EncodedPieceHeader,
    /// The values. Their bytes are the payload.
    pub values: Arc<Encoded>,
}

/// The fields of an [`EncodedPiece`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EncodedPieceHeader {
    /// The version that the update changes.
    pub version: Version,
    /// The index of the piece.
    pub piece: u32,
    /// The factor of the values in the sum.
    pub factor: f32,
}

impl Parts for EncodedPiece {
    const CONTENT: Option<Content> = Some(Content::Values);

    fn append_control(&self, bytes: &mut Vec<u8>) {
        codec::append(&(self.header, &self.values.form), bytes);
    }

    fn payload(&self) -> Payload<'_> {
        Payload::Borrowed(&self.values.bytes)
    }

    /// The values stay encoded: the receiver knows their number, and adds them up in an order.
    fn of_parts(control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
        let (header, form): (EncodedPieceHeader, Form) = codec::read(control)?;
        let values = Arc::new(Encoded { form, bytes: payload.into_bytes() });
        Ok(Self { header, values })
    }
}
