//! A flood of TLS client hellos from many loopback addresses, bounded in number. Use it to test
//! that unauthenticated connections do not hold up members.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_transports::WallClock;
use socket2::{Domain, Socket, Type};

const THREADS: u64 = 4;
/// Connections that each thread keeps open, the most recent ones.
const OPEN: usize = 64;

/// A flood in progress. It ends with the last hello, or when it is dropped.
#[derive(Debug)]
pub struct Flood {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

/// Parameters of a flood.
#[derive(Clone, Debug)]
pub struct FloodSpec {
    /// The address of the server under attack.
    pub server: SocketAddrV4,
    /// The first message of a TLS handshake.
    pub hello: Vec<u8>,
    /// Number of source addresses, 127.0.0.2 and those after it.
    pub addresses: u8,
    /// Hellos per second, over all addresses.
    pub rate: u64,
    /// Total number of hellos.
    pub most: u64,
}

#[derive(Debug, Default)]
struct State {
    ended: AtomicBool,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Flood {
    /// Begins a flood.
    #[must_use]
    pub fn start(spec: &FloodSpec) -> Self {
        let state = Arc::new(State::default());
        let thread = |number| {
            let (state, spec) = (Arc::clone(&state), spec.clone());
            std::thread::spawn(move || send(&state, &spec, number))
        };
        let threads = (0..THREADS).map(thread).collect();
        Self { state, threads }
    }

    /// Number of hellos sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Number of connections that failed, since the server's queue was full.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.state.failed.load(Ordering::Relaxed)
    }

    /// True once every hello was sent or has failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

/// Sends each hello of a thread when it is due.
fn send(state: &State, spec: &FloodSpec, thread: u64) {
    let clock = WallClock::start();
    let (mut tried, mut open) = (0, VecDeque::new());
    while tried < spec.most / THREADS && !state.ended.load(Ordering::Relaxed) {
        let passed = clock.now().since(Time::ZERO).as_secs_f64();
        let due = (passed * spec.rate as f64 / THREADS as f64) as u64;
        while tried < due.min(spec.most / THREADS) {
            let address = 2 + ((tried * THREADS + thread) % u64::from(spec.addresses)) as u8;
            match one(spec, Ipv4Addr::new(127, 0, 0, address)) {
                Ok(stream) => {
                    open.push_back(stream);
                    state.sent.fetch_add(1, Ordering::Relaxed);
                }
                Err(_refused) => drop(state.failed.fetch_add(1, Ordering::Relaxed)),
            }
            if open.len() > OPEN {
                open.pop_front();
            }
            tried += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn one(spec: &FloodSpec, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Connections do not linger when they are closed: there are not enough ports for that.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.set_nonblocking(true)?;
    // The connection is established by the time that this returns, unless the server's queue is
    // full: then the write below fails.
    let _under_way = socket.connect(&SocketAddr::from(spec.server).into());
    let mut stream = TcpStream::from(socket);
    stream.write_all(&spec.hello)?;
    Ok(stream)
}

/// Connects from a specific address of this machine.
///
/// # Errors
/// If `from` is not an address of this machine, or nothing listens at `to`.
pub fn connect_from(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&SocketAddr::from(to).into())?;
    Ok(socket.into())
}

/// Returns the first message of the TLS client that `dial` starts at the address that it receives.
///
/// # Errors
/// If the client sends nothing within 20 seconds, or something that is not TLS.
pub fn tls_hello(dial: impl FnOnce(&str)) -> io::Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    dial(&listener.local_addr()?.to_string());
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut hello = vec![0; 5];
    stream.read_exact(&mut hello)?;
    let &[22, 3, _, high, low] = hello.as_slice() else {
        return Err(io::Error::other(format!("{hello:02x?} does not begin a TLS handshake")));
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    hello.resize(5 + length, 0);
    stream.read_exact(&mut hello[5..])?;
    Ok(hello)
}
