//! Threads that compute parts of a gradient at the same time.

use pstrain_compute::model::Team;
use rayon_core::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// The thread that computes, and others that wait for parts.
#[derive(Debug)]
pub(crate) struct Threads {
    others: ThreadPool,
}

impl Threads {
    /// Starts threads: `size` with the one that computes, 2 or more.
    ///
    /// # Errors
    /// [`ThreadPoolBuildError`] if the system refuses a thread.
    pub(crate) fn new(size: usize) -> Result<Self, ThreadPoolBuildError> {
        let builder = ThreadPoolBuilder::new().num_threads(size.max(2) - 1);
        Ok(Self { others: builder.build()? })
    }
}

impl Team for Threads {
    fn size(&self) -> usize {
        self.others.current_num_threads() + 1
    }

    fn run(&self, parts: &mut [&mut (dyn FnMut() + Send)]) {
        let Some((own, others)) = parts.split_first_mut() else { return };
        self.others.in_place_scope(|scope| {
            for part in others {
                scope.spawn(move |_| part());
            }
            own();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_runs_once_on_as_many_threads_as_there_are() {
        let threads = Threads::new(3).unwrap();
        assert_eq!(threads.size(), 3);
        for count in [1, 2, 3] {
            let mut found = vec![None; count];
            let mut parts: Vec<_> = found
                .iter_mut()
                .map(|found| {
                    move || {
                        assert!(found.is_none());
                        *found = Some(std::thread::current().id());
                    }
                })
                .collect();
            let mut parts: Vec<&mut (dyn FnMut() + Send)> =
                parts.iter_mut().map(|part| part as _).collect();
            threads.run(&mut parts);
            assert!(found.iter().all(Option::is_some));
            assert_eq!(found[0], Some(std::thread::current().id()));
        }
    }
}
