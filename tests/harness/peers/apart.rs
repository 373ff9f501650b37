//! Workers of the lab that do not reach each other.

use std::collections::BTreeSet;

use pstrain_compute::rng::Stream;

use super::PeerFaults;

/// The processes that others cannot dial.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Workers that listen nowhere.
    hidden: BTreeSet<usize>,
    /// Pairs of workers: the first cannot dial the second.
    blocked: BTreeSet<(usize, usize)>,
}

impl Apart {
    pub(super) fn draw(faults: PeerFaults, seed: u64, workers: u32) -> Self {
        if !matches!(faults, PeerFaults::Apart | PeerFaults::ApartAndMany) {
            return Self::default();
        }
        let mut random = Stream::new(seed).fork("apart", 0).rng();
        let processes = 1..=workers as usize;
        let hidden = processes.clone().filter(|_| random.below(4) == 0).collect();
        let pairs = processes.clone().flat_map(|from| processes.clone().map(move |to| (from, to)));
        let blocked = pairs.filter(|_| random.below(4) == 0).collect();
        Self { hidden, blocked }
    }

    pub(super) fn is_hidden(&self, process: usize) -> bool {
        self.hidden.contains(&process)
    }

    pub(super) fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.blocked.contains(&(from, to))
    }
}
