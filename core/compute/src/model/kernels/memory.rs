//! Buffers that are aligned for register loads.

use alloc::vec::Vec;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

/// One cache line: the unit that the processor's cache transfers.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Values in whole cache lines, so that no register-sized group straddles two lines.
///
/// The buffer grows to its largest use and then stops allocating.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct Memory(Vec<Line>);

impl Memory {
    pub(in crate::model) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The first `count` registers for writing. They keep what was written to them; before that,
    /// their content is unspecified.
    pub(in crate::model) fn write<V: Pod>(&mut self, count: usize) -> &mut [V] {
        let lines = (count * size_of::<V>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line::zeroed());
        }
        &mut cast_slice_mut(&mut self.0)[..count]
    }

    /// The first `count` registers, which must have been written.
    pub(in crate::model) fn read<V: Pod>(&self, count: usize) -> &[V] {
        &cast_slice(&self.0)[..count]
    }
}
