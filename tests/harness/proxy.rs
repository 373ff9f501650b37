//! TCP proxy that imitates a bad network: it cuts connections, stalls, damages or loses bytes, and
//! heals. Use it between real workers and a real server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use pstrain_compute::rng::Random;
use pstrain_transports::Address;

/// A proxy in front of a server. Dropping it cuts everything.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// True if new connections are let through.
    open: bool,
    stalled: bool,
    ended: bool,
    /// Both ends of every connection since the last cut.
    pairs: Vec<[TcpStream; 2]>,
    /// Number of the next connections to disturb, and how.
    left: u64,
    how: Disturbance,
    /// Number of bytes before the disturbance, drawn from this range.
    after: Range<u64>,
    /// Number of calls of [`Proxy::disturb`].
    calls: u64,
    /// Connections that were disturbed.
    disturbed: u64,
    rng: Random,
}

/// A disturbance of a connection after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The connection is cut.
    Cut,
    /// A bit of the next byte is flipped.
    Flip,
    /// Up to so many of the next bytes of one read are lost; the bytes after them arrive.
    Lose(usize),
}

/// The pending disturbance of a connection, and the bytes until then, both ways together.
type PendingDisturbance = Arc<Mutex<Option<(u64, Disturbance)>>>;

/// Disturbs the bytes of a connection if it is time to. Returns true if the connection must be cut
/// after them.
fn befall(fate: &PendingDisturbance, bytes: &mut Vec<u8>, shared: &Shared) -> bool {
    let mut fate = fate.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((after, how)) = &mut *fate else { return false };
    let here = bytes.len() as u64;
    if here <= *after {
        *after -= here;
        return false;
    }
    let place = *after as usize;
    match how {
        Disturbance::Cut => bytes.truncate(place),
        Disturbance::Flip => bytes[place] ^= 1 << (place % 8),
        Disturbance::Lose(most) => drop(bytes.drain(place..bytes.len().min(place + *most))),
    }
    let is_cut = *how == Disturbance::Cut;
    *fate = None;
    shared.lock().disturbed += 1;
    is_cut
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until bytes may pass.
    fn pass(&self) {
        let mut state = self.lock();
        while state.stalled && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl Proxy {
    /// A proxy in front of `server` that lets everything through at first. `rng` decides where
    /// connections are disturbed.
    ///
    /// # Panics
    /// If it cannot listen, or `server` is not TCP.
    #[must_use]
    pub fn new(server: &Address, rng: Random) -> Self {
        let Address::Tcp(server) = server.clone() else { panic!("{server} is not TCP") };
        let state = State {
            open: true,
            stalled: false,
            ended: false,
            pairs: Vec::new(),
            left: 0,
            how: Disturbance::Cut,
            after: 0..1,
            calls: 0,
            disturbed: 0,
            rng,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    if shared.lock().ended {
                        return;
                    }
                    connect(&shared, client, &server);
                }
            })
        };
        Self { address, shared, accepting: Some(accepting) }
    }

    /// The address for workers to dial.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.address.to_string())
    }

    /// Cuts every connection, and each new one at once, until [`Self::heal`].
    pub fn cut(&self) {
        let mut state = self.shared.lock();
        state.open = false;
        state.stalled = false;
        cut(&mut state);
        self.shared.changed.notify_all();
    }

    /// Holds back every byte, like a network that has lost its route, until [`Self::heal`].
    pub fn stall(&self) {
        self.shared.lock().stalled = true;
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.open = true;
        state.stalled = false;
        self.shared.changed.notify_all();
    }

    /// Disturbs each of the next `times` connections after a random number of bytes of `after`,
    /// anywhere in a message. One that ends before leaves its disturbance to another: so does a
    /// worker that is refused, since its server has not seen the end of its last connection yet.
    pub fn disturb(&self, times: u64, how: Disturbance, after: Range<u64>) {
        let mut state = self.shared.lock();
        (state.left, state.how, state.after) = (times, how, after);
        state.calls += 1;
    }

    /// Number of connections that were disturbed.
    #[must_use]
    pub fn times_disturbed(&self) -> u64 {
        self.shared.lock().disturbed
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.cut();
        // Ends the wait for the next connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            let _panicked = thread.join();
        }
    }
}

fn cut(state: &mut State) {
    for stream in state.pairs.drain(..).flatten() {
        // The other end may have closed it already.
        let _gone = stream.shutdown(Shutdown::Both);
    }
}

/// Connects a client to the server, if the proxy is open.
fn connect(shared: &Arc<Shared>, client: TcpStream, server: &str) {
    let mut state = shared.lock();
    if !state.open {
        return;
    }
    let Ok(server) = TcpStream::connect(server) else { return };
    let streams = [&client, &server].map(|stream| {
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>([stream.try_clone()?, stream.try_clone()?])
    });
    let [Ok([from_client, to_client]), Ok([from_server, to_server])] = streams else { return };
    let fate = if state.left > 0 {
        state.left -= 1;
        let Range { start, end } = state.after;
        Some((start + state.rng.below(end - start), state.how))
    } else {
        None
    };
    state.pairs.push([client, server]);
    let call = state.calls;
    drop(state);
    let fate = Arc::new(Mutex::new(fate));
    for (from, to) in [(from_client, to_server), (from_server, to_client)] {
        let (shared, fate) = (Arc::clone(shared), Arc::clone(&fate));
        std::thread::spawn(move || {
            pump(&shared, &fate, from, to);
            hand_on(&shared, &fate, call);
        });
    }
}

/// Leaves the disturbance of a connection that has ended without it to the next, unless there was
/// another call of [`Proxy::disturb`].
fn hand_on(shared: &Shared, fate: &PendingDisturbance, call: u64) {
    let fate = fate.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut state = shared.lock();
    if fate.is_some() && state.calls == call {
        state.left += 1;
    }
}

/// Carries bytes in one direction until the end, or until the connection is cut.
fn pump(shared: &Shared, fate: &PendingDisturbance, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        shared.pass();
        let mut bytes = buffer[..read].to_vec();
        let is_cut = befall(fate, &mut bytes, shared);
        if to.write_all(&bytes).is_err() || is_cut {
            break;
        }
    }
    // The end of a stream is held back, too.
    shared.pass();
    for stream in [from, to] {
        let _gone = stream.shutdown(Shutdown::Both);
    }
}
