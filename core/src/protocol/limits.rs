//! How large a frame may be, checked before anything is allocated.

/// The largest control part and payload that a connection accepts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the control part.
    pub control: u32,
    /// Bytes of the payload.
    pub payload: u32,
}

impl Limits {
    /// For a server before it knows who is there: a handshake and nothing more.
    pub const STRANGER: Self = Self { control: 4 * 1024, payload: 0 };
    /// For a worker or a status client, whose peer it chose itself: a job or a long status.
    pub const DIALER: Self = Self { control: 16 * 1024 * 1024, payload: 0 };

    /// For a server once the worker is welcome: gradients of `parameters` values.
    #[must_use]
    pub const fn of_worker(parameters: usize) -> Self {
        Self { control: Self::STRANGER.control, payload: bytes_of(parameters) }
    }

    /// For a worker once it is welcome: parameters, or chunks of examples.
    #[must_use]
    pub const fn of_server(parameters: usize) -> Self {
        let values = bytes_of(parameters);
        let chunk = super::EXAMPLES_CHUNK_BYTES;
        Self { control: Self::DIALER.control, payload: if values > chunk { values } else { chunk } }
    }
}

const fn bytes_of(values: usize) -> u32 {
    let bytes = values.saturating_mul(size_of::<f32>());
    if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 }
}
