//! Kernel statistics of a TCP connection: `TCP_INFO` on Linux, nothing on other systems.

use mio::net::TcpStream;
use pstrain_wire::TcpFigures;

#[cfg(target_os = "linux")]
pub(super) use linux::figures;

/// Returns the kernel's statistics of `stream`.
#[cfg(not(target_os = "linux"))]
pub(super) fn figures(_stream: &TcpStream) -> Option<TcpFigures> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use nix::sys::socket::getsockopt;
    use nix::{getsockopt_impl, libc, sockopt_impl};

    use super::{TcpFigures, TcpStream};

    /// Words of `tcp_info` (linux/tcp.h) that every kernel has, from the sender's segment size on.
    /// Later kernels append fields; a caller that requests fewer words receives fewer.
    const WORDS: usize = 26;
    const SEGMENT_BYTES: usize = 4;
    const UNACKNOWLEDGED_SEGMENTS: usize = 6;
    const RTT_MICROS: usize = 17;
    const RTT_DEVIATION_MICROS: usize = 18;
    const RETRANSMITS: usize = 25;

    sockopt_impl!(
        /// The first words of `TCP_INFO`.
        TcpInfo,
        GetOnly,
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        [u32; WORDS]
    );

    /// Returns the kernel's statistics of `stream`.
    pub(in crate::socket) fn figures(stream: &TcpStream) -> Option<TcpFigures> {
        let words = getsockopt(stream, TcpInfo).ok()?;
        let micros = |word: usize| Duration::from_micros(words[word].into());
        let unacknowledged = u64::from(words[UNACKNOWLEDGED_SEGMENTS]);
        Some(TcpFigures {
            rtt: micros(RTT_MICROS),
            rtt_deviation: micros(RTT_DEVIATION_MICROS),
            retransmits: words[RETRANSMITS],
            unacknowledged: unacknowledged * u64::from(words[SEGMENT_BYTES]),
        })
    }
}
