//! A bad network between workers and a server: a TCP proxy that cuts, stalls and heals.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use pstrain_core::rng::Random;
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
    /// Whether new connections are let through.
    open: bool,
    stalled: bool,
    ended: bool,
    /// Both ends of every connection so far.
    pairs: Vec<[TcpStream; 2]>,
    /// How many of the next connections are cut after a while.
    cuts: u64,
    /// Each of these carries fewer bytes than this.
    most_bytes: u64,
    /// Connections that were cut after a while.
    cut: u64,
    rng: Random,
}

/// The bytes that a connection may carry, both ways together.
type Allowance = Arc<Mutex<u64>>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until bytes may go on.
    fn pass(&self) {
        let mut state = self.lock();
        while state.stalled && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl Proxy {
    /// A proxy in front of `server`, which lets everything through for now. `rng` decides where
    /// connections are cut.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn new(server: &Address, rng: Random) -> Self {
        let Address::Tcp(server) = server.clone() else { panic!("{server} is not TCP") };
        let state = State {
            open: true,
            stalled: false,
            ended: false,
            pairs: Vec::new(),
            cuts: 0,
            most_bytes: 0,
            cut: 0,
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

    /// Where workers dial.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.address.to_string())
    }

    /// Cuts every connection, and every new one at once, until [`Self::heal`].
    pub fn cut(&self) {
        let mut state = self.shared.lock();
        state.open = false;
        state.stalled = false;
        cut(&mut state);
        self.shared.changed.notify_all();
    }

    /// Holds every byte back, as a network does that has lost its way, until [`Self::heal`].
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

    /// Cuts each of the next `times` connections after a random number of bytes below `most`, wherever
    /// in a message that is.
    pub fn cut_again_and_again(&self, times: u64, most: u64) {
        let mut state = self.shared.lock();
        (state.cuts, state.most_bytes) = (times, most);
    }

    /// How many connections were cut in that way.
    #[must_use]
    pub fn times_cut(&self) -> u64 {
        self.shared.lock().cut
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

/// Connects a client with the server, if the network lets it.
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
    let allowance = if state.cuts > 0 {
        state.cuts -= 1;
        let most = state.most_bytes;
        state.rng.below(most)
    } else {
        u64::MAX
    };
    state.pairs.push([client, server]);
    drop(state);
    let allowance = Arc::new(Mutex::new(allowance));
    for (from, to) in [(from_client, to_server), (from_server, to_client)] {
        let (shared, allowance) = (Arc::clone(shared), Arc::clone(&allowance));
        std::thread::spawn(move || pump(&shared, &allowance, from, to));
    }
}

/// Carries bytes one way until the end, or until the allowance of the connection is used up.
fn pump(shared: &Shared, allowance: &Allowance, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        shared.pass();
        let (carried, left) = {
            let mut left = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            let carried = (*left).min(read as u64);
            *left -= carried;
            (carried as usize, *left)
        };
        let sent = to.write_all(&buffer[..carried]);
        if left == 0 && carried > 0 {
            shared.lock().cut += 1;
        }
        if left == 0 || sent.is_err() {
            break;
        }
    }
    // The end of a stream is held back like everything else.
    shared.pass();
    for stream in [from, to] {
        let _gone = stream.shutdown(Shutdown::Both);
    }
}
