//! A complete push-pull between one worker and its server (nodes, frames, checksums, transport),
//! compared with bare sockets that move the same bytes.

use anyhow::Context as _;
use indicatif::ProgressBar;
use pstrain_transports::{Address, MemoryHub, Security, SocketTransport};

use super::bare::ping_pong;
use super::cluster::Pushes;
use super::{Effort, Figure};
use crate::args::{BenchPart, Transport};

/// Number of parameters, its name in the output, and push-pulls of a round.
const SIZES: [(u32, &str, u32); 4] = [
    (2_084, "8 KB", 3_000),
    (262_144, "1 MB", 100),
    (4_194_304, "16 MB", 40),
    (26_214_400, "100 MB", 13),
];

pub(super) fn measure(effort: Effort, bar: &ProgressBar) -> anyhow::Result<Vec<Figure>> {
    let sizes = if effort.long { &SIZES[..] } else { &SIZES[..3] };
    let mut figures = Vec::new();
    for transport in [Transport::Tcp, Transport::Unix, Transport::Memory] {
        for &(parameters, size, count) in sizes {
            let (name, bare) = match transport {
                Transport::Tcp => ("TCP", "bare sockets"),
                Transport::Unix => ("Unix", "bare sockets"),
                Transport::Memory => ("memory", "bare channels"),
            };
            let what = format!("push-pull of {size}, {name}");
            let (mut times, mut limits) = (Vec::new(), Vec::new());
            for _ in 0..effort.rounds {
                bar.set_message(what.clone());
                limits.push(ping_pong(transport, parameters as usize * size_of::<f32>(), count)?);
                times.push(push_pull(transport, parameters, count)?);
            }
            let figure = Figure::of_times(BenchPart::Transport, what, times)
                .with_rate(1.0, "push-pulls")
                .with_limit(&limits, bare);
            figures.push(figure);
        }
    }
    Ok(figures)
}

/// Seconds per push-pull.
fn push_pull(transport: Transport, parameters: u32, count: u32) -> anyhow::Result<f64> {
    let pushes = Pushes::new(1, parameters, count)?;
    let plain = |_| Ok(Security::local());
    match transport {
        Transport::Memory => {
            let hub = MemoryHub::new();
            pushes.run(hub.server(), || Ok(hub.worker()))
        }
        Transport::Unix => {
            let folder = tempfile::tempdir().context("cannot make a folder for the socket")?;
            over_sockets(pushes, &Address::Unix(folder.path().join("pstrain.socket")), plain)
        }
        Transport::Tcp => over_sockets(pushes, &Address::Tcp("127.0.0.1:0".into()), plain),
    }
}

/// A node of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Server,
    Worker,
}

/// Seconds per push-pull over sockets at an address, with the security that each end has.
pub(super) fn over_sockets(
    pushes: Pushes,
    at: &Address,
    secured: impl Fn(End) -> anyhow::Result<Security>,
) -> anyhow::Result<f64> {
    let server = SocketTransport::listen(at)?.secured(secured(End::Server)?);
    let address = server.local_address().context("the server listens nowhere")?;
    let dial = || Ok(SocketTransport::dialer(address.clone())?.secured(secured(End::Worker)?));
    pushes.run(server, dial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_pull_takes_its_time_over_each_transport() {
        for transport in [Transport::Tcp, Transport::Unix, Transport::Memory] {
            let seconds = push_pull(transport, 500, 100).unwrap();
            assert!(seconds > 0.0 && seconds.is_finite(), "{transport:?}: {seconds}");
            let bare = ping_pong(transport, 2000, 10).unwrap();
            assert!(bare > 0.0 && bare.is_finite(), "{transport:?}: {bare}");
        }
    }
}
