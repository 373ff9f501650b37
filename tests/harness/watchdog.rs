//! Time limit of a test. Use it with real threads and sockets, which can hang.

use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs `work` and returns its result, or panics if it takes longer than `limit`.
///
/// # Panics
/// If the time limit expires or `work` panics.
pub fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let _late = sender.send(work());
    });
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(why) => panic!("no result within {limit:?}: {why}"),
    }
}
