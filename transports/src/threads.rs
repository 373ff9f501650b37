//! Threads that compute parts of a gradient at the same time.

use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use pstrain_compute::model::Team;

/// The thread that computes, and others that are started for each product: some 40 microseconds,
/// less than a part that is worth it takes.
#[derive(Debug)]
pub(crate) struct Threads {
    size: usize,
}

impl Threads {
    /// So many threads with the one that computes, 1 or more.
    pub(crate) const fn new(size: usize) -> Self {
        Self { size }
    }
}

impl Team for Threads {
    fn size(&self) -> usize {
        self.size
    }

    fn run(&self, parts: &mut [&mut (dyn FnMut() + Send)]) {
        let others = 1..parts.len();
        let left = Mutex::new(parts.iter_mut());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(part) = next() {
                part();
            }
        };
        std::thread::scope(|scope| {
            for _ in others {
                if Builder::new().spawn_scoped(scope, work).is_err() {
                    break; // the system has no more threads: those that are there do all parts
                }
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_runs_once() {
        let threads = Threads::new(3);
        assert_eq!(threads.size(), 3);
        for count in [1, 2, 3] {
            let mut found = vec![None; count];
            let mut parts: Vec<_> = found
                .iter_mut()
                .map(|found| move || assert!(found.replace(()).is_none(), "a part ran twice"))
                .collect();
            let mut parts: Vec<&mut (dyn FnMut() + Send)> =
                parts.iter_mut().map(|part| part as _).collect();
            threads.run(&mut parts);
            assert!(found.iter().all(Option::is_some));
        }
    }
}
