//! Memory that registers are loaded from.

use alloc::vec::Vec;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

/// What a processor's cache moves at once.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Values in whole cache lines, so that no register's worth of them lies in two.
///
/// It grows to what was most wanted and then allocates no more.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct Memory(Vec<Line>);

impl Memory {
    pub(in crate::model) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The first `count` registers' worth, to be written: what is there means nothing.
    pub(in crate::model) fn write<V: Pod>(&mut self, count: usize) -> &mut [V] {
        let lines = (count * size_of::<V>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line::zeroed());
        }
        &mut cast_slice_mut(&mut self.0)[..count]
    }

    /// The first `count` registers' worth, which have been written.
    pub(in crate::model) fn read<V: Pod>(&self, count: usize) -> &[V] {
        &cast_slice(&self.0)[..count]
    }
}
