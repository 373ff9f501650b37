//! Real threads and sockets can hang; a test must not.

use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs `work` and returns its result, or panics if it takes longer than `limit`.
///
/// # Panics
/// If the time is over or `work` panics.
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
