//! Bare sockets and channels that move the bytes of a push-pull back and forth: a lower bound for
//! any system on this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

use anyhow::Context as _;
use pstrain_transports::WallClock;

use crate::args::Transport;

/// Seconds of one round trip of `bytes` between two threads of this process: the mean of `count`.
///
/// # Errors
/// If the system gives no sockets.
pub(super) fn ping_pong(transport: Transport, bytes: usize, count: u32) -> anyhow::Result<f64> {
    match transport {
        Transport::Memory => Ok(channels(bytes, count)),
        Transport::Unix => {
            let (here, there) = UnixStream::pair().context("no pair of sockets")?;
            streams((here, there), bytes, count)
        }
        Transport::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
            let here = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
            let (there, _) = listener.accept()?;
            here.set_nodelay(true)?;
            there.set_nodelay(true)?;
            streams((here, there), bytes, count)
        }
    }
}

fn streams<S: Read + Write + Send + 'static>(
    (mut here, mut there): (S, S),
    bytes: usize,
    count: u32,
) -> anyhow::Result<f64> {
    let echo = std::thread::spawn(move || {
        let mut buffer = vec![0; bytes];
        // The loop ends when the other side closes its end.
        while there.read_exact(&mut buffer).and_then(|()| there.write_all(&buffer)).is_ok() {}
    });
    let mut buffer = vec![1; bytes];
    let mut turn = || here.write_all(&buffer).and_then(|()| here.read_exact(&mut buffer));
    // Not timed: warms up.
    turn()?;
    let clock = WallClock::start();
    for _ in 0..count {
        turn()?;
    }
    let spent = clock.now().as_secs_f64();
    drop(here);
    echo.join().ok().context("the other thread broke down")?;
    Ok(spent / f64::from(count))
}

fn channels(bytes: usize, count: u32) -> f64 {
    let (to_there, from_here) = channel::<Vec<u8>>();
    let (to_here, from_there) = channel();
    let echo = std::thread::spawn(move || {
        for message in from_here {
            if to_here.send(message).is_err() {
                break;
            }
        }
    });
    let mut message = Some(vec![1; bytes]);
    let mut turn = || {
        if let Some(bytes) = message.take() {
            // Fails only if the echo thread has panicked; then `recv` returns nothing either.
            let _gone = to_there.send(bytes);
            message = from_there.recv().ok();
        }
    };
    // Not timed: warms up.
    turn();
    let clock = WallClock::start();
    for _ in 0..count {
        turn();
    }
    let spent = clock.now().as_secs_f64();
    drop(to_there);
    let _broken = echo.join();
    spent / f64::from(count)
}
