//! Several threads for one gradient.
//!
//! A product is divided by samples, and a gradient of weights by rows of the weights: no sum is
//! divided, so that the number of threads changes no bit.

use alloc::vec::Vec;
use core::fmt;

use super::kernels::{Memory, Places};

/// Threads that run parts of a computation at the same time. A crate with threads implements it.
pub trait Team: fmt::Debug + Send + Sync {
    /// The number of threads, 1 or more.
    fn size(&self) -> usize;

    /// Runs each of `parts` once, and returns when all have ended.
    fn run(&self, parts: &mut [&mut (dyn FnMut() + Send)]);
}

/// Products of a computation that is worth being divided: about 200 microseconds.
const DIVIDED: u64 = 1 << 23;

/// The buffers of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// A packed section of the weights for the matrix product.
    pub(super) panel: Memory,
    /// The rows of a product.
    pub(super) places: Places,
}

/// The threads of a pass, each with its buffers. The pass itself uses the first buffers.
pub(super) struct Crew<'a> {
    team: Option<&'a dyn Team>,
    scratch: &'a mut [Scratch],
}

impl<'a> Crew<'a> {
    pub(super) fn new(team: Option<&'a dyn Team>, scratch: &'a mut Vec<Scratch>) -> Self {
        let size = team.map_or(1, Team::size).max(1);
        scratch.resize_with(size.max(scratch.len()), Scratch::default);
        Self { team, scratch: &mut scratch[..size] }
    }

    /// The same threads for one layer.
    #[inline(always)]
    pub(super) fn lend(&mut self) -> Crew<'_> {
        Crew { team: self.team, scratch: self.scratch }
    }

    /// The buffers of the pass.
    #[inline(always)]
    pub(super) fn own(&mut self) -> &mut Scratch {
        &mut self.scratch[0]
    }

    /// The length of the parts into which `length` things are divided, of `products` in all.
    #[inline(always)]
    pub(super) fn part(&self, length: usize, products: u64) -> usize {
        match self.scratch.len() {
            1 => length,
            _ if products < DIVIDED => length,
            threads => length.div_ceil(threads).max(1),
        }
    }

    /// Runs `work` on each part, at most as many as there are threads.
    #[inline(never)]
    pub(super) fn run<T: Send>(
        &mut self,
        parts: impl Iterator<Item = T>,
        work: impl Fn(T, &mut Scratch) + Sync,
    ) {
        let work = &work;
        let mut parts: Vec<_> = parts
            .zip(&mut *self.scratch)
            .map(|(part, scratch)| {
                let mut part = Some(part);
                move || part.take().into_iter().for_each(|part| work(part, scratch))
            })
            .collect();
        let mut parts: Vec<&mut (dyn FnMut() + Send)> =
            parts.iter_mut().map(|part| part as &mut (dyn FnMut() + Send)).collect();
        let Some(team) = self.team else { unreachable!("one thread divides nothing") };
        team.run(&mut parts);
    }
}
