//! Registers' worth of values where the next ones may be somebody else's.
//!
//! Written without iterators, and without arrays that slices are taken of: what is not plain enough
//! stays in memory, or in calls, where the kernels need registers.

use bytemuck::{bytes_of, cast_slice, pod_read_unaligned};

use crate::simd::{MOST_LANES, Simd};

/// The first values of `from`; zeros where there are not so many.
#[inline(always)]
pub(super) fn load<S: Simd>(from: &[f32]) -> S::V {
    match from.get(..S::LANES) {
        Some(from) => pod_read_unaligned(cast_slice(from)),
        None => load_some::<S>(from),
    }
}

#[cold]
#[inline(never)]
fn load_some<S: Simd>(from: &[f32]) -> S::V {
    let mut lanes = [0.0; MOST_LANES];
    lanes[..from.len()].copy_from_slice(from);
    pod_read_unaligned(cast_slice(&lanes[..S::LANES]))
}

/// Adds as many of `more` to `values` as there are.
#[inline(always)]
pub(super) fn add<S: Simd, const G: usize>(simd: S, values: &mut [f32], more: &[S::V; G]) {
    let mut at = 0;
    for more in more {
        match values.get_mut(at..at + S::LANES) {
            Some(values) => {
                let sum = simd.add(load::<S>(values), *more);
                values.copy_from_slice(cast_slice(bytes_of(&sum)));
            }
            None => add_some(&mut values[at..], cast_slice(bytes_of(more))),
        }
        at += S::LANES;
    }
}

/// Less than a register's worth, in pieces whose length is known: these are an instruction each, or
/// two.
#[inline(always)]
fn add_some(values: &mut [f32], more: &[f32]) {
    let (length, mut at) = (values.len(), 0);
    if length & 8 != 0 {
        add_few::<8>(values, more);
        at = 8;
    }
    if length & 4 != 0 {
        add_few::<4>(&mut values[at..], &more[at..]);
        at += 4;
    }
    if length & 2 != 0 {
        add_few::<2>(&mut values[at..], &more[at..]);
        at += 2;
    }
    if length & 1 != 0 {
        add_few::<1>(&mut values[at..], &more[at..]);
    }
}

#[inline(always)]
fn add_few<const N: usize>(values: &mut [f32], more: &[f32]) {
    if let (Some(values), Some(more)) = (values.first_chunk_mut::<N>(), more.first_chunk::<N>()) {
        for lane in 0..N {
            values[lane] += more[lane];
        }
    }
}
